"""A short run of the fuzzer, from a fixed seed; `make fuzz` runs it for long."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from tests.parts.gate_bed import gate_bed
from tests.parts.redis_server import RedisServer
from tests.proxy.raw_fuzz import CASES, fuzz, mutants


@pytest.mark.slow
async def test_whatever_bytes_come_the_engine_gets_the_gates_own_request_or_nothing(
    redis: RedisServer, tmp_path: Path
) -> None:
    shape = EngineShape(pace=AT_ONCE, answer_tokens=2)
    async with Simulator(shape) as engine, gate_bed(redis.settings(), [engine.url], tmp_path) as bed:
        counts = await fuzz(bed, engine, random.Random(7), lambda sent: sent < 1500)
        assert (await bed.post())[0] == 200
    assert counts.reached > 50
    assert counts.answered > 500


def test_the_same_seed_gives_the_same_mutants_and_most_are_new() -> None:
    one, two = (list(itertools.islice(mutants(random.Random(1)), 200)) for _ in range(2))
    assert one == two
    assert len(set(one) - set(CASES)) > 150
