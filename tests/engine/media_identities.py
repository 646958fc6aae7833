"""What vLLM's own code makes of a part's `uuid`: the item's hash, the block hash's extra keys, the encoder's cache.

Run by the engine's Python, not ours: `python media_identities.py IMAGE UUID OTHER` writes one JSON object. The caches
that a whole engine shows from outside are looked at in `test_gate_images.py`; these two are not among them.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any, Final

# These are in the engine's environment alone.
from PIL import Image  # type: ignore[import-not-found]
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange  # type: ignore[import-not-found]
from vllm.multimodal.parse import (  # type: ignore[import-not-found]
    ImageProcessorItems,
    MultiModalDataItems,
    parse_mm_uuids,
)
from vllm.multimodal.processing.inputs import ProcessorInputs  # type: ignore[import-not-found]
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager  # type: ignore[import-not-found]
from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys  # type: ignore[import-not-found]

TOKENS: Final = 256


def told(image: Any, uuid: str, other: str) -> dict[str, object]:
    """What is to be seen of one image under two identities."""
    cache = EncoderCacheManager(cache_size=4 * TOKENS)
    first = _request("first", uuid)
    cache.check_and_update_cache(first, 0)
    cache.can_allocate(first, 0, TOKENS, 0)
    cache.allocate(first, 0)
    return {
        "hashes": [_hash(image, identity) for identity in (uuid, uuid, other)],
        "content": [_hash(image, None), _hash(image.copy(), None)],
        "extra_keys": [_extra_keys(_request(name, name)) for name in (uuid, uuid, other)],
        "encoder": [cache.check_and_update_cache(_request("second", identity), 0) for identity in (uuid, other)],
    }


def _hash(image: Any, uuid: str | None) -> str:
    items = MultiModalDataItems({"image": ImageProcessorItems([image])})
    inputs = ProcessorInputs([], items, parse_mm_uuids({"image": [uuid]}))
    found: str = inputs.get_mm_hashes("tiny", "blake3")["image"][0]
    return found


def _request(name: str, identity: str) -> Any:
    """As much of a request as the caches look at."""
    feature = MultiModalFeatureSpec(
        data=None, modality="image", identifier=identity, mm_position=PlaceholderRange(offset=4, length=TOKENS)
    )
    return SimpleNamespace(
        request_id=name,
        mm_features=[feature],
        cache_salt=None,
        lora_request=None,
        prompt_embeds=None,
        get_num_encoder_embeds=lambda _: TOKENS,
    )


def _extra_keys(request: Any) -> str:
    """Of the first block and the second one, which is behind the salt's."""
    return str([generate_block_hash_extra_keys(request, start, start + 128, 0)[0] for start in (0, 128)])


if __name__ == "__main__":
    with Image.open(sys.argv[1]) as picture:
        print(json.dumps(told(picture.convert("RGB"), sys.argv[2], sys.argv[3])))
