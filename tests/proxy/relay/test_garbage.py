"""Nothing that a request or a connection leaves behind waits for the collector of cycles, which stops every stream.

There are two exceptions, both aiohttp's, where it keeps an error and the error's traceback keeps the connection: bytes
that are no HTTP, and an upload that its client leaves.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.settings import Timeouts
from tests.parts.gate_bed import GateBed, chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import STREAM_HEAD, Close, RawEngine, Reset, Send, Step, WaitForPeer, chunk, json_answer
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, DONE, TOKEN, nothing_held, on, stream

REQUESTS = 30
PATH = "/v1/chat/completions"


@contextmanager
def collected() -> Iterator[list[object]]:
    """What only the collector of cycles could free, of all that was made meanwhile; complete at the end."""
    found: list[object] = []
    gc.collect()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


Deed = Callable[[GateBed, GoneClient, RawEngine], Awaitable[None]]


async def ask_whole(bed: GateBed, client: GoneClient, _engine: RawEngine) -> None:
    await client.send(post(PATH, chat(), bed.headers()))
    await client.read_answer()


async def ask_three_times(bed: GateBed, client: GoneClient, _engine: RawEngine) -> None:
    await client.send(post(PATH, chat(), bed.headers()) * 3)
    for _ in range(3):
        await client.read_answer()


async def ask_stream(bed: GateBed, client: GoneClient, _engine: RawEngine) -> None:
    await client.send(post(PATH, chat(stream=True), bed.headers() | {"Connection": "close"}))
    await client.read_to_end()


async def leave_stream(bed: GateBed, client: GoneClient, _engine: RawEngine) -> None:
    await client.send(post(PATH, chat(stream=True), bed.headers()))
    await client.read_until(TOKEN)
    client.leave_by_rst()


async def leave_before_head(bed: GateBed, client: GoneClient, engine: RawEngine) -> None:
    before = len(engine.requests)
    await client.send(post(PATH, chat(), bed.headers()))
    # While a connection is being made, uvloop itself leaves a cycle of its transport and our protocol.
    async with asyncio.timeout(5):
        while len(engine.requests) == before:
            await asyncio.sleep(0.001)
    client.leave_by_fin()


async def be_nobody(bed: GateBed, client: GoneClient, _engine: RawEngine) -> None:
    await client.send(post(PATH, chat()))
    await client.read_answer()


@dataclass(frozen=True, slots=True)
class Case:
    deed: Deed
    script: Sequence[Step]


CASES: Mapping[str, Case] = {
    "a whole answer": Case(ask_whole, (Send(json_answer(ANSWER)),)),
    "three on one connection": Case(ask_three_times, (Send(json_answer(ANSWER)),)),
    "a stream": Case(ask_stream, stream(TOKEN, DONE)),
    "a stream that breaks": Case(ask_stream, (Send(STREAM_HEAD), Send(chunk(TOKEN)), Reset())),
    "no answer": Case(ask_whole, (Close(),)),
    "no answer in time": Case(ask_whole, (WaitForPeer(),)),
    "garbage": Case(ask_whole, (Send(b"\0garbage"), Close())),
    "a client that leaves a stream": Case(leave_stream, (Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer())),
    "a client that leaves before": Case(leave_before_head, (WaitForPeer(),)),
    "a stranger": Case(be_nobody, ()),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_nothing_is_left_for_the_collector(case: Case, redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine(case.script)

    async def serve(bed: GateBed, times: int) -> None:
        for _ in range(times):
            async with GoneClient.to(bed.url) as client:
                await case.deed(bed, client, engine)
        await nothing_held(bed)
        async with asyncio.timeout(5):
            while bed.gate.front.downstreams:
                await asyncio.sleep(0.01)

    async def use(bed: GateBed) -> None:
        await serve(bed, 5)  # what is made once may be anything
        with collected() as left:
            await serve(bed, REQUESTS)
        ours = Counter(type(one).__qualname__ for one in left if is_ours(type(one)))
        assert not ours
        assert len(left) < REQUESTS  # a cycle of plain tuples and functions would come with each of them

    await on(redis, tmp_path, engine, use, Timeouts(first_byte=0.1))


def is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in {"proxy", "observability", "aiohttp"}
