"""A worker's gate as a whole: what it waits for, what ends it, and what it does with settings."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from config.settings import Engine, Public, Telemetry, Timeouts
from observability.logs import configure_logs
from proxy.app import _running, open_gate
from proxy.configured import configured_engine
from proxy.demo.simulator import AT_ONCE, EngineShape, Flaws, Simulator
from proxy.demo.simulator import Endpoint as Route
from proxy.reception import public_url
from proxy.states import tell_ready
from tests.parts.gate_bed import chat, gate_bed
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import page_of
from tests.proxy.test_tls import Authority, settings


@pytest.mark.parametrize(
    ("public", "url"),
    [
        (Public(listen="127.0.0.1:8080"), "http://127.0.0.1:8080"),
        (Public(listen="[::1]:8080"), "http://[::1]:8080"),
        (Public(listen="0.0.0.0:1", url="https://llm.example.com/"), "https://llm.example.com"),
        (Public(listen="unix:/run/saltgate.sock"), "http://localhost"),
    ],
)
def test_every_absolute_url_begins_with_the_configured_address(public: Public, url: str) -> None:
    assert public_url(settings(public=public)) == url


def test_connections_to_each_replica_grow_as_old_as_its_engine_says() -> None:
    engine = Engine(name="main", urls=("http://engine.internal:8000", "unix:/run/vllm.sock"), connection_age=7.0)
    ages = [replica.pool.age_seconds for replica in configured_engine(engine, Timeouts()).replicas]
    assert ages == [7.0, 7.0]


def test_a_listener_with_tls_is_https(tmp_path: Path) -> None:
    tls = Authority(tmp_path).tls("127.0.0.1")
    assert public_url(settings(public=Public(listen="127.0.0.1:8443", tls=tls))) == "https://127.0.0.1:8443"


async def test_a_gate_says_what_it_still_waits_for(redis: RedisServer, tmp_path: Path) -> None:
    bed_of = gate_bed(redis.settings(), ["http://127.0.0.1:9"], tmp_path, ready=False, issuer_answers=False)
    async with bed_of as bed:
        assert {"issuers", "engines"} <= set(bed.gate.waits_for())
        bed.issuer.release()
        async with asyncio.timeout(30):
            while set(bed.gate.waits_for()) != {"engines"}:
                await asyncio.sleep(0.01)


async def test_the_state_that_a_worker_tells_holds_its_metrics_and_open_requests(
    redis: RedisServer, tmp_path: Path
) -> None:
    flaws = Flaws(ignores_salt=frozenset({Route.CHAT}))
    shape = EngineShape(pace=AT_ONCE, flaws=flaws)
    async with Simulator(shape) as engine, gate_bed(redis.settings(), [engine.url], tmp_path) as bed:
        await asyncio.sleep(0)
        state = bed.gate.state()
        assert (state.waits_for, state.open_requests) == ((), 0)
        page = page_of(bed.gate.metrics)
        for endpoint, state_of in (("chat", "failed"), ("responses", "proven")):
            told = (
                f'engine="main",replica="{engine.url.removeprefix("http://")}",endpoint="{endpoint}",state="{state_of}"'
            )
            assert f"saltgate_engine_proof{{{told}}} 1" in page


async def test_what_happened_last_is_in_the_state_and_in_the_log_of_a_gate_that_closes(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with (
        Simulator(EngineShape(pace=AT_ONCE)) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path) as bed,
    ):
        status, answered, _ = await bed.post("/v1/chat/completions", chat(model="nowhere"))
        assert status == 403
        page = page_of(bed.gate.metrics)
        assert 'saltgate_refusals_total{code="model_not_allowed"} 1' in page
        recorder = bed.gate.entrance.recorder
        with recorder.request(method="POST", route="/v1/chat/completions") as last:
            last.answered(200)
    lines = [json.loads(line) for line in bed.log.read_text().splitlines()]
    asked = [line["request_id"] for line in lines if line["event"] == "request.completed"]
    assert asked == [answered["X-Request-Id"], last.request_id]


async def test_that_a_gate_becomes_ready_is_told_and_when_it_is_so_no_more() -> None:
    looks: list[tuple[str, ...]] = [
        *(("issuers", "engines"), ("engines",), (), ()),
        *(("engines",), ("engines",), ("directory", "engines"), ()),
    ]
    ended = asyncio.Event()

    def waits_for() -> tuple[str, ...]:
        if len(looks) == 1:
            ended.set()
        return looks.pop(0) if len(looks) > 1 else looks[0]

    with structlog.testing.capture_logs() as lines:
        telling = asyncio.ensure_future(tell_ready(waits_for, every=0.0))
        await ended.wait()
        telling.cancel()
    assert [(line["event"], line.get("waits_for")) for line in lines] == [
        ("gate.ready", None),
        ("gate.not_ready", ("engines",)),
        ("gate.not_ready", ("directory", "engines")),
        ("gate.ready", None),
    ]


async def test_a_part_that_fails_for_good_ends_the_gate() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("a part broke")

    with pytest.raises(ExceptionGroup) as ended:
        async with _running(asyncio.sleep(3600), fails()):
            await asyncio.sleep(3600)
    assert ended.group_contains(RuntimeError, match="a part broke")


async def test_a_part_that_loses_its_cancellation_is_cancelled_again() -> None:
    lost: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            lost.append("as asyncio.wait_for of Python 3.11 can")
        await asyncio.sleep(3600)

    async with asyncio.timeout(20), _running(stubborn()):
        await asyncio.sleep(0)
    assert len(lost) == 1


async def test_a_gate_closes_while_everything_around_it_is_away(tmp_path: Path) -> None:
    away = settings(telemetry=Telemetry(otlp_endpoint="http://127.0.0.1:9"))
    away = replace(away, directory=replace(away.directory, redis="redis://127.0.0.1:9/0"))
    with (tmp_path / "log").open("wb") as stream:
        logs = configure_logs(away.logs, stream, monotonic_ns=time.monotonic_ns)
        with closing(logs):
            async with asyncio.timeout(30), open_gate(away, instance="test", logs=logs) as gate:
                assert set(gate.waits_for()) == {"issuers", "directory", "engines"}
                await gate.drain(5.0)
