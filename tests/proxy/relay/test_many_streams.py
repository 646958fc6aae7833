"""Very many streams at once in one worker of the real process: each gets all of its events, in order, and costs little.

`python -m pytest -s` prints what a stream, and a reader that has stalled, cost in memory.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.parts.gate_bed import chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import LAST_CHUNK, STREAM_HEAD, RawEngine, RawRequest, Send, Sleep, Step, Wait, chunk
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import DONE
from tests.proxy.test_server import Served, serving

pytestmark = pytest.mark.process

STREAMS = 5000
EVENTS = 20
STALLED = 1000
ENGINE = """
[[engines]]
name = "many"
urls = ["{url}"]
models = ["many"]
proof = "off"
"""


def event(mark: str, number: int) -> bytes:
    return (
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": f"{mark} {number}"}}]}).encode() + b"\n\n"
    )


class Marked(RawEngine):
    """Sends each stream a head, and when it is told to, the events that bear the request's own text."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    def answer_to(self, request: RawRequest) -> Sequence[Step]:
        super().answer_to(request)
        if not request.body:
            return super().answer_to(request)
        mark = json.loads(request.body)["messages"][0]["content"]
        steps: list[Step] = [Send(STREAM_HEAD), Wait(self.go)]
        for number in range(EVENTS):
            steps += [Send(chunk(event(mark, number))), Sleep(0.2)]
        return [*steps, Send(chunk(DONE)), Send(LAST_CHUNK)]


@asynccontextmanager
async def one_worker(redis: RedisServer, folder: Path, engine: RawEngine) -> AsyncIterator[Served]:
    async with engine, serving(redis, folder, tables=ENGINE.replace("{url}", engine.url)) as served:
        # What the kernel keeps for an engine's connection is none of the gate's, and this machine's memory is bounded.
        engine._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        await served.until("/readyz", 200)
        yield served


def resident_bytes(served: Served) -> int:
    (worker,) = served.workers()
    return int(Path(f"/proc/{worker}/statm").read_text().split()[1]) * 4096


async def opened(
    stack: AsyncExitStack, served: Served, number: int, *, receive_buffer: int | None = None
) -> list[GoneClient]:
    """So many clients, each of which has the head of its stream."""
    headers = served.headers()

    async def open_one(mark: int) -> GoneClient:
        client = await stack.enter_async_context(GoneClient.to(served.url, receive_buffer=receive_buffer))
        document = chat(str(mark), stream=True) | {"model": "many"}
        await client.send(post("/v1/chat/completions", document, headers))
        await client.read_until(b"\r\n\r\n", seconds=60)
        return client

    clients: list[GoneClient] = []
    while len(clients) < number:
        batch = range(len(clients), min(len(clients) + 200, number))
        clients += await asyncio.gather(*map(open_one, batch))
    return clients


async def test_five_thousand_streams_in_one_worker_each_get_every_event(redis: RedisServer, tmp_path: Path) -> None:
    engine = Marked()
    async with one_worker(redis, tmp_path, engine) as served, AsyncExitStack() as stack:
        await opened(stack, served, 50)
        before = resident_bytes(served)
        clients = await opened(stack, served, STREAMS)
        cost = (resident_bytes(served) - before) / STREAMS
        print(f"\nmemory per open stream of {STREAMS}: {cost / 1000:.1f} KB")
        engine.go.set()
        bodies = await asyncio.gather(*(read_body(client) for client in clients))
        for mark, body in enumerate(bodies):
            assert body == b"".join(event(str(mark), number) for number in range(EVENTS)) + DONE
        assert cost < 40_000


async def read_body(client: GoneClient) -> bytes:
    content = b""
    while size := int(await client.read_until(b"\r\n", seconds=120), 16):
        content += (await client._read_exactly(size + 2, 120))[:-2]
    return content


async def test_a_thousand_readers_that_stall_cost_less_than_256_kib_each_and_get_every_byte(
    redis: RedisServer, tmp_path: Path
) -> None:
    piece = chunk(b": " + b"x" * 60_000 + b"\n\n")
    engine = RawEngine((Send(STREAM_HEAD), *[Send(piece)] * 250, Send(chunk(DONE)), Send(LAST_CHUNK)))
    async with one_worker(redis, tmp_path, engine) as served, AsyncExitStack() as stack:
        before = resident_bytes(served)
        clients = await opened(stack, served, STALLED, receive_buffer=4096)
        await until_still(engine)
        cost = (resident_bytes(served) - before) / STALLED
        print(f"\nmemory per stalled reader of {STALLED}: {cost / 1024:.0f} KiB")
        held = sum(connection.unsent > 0 for connection in engine.connections)
        assert held >= STALLED * 0.95
        assert cost < 256 * 1024
        for client in clients[:5]:
            assert (await read_body(client)).count(b"x" * 60_000) == 250


async def until_still(engine: RawEngine) -> None:
    """Returns when the engine could send nothing for a second."""
    async with asyncio.timeout(120):
        before = -1
        while before != (before := sum(connection.unsent for connection in engine.connections)):
            await asyncio.sleep(1.0)
