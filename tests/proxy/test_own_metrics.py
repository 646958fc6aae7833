"""What a whole gate tells of itself: its caches, its fetches, its loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from tests.parts.gate_bed import gate_bed
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import values_of

pytestmark = pytest.mark.slow


async def test_look_ups_fetches_readings_and_the_loops_lag_are_told(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        Simulator(EngineShape(pace=AT_ONCE)) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path) as bed,
    ):
        metrics = bed.gate.metrics
        token = bed.headers()
        for _ in range(5):
            assert (await bed.post(headers=token))[0] == 200
        async with asyncio.timeout(10):
            while sum(values_of(metrics, "saltgate_token_lookups_total").values()) < 5:
                await asyncio.sleep(0.05)
        assert values_of(metrics, "saltgate_token_lookups_total") == {("hit",): 4, ("miss",): 1}
        scopes = values_of(metrics, "saltgate_scope_lookups_total")
        assert scopes[("hit",)] >= 4
        assert scopes[("miss",)] >= 1
        (issuer,) = {issuer for issuer, _ in values_of(metrics, "saltgate_jwks_refresh_total")}
        fetches = values_of(metrics, "saltgate_jwks_refresh_total")
        assert fetches[issuer, "ok"] >= 1
        assert fetches[issuer, "failed"] == 0
        reads = values_of(metrics, "saltgate_directory_reads_total")
        assert reads[("ok",)] >= 1
        assert values_of(metrics, "saltgate_event_loop_lag_seconds_count")[()] >= 1
        assert 0 <= values_of(metrics, "saltgate_event_loop_lag_max_seconds")[()] < 60
