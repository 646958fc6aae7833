"""SIGTERM under load at the real process: what is open ends well, and what comes is told to go elsewhere."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from proxy.demo.simulator import EngineShape, Pace
from tests.parts.gate_bed import chat
from tests.parts.gone_client import post
from tests.parts.redis_server import RedisServer
from tests.proxy.test_server import Served, serving

pytestmark = pytest.mark.process

MANY: Final = 5000
SLOW: Final = EngineShape(answer_tokens=8, pace=Pace(prefill_tokens_per_second=0.0, seconds_per_token=12.0))
# In this process: each stream's client, and the engine's side of it.
DESCRIPTORS: Final = 2 * MANY + 500


class Stream(asyncio.Protocol):
    """One client's stream: `began` with its first event, `ended` with its connection. `tokens` are counted."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._tail = b""
        self.tokens = 0
        self.began = asyncio.Event()
        self.ended = asyncio.Event()
        self.is_whole = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._wire = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._tail = self._tail[-64:] + data
        self.tokens += data.count(b'"content":"t')
        if b"data: " in self._tail:
            self.began.set()
        if b"data: [DONE]\n\n" in self._tail:
            self.is_whole = True
            self._wire.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.began.set()
        self.ended.set()


async def begun(served: Served, count: int, at_once: int = 100) -> list[Stream]:
    """So many streams, each of which has its first event."""
    loop = asyncio.get_running_loop()
    port = int(served.url.rpartition(":")[2])
    request = post("/v1/chat/completions", chat(stream=True), served.headers())
    streams = [Stream(request) for _ in range(count)]
    for first in range(0, count, at_once):
        some = streams[first : first + at_once]
        await asyncio.gather(
            *(loop.create_connection(lambda stream=stream: stream, "127.0.0.1", port) for stream in some)  # type: ignore[misc]
        )
        await asyncio.gather(*(stream.began.wait() for stream in some))
    return streams


async def ends(streams: Sequence[Stream], seconds: float) -> list[bool]:
    """Whether each ended whole."""
    async with asyncio.timeout(seconds):
        await asyncio.gather(*(stream.ended.wait() for stream in streams))
    return [stream.is_whole for stream in streams]


async def until_refused(url: str) -> None:
    """Until nobody listens there any more."""
    async with asyncio.timeout(10):
        while True:
            try:
                async with aiohttp.ClientSession() as session, session.get(url):
                    await asyncio.sleep(0.02)
            except aiohttp.ClientConnectionError:
                return


async def test_sigterm_under_load_loses_no_stream(redis: RedisServer, tmp_path: Path) -> None:
    """Two workers; beside the streams, clients whose kept connections wait, and one that asks all the time."""
    shape = EngineShape(answer_tokens=60, pace=Pace(prefill_tokens_per_second=0.0, seconds_per_token=0.05))
    async with serving(redis, tmp_path, workers=2, shape=shape) as served:
        await served.until("/readyz", 200)
        assert await served.ask() == 200
        streams = await begun(served, 80)
        served.process.send_signal(signal.SIGTERM)
        await served.until("/readyz", 503)
        await until_refused(served.url)
        assert await ends(streams, 30) == [True] * 80
        assert len({stream.tokens for stream in streams}) == 1
        assert await served.ended() == 0
        lines = served.events("request.completed")
        assert [line["outcome"] for line in lines if line.get("stream")] == ["ok"] * 80


async def test_sigterm_to_each_of_its_processes_loses_no_stream(redis: RedisServer, tmp_path: Path) -> None:
    """As systemd stops a service. It is no second signal: that would cut what is open."""
    shape = EngineShape(answer_tokens=60, pace=Pace(prefill_tokens_per_second=0.0, seconds_per_token=0.05))
    async with serving(redis, tmp_path, workers=2, shape=shape) as served:
        await served.until("/readyz", 200)
        streams = await begun(served, 20)
        for pid in (*served.workers(), served.process.pid, *served.workers()):
            os.kill(pid, signal.SIGTERM)
        assert await ends(streams, 30) == [True] * 20
        assert await served.ended() == 0
        assert served.events("worker.died") == []


@pytest.mark.slow
@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < DESCRIPTORS, reason="this process may not open so many sockets"
)
async def test_five_thousand_streams_of_one_worker_end_well_after_sigterm(redis: RedisServer, tmp_path: Path) -> None:
    """The process starts with the limit of 1,024 descriptors that most do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        async with serving(redis, tmp_path, limit="300s") as served:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            await served.until("/readyz", 200)
            # So slow only now: the proof of the engine asks it for many tokens.
            served.engine.engine._shape = SLOW
            streams = await begun(served, MANY)
            assert await served.metric("saltgate_active_streams") == MANY
            served.process.send_signal(signal.SIGTERM)
            whole = await ends(streams, 240)
            assert whole.count(False) == 0
            assert {stream.tokens for stream in streams} == {streams[0].tokens}
            assert await served.ended() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
