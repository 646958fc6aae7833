"""The supervisor in this process with real worker processes: what hangs, what never gets ready, what dies at once."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import pytest

from config.settings import Directory, Engine, Isolation, IsolationKey, Issuer, Settings
from observability.history.history import Bounds as HistoryBounds
from observability.history.history import History
from observability.totals import Bounds, Totals
from proxy.listening.loads import load_page
from proxy.plan import Plan, pack
from proxy.reading import read_configuration
from proxy.supervisor.gathering import Gathering
from proxy.supervisor.reload import CannotReload, read_anew
from proxy.supervisor.supervisor import Supervisor
from proxy.supervisor.worker import Outfit, Worker
from tests.parts.gate_bed import KEY
from tests.parts.redis_server import RedisServer, free_port
from tests.proxy.test_server import serving

pytestmark = pytest.mark.process

NOWHERE = "http://127.0.0.1:1"


def plan(**more: object) -> Plan:
    """One worker that never gets ready: nothing that it needs is there."""
    settings = Settings(
        engines=(Engine(name="main", urls=(NOWHERE,)),),
        issuers=(Issuer(issuer=NOWHERE, audiences=("saltgate",)),),
        directory=Directory(redis="redis://127.0.0.1:1/0"),
        isolation=Isolation(keys=(IsolationKey(id="k1", secret=KEY),)),
    )
    made = Plan(
        public="", admin="", workers=1, drain_seconds=0.5, metrics_token=None, fixed={}, packed=pack(settings, None)
    )
    return msgspec.structs.replace(made, **more)


def totals() -> Totals:
    return Totals(Bounds(), monotonic=time.monotonic, wall_clock=time.time)


def gathering() -> Gathering:
    return Gathering(History(HistoryBounds(scopes=1, recent=1), since=0.0), time.time)


@contextmanager
def listening_socket() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@asynccontextmanager
async def supervised(
    first: Plan, read: Callable[[], Awaitable[Plan]], ready_seconds: float = 60.0
) -> AsyncIterator[Supervisor]:
    with listening_socket() as listening:
        supervisor = Supervisor(first, listening, read, wall_clock=time.time, ready_seconds=ready_seconds)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(supervisor.run())
            try:
                yield supervisor
            finally:
                supervisor.signalled()


async def reloads(supervisor: Supervisor) -> tuple[float, float]:
    """Whether the last one succeeded, and when the configuration in force was read."""
    page = "".join(await supervisor.metrics(open_metrics=False))
    values = dict(re.findall(r"^(\w+) (\S+)$", page, re.MULTILINE))
    return (
        float(values["saltgate_config_last_reload_successful"]),
        float(values["saltgate_config_last_reload_success_timestamp_seconds"]),
    )


async def until_reload(supervisor: Supervisor, succeeded: bool, *, after: float = 0.0) -> None:
    async with asyncio.timeout(60):
        while (found := await reloads(supervisor))[0] != succeeded or (succeeded and found[1] <= after):
            await asyncio.sleep(0.05)


async def test_a_worker_that_hangs_is_killed_and_replaced() -> None:
    page = load_page(1)
    with listening_socket() as listening:
        worker = Worker(
            Outfit(plan().packed, listening, page, totals(), gathering(), answer_seconds=0.5, hung_seconds=10.0), 0
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.keep_running())
            async with asyncio.timeout(60):
                while await worker.state(counts=True) is None:
                    await asyncio.sleep(0.05)
                assert worker._process is not None
                hung = worker._process.pid
                os.kill(hung, signal.SIGSTOP)
                while worker.deaths == 0:
                    assert await worker.state(counts=True) is None
                while await worker.state(counts=True) is None:  # another one answers
                    await asyncio.sleep(0.05)
            worker.kill()
    page.close()


async def test_new_workers_that_never_get_ready_change_nothing(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path) as served:
        await served.until("/readyz", 200)
        reading, _ = read_configuration(served.configuration)
        assert reading.plan is not None
        good = msgspec.structs.replace(reading.plan, drain_seconds=0.5)
        served.change(served.engine.url, f"http://127.0.0.1:{free_port()}")
        async with supervised(good, lambda: read_anew(served.configuration), ready_seconds=8.0) as supervisor:
            async with asyncio.timeout(60):
                while await supervisor.waits_for():
                    await asyncio.sleep(0.05)
            supervisor.reload()
            await until_reload(supervisor, succeeded=False)
            assert await supervisor.waits_for() == []
            assert supervisor._coming is None


async def test_where_the_old_workers_lack_the_same_the_new_ones_take_over() -> None:
    """Else a reload while an engine is away could not even change what has nothing to do with it."""

    async def read() -> Plan:
        return plan(workers=2)

    async with supervised(plan(), read) as supervisor:
        async with asyncio.timeout(60):
            while "workers" in await supervisor.waits_for():
                await asyncio.sleep(0.05)
        _, began = await reloads(supervisor)
        supervisor.reload()
        await until_reload(supervisor, succeeded=True, after=began)
        assert supervisor.size == 2


async def test_workers_that_cannot_even_start_are_tried_again_ever_more_slowly() -> None:
    """What is packed is not theirs: each dies at once."""
    page = load_page(1)
    with listening_socket() as listening:
        worker = Worker(Outfit(b"nothing", listening, page, totals(), gathering()), 0)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(worker.keep_running())
            async with asyncio.timeout(60):
                while worker.deaths < 3:
                    await asyncio.sleep(0.01)
            began = time.monotonic()
            worker.stop()  # also between two tries
            await running
            assert time.monotonic() - began < 5
    page.close()


@pytest.mark.parametrize("text", ["", "workers = 'many'\n"])
async def test_what_cannot_be_served_is_refused_with_its_faults(tmp_path: Path, text: str) -> None:
    (tmp_path / "saltgate.toml").write_text(text)
    with pytest.raises(CannotReload) as refused:
        await read_anew(tmp_path / "saltgate.toml")
    assert {"engines", "issuers", "directory", "isolation"} <= {key for key, _ in refused.value.faults}


async def test_a_configuration_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(CannotReload) as refused:
        await read_anew(tmp_path / "gone.toml")
    ((key, message),) = refused.value.faults
    assert key == str(tmp_path / "gone.toml")
    assert "cannot read it" in message


async def test_where_the_reading_cannot_even_be_started_nothing_changes(tmp_path: Path) -> None:
    """No descriptors are left, or there is no Python any more where it was: the supervisor goes on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(CannotReload) as refused:
            await read_anew(tmp_path / "saltgate.toml")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "Too many open files" in str(refused.value)


def test_nothing_of_a_plan_or_an_assignment_is_shown() -> None:
    made = plan(metrics_token=b"canary-token")
    assert "canary" not in repr(made)
    assert KEY.value.decode() not in repr(made)
