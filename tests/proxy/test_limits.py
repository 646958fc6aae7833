"""The limits of the settings as a worker keeps them: its part of each, and as many connections as it can have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from config.settings import Capacity, EngineCapacity, Proxies, Settings
from proxy.capacity.shares import Share
from proxy.configured import capacity, connections
from proxy.descriptors import connections_possible
from proxy.peers import address_of
from proxy.relay.front import MOST_CONNECTIONS
from tests.config.configuration import good_table, loaded
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import RawEngine, Send, Wait, json_answer
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import values_of
from tests.proxy.relay.relay_parts import ANSWER

GOOD = (Send(json_answer(ANSWER)),)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = loaded(tmp_path, good_table()).settings
    engine = replace(found.engines[0], capacity=EngineCapacity(requests=10, waiting=7, waiting_bytes=1001, wait=3.0))
    return replace(found, engines=(engine,), capacity=Capacity(requests=9))


def test_the_workers_parts_are_the_limits_and_nothing_more(settings: Settings) -> None:
    parts = [capacity(settings, Share(number, 4)) for number in range(4)]
    name = settings.engines[0].name
    for part in parts:
        part.at(name).usable(3)
    assert sum(part.limit for part in parts) == 9
    assert sum(part.at(name).limit for part in parts) == 30
    assert sum(part.at(name).limits.waiting for part in parts) == 7
    assert sum(part.at(name).limits.waiting_bytes for part in parts) == 1001
    assert {part.at(name).limits.wait_seconds for part in parts} == {3.0}


def test_connections_are_those_that_are_set_and_never_more_than_there_can_be(settings: Settings) -> None:
    assert connections(settings, Share()).most == min(MOST_CONNECTIONS, connections_possible())
    of = replace(settings, capacity=Capacity(connections=10, connections_per_address=6))
    parts = [connections(of, Share(number, 4)) for number in range(4)]
    assert sum(part.most for part in parts) == 10
    assert [sum(part.enter("192.0.2.7") for _ in range(10)) for part in parts] == [2, 2, 1, 1]
    everything = replace(settings, capacity=Capacity(connections=1 << 40))
    assert connections(everything, Share()).most == connections_possible()


def test_one_address_has_three_of_four_where_nothing_is_said_and_a_trusted_front_has_all(settings: Settings) -> None:
    of = replace(settings, capacity=Capacity(connections=8), proxies=Proxies(trusted=("10.0.0.0/8",)))
    crowd = connections(of, Share())
    assert sum(crowd.enter(crowd.origin(address_of("192.0.2.7"))) for _ in range(10)) == 6
    assert sum(crowd.enter(crowd.origin(address_of("10.0.0.1"))) for _ in range(10)) == 2
    assert crowd.is_full


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


async def test_a_gate_keeps_its_limits_and_tells_of_them(redis: RedisServer, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with (
        RawEngine((Wait(go_on), *GOOD), GOOD) as engine,
        gate_bed(
            redis.settings(),
            [engine.url],
            tmp_path,
            proof="off",
            models=("tiny",),
            of_all=Capacity(requests=1, connections_per_address=2),
        ) as bed,
        GoneClient.to(bed.url) as first,
        GoneClient.to(bed.url) as second,
    ):
        for client in (first, second):
            await client.send(post("/v1/chat/completions", chat(), bed.headers()))
        await until(lambda: bed.gate.gateway.entries.capacity.at("main").waiting == 1)
        async with GoneClient.to(bed.url) as third:
            with pytest.raises((EOFError, ConnectionResetError)):
                await third.read_until(b"\r\n")
        assert _told(bed, "saltgate_connections") == {(): 2}
        assert _told(bed, "saltgate_connections_limit")[()] >= 2
        closed = {("address",): 1, ("all",): 0, ("idle",): 0}
        assert _told(bed, "saltgate_connections_closed_total") == closed
        assert _told(bed, "saltgate_engine_waiting_requests") == {("main",): 1}
        go_on.set()
        for client in (first, second):
            assert (await client.read_answer()).status == 200


def _told(bed: GateBed, family: str) -> dict[tuple[str, ...], float]:
    bed.gate.counted()
    return values_of(bed.gate.metrics, family)
