"""The stage `connect`: what a request waited for a connection to its engine, and nothing where one was there."""

from __future__ import annotations

import asyncio
from pathlib import Path

from observability.waterfall import Bar, waterfall
from proxy.relay.leg import Home, Leg
from proxy.relay.pool import Address, Pool
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.raw_engine import RawEngine
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import DONE, TOKEN, on, outcome, stream

SLOW_SECONDS = 0.05


class SlowPool(Pool):
    """Takes its time for each connection."""

    async def new_leg(self, home: Home | None = None, *, seconds: float | None = None) -> Leg:
        await asyncio.sleep(SLOW_SECONDS)
        return await super().new_leg(home, seconds=seconds)


def slow(bed: GateBed, address: Address | None = None) -> None:
    replica = bed.gate.engines.engines[0].replicas[0]
    replica.pool = SlowPool(address or replica.pool.address, connect_seconds=30.0)


def waited(line: dict[str, object]) -> bool:
    took = line["connect_ms"]
    return isinstance(took, float) and took >= SLOW_SECONDS * 1e3 / 2


async def test_only_a_request_that_makes_a_connection_has_it_between_its_last_stage_and_prefill(
    redis: RedisServer, tmp_path: Path
) -> None:
    seen: list[list[Bar]] = []

    async def use(bed: GateBed) -> None:
        slow(bed)
        for _ in range(2):
            status, answered, _ = await bed.post(document=chat(stream=True))
            assert status == 200
            # The engine's time and the network's: no stage of the gate's own.
            told = {part.partition(";")[0] for part in answered["Server-Timing"].split(", ")}
            assert told == {"auth", "directory", "stamp"}
        first, second = await bed.completed(2)
        assert waited(first)
        assert "connect_ms" not in second
        seen.extend(waterfall(one.times) for one in bed.gate.ended.take())

    await on(redis, tmp_path, RawEngine(stream(TOKEN, DONE)), use)
    first_bars, second_bars = seen
    steps = [bar.step for bar in first_bars]
    at = steps.index("connect")
    assert steps[at - 1 : at + 2] == ["stamp", "connect", "prefill"]
    # No blank is left: what follows begins where it ended, but for a moment.
    _, connect, prefill = first_bars[at - 1 : at + 2]
    assert connect.seconds >= SLOW_SECONDS
    assert 0 <= prefill.begins - (connect.begins + connect.seconds) < SLOW_SECONDS
    assert "connect" not in {bar.step for bar in second_bars}


async def test_a_connection_that_cannot_be_made_took_its_time_too(redis: RedisServer, tmp_path: Path) -> None:
    async with RawEngine() as gone:
        away = Address(host="127.0.0.1", port=gone.port)
    async with (
        RawEngine() as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",)) as bed,
    ):
        slow(bed, away)
        status, _, _ = await bed.post()
        assert status == 503
        assert waited(await outcome(bed))
