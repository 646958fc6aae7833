"""Debian's Prometheus scrapes a whole gate: with exemplars that lead to traces, and with sums that never fall."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from observability.families import FAMILIES
from proxy.demo.simulator import AT_ONCE, EngineShape
from tests.parts.gate_bed import chat
from tests.parts.otlp_sink import OtlpSink
from tests.parts.prometheus_server import Json, PrometheusServer
from tests.parts.redis_server import RedisServer
from tests.proxy.test_server import Served, serving

pytestmark = pytest.mark.process

SHAPE: Final = EngineShape(answer_tokens=5, pace=AT_ONCE)


@asynccontextmanager
async def scraped(
    redis: RedisServer, folder: Path, *, workers: int = 2, tables: str = ""
) -> AsyncIterator[tuple[Served, PrometheusServer]]:
    """A gate that is ready, and a Prometheus that looks at it each second."""
    async with serving(redis, folder, workers=workers, shape=SHAPE, tables=tables) as served:
        await served.until("/readyz", 200)
        target = served.admin.removeprefix("http://")
        configuration: Json = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "saltgate", "static_configs": [{"targets": [target]}]}],
        }
        (folder / "prometheus").mkdir()
        async with PrometheusServer(folder / "prometheus", configuration) as prometheus:
            await prometheus.until("up == 1")
            yield served, prometheus


async def stream(served: Served) -> int:
    """One stream of alice's, read to its end."""
    document = chat("What is the meaning of all this?", stream=True)
    async with served.session.post(f"{served.url}/v1/chat/completions", json=document, headers=served.headers()) as got:
        await got.read()
        return got.status


async def checked(page: str) -> str:
    """What `promtool check metrics` has to say of the page; nothing where all is well."""
    promtool = await asyncio.create_subprocess_exec(
        "promtool",
        "check",
        "metrics",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await promtool.communicate(page.encode())
    assert promtool.returncode in (0, 3), said
    return said.decode()


async def test_exemplars_are_stored_and_name_the_traces_of_the_streams(redis: RedisServer, tmp_path: Path) -> None:
    async with OtlpSink() as sink:
        tables = f'[telemetry]\notlp_endpoint = "{sink.url}"\n'
        async with scraped(redis, tmp_path, tables=tables) as (served, prometheus):
            for _ in range(6):
                assert await stream(served) == 200
            wanted = {
                "saltgate_time_to_first_token_seconds_bucket": {"workspace": "acme", "project": "apollo"},
                "saltgate_model_time_to_first_token_seconds_bucket": {"kind": "content"},
                "saltgate_upstream_time_to_first_token_seconds_bucket": {"model": "tiny"},
                "saltgate_request_duration_seconds_bucket": {"outcome": "ok"},
            }
            for name, labels in wanted.items():
                stored = await exemplars(prometheus, name)
                assert labels.items() <= stored[0]["seriesLabels"].items()
                traces = {one["labels"]["trace_id"] for series in stored for one in series["exemplars"]}
                async with asyncio.timeout(30):
                    while not traces <= {span.trace_id for span in sink.spans}:
                        await asyncio.sleep(0.1)
            async with served.session.get(f"{served.admin}/metrics") as answer:
                page = await answer.text()
        assert "trace_id" not in page
        assert await checked(page) == ""


async def exemplars(prometheus: PrometheusServer, name: str) -> list[Json]:
    async with asyncio.timeout(60):
        while True:
            now = (await prometheus.query("time()"))[0].value
            found: list[Json] = await prometheus.ask(
                "query_exemplars", query=name, start=str(now - 300), end=str(now + 60)
            )
            if found:
                return found
            await asyncio.sleep(0.3)


def sums() -> list[str]:
    """The names of all samples that only grow."""
    counters = [family.name for family in FAMILIES.values() if family.kind == "counter"]
    histograms = [family.name for family in FAMILIES.values() if family.kind == "histogram"]
    return counters + [name + suffix for name in histograms for suffix in ("_count", "_bucket", "_sum")]


async def test_no_sum_falls_when_workers_die_or_others_take_over(redis: RedisServer, tmp_path: Path) -> None:
    async with scraped(redis, tmp_path) as (served, prometheus):
        for _ in range(8):
            assert await stream(served) == 200
        await prometheus.until('sum(saltgate_requests_total{outcome="ok",model="tiny"}) == 8')
        os.kill(served.workers()[0], signal.SIGKILL)
        await prometheus.until("saltgate_worker_deaths_total == 1")
        await served.until("/readyz", 200)
        served.process.send_signal(signal.SIGHUP)
        await served.until_told("server.reloaded")
        for _ in range(4):
            assert await stream(served) == 200
        await prometheus.until('sum(saltgate_requests_total{outcome="ok",model="tiny"}) == 12')
        await prometheus.until('sum(saltgate_workers{state="serving"}) == 2 and sum(saltgate_workers) == 2')
        for name in sums():
            assert await prometheus.query(f"resets({name}[10m]) > 0") == [], name
        assert (await prometheus.query("count(up == 0) or vector(0)"))[0].value == 0
        assert await prometheus.query('process_resident_memory_bytes{process="supervisor"} > 1e7')
        assert len(await prometheus.query('process_cpu_seconds_total{process=~"worker-."} > 0')) == 2


async def test_metrics_by_otlp_are_those_of_the_scrape(redis: RedisServer, tmp_path: Path) -> None:
    async with OtlpSink() as sink:
        tables = f"""
[telemetry]
otlp_endpoint = "{sink.url}"
[metrics]
otlp = true
otlp_interval = "1h"
scope_labels = "pseudonymous"
pseudonym_key = {{{{ file = "pseudonyms" }}}}
"""
        (tmp_path / "pseudonyms").write_bytes(b"0123456789abcdef0123456789abcdeX")
        async with serving(redis, tmp_path, workers=2, shape=SHAPE, tables=tables) as served:
            await served.until("/readyz", 200)
            for _ in range(3):
                assert await stream(served) == 200
            async with served.session.get(f"{served.admin}/metrics") as answer:
                page = await answer.text()
            served.process.send_signal(signal.SIGTERM)
            assert await served.ended() == 0
        points = [
            (point.as_int, {one.key: one.value.string_value for one in point.attributes})
            for request in sink.metrics
            for metric in request.resource_metrics[0].scope_metrics[0].metrics
            if metric.name == "saltgate_requests"
            for point in metric.sum.data_points
        ]
    ((count, labels),) = [one for one in points if one[0] == 3]
    assert count == 3
    assert labels["workspace"] not in ("acme", "")
    assert f'workspace="{labels["workspace"]}",project="{labels["project"]}"' in page
    assert "acme" not in page
    assert "apollo" not in page
