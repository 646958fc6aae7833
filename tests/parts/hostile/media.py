"""Content parts that are no text: an engine fetches them, or takes the client's word for what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.parts.hostile.writing import EVIL, in_part, request

_PIXEL: Final = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
_PARTS: Final[Mapping[str, dict[str, object]]] = {
    "an image by URL": {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest/meta-data/"}},
    "an image by file": {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
    "an image by data": {"type": "image_url", "image_url": {"url": _PIXEL}},
    "an image with another's identity": {"type": "image_url", "image_url": {"url": _PIXEL}, "uuid": EVIL},
    "an identity in the place of an image": {"type": "image_url", "image_url": None, "uuid": EVIL},
    "an image without a type": {"image_url": {"url": _PIXEL}},
    "an image named twice": {"type": "text", "text": "x", "image_url": {"url": _PIXEL}},
    "an image's text": {"type": "image_url", "image_url": "http://127.0.0.1/x.png"},
    "embeddings of an image": {"type": "image_embeds", "image_embeds": "AAAA", "uuid": EVIL},
    "audio": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    "audio by URL": {"type": "audio_url", "audio_url": {"url": "http://127.0.0.1/x.wav"}},
    "video by URL": {"type": "video_url", "video_url": {"url": "http://127.0.0.1/x.mp4"}},
    "a file": {"type": "file", "file": {"file_id": "file-1"}},
    "a refusal": {"type": "refusal", "refusal": "no", "uuid": EVIL},
    "an image of PIL": {"type": "image_pil", "image_pil": EVIL},
    "a text with an identity": {"type": "text", "text": "Hello", "uuid": EVIL},
    "a text whose text is none": {"type": "text", "text": {"uuid": EVIL}},
    "an unknown part": {"type": "hologram", "hologram": EVIL, "uuid": EVIL},
    "a type in capitals": {"type": "IMAGE_URL", "image_url": {"url": _PIXEL}, "uuid": EVIL},
}
_ANTHROPIC: Final[Mapping[str, dict[str, object]]] = {
    "an image source by URL": {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}},
    "an image source by data": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    },
    "a document": {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    "a search result": {"type": "search_result", "source": EVIL, "uuid": EVIL},
}
CASES: Final[Mapping[str, bytes]] = {
    **{
        name: request({"model": "tiny", "messages": [{"role": "user", "content": [part]}]})
        for name, part in _PARTS.items()
    },
    **{
        f"anthropic, {name}": request(
            {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": [part]}]}, path="/v1/messages"
        )
        for name, part in _ANTHROPIC.items()
    },
    "responses, an image": request(
        {
            "model": "tiny",
            "input": [{"role": "user", "content": [{"type": "input_image", "image_url": _PIXEL, "uuid": EVIL}]}],
        },
        path="/v1/responses",
    ),
    "responses, a file": request(
        {"model": "tiny", "input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]},
        path="/v1/responses",
    ),
    "a tool's result with an image": request(
        {"model": "tiny", "messages": [{"role": "tool", "tool_call_id": "x", "content": [_PARTS["an image by data"]]}]}
    ),
    "a null part": request({"model": "tiny", "messages": [{"role": "user", "content": [None]}]}),
    "a list in a part": request({"model": "tiny", "messages": [{"role": "user", "content": [[in_part()]]}]}),
}
