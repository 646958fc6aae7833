"""The demo's stage: what it finds to run, what it says when something is missing, and that no two demos collide."""

from __future__ import annotations

import asyncio
import signal
import socket
import stat
import sys
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest

from proxy.cli.sign_in.gate import sign_in_of
from proxy.cli.sign_in.issuer import discover
from proxy.cli.sign_in.web import open_web
from proxy.demo.part import PartFailed, running
from proxy.demo.ports import Ports
from proxy.demo.provider.server import NATIVE_CLIENT
from proxy.demo.simulator import ALL_ENDPOINTS, AT_ONCE, EngineShape, Flaws, Simulator
from proxy.demo.stage import EngineUrl, StageFailed, open_stage, redis_server

pytestmark = pytest.mark.process

PYTHON = (sys.executable, "-S", "-c")


async def test_without_redis_the_directory_is_a_file_and_the_gate_serves() -> None:
    async with open_stage(engine_url=None, model=None, redis=None) as stage:
        assert str(stage.folder) in stage.directory
        assert "no redis-server found" in stage.directory
        assert [part.name for part in stage.parts] == ["engine simulator", "saltgate"]
        async with aiohttp.ClientSession() as session, session.get(f"{stage.admin}/readyz") as answer:
            assert answer.status == 200
        assert stat.S_IMODE((stage.folder / "salt.key").stat().st_mode) == 0o600
        async with open_web() as web:
            sign_in = await sign_in_of(web, stage.public, None)
            endpoints = await discover(web, sign_in.issuer)
        assert (sign_in.issuer, sign_in.client_id) == (stage.issuer, NATIVE_CLIENT)
        assert endpoints.device is not None
        assert endpoints.authorization is not None
    assert not stage.folder.exists()


async def test_an_engine_of_ones_own_takes_the_simulators_place_and_is_not_ended_with_the_demo() -> None:
    async with Simulator(EngineShape(models=("first", "second"), pace=AT_ONCE)) as engine:
        async with open_stage(engine_url=EngineUrl(engine.url), model="second", redis=redis_server()) as stage:
            assert (stage.engine, stage.model) == (engine.url, "second")
            assert [part.name for part in stage.parts] == ["redis-server", "saltgate"]
        async with aiohttp.ClientSession() as session, session.get(f"{engine.url}/health") as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("flaws", "told"),
    [
        (Flaws(ignores_salt=ALL_ENDPOINTS), "does not separate"),
        (Flaws(hides_cached_tokens=ALL_ENDPOINTS), "--enable-prompt-tokens-details"),
    ],
)
async def test_an_engine_that_the_gate_would_send_nothing_is_told_at_once(flaws: Flaws, told: str) -> None:
    async with Simulator(EngineShape(flaws=flaws, pace=AT_ONCE)) as engine:
        with pytest.raises(StageFailed, match=told):
            async with open_stage(engine_url=EngineUrl(engine.url), model=None, redis=redis_server()):
                pytest.fail("it was opened")


async def test_a_model_that_the_engine_does_not_serve_is_told_with_those_that_it_does() -> None:
    async with Simulator(EngineShape(models=("first", "second"), pace=AT_ONCE)) as engine:
        with pytest.raises(StageFailed, match="serves first, second"):
            async with open_stage(engine_url=EngineUrl(engine.url), model="third", redis=None):
                pytest.fail("it was opened")


@pytest.mark.parametrize(
    "url",
    ["http://192.0.2.1:8000", "https://127.0.0.1:8000", "unix:/run/vllm.sock", "http://127.0.0.1:8000/x", "127.0.0.1"],
)
def test_an_engine_on_another_machine_is_no_engine_url(url: str) -> None:
    with pytest.raises(ValueError, match="write"):
        EngineUrl(url)


def test_a_redis_server_is_found_and_can_be_run() -> None:
    found = redis_server()
    assert found is not None
    assert Path(found).is_file()


def test_two_demos_never_choose_the_same_port_also_before_anybody_listens() -> None:
    with Ports() as one, Ports() as other:
        assert len({ports.choose(21800) for ports in (one, other, one, other)}) == 4


def test_a_port_that_somebody_listens_on_is_passed_over_and_a_left_one_is_free_again() -> None:
    with Ports() as ports, closing(socket.socket()) as listening:
        taken = ports.choose(21900)
        listening.bind(("127.0.0.1", taken))
        listening.listen()
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", taken))
        listening.listen()
        with Ports() as ports:
            assert ports.choose(taken) > taken
    with Ports() as ports:
        assert ports.choose(taken) == taken


async def test_a_part_that_ends_before_it_is_ready_says_what_it_said_last(tmp_path: Path) -> None:
    program = "print('first\\nsecond\\nthird\\nfourth'); raise SystemExit(3)"
    async with running("odd part", tmp_path, *PYTHON, program) as part:
        with pytest.raises(PartFailed) as failure:
            await part.until(_never, seconds=60.0)
    assert str(failure.value) == (
        "odd part ended before it was ready (exit status 3). It said last:\n  second\n  third\n  fourth"
    )


async def test_a_part_that_never_gets_ready_is_given_up(tmp_path: Path) -> None:
    async with running("slow part", tmp_path, *PYTHON, "import time; time.sleep(600)") as part:
        with pytest.raises(PartFailed, match=r"^slow part was not ready within 0\.1 s$"):
            await part.until(_never, seconds=0.1)
    assert part.process.returncode == -signal.SIGTERM


async def test_a_part_does_not_hear_the_terminals_ctrl_c(tmp_path: Path) -> None:
    program = "import os, signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))"
    async with running("part", tmp_path, *PYTHON, program) as part:
        await part.process.wait()
    assert part.log.read_text() == f"{sorted((signal.SIGINT, signal.SIGHUP))}\n"


async def _never() -> bool:
    await asyncio.sleep(0)
    return False
