"""Debian's Prometheus scrapes a real gate of two workers with what compose/ ships, and its alerts really fire."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import yaml

from proxy.demo.simulator import EngineShape, Pace
from tests.parts.gate_bed import chat
from tests.parts.otlp_sink import OtlpSink
from tests.parts.prometheus_server import Json, PrometheusServer
from tests.parts.redis_server import RedisServer
from tests.proxy.test_server import Served, serving
from tests.watch.queries import PROMETHEUS, RULE_FILES, Query, allowed_keys, dashboard_queries, filled

pytestmark = pytest.mark.process

# What OpenTelemetry's SDK says of itself; no backend needs it.
OF_THE_SDK: Final = frozenset({"telemetry.sdk.name", "telemetry.sdk.language", "telemetry.sdk.version"})
TOKEN: Final = "metrics-token-of-the-test"
SHAPE: Final = EngineShape(answer_tokens=8, pace=Pace(prefill_tokens_per_second=0.0, seconds_per_token=0.002))


@asynccontextmanager
async def watched(
    redis: RedisServer, folder: Path, *, collector: str | None = None
) -> AsyncIterator[tuple[Served, PrometheusServer]]:
    """A gate of two workers, ready, and a Prometheus that has scraped it and its engine. Spans go to `collector`."""
    (folder / "metrics-token").write_text(f"{TOKEN}\n")
    environment = {"SALTGATE_ADMIN__METRICS_TOKEN": '{ file = "metrics-token" }'}
    if collector is not None:
        environment["SALTGATE_TELEMETRY__OTLP_ENDPOINT"] = collector
    async with serving(redis, folder, workers=2, shape=SHAPE, environment=environment) as served:
        await served.until("/readyz", 200, seconds=120.0)
        watching = folder / "prometheus"
        watching.mkdir()
        async with PrometheusServer(watching, shipped(served, folder, watching)) as prometheus:
            await prometheus.until('up{job="saltgate"} == 1 and on () up{job="vllm"} == 1')
            yield served, prometheus


def shipped(served: Served, secrets: Path, folder: Path) -> Json:
    """The configuration of compose/, the engines' job with it, at these addresses: a second is what a minute was."""
    text = (PROMETHEUS / "prometheus.yaml").read_text()
    configuration: Json = yaml.safe_load(with_engines(text).replace("/run/secrets", str(secrets)))
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    saltgate, vllm = configuration["scrape_configs"]
    saltgate["static_configs"] = [{"targets": [served.admin.removeprefix("http://")]}]
    vllm["static_configs"] = [{"targets": [served.engine.url.removeprefix("http://")]}]
    del vllm["scheme"], vllm["tls_config"]  # the simulator has no certificate
    for file in RULE_FILES:
        (folder / file.name).write_text(re.sub(r"\bfor: (\d+)[mh]\b", r"for: \1s", file.read_text()))
    return configuration


def with_engines(text: str) -> str:
    """The text with the job that stands there as a comment."""
    head, marked, job = text.partition("  # - job_name: vllm\n")
    assert marked
    return head + re.sub(r"^  # ", "  ", marked + job, flags=re.MULTILINE)


async def ask(served: Served, **more: object) -> int:
    """One request of alice's, its answer read to the end."""
    document = chat("What is the meaning of all this? " * 200, **more)
    async with served.session.post(f"{served.url}/v1/chat/completions", json=document, headers=served.headers()) as got:
        await got.read()
        return got.status


async def traffic(served: Served, prometheus: PrometheusServer) -> None:
    """Streams, whole answers and refusals, until what is asked over five minutes has some increase."""
    for _ in range(3):
        statuses = await asyncio.gather(*(ask(served, stream=streams) for streams in (True, True, False)))
        assert set(statuses) == {200}
        async with served.session.post(f"{served.url}/v1/chat/completions", json=chat()) as refused:
            assert refused.status == 401
        await asyncio.sleep(1.5)  # until another scrape
    await prometheus.until('sum(rate(saltgate_requests_total{outcome="ok"}[5m])) > 0')
    await prometheus.until("sum(rate(saltgate_reused_prompt_tokens_total[15m])) > 0")


# What a gate in good order, with two users and the simulator behind it, has nothing to show for.
EMPTY: Final = (
    r"saltgate: (Streams without a token|Usage unknown) ",
    r"saltgate: Where the first token's time goes C",  # nobody waits
    r"saltgate-health: Firing now ",
    r"saltgate-health: Audit ",
    r"saltgate-health: Engines, directory, issuers [DFG]",  # no introspection, no TLS, no audit
    r"saltgate-health: (Preemptions|Inside the engine, p95) ",  # the simulator has no such metrics
    r"saltgate-health: Border alarms and rules B",  # no rules
    r"saltgate-health: Certificate ends in ",
    r"saltgate.*: Reuse B",  # a day before
)


async def every_panel_answers(prometheus: PrometheusServer) -> None:
    """No expression of a dashboard is an error, and each that this traffic gives something to has something."""
    chosen = {"workspace": "acme", "project": "apollo"}
    exprs = {str(query): filled(query.expr, **chosen) for query in dashboard_queries()}
    values = {name: await prometheus.query(expr) for name, expr in exprs.items()}
    empty = [name for name, samples in values.items() if not samples]
    missing = [name for name in empty if not any(re.match(pattern, name) for pattern in EMPTY)]
    assert not missing, "\n".join(missing)


async def healthy_rules(prometheus: PrometheusServer) -> None:
    """Every rule was evaluated without an error."""
    groups = (await prometheus.ask("rules"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == sum(
        text.count("- record:") + text.count("- alert:") for text in map(Path.read_text, RULE_FILES)
    )
    faulty = [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] == "err"]
    assert not faulty


async def test_it_scrapes_evaluates_and_alerts_and_each_alert_ends(own_redis: RedisServer, tmp_path: Path) -> None:
    async with watched(own_redis, tmp_path) as (served, prometheus):
        await traffic(served, prometheus)
        await prometheus.until_alerts(lambda names: not names - {"EngineUnproven"})
        await healthy_rules(prometheus)
        for name in ("scope:saltgate_requests:rate5m", "model:saltgate_prefix_reuse:ratio_rate15m"):
            await prometheus.until(name)
        await every_panel_answers(prometheus)

        own_redis.pause()
        (away,) = await only(prometheus, "DirectoryAway")
        assert away["labels"]["severity"] == "page"
        assert away["annotations"]["summary"] == f"The directory is not confirmed at {away['labels']['instance']}"
        own_redis.resume()
        await prometheus.until_alerts(lambda names: "DirectoryAway" not in names)

        await served.engine.__aexit__(None, None, None)
        (down,) = await only(prometheus, "EngineDown")
        assert down["labels"]["engine"] == "main"
        (replica,) = await only(prometheus, "ReplicaDown")
        assert replica["labels"]["replica"] in replica["annotations"]["summary"]

        served.process.kill()
        await served.ended()
        await prometheus.until_alerts(lambda names: "SaltgateGone" in names)


async def points(prometheus: PrometheusServer, query: Query) -> set[str]:
    """The traces that Grafana draws as points beside this query of a panel."""
    now = time.time()
    found = await prometheus.ask("query_exemplars", query=filled(query.expr), start=str(now - 300), end=str(now + 300))
    return {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}


async def test_the_points_of_a_panel_are_traces_that_the_collector_has(redis: RedisServer, tmp_path: Path) -> None:
    (panel,) = (query for query in dashboard_queries() if query.place == "saltgate: Time to first token A")
    async with OtlpSink() as sink, watched(redis, tmp_path, collector=sink.url) as (served, prometheus):
        async with asyncio.timeout(180):
            while not (shown := await points(prometheus, panel)):
                assert await ask(served, stream=True) == 200
                await asyncio.sleep(0.5)
            while not shown <= {span.trace_id for span in sink.spans}:
                await asyncio.sleep(0.2)
        # What the collector would let through is all that these spans say.
        told = {name for span in sink.spans for name in (*span.attributes, *span.resource)}
        assert told - OF_THE_SDK <= set(allowed_keys())


async def only(prometheus: PrometheusServer, name: str) -> list[Json]:
    """The alerts of this name, as soon as one fires."""
    firing = await prometheus.until_alerts(lambda names: name in names)
    return [one for one in firing if one["labels"]["alertname"] == name]


async def test_who_asks_the_engine_round_the_gate_is_seen(own_redis: RedisServer, tmp_path: Path) -> None:
    async with watched(own_redis, tmp_path) as (served, prometheus):
        await traffic(served, prometheus)
        await prometheus.until("saltgate:unexplained_prompt_tokens:ratio30m <= 0.05")
        async with aiohttp.ClientSession() as direct:
            for number in range(20):
                document = chat(f"{number} came another way. " * 40, max_tokens=1)
                async with direct.post(f"{served.engine.url}/v1/chat/completions", json=document) as answer:
                    assert answer.status == 200
        firing = await only(prometheus, "UnsaltedTrafficAtEngine")
        assert re.match(r"[\d.]+% of the engines' prompt tokens did not come", firing[0]["annotations"]["summary"])
