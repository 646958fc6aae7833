"""An engine that has as many requests as it may have: who waits, in which order, how long, and what counts when his
turn comes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.settings import Engine, EngineCapacity, Isolation, IsolationKey, IsolationRule
from proxy.assurance.replica import Served
from proxy.capacity.waiting import Waiting
from proxy.directory.changes import Deed, block, grant, revoke
from proxy.directory.model import user
from proxy.directory.redis_store import GENERATION, RING
from proxy.directory.rotation import raise_unit
from proxy.isolation.unit import ProjectUnit
from tests.parts.gate_bed import KEY, GateBed, chat, gate_bed
from tests.parts.gone_client import Answer, GoneClient, post
from tests.parts.raw_engine import Close, RawEngine, Reset, Send, Wait, WaitForPeer, json_answer
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import values_of
from tests.proxy.relay.relay_parts import ANSWER, nothing_held, stream

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
ALICE, BOB, MALLORY = "u-alice-0001", "u-bob-0002", "u-mallory-0009"
GOOD = (Send(json_answer(ANSWER)),)
ONE = EngineCapacity(requests=1)


@asynccontextmanager
async def full(
    redis: RedisServer,
    folder: Path,
    *,
    capacity: EngineCapacity = ONE,
    then: tuple[Any, ...] = GOOD,
    first: tuple[Any, ...] | None = None,
    **more: Any,
) -> AsyncIterator[tuple[GateBed, RawEngine, asyncio.Event]]:
    """An engine that is full with a request of alice's, until the event is set."""
    go_on = asyncio.Event()
    async with (
        RawEngine(first or (Wait(go_on), *GOOD), then) as engine,
        gate_bed(
            redis.settings(), [engine.url], folder, proof="off", models=("tiny",), capacity=capacity, **more
        ) as bed,
        GoneClient.to(bed.url) as client,
    ):
        await client.send(post(CHAT, chat("the first"), bed.headers()))
        await engine.request()
        yield bed, engine, go_on
        go_on.set()
        await nothing_held(bed)
        assert (bed.gate.gateway.entries.capacity.taken, waiting(bed)) == (0, 0)


def waiting(bed: GateBed) -> int:
    return bed.gate.gateway.entries.capacity.at("main").waiting


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


async def until_waiting(bed: GateBed, number: int) -> None:
    await until(lambda: waiting(bed) == number)


async def queued(
    bed: GateBed, text: str, subject: str = ALICE, project: str = "apollo", workspace: str = "acme"
) -> Any:
    """The task of a request that waits by now."""
    before = waiting(bed)
    task = asyncio.ensure_future(bed.post(CHAT, chat(text), bed.headers(subject, project, workspace)))
    await until_waiting(bed, before + 1)
    return task


def texts(engine: RawEngine) -> list[str]:
    return [json.loads(request.body)["messages"][0]["content"] for request in engine.requests]


def salts(engine: RawEngine) -> list[str]:
    return [json.loads(request.body)["cache_salt"] for request in engine.requests]


def error(answer: Answer | tuple[int, Any, bytes]) -> dict[str, Any]:
    body = answer.body if isinstance(answer, Answer) else answer[2]
    found = json.loads(body)["error"]
    assert isinstance(found, dict)
    return found


# Waiting.


async def test_who_comes_to_a_full_engine_waits_for_his_turn_and_is_told_how_long(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with full(redis, tmp_path) as (bed, engine, go_on):
        second = await queued(bed, "the second")
        assert texts(engine) == ["the first"]
        bed.gate.counted()
        for family in ("requests", "requests_limit", "waiting_requests"):
            assert values_of(bed.gate.metrics, f"saltgate_engine_{family}") == {("main",): 1}
        go_on.set()
        status, headers, _ = await second
        assert status == 200
        assert "queue;dur=" in headers["Server-Timing"]
        assert texts(engine) == ["the first", "the second"]
        first, after = await bed.completed(2)
        assert "queue_ms" not in first
        assert float(str(after["queue_ms"])) > 0
        assert after["operation"] == "chat"


async def test_scopes_take_turns_so_that_a_flood_delays_itself_only(redis: RedisServer, tmp_path: Path) -> None:
    async with full(redis, tmp_path) as (bed, engine, go_on):
        tasks = [await queued(bed, f"flood {number}") for number in range(4)]
        tasks.append(await queued(bed, "ares", project="ares"))
        tasks += [await queued(bed, f"globex {number}", MALLORY, "vault", "globex") for number in range(2)]
        go_on.set()
        assert [status for status, _, _ in await asyncio.gather(*tasks)] == [200] * 7
        assert texts(engine)[1:] == ["flood 0", "globex 0", "ares", "globex 1", "flood 1", "flood 2", "flood 3"]


async def test_a_stream_keeps_its_place_to_its_end(redis: RedisServer, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    slow = (*stream(b"data: 1\n\n")[:-1], Wait(go_on), Close())
    async with full(redis, tmp_path, then=slow) as (bed, engine, first), GoneClient.to(bed.url) as client:
        await client.send(post(CHAT, chat("streams", stream=True), bed.headers()))
        await until_waiting(bed, 1)
        first.set()
        await client.read_until(b"data: 1\n\n")
        after = await queued(bed, "after")
        assert len(engine.requests) == 2
        engine.scripts.append(GOOD)
        go_on.set()
        assert (await after)[0] == 200


async def test_a_lost_replica_takes_its_places_along_and_brings_them_back(redis: RedisServer, tmp_path: Path) -> None:
    capacity = EngineCapacity(requests=2)
    async with (
        RawEngine(GOOD) as one,
        RawEngine(GOOD) as other,
        gate_bed(
            redis.settings(), [one.url, other.url], tmp_path, proof="off", models=("tiny",), capacity=capacity
        ) as bed,
    ):
        places = bed.gate.gateway.entries.capacity.at("main")
        await until(lambda: places.limit == 4)
        other._server.close()
        for connection in other.connections:
            await connection.drop()
        await until(lambda: places.limit == 2)


# What is no turn.


async def test_too_many_are_told_when_to_come_again_and_the_engine_hears_nothing_of_them(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with full(redis, tmp_path, capacity=replace(ONE, waiting=1)) as (bed, engine, _):
        await queued(bed, "waits")
        status, headers, body = await bed.post(CHAT, chat("too many"), bed.headers())
        assert (status, json.loads(body)["error"]["code"]) == (503, "engine_busy")
        assert 1 <= int(headers["Retry-After"]) <= 60
        assert texts(engine) == ["the first"]


async def test_nobody_waits_longer_than_is_said(redis: RedisServer, tmp_path: Path) -> None:
    async with full(redis, tmp_path, capacity=replace(ONE, wait=0.1)) as (bed, engine, _):
        async with asyncio.timeout(20):
            status, headers, body = await bed.post(CHAT, chat("waits"), bed.headers())
        assert (status, json.loads(body)["error"]["code"]) == (503, "engine_busy")
        assert "Retry-After" in headers
        (line,) = await bed.completed(1)
        assert (line["reason"], line["outcome"]) == ("waited_too_long", "refused")
        assert float(str(line["queue_ms"])) >= 100
        assert texts(engine) == ["the first"]


async def test_who_waited_in_vain_is_told_of_with_what_he_asked_for(redis: RedisServer, tmp_path: Path) -> None:
    async with full(redis, tmp_path, capacity=replace(ONE, wait=0.1)) as (bed, _, _):
        async with asyncio.timeout(20):
            status, _, _ = await bed.post(CHAT, chat("waits", stream=True), bed.headers())
        (line,) = await bed.completed(1)
        told = [line.get(name) for name in ("workspace", "project", "model", "operation", "stream")]
        assert (status, told) == (503, ["acme", "apollo", "tiny", "chat", True])
        assert line.keys().isdisjoint({"requested_model", "unit", "salt_fingerprint", "tokens_known", "engine"})
        metrics = bed.gate.metrics
        assert values_of(metrics, "saltgate_queue_wait_seconds_count")[("tiny",)] == 1


async def test_without_a_queue_a_full_engine_is_busy_at_once_and_nobody_waited(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with full(redis, tmp_path, capacity=replace(ONE, waiting=0)) as (bed, _, _):
        status, headers, body = await bed.post()
        assert (status, json.loads(body)["error"]["code"]) == (503, "engine_busy")
        assert "queue;dur=" not in headers["Server-Timing"]
        (line,) = await bed.completed(1)
        assert (line["reason"], line["model"]) == ("queue_full", "tiny")
        assert "queue_ms" not in line


async def test_what_waits_is_bounded_in_bytes_also_those_of_what_is_dropped(redis: RedisServer, tmp_path: Path) -> None:
    async with full(redis, tmp_path, capacity=replace(ONE, waiting=100, waiting_bytes=100_000)) as (bed, engine, go_on):
        assert error(await bed.post(CHAT, chat("x" * 100_001), bed.headers()))["code"] == "engine_busy"
        padded = chat("y", cache_salt="z" * 100_001)  # the engine would not get it, but it is kept with the request
        assert error(await bed.post(CHAT, padded, bed.headers()))["code"] == "engine_busy"
        small = await queued(bed, "x" * 60_000)
        other = await queued(bed, "from another", MALLORY, "vault", "globex")
        assert error(await bed.post(CHAT, chat("x" * 60_000), bed.headers()))["code"] == "engine_busy"
        go_on.set()
        assert [(await task)[0] for task in (small, other)] == [200, 200]
        assert len(engine.requests) == 3


# Leaving.


@pytest.mark.parametrize("leave", ["fin", "rst", "half_close"])
async def test_a_client_that_leaves_gives_its_turn_back_at_once(leave: str, redis: RedisServer, tmp_path: Path) -> None:
    async with full(redis, tmp_path) as (bed, engine, go_on), GoneClient.to(bed.url) as client:
        await client.send(post(CHAT, chat("leaves", stream=True), bed.headers()))
        await until_waiting(bed, 1)
        stays = await queued(bed, "stays")
        if leave == "fin":
            client.leave_by_fin()
        elif leave == "rst":
            client.leave_by_rst()
        else:
            client.half_close()
        await until_waiting(bed, 1)
        (line,) = await bed.completed(1)
        assert line["outcome"] == "client_gone"
        go_on.set()
        assert (await stays)[0] == 200
        assert texts(engine) == ["the first", "stays"]


async def test_a_client_that_leaves_in_the_moment_of_its_turn_holds_no_place(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with full(redis, tmp_path) as (bed, engine, go_on), GoneClient.to(bed.url) as client:
        await client.send(post(CHAT, chat("leaves"), bed.headers()))
        await until_waiting(bed, 1)
        stays = await queued(bed, "stays")
        places = bed.gate.gateway.entries.capacity.at("main")
        places.limit += 1
        bed.gate.gateway.entries.capacity.grant()  # its turn, and before it goes on:
        next(d for d in bed.gate.front.downstreams if isinstance(d.listener, Waiting))._abort()
        go_on.set()
        assert (await stays)[0] == 200
        assert "leaves" not in texts(engine)
        places.limit -= 1


# What counts when the turn has come.


async def test_a_salt_is_that_of_the_turn_and_not_of_before(redis: RedisServer, tmp_path: Path) -> None:
    """A request stamped with the epoch of before a raise would read what the raise has put out of reach."""
    async with full(redis, tmp_path) as (bed, engine, go_on):
        second = await queued(bed, "the second")
        third = await queued(bed, "the third")
        before = bed.gate.view.current()
        await bed.change(raise_unit(ProjectUnit("acme", "apollo")))
        await bed.gate.view.next_after(before)
        go_on.set()
        assert [(await task)[0] for task in (second, third)] == [200, 200]
        assert (await bed.post(CHAT, chat("after"), bed.headers()))[0] == 200
        first, *others = salts(engine)
        assert len(set(others)) == 1
        assert first not in others


def removed(bed: GateBed) -> Deed:
    return revoke("acme", "hermes", user(BOB))


def blocked(bed: GateBed) -> Deed:
    return block(bed.mint.issuer, user(BOB))


@pytest.mark.parametrize("deed", [removed, blocked])
async def test_who_may_have_it_no_more_waits_no_more(
    deed: Callable[[GateBed], Deed], redis: RedisServer, tmp_path: Path
) -> None:
    async with full(redis, tmp_path) as (bed, engine, go_on):
        his = await queued(bed, "his", BOB, "hermes")
        hers = await queued(bed, "hers")
        await bed.change(deed(bed))
        status, _, body = await his  # while the engine is full
        assert (status, json.loads(body)["error"]["type"]) == (403, "permission_error")
        assert waiting(bed) == 1
        go_on.set()
        assert (await hers)[0] == 200
        assert texts(engine) == ["the first", "hers"]


async def test_a_policy_that_lets_streams_run_lets_nobody_in_who_may_not_come_in_any_more(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with full(redis, tmp_path, streams_end_on_revoke=False) as (bed, engine, go_on):
        his = await queued(bed, "his", BOB, "hermes")
        hers = await queued(bed, "hers")
        before = bed.gate.view.current()
        await bed.change(removed(bed))
        await bed.gate.view.next_after(before)
        go_on.set()
        assert error(await his)["code"] == "not_a_member"
        assert (await hers)[0] == 200
        assert texts(engine) == ["the first", "hers"]


async def test_who_is_in_another_workspace_by_his_turn_has_its_rules_and_its_salt(
    redis: RedisServer, tmp_path: Path
) -> None:
    rule = IsolationRule(name="secret", workspaces=("globex",), words=("plutonium",), unit="user")
    isolation = Isolation(keys=(IsolationKey(id="k1", secret=KEY),), rules=(rule,))
    async with full(redis, tmp_path, isolation=isolation, streams_end_on_revoke=False) as (bed, _, go_on):
        headers = {"Authorization": f"Bearer {bed.token(BOB)}"}  # he names no scope
        his = asyncio.ensure_future(bed.post(CHAT, chat("plutonium"), headers))
        await until_waiting(bed, 1)
        for deed in (grant("globex", "vault", user(BOB)), revoke("acme", "hermes", user(BOB))):
            before = bed.gate.view.current()
            await bed.change(deed)
            await bed.gate.view.next_after(before)
        go_on.set()
        assert (await his)[0] == 200
        line = (await bed.completed(2))[1]
        assert (line["workspace"], line["unit"], line["narrowed_by"]) == ("globex", "user:globex/vault", ["secret"])


async def test_whose_model_is_another_engines_by_his_turn_has_no_place_there(
    redis: RedisServer, tmp_path: Path
) -> None:
    other = Engine(name="other", urls=("http://127.0.0.1:1",), models=("big",), proof="off")
    async with full(redis, tmp_path, also=(other,)) as (bed, engine, go_on):
        his = await queued(bed, "his")
        served = bed.gate.engines._served
        bed.gate.engines._served = {"tiny": Served(served["tiny"].model, served["big"].engine)}
        go_on.set()
        refused = await his
        assert (refused[0], error(refused)["code"]) == (503, "engine_unavailable")
        assert (await bed.completed(2))[1]["reason"] == "engine_changed"
        bed.gate.engines._served = served
        assert texts(engine) == ["the first"]


# The end.


async def test_a_drain_lets_those_through_who_wait(redis: RedisServer, tmp_path: Path) -> None:
    async with full(redis, tmp_path) as (bed, _, go_on):
        second = await queued(bed, "the second")
        draining = asyncio.ensure_future(bed.gate.drain(30.0))
        await asyncio.sleep(0.05)
        go_on.set()
        assert (await second)[0] == 200
        await draining


async def test_the_end_of_a_drain_refuses_those_who_still_wait(redis: RedisServer, tmp_path: Path) -> None:
    async with full(redis, tmp_path, first=(WaitForPeer(),)) as (bed, engine, _):
        second = await queued(bed, "the second")
        await bed.gate.drain(0.0)
        status, headers, body = await second
        assert (status, json.loads(body)["error"]["code"]) == (503, "draining")
        assert "Retry-After" in headers
        assert texts(engine) == ["the first"]


# Nothing is lost.


@pytest.mark.parametrize("end", [Close(), Reset(), Send(b"nonsense\r\n\r\n")], ids=["fin", "rst", "nonsense"])
async def test_a_failed_request_gives_its_place_back(
    end: Close | Reset | Send, redis: RedisServer, tmp_path: Path
) -> None:
    async with full(redis, tmp_path, first=(end,)) as (bed, _, _):
        for _ in range(3):
            assert (await bed.post())[0] == 200


async def test_a_request_that_cannot_be_stamped_gives_its_place_back(redis: RedisServer, tmp_path: Path) -> None:
    async with full(redis, tmp_path) as (bed, engine, go_on):
        waits = [await queued(bed, "waits"), await queued(bed, "waits, too")]
        before = bed.gate.view.current()
        redis.command("DEL", RING)
        redis.command("INCR", GENERATION)
        await bed.gate.view.next_after(before)
        go_on.set()
        assert [error(await task)["code"] for task in waits] == ["salt_unavailable"] * 2
        assert error(await bed.post())["code"] == "salt_unavailable"
        assert texts(engine) == ["the first"]


# What an engine says of itself.


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("7", "7"),
        (" 60 ", "60"),
        ("61", "5"),
        ("0", "5"),
        ("-1", "5"),
        ("1.5", "5"),
        ("Wed, 21 Oct 2026 07:28:00 GMT", "5"),
        ("9" * 5000, "5"),
        (None, "5"),
    ],
)
@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
async def test_an_engine_that_is_busy_says_itself_when_to_come_again_where_it_makes_sense(
    status: str, told: str | None, said: str, redis: RedisServer, tmp_path: Path
) -> None:
    line = "" if told is None else f"Retry-After: {told}\r\n"
    busy = f"HTTP/1.1 {status}\r\n{line}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    async with full(redis, tmp_path, then=(Send(busy.encode()),)) as (bed, _, go_on):
        go_on.set()
        answer = await bed.post()
        assert (answer[0], error(answer)["code"], answer[1]["Retry-After"]) == (503, "engine_busy", said)


async def test_a_word_before_the_answer_is_not_the_answers(redis: RedisServer, tmp_path: Path) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 7\r\n\r\n"
    busy = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    async with full(redis, tmp_path, then=(Send(early + busy),)) as (bed, _, go_on):
        go_on.set()
        assert (await bed.post())[1]["Retry-After"] == "5"
