"""`saltgate serve` whose processes are killed at random: the audit is intact, and each request has one record."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from observability.audit.chain import chain_key
from observability.audit.verifying import verify
from proxy.demo.simulator import EngineShape, Pace
from tests.observability.audit.writing import requests, written
from tests.parts.gate_bed import chat
from tests.parts.redis_server import RedisServer
from tests.proxy.test_server import SALTGATE, Served, serving

pytestmark = pytest.mark.process

MANY = 500
SECRET = b"fedcba9876543210fedcba9876543210"
KEYS = {"a1": chain_key("a1", SECRET)}
TABLES = """
[audit]
directory = "audit"
segment_size = "64KiB"
sync_interval = "20ms"
[[audit.keys]]
id = "a1"
secret = {{ file = "audit-key" }}
"""


def key(folder: Path) -> None:
    (folder / "audit-key").write_bytes(SECRET)


async def load(served: Served, over: asyncio.Event) -> None:
    """Requests one after the other, streams and others, until it is over; what is cut is asked anew. As many a second
    as a busy machine serves, too: the engine remembers so many only.
    """
    while not over.is_set():
        await asyncio.sleep(0.1 if len(served.engine.requests) < MANY else 1.0)
        try:
            await served.session.post(
                f"{served.url}/v1/chat/completions",
                json=chat(stream=random.random() < 0.5, max_tokens=random.choice((1, 30))),
                headers=served.headers(),
                timeout=aiohttp.ClientTimeout(total=20),
            )
        except (aiohttp.ClientError, TimeoutError):
            await asyncio.sleep(0.01)


def sent_to_engine(served: Served) -> set[str]:
    """The ids of all requests that reached the engine, but for those of the proof."""
    assert len(served.engine.requests) < (served.engine.requests.maxlen or 0)
    return {
        value.decode()
        for request in served.engine.requests
        for name, value in request.headers
        if name.lower() == b"x-request-id" and value.startswith(b"req_")
    }


async def test_workers_that_are_killed_under_load_leave_one_record_for_each_request(
    redis: RedisServer, tmp_path: Path
) -> None:
    key(tmp_path)
    shape = EngineShape(pace=Pace(seconds_per_token=0.01))
    async with serving(redis, tmp_path, workers=2, shape=shape, tables=TABLES) as served:
        await served.until("/readyz", 200, seconds=90.0)
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(12):
                tasks.create_task(load(served, over))
            for _ in range(6):
                await asyncio.sleep(random.uniform(0.2, 1.5))
                workers = served.workers()
                if workers:
                    os.kill(random.choice(workers), signal.SIGKILL)
            await served.until("/readyz", 200, seconds=90.0)
            await asyncio.sleep(0.5)
            over.set()
        reached = sent_to_engine(served)
        served.process.send_signal(signal.SIGTERM)
        assert await served.ended(90.0) == 0
        # What the last ones left, the next start finds.
        async with restarted(served) as again:
            await recovered(tmp_path / "audit")
            again.send_signal(signal.SIGTERM)
            assert await again.wait() == 0
    check(tmp_path / "audit", reached)


async def test_all_processes_killed_at_once_leave_one_record_for_each_request(
    redis: RedisServer, tmp_path: Path
) -> None:
    key(tmp_path)
    shape = EngineShape(pace=Pace(seconds_per_token=0.05))
    async with serving(redis, tmp_path, workers=2, shape=shape, tables=TABLES) as served:
        await served.until("/readyz", 200, seconds=90.0)
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(load(served, over))
            await asyncio.sleep(2.0)
            over.set()
            for process in (served.process.pid, *served.workers()):
                os.kill(process, signal.SIGKILL)
        reached = sent_to_engine(served)
        assert not verify(tmp_path / "audit", KEYS).intact  # nobody has told yet that they were killed
        await served.process.wait()
        async with restarted(served) as again:
            await recovered(tmp_path / "audit")
            again.send_signal(signal.SIGTERM)
            assert await again.wait() == 0
    check(tmp_path / "audit", reached)
    assert "worker_killed" in {line["outcome"] for line in requests(tmp_path / "audit")}


async def test_a_reload_writes_beside_the_workers_before_and_says_what_changed(
    redis: RedisServer, tmp_path: Path
) -> None:
    key(tmp_path)
    async with serving(redis, tmp_path, tables=TABLES) as served:
        await served.until("/readyz", 200, seconds=90.0)
        assert await served.ask() == 200
        served.change('limit = "10s"', 'limit = "11s"')
        served.process.send_signal(signal.SIGHUP)
        await served.until_told("server.reloaded", seconds=90.0)
        assert await served.ask() == 200
        served.process.send_signal(signal.SIGTERM)
        assert await served.ended(90.0) == 0
    verdict = verify(tmp_path / "audit", KEYS)
    assert (verdict.intact, verdict.faults) == (True, ())
    loaded = [line for line in written(tmp_path / "audit") if line["event"] == "configuration.loaded"]
    assert [line.get("changed") for line in loaded] == [None, ["drain.limit"]]
    assert len({line["digest"] for line in loaded}) == 2


def check(place: Path, reached: set[str]) -> None:
    verdict = verify(place, KEYS)
    assert verdict.faults == ()
    by_request = Counter(line["request_id"] for line in requests(place))
    assert [one for one, times in by_request.items() if times > 1] == []
    assert reached - by_request.keys() == set()
    assert len(reached) > 20


async def recovered(place: Path) -> None:
    """Nothing is left to be found."""
    async with asyncio.timeout(90):
        while len(list(place.glob("*.journal"))) > 2:  # those of the workers that run
            await asyncio.sleep(0.05)


class restarted:  # noqa: N801 - read as a phrase
    """The same saltgate once more, ready."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def __aenter__(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            *SALTGATE, "serve", "-c", str(self._served.configuration), stdout=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(90):
            while await self._served.status("/readyz") != 200:
                await asyncio.sleep(0.05)
        return self._process

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
