"""What an open stream and a reader who takes nothing cost in memory."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from tests.bench import gate
from tests.bench.cases import Limit
from tests.bench.load import MockEngine, load_beside, mock_engine, run_load
from tests.bench.machine import resident_bytes
from tests.bench.moments import moment_engine
from tests.bench.report import Figure
from tests.bench.stage import Stage
from tests.parts.gone_client import post

STREAMS: Final = 5_000
READERS: Final = 1_000
_PATIENCE_SECONDS: Final = 120.0


def memory(stage: Stage) -> list[Figure]:
    """Growth of a fresh gate's resident memory, per stream and per reader."""
    with mock_engine(stage.programs, stage.folder) as engine:
        return [_active_streams(stage, engine), asyncio.run(_stalled_readers(stage))]


def _active_streams(stage: Stage, engine: MockEngine) -> Figure:
    with _warm_gate(stage, engine, "active") as served:
        engine.set("n=100000&t=0&d=1000&j=1&y=0")
        before = resident_bytes(served.workers())
        words = ("-A", str(stage.tokens), "-s", "-c", str(STREAMS), "-n", str(STREAMS), "-r", "5000")
        with load_beside(stage.programs, served.port, words, stage.folder / "active.load"):
            _until(lambda: engine.stats().active == STREAMS, f"{STREAMS} streams are open")
            time.sleep(5)  # each has had some events
            grown = resident_bytes(served.workers()) - before
    return Figure(f"memory per active stream, {STREAMS:,} open", grown / STREAMS / 1000, "KB", Limit(25, 20))


async def _stalled_readers(stage: Stage) -> Figure:
    """The engine answers in this loop, so what waits does so in a thread."""
    async with moment_engine() as engine:
        with ExitStack() as stack:
            opening = gate.served(stage, gate.Setting({gate.MODEL: (engine.port,)}), "stalled")
            served = await asyncio.to_thread(stack.enter_context, opening)
            engine.begin("paused")
            before = resident_bytes(served.workers())
            await asyncio.to_thread(stack.enter_context, _readers(served.port, stage.token))
            await asyncio.to_thread(_until, lambda: engine.answering == READERS, f"{READERS} streams run")
            grown = await asyncio.to_thread(_settled, lambda: resident_bytes(served.workers())) - before
    return Figure(f"memory per stalled reader, {READERS:,} at once", grown / READERS / 1e6, "MB", Limit(0.2, 0.1))


@contextmanager
def _warm_gate(stage: Stage, engine: MockEngine, name: str) -> Iterator[gate.Served]:
    with gate.served(stage, gate.Setting({gate.MODEL: (engine.port,)}), name) as served:
        engine.set("n=8&t=0&d=0&j=0&y=0")
        run_load(stage.programs, served.port, ("-A", str(stage.tokens), "-s", "-c", "64", "-n", "2000"))
        time.sleep(1)
        yield served


@contextmanager
def _readers(port: int, token: str) -> Iterator[None]:
    """Clients that ask for a stream and take nothing of it."""
    asked = {"model": "mock", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    request = post("/v1/chat/completions", asked, {"Authorization": f"Bearer {token}"})
    with ExitStack() as stack:
        for _ in range(READERS):
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            reader.connect(("127.0.0.1", port))
            reader.sendall(request)
        yield


def _until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_PATIENCE_SECONDS:.0f} s: {what}")
        time.sleep(0.2)


def _settled(read: Callable[[], int]) -> int:
    """The value when it has not grown for three seconds."""
    most, grown_at = read(), time.monotonic()
    while time.monotonic() - grown_at < 3:
        time.sleep(0.2)
        value = read()
        if value > most * 1.002:
            most, grown_at = value, time.monotonic()
    return most
