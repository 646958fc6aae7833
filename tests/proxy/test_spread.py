"""Streams on the workers of a real `saltgate serve`: evenly, whenever they come; and workers that hang."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.parts.redis_server import RedisServer
from tests.proxy.spread import SLOW, begin_streams, connections_of, end_streams
from tests.proxy.test_server import serving

pytestmark = pytest.mark.process


async def test_long_streams_are_spread_evenly_whenever_they_come(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path, workers=2, shape=SLOW) as served:
        await served.until("/readyz", 200)
        for count, within in ((16, 0.0), (16, 0.3), (100, 0.0), (200, 1.0)):
            clients = await begin_streams(served, count, within_seconds=within)
            shares = connections_of(served)
            assert sum(shares) == count
            assert min(shares) >= 0.4 * count, shares
            await end_streams(served, clients)


async def test_clients_get_their_answers_though_one_worker_does_not_take_any(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with serving(redis, tmp_path, workers=2, shape=SLOW) as served:
        await served.until("/readyz", 200)
        stopped, _ = served.workers()
        os.kill(stopped, signal.SIGSTOP)
        try:
            async with asyncio.timeout(15):
                clients = await begin_streams(served, 60)
            assert connections_of(served) == [0, 60]
        finally:
            os.kill(stopped, signal.SIGCONT)
        await end_streams(served, clients)
