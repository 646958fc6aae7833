"""Metrics by OTLP to a real sink: once an interval, the last ones at the end, and a dead collector harms nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import structs

from observability import families
from observability.exposition import States
from observability.otlp import PAUSES
from observability.totals import Bounds, Totals
from proxy.plan import OtlpPlan
from proxy.supervisor.otlp import LAST_SECONDS, Exports
from tests.observability.test_otlp_tls import demanding, shown
from tests.parts.otlp_sink import OtlpSink
from tests.parts.redis_server import free_port
from tests.proxy.test_tls import Authority


def plan(url: str, *, interval: float = 0.01, headers: bytes | None = None) -> OtlpPlan:
    return OtlpPlan(endpoint=url, headers=headers, ca=None, interval_seconds=interval, service_name="gate")


class Bed:
    """Totals that grow by one worker's death each time that somebody looks."""

    def __init__(self) -> None:
        self.looks = 0
        self.totals = Totals(Bounds(), monotonic=lambda: 0.0, wall_clock=lambda: 1_796_000_000.0)
        self.exports = Exports(self.totals, self._states, wall_clock=lambda: 1_796_000_060.0)

    async def _states(self) -> States:
        self.looks += 1
        self.totals.count(families.WORKER_DEATHS)
        return {}

    @asynccontextmanager
    async def exporting(self, plan: OtlpPlan | None) -> AsyncIterator[None]:
        self.exports.follow(plan)
        async with self.exports.running():
            yield

    def lost(self) -> float:
        return self.totals.counted(families.TELEMETRY_DROPPED)["metrics",]


async def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)


def deaths(sink: OtlpSink) -> list[int]:
    """The sum in each export that holds it."""
    return [
        int(point.as_int)
        for request in sink.metrics
        for scope in request.resource_metrics[0].scope_metrics
        for metric in scope.metrics
        if metric.name == "saltgate_worker_deaths"
        for point in metric.sum.data_points
    ]


async def test_each_interval_brings_the_whole_sum_and_so_does_the_end() -> None:
    bed = Bed()
    async with OtlpSink() as sink:
        async with bed.exporting(plan(sink.url, headers=b"x-key: of the collector\n")):
            await until(lambda: len(deaths(sink)) >= 3)
            looks = bed.looks
        sums = deaths(sink)
        assert sums == list(range(1, len(sums) + 1))
        assert sums[-1] == bed.looks > looks - 1
        assert set(sink.paths) == {"/v1/metrics"}
        assert {headers["x-key"] for headers in sink.headers} == {"of the collector"}
        (resource,) = {str(one.resource_metrics[0].resource) for one in sink.metrics}
        assert '"gate"' in resource
        assert "service.instance.id" in resource
    assert bed.lost() == 0


async def test_what_was_counted_until_the_end_comes_at_the_end() -> None:
    bed = Bed()
    async with OtlpSink() as sink:
        async with bed.exporting(plan(sink.url, interval=3600.0)):
            await asyncio.sleep(0)
        assert deaths(sink) == [1]


async def test_metrics_go_to_a_collector_that_asks_for_a_certificate(tmp_path: Path) -> None:
    bed, authority = Bed(), Authority(tmp_path)
    async with OtlpSink(tls=demanding(authority)) as sink:
        mine = shown(authority)
        wanted = structs.replace(
            plan(sink.url), ca=str(authority.file), certificate=str(mine.certificate), key=mine.key.value
        )
        async with bed.exporting(wanted):
            await until(lambda: bool(deaths(sink)))
        assert sink.shown == {"127.0.0.9"}
    assert bed.lost() == 0
    assert mine.key.value.decode() not in repr(wanted)
    assert "PRIVATE" not in repr(wanted)


@pytest.mark.parametrize("renewed", ["certificate", "authority"])
async def test_a_reload_reads_the_certificates_anew_that_have_their_old_names(
    renewed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many renew a certificate and keep its key: then no setting is another one than before."""
    (tmp_path / "other").mkdir()
    bed, authority, other = Bed(), Authority(tmp_path), Authority(tmp_path / "other")
    key, trusted = ec.generate_private_key(ec.SECP256R1()), tmp_path / "trusted.pem"
    async with OtlpSink(tls=demanding(authority)) as sink:
        mine = authority.tls("127.0.0.9", key=key, expired=renewed == "certificate")
        trusted.write_bytes((other if renewed == "authority" else authority).file.read_bytes())
        wanted = structs.replace(
            plan(sink.url, interval=3600.0), ca=str(trusted), certificate=str(mine.certificate), key=mine.key.value
        )
        if renewed == "certificate":
            monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
            wanted = structs.replace(wanted, ca=None)
        async with bed.exporting(wanted):
            assert authority.tls("127.0.0.9", key=key).key.value == mine.key.value
            trusted.write_bytes(authority.file.read_bytes())
            bed.exports.follow(structs.replace(wanted))
        assert deaths(sink) == [1]


async def test_without_a_collector_nobody_looks() -> None:
    bed = Bed()
    async with bed.exporting(None):
        await asyncio.sleep(0.05)
    assert bed.looks == 0


@pytest.mark.slow
async def test_what_a_dead_collector_missed_is_in_the_sum_that_it_gets_then() -> None:
    bed = Bed()
    async with OtlpSink() as sink:
        sink.fault = "unavailable"
        bed.exports.follow(plan(sink.url, interval=0.005))
        async with bed.exports.running():
            await until(lambda: sink.requests > len(PAUSES))  # it was tried again as often as it is
            sink.fault = None
            await until(lambda: bool(deaths(sink)))
        sums = deaths(sink)
        assert sums == sorted(set(sums))
        assert sums[-1] == bed.looks
    assert bed.lost() >= 1


@pytest.mark.slow
@pytest.mark.parametrize("hangs", [True, False])
async def test_nothing_that_a_collector_does_holds_up_the_end(hangs: bool) -> None:
    bed = Bed()
    async with OtlpSink() as sink:
        sink.fault = "hang"
        url = sink.url if hangs else f"http://127.0.0.1:{free_port()}"
        loop = asyncio.get_running_loop()
        async with bed.exporting(plan(url, interval=0.001)):
            await until(lambda: bed.looks >= 1)
            began = loop.time()
        assert loop.time() - began < LAST_SECONDS + 8


@pytest.mark.slow
async def test_one_export_is_over_before_the_next_begins() -> None:
    bed = Bed()
    async with OtlpSink() as sink:
        sink.fault = "hang"
        async with bed.exporting(plan(sink.url, interval=0.001)):
            await until(lambda: sink.requests >= 1)
            await asyncio.sleep(0.1)
            assert sink.requests == bed.looks == 1


async def test_a_reload_sends_them_elsewhere_and_headers_that_are_none_send_nothing() -> None:
    bed = Bed()
    async with OtlpSink() as first, OtlpSink() as second:
        async with bed.exporting(plan(first.url)):
            await until(lambda: bool(deaths(first)))
            bed.exports.follow(plan(second.url))
            await until(lambda: bool(deaths(second)))
            before = len(deaths(first))
            bed.exports.follow(plan(first.url, headers=b"no header"))
            await asyncio.sleep(0.05)
        assert len(deaths(first)) == before


def test_a_plan_shows_no_headers() -> None:
    assert "secret" not in repr(plan("http://127.0.0.1", headers=b"authorization: secret"))
