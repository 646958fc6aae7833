"""The share of traces is that of OpenTelemetry's sampler, id by id."""

from __future__ import annotations

import random

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from observability.shares import Shares

MOST = (1 << 64) - 1


@pytest.mark.parametrize("ratio", [0.0, 2.0**-65, 2.0**-64, 1e-12, 0.1, 1 / 3, 0.5, 1 - 2.0**-53, 1.0])
def test_a_trace_is_held_where_the_sampler_records_it(ratio: float) -> None:
    sampler, shares, scoped = TraceIdRatioBased(ratio), Shares(ratio), Shares(0.3, {("acme", None): ratio})
    rng = random.Random(1)
    low = {0, 1, MOST, *(min(max(sampler.bound + near, 0), MOST) for near in (-1, 0, 1))}
    for number in (*((rng.getrandbits(64) << 64) | each for each in low), *(rng.getrandbits(128) for _ in range(200))):
        held = sampler.should_sample(None, number, "x").decision is Decision.RECORD_AND_SAMPLE
        assert shares.hold(f"{number:032x}") is held
        assert scoped.hold_in(f"{number:032x}", "acme", "apollo") is held
