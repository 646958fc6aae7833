"""An engine that dies, at every stage of its answer, in every protocol, in order (FIN) and not (RST).

What the client gets is always one of two things: the whole answer, or what there was of it and the protocol's own error
event, in a body that has no end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.parts.gate_bed import GateBed
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import LAST_CHUNK, STREAM_HEAD, Close, RawEngine, Reset, Send, Sleep, Step, chunk
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import on


def data(document: object) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


def named(kind: str, **members: object) -> bytes:
    return f"event: {kind}\n".encode() + data({"type": kind} | members)


@dataclass(frozen=True, slots=True)
class Protocol:
    """How one protocol asks, what an engine says in it, and how its good and its bad end look."""

    path: str
    document: Mapping[str, object]
    token: bytes
    last: bytes
    error: bytes


HI = [{"role": "user", "content": "hi"}]
USAGE = {"include_usage": True}  # nothing is hidden
PROTOCOLS = {
    "chat": Protocol(
        "/v1/chat/completions",
        {"model": "tiny", "messages": HI, "stream": True, "stream_options": USAGE},
        data({"id": "c", "choices": [{"index": 0, "delta": {"content": "こんにちは"}}]}),
        b"data: [DONE]\n\n",
        b'data: {"error":{"message":',
    ),
    "completions": Protocol(
        "/v1/completions",
        {"model": "tiny", "prompt": "hi", "stream": True},  # the usage is hidden
        data({"id": "c", "choices": [{"index": 0, "text": "こんにちは"}]}),
        b"data: [DONE]\n\n",
        b'data: {"error":{"message":',
    ),
    "responses": Protocol(
        "/v1/responses",
        {"model": "tiny", "input": "hi", "stream": True},
        named("response.output_text.delta", delta="こんにちは", sequence_number=4),
        named("response.completed", response={"id": "r", "status": "completed"}, sequence_number=5),
        b'event: error\ndata: {"type":"error","code":"engine_failed","message":',
    ),
    "messages": Protocol(
        "/v1/messages",
        {"model": "tiny", "messages": HI, "max_tokens": 9, "stream": True},
        named("content_block_delta", index=0, delta={"type": "text_delta", "text": "こんにちは"}),
        named("message_stop"),
        b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message":',
    ),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """What the engine has sent when it dies, of which so many of the stream's bytes are there, and what that is."""

    name: str
    sent: bytes
    body: bytes
    is_answer: bool = True
    is_whole: bool = False

    @property
    def cuts_event(self) -> bool:
        """Whether it ends in an event that lacks more than its blank line."""
        return not self.body.endswith(b"\n")


def stages(protocol: Protocol) -> Iterator[Stage]:
    token, last = protocol.token, protocol.last
    in_character = token.index("こ".encode()) + 1
    yield Stage("before the head", b"", b"", is_answer=False)
    yield Stage("in the status line", STREAM_HEAD[:12], b"", is_answer=False)
    yield Stage("in a field", STREAM_HEAD[:40], b"", is_answer=False)
    yield Stage("before the head's last byte", STREAM_HEAD[:-1], b"", is_answer=False)
    yield Stage("after interim answers", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", b"", is_answer=False)
    yield Stage("after the head", STREAM_HEAD, b"")
    yield Stage("in a chunk's size", STREAM_HEAD + b"3", b"")
    yield Stage("after a chunk's size", STREAM_HEAD + b"33\r\n", b"")
    yield Stage("in a chunk", STREAM_HEAD + chunk(token)[:40], chunk(token)[:40].partition(b"\r\n")[2])
    yield Stage("in a character", STREAM_HEAD + chunk(token[:in_character]), token[:in_character])
    yield Stage("between the two bytes of an event's end", STREAM_HEAD + chunk(token[:-1]), token[:-1])
    yield Stage("in a chunk's end", STREAM_HEAD + chunk(token)[:-1], token)
    yield Stage("after an event", STREAM_HEAD + chunk(token), token)
    yield Stage("in the next chunk's size", STREAM_HEAD + chunk(token) + b"1f", token)
    yield Stage("in the next event", STREAM_HEAD + chunk(token + token[:9]), token + token[:9])
    yield Stage("in the last event", STREAM_HEAD + chunk(token + last[:8]), token + last[:8])
    yield Stage("with the last chunk, early", STREAM_HEAD + chunk(token) + LAST_CHUNK, token)
    yield Stage("after the last event", STREAM_HEAD + chunk(token + last), token + last, is_whole=True)
    yield Stage("in the last chunk", STREAM_HEAD + chunk(token + last) + b"0\r\n", token + last, is_whole=True)
    yield Stage("after it all", STREAM_HEAD + chunk(token + last) + LAST_CHUNK, token + last, is_whole=True)


ENDS: Mapping[str, Sequence[Step]] = {"fin": (Close(),), "rst": (Sleep(0.01), Reset())}  # what was sent arrives first


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS.keys())
async def test_an_engine_that_dies_leaves_a_whole_answer_or_an_honest_end(
    protocol: Protocol, end: Sequence[Step], redis: RedisServer, tmp_path: Path
) -> None:
    cases = list(stages(protocol))
    engine = RawEngine(*[(*([Send(stage.sent)] if stage.sent else []), *end) for stage in cases])

    async def use(bed: GateBed) -> None:
        for stage in cases:
            async with GoneClient.to(bed.url) as client:
                await client.send(post(protocol.path, protocol.document, bed.headers() | {"Connection": "close"}))
                check(stage, protocol, await client.read_to_end())
        for stage, record in zip(cases, await bed.completed(len(cases)), strict=True):
            expected = "ok" if stage.is_whole else "truncated" if stage.is_answer else "engine_failed"
            assert (stage.name, record["outcome"]) == (stage.name, expected)
        assert len(engine.requests) == len(cases)  # no request went twice

    await on(redis, tmp_path, engine, use)


def check(stage: Stage, protocol: Protocol, got: bytes) -> None:
    """Whether the client got of a stage what it should, byte for byte."""
    head, _, body = got.partition(b"\r\n\r\n")
    if not stage.is_answer:
        assert head.startswith(b"HTTP/1.1 502 "), stage.name
        assert json.loads(body)["error"]["code"] == "engine_failed"
        return
    assert head.startswith(b"HTTP/1.1 200 "), stage.name
    content, ended = unchunked(body)
    assert ended is stage.is_whole, stage.name
    if stage.is_whole:
        assert content == stage.body, stage.name
        return
    shown, sign, error = content.partition(protocol.error)
    assert sign, (stage.name, content)
    assert error.endswith(b"\n\n")
    assert error.count(b"\n\n") == 1
    assert protocol.last not in content
    kept = stage.body
    if stage.cuts_event:  # a piece of an event is not given out
        kept = kept[: kept.rfind(b"\n\n") + 2] if b"\n\n" in kept else b""
    # The client's parser must not take the error for a part of the event that was cut.
    assert shown == (kept if kept.endswith(b"\n\n") or not kept else kept + b"\n\n"), stage.name


def unchunked(body: bytes) -> tuple[bytes, bool]:
    """The content of whole chunks, and whether the last one is there. Raises where a chunk is cut: ours never are."""
    content = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            assert body == b"\r\n"
            return content, True
        assert body[length : length + 2] == b"\r\n"
        content, body = content + body[:length], body[length + 2 :]
    return content, False
