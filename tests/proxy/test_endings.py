"""A thousand requests that end in every way there is: each leaves one line and its spans, and nothing else."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from config.settings import EngineTimeouts, ModelTimeouts, Telemetry
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.otlp_sink import OtlpSink, ReceivedSpan
from tests.parts.raw_engine import (
    LAST_CHUNK,
    STREAM_HEAD,
    Close,
    RawEngine,
    RawRequest,
    Reset,
    Send,
    Step,
    WaitForPeer,
    chunk,
    json_answer,
)
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, DONE, TOKEN

pytestmark = pytest.mark.slow

TIMES = 84  # of each way: a thousand in all
AT_ONCE = 60
DRAINED = 20
LATE = ModelTimeouts(models=("late",), first_byte=0.3, idle=0.3)
FAILURE = b'data: {"error":{"message":"out of memory","code":500}}\n\n'

SCRIPTS: Mapping[str, Sequence[Step]] = {
    "done": (Send(STREAM_HEAD), Send(chunk(TOKEN)), Send(chunk(TOKEN + DONE)), Send(LAST_CHUNK)),
    "whole": (Send(json_answer(ANSWER)),),
    "silent": (WaitForPeer(),),
    "one token": (Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()),
    "status 500": (Send(json_answer(b'{"error":{"message":"no"}}', "500 Internal Server Error")),),
    "dies before": (Close(),),
    "dies after": (Send(STREAM_HEAD), Send(chunk(TOKEN)), Close()),
    "resets after": (Send(STREAM_HEAD), Send(chunk(TOKEN)), Reset()),
    "tells a failure": (Send(STREAM_HEAD), Send(chunk(TOKEN + FAILURE + DONE)), Send(LAST_CHUNK)),
}


class ByText(RawEngine):
    """Plays the script that the request's text names before its `#`. `heard` are all texts."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: set[str] = set()

    def answer_to(self, request: RawRequest) -> Sequence[Step]:
        page = super().answer_to(request)
        if not request.body:
            return page
        text: str = json.loads(request.body)["messages"][0]["content"]
        self.heard.add(text)
        return SCRIPTS[text.partition("#")[0]]


async def asks(bed: GateBed, script: str, **more: Any) -> None:
    with suppress(aiohttp.ClientPayloadError):
        await bed.post(document=chat(script, stream=True) | more)


async def leaves(bed: GateBed, engine: ByText, *, early: bool) -> None:
    """A client that resets its connection before an engine's first token, or after it."""
    text = f"{'silent' if early else 'one token'}#{secrets.token_hex(8)}"
    async with GoneClient.to(bed.url) as client:
        await client.send(post("/v1/chat/completions", chat(text, stream=True), bed.headers()))
        if early:
            async with asyncio.timeout(60):
                while text not in engine.heard:
                    await asyncio.sleep(0.01)
        else:
            await client.read_until(TOKEN, seconds=60)
        client.leave_by_rst()


async def stays(bed: GateBed, begun: asyncio.Semaphore) -> None:
    """A client who reads a stream to its end, which is the gate's."""
    async with GoneClient.to(bed.url) as client:
        await client.send(post("/v1/chat/completions", chat("one token", stream=True), bed.headers()))
        await client.read_until(TOKEN, seconds=60)
        begun.release()
        await client.read_to_end(seconds=60)


Way = Callable[[GateBed, ByText], Awaitable[object]]
WAYS: Mapping[str, tuple[str, Way]] = {
    "done": ("ok", lambda bed, _: asks(bed, "done")),
    "whole": ("ok", lambda bed, _: bed.post(document=chat("whole"))),
    "refused": ("refused", lambda bed, _: bed.post(headers=bed.headers("u-mallory-0009"))),
    "malformed": ("refused", lambda bed, _: bed.post(document=chat("done", n=10**6))),
    "gone before the first token": ("client_gone", lambda bed, engine: leaves(bed, engine, early=True)),
    "gone after it": ("client_gone", lambda bed, engine: leaves(bed, engine, early=False)),
    "engine says 500": ("engine_failed", lambda bed, _: asks(bed, "status 500")),
    "engine dies before the first byte": ("engine_failed", lambda bed, _: asks(bed, "dies before")),
    "engine dies after it": ("truncated", lambda bed, _: asks(bed, "dies after")),
    "engine resets after it": ("truncated", lambda bed, _: asks(bed, "resets after")),
    "engine tells a failure": ("truncated", lambda bed, _: asks(bed, "tells a failure")),
    "too late": ("engine_timeout", lambda bed, _: asks(bed, "one token", model="late")),
}


async def test_each_leaves_exactly_one_record_with_its_outcome_and_its_spans_and_nothing_stays(
    redis: RedisServer, tmp_path: Path
) -> None:
    expected = Counter({"drained": DRAINED})
    for outcome, _ in WAYS.values():
        expected[outcome] += TIMES
    before = asyncio.all_tasks()
    async with OtlpSink() as sink, ByText() as engine:
        async with gate_bed(
            redis.settings(),
            [engine.url],
            tmp_path,
            proof="off",
            models=("tiny", "late"),
            telemetry=Telemetry(otlp_endpoint=sink.url),
            engine_timeouts=EngineTimeouts(),
            model_timeouts=(LATE,),
        ) as bed:
            await _all(bed, engine)
            await bed.completed(TIMES * len(WAYS), seconds=60.0)
            assert bed.gate.gateway.relay.open_exchanges == 0
            begun = asyncio.Semaphore(0)
            waiting = [asyncio.ensure_future(stays(bed, begun)) for _ in range(DRAINED)]
            for _ in range(DRAINED):
                await begun.acquire()
        await asyncio.gather(*waiting)
        lines = bed.lines()
    records = [line for line in lines if line["event"] == "request.completed"]
    assert Counter(str(line["outcome"]) for line in records) == expected
    assert len({line["request_id"] for line in records}) == len(records) == expected.total()
    _as_told(sink.spans, records)
    assert [line for line in lines if line["event"] == "library"] == []
    assert [task for task in asyncio.all_tasks() - before if not task.done()] == []


async def _all(bed: GateBed, engine: ByText) -> None:
    """Every way so many times, mixed, some at once."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(way: Way) -> None:
        async with places:
            await way(bed, engine)

    await asyncio.gather(*(one(way) for _ in range(TIMES) for _, way in WAYS.values()))


def _as_told(spans: Sequence[ReceivedSpan], records: Sequence[Mapping[str, object]]) -> None:
    """A SERVER span for each record, and a CLIENT span inside it for each that went up."""
    servers = {span.span_id: span for span in spans if span.kind == "SERVER"}
    assert servers.keys() == {line["span_id"] for line in records}
    assert all(servers[str(line["span_id"])].attributes["saltgate.outcome"] == line["outcome"] for line in records)
    calls = Counter(span.parent_id for span in spans if span.kind == "CLIENT")
    assert calls == Counter({str(line["span_id"]): 1 for line in records if "replica" in line})
    assert len(spans) == len(servers) + calls.total()
