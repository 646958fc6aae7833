"""The simulated engine in a process of its own, for the demo."""

from __future__ import annotations

import asyncio
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from proxy.demo.simulator.server import Simulator
from proxy.demo.simulator.shape import EngineShape


def serve(
    shape: EngineShape,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    unix_path: Path | None = None,
    ready: Connection | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT. The target of a `multiprocessing` process, also with the start method "spawn".

    The engine's URL is sent through `ready` as soon as it listens. Raises OSError where it cannot listen.
    """
    asyncio.run(_serve(Simulator(shape, host=host, port=port, unix_path=unix_path), ready))


async def _serve(simulator: Simulator, ready: Connection | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with simulator as engine:
        if ready is not None:
            ready.send(engine.url)
        await stop.wait()
