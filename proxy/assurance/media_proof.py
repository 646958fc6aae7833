"""The probe of an engine's media cache: the same image under salts of saltgate's own, and what the engine counts.

The identities of images are what keeps the media caches apart, and an engine that goes by the content instead answers
200 all the same. vLLM counts how often its processor's cache knew an image, so that is read: the same salt must find
its image again, another salt must not. Of the encoder's cache nothing is counted; it goes by the same identity
(`tests/engine/test_gate_images.py`).
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proxy.assurance.metrics_page import MetricsPage, metrics_page
from proxy.assurance.proof import PATIENT, PROBE_SECONDS, Counting, probe_salt
from proxy.assurance.verdict import DISTURBED, Finding, Verdict
from proxy.engines.body import read_body
from proxy.engines.profile import Endpoint
from proxy.engines.stamp import stamp
from proxy.engines.usage import read_usage
from proxy.isolation.salt import Salt, SaltKey
from proxy.relay.pool import Pool
from proxy.relay.question import ask

MEDIA_NOT_PROBED: Final = Finding(Verdict.UNKNOWN, "its media cache has not been probed yet")
_FEWEST_OTHER_SALTS: Final = 2
_PIXELS: Final = 224  # every image model takes that many, and few make many tokens of them


class _Unanswered(Exception):  # noqa: N818 - a finding about the engine
    def __init__(self, check: str) -> None:
        self.finding = Finding(Verdict.UNKNOWN, check)


class _Disturbed(Exception):  # noqa: N818 - a finding about the moment
    """Somebody else's image was counted together with the probe's."""


@dataclass(frozen=True, slots=True)
class _Probe:
    pool: Pool
    endpoint: Endpoint
    model: str
    image: bytes
    counting: Counting
    spent: Callable[[int], None]


async def prove_media(
    pool: Pool,
    endpoint: Endpoint,
    model: str,
    key: SaltKey,
    *,
    spent: Callable[[int], None] = lambda _: None,
    counting: Counting = PATIENT,
) -> Finding:
    """Whether the engine keeps the images of one salt from another's. `spent` is told the prompt tokens of each probe.

    Raises EngineUnreachable where there is no engine to ask.
    """
    for tried in range(counting.tries):
        try:
            return await _found(_Probe(pool, endpoint, model, probe_image(), counting, spent), key)
        except _Unanswered as error:
            return error.finding
        except _Disturbed:
            # Several workers may be proving at once; they must not stay in step.
            await asyncio.sleep(random.uniform(0, counting.pause_seconds * 2**tried))  # noqa: S311 - no secret
    return DISTURBED


async def _found(probe: _Probe, key: SaltKey) -> Finding:
    # Each API process has a cache of its own, and there are as many as engines where nobody says otherwise.
    caches = (await metrics_page(probe.pool)).caches
    own = probe_salt(key)
    if await _hits(probe, own):
        return _FAILED
    found_again = False
    for _ in range(caches):
        if found_again := await _hits(probe, own) > 0:
            break
    for _ in range(max(_FEWEST_OTHER_SALTS, caches)):
        if await _hits(probe, probe_salt(key)):
            return _FAILED
    return _PROVEN if found_again else _NOT_FOUND_AGAIN


_FAILED: Final = Finding(
    Verdict.FAILED, "its media cache found an image that another salt had sent: it does not go by the image's identity"
)
_PROVEN: Final = Finding(Verdict.PROVEN, "its media cache found the same salt's image again, another salt's never")
_NOT_FOUND_AGAIN: Final = Finding(
    Verdict.UNKNOWN,
    "its media cache never found an image again: is it on (--mm-processor-cache-gb), is it large enough?",
)
_NOT_COUNTED: Final = "its /metrics do not count its media cache (vllm:mm_cache_queries_total)"


async def _hits(probe: _Probe, salt: Salt) -> float:
    """How often the engine's media cache knew the image of this one request.

    The counters are everybody's, so they are believed only where exactly one image was looked up meanwhile. Raises
    _Disturbed where it was more, _Unanswered where nothing was answered or counted.
    """
    before = await metrics_page(probe.pool)
    if before.media_queries is None or before.media_hits is None:
        raise _Unanswered(_NOT_COUNTED)
    await _send(probe, salt)
    after = await _counted(probe, before.media_queries + 1)
    if after.media_queries is None or after.media_hits is None or after.media_queries < before.media_queries + 1:
        raise _Unanswered(_NOT_COUNTED)
    if after.media_queries > before.media_queries + 1:
        raise _Disturbed
    return after.media_hits - before.media_hits


async def _send(probe: _Probe, salt: Salt) -> None:
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(probe.image).decode()}"}}
    content = [part, {"type": "text", "text": "What is this?"}]
    question = {"model": probe.model, "messages": [{"role": "user", "content": content}], "max_tokens": 1}
    request = read_body(probe.endpoint, json.dumps(question).encode())
    stamped = stamp(request, salt, request_id=f"probe_{secrets.token_hex(8)}", show_reuse=True)
    answer = await ask(probe.pool, stamped, seconds=PROBE_SECONDS)
    usage = read_usage(probe.endpoint.operation, answer.body) if answer.status == 200 else None
    probe.spent(0 if usage is None else usage.prompt)
    if answer.status != 200:
        raise _Unanswered(
            f"it answered the probe with an image with status {answer.status}: does the model take images?"
        )


async def _counted(probe: _Probe, queries: float) -> MetricsPage:
    """The metrics once so many images are counted, or after a while. Read once more: hits are counted last."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + probe.counting.within_seconds
    while True:
        page = await metrics_page(probe.pool)
        if page.media_queries is None or page.media_queries >= queries:
            return await metrics_page(probe.pool)
        if loop.time() >= deadline:
            return page
        await asyncio.sleep(0.05)


def probe_image() -> bytes:
    """A PNG that nobody has sent: black, with a corner of its own."""
    rows = b"\0" + secrets.token_bytes(48) + bytes(3 * _PIXELS - 48) + (b"\0" + bytes(3 * _PIXELS)) * (_PIXELS - 1)
    head = struct.pack(">IIBBBBB", _PIXELS, _PIXELS, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    framed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)
