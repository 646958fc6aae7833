"""What must still hold when a connection to the engine is there, which may have taken its time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from proxy.directory.changes import Deed, revoke
from proxy.directory.model import user
from proxy.directory.rotation import raise_unit
from proxy.isolation.unit import ProjectUnit
from proxy.relay.leg import Home, Leg
from proxy.relay.pool import Address, Pool
from tests.parts.gate_bed import gate_bed
from tests.parts.raw_engine import RawEngine, Send, json_answer
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER


class SlowPool(Pool):
    """Its connections are made when the event is set."""

    def __init__(self, address: Address, go_on: asyncio.Event) -> None:
        super().__init__(address, connect_seconds=30.0)
        self.go_on = go_on
        self.asked = 0

    async def new_leg(self, home: Home | None = None, *, seconds: float | None = None) -> Leg:
        self.asked += 1
        await self.go_on.wait()
        return await super().new_leg(home, seconds=seconds)


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        (raise_unit(ProjectUnit("acme", "hermes")), (503, "engine_unavailable")),
        (revoke("acme", "hermes", user("u-bob-0002")), (403, "not_a_member")),
        (raise_unit(ProjectUnit("acme", "ares")), (200, None)),
    ],
    ids=["raised", "revoked", "another's"],
)
async def test_what_waits_for_a_connection_goes_up_only_if_it_still_may(
    deed: Deed, told: tuple[int, str | None], redis: RedisServer, tmp_path: Path
) -> None:
    """A salt of before a raise would read what the raise has put out of reach; here also where streams may run on."""
    async with (
        RawEngine((Send(json_answer(ANSWER)),)) as engine,
        gate_bed(
            redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",), streams_end_on_revoke=False
        ) as bed,
    ):
        replica = bed.gate.engines.engines[0].replicas[0]
        replica.pool = slow = SlowPool(replica.pool.address, asyncio.Event())
        asked = asyncio.create_task(bed.post(headers=bed.headers("u-bob-0002", "hermes")))
        async with asyncio.timeout(10):
            while not slow.asked:
                await asyncio.sleep(0.005)
        before = bed.gate.view.current()
        await bed.change(deed)
        await bed.gate.view.next_after(before)
        slow.go_on.set()
        status, _, body = await asked
        assert (status, json.loads(body).get("error", {}).get("code")) == told
        assert len(engine.requests) == (status == 200)
