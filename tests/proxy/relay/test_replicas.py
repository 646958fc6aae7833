"""Several replicas behind a whole gate: prefixes are found again, and what fails is left alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from proxy.app import open_gate
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.engines.profile import Operation
from proxy.engines.stamp import StampedRequest
from proxy.relay.exchange import End, Exchange
from proxy.relay.findings import Finding, finding
from proxy.relay.outliers import FAILURES, FIRST_SECONDS
from proxy.states import LOOK_SECONDS
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.raw_engine import RawEngine, Reset, Send, json_answer
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import page_of
from tests.proxy.engines.asking import body_of, stamped
from tests.proxy.relay.relay_parts import ANSWER, nothing_held
from tests.proxy.relay.test_failover import LostPool

GOOD = (Send(json_answer(ANSWER)),)
BAD = (Send(json_answer(b'{"error":{"message":"no"}}', "500 Internal Server Error")),)
LONG = "You answer questions about the handbook. " * 100


@asynccontextmanager
async def gate_before(
    redis: RedisServer, folder: Path, engines: Sequence[RawEngine | Simulator]
) -> AsyncIterator[GateBed]:
    """A gate before these, which are running."""
    urls = [engine.url for engine in engines]
    async with gate_bed(redis.settings(), urls, folder, proof="off", models=("tiny",)) as bed:
        replicas = bed.gate.engines.engines[0].replicas
        async with asyncio.timeout(10):
            while not all(replica.reachable for replica in replicas):
                await asyncio.sleep(0.01)
        yield bed
        await nothing_held(bed)


@asynccontextmanager
async def simulators(number: int) -> AsyncIterator[list[Simulator]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Simulator(EngineShape(pace=AT_ONCE))) for _ in range(number)]


@asynccontextmanager
async def another_worker(bed: GateBed) -> AsyncIterator[GateBed]:
    """A gate with the same settings, but that the replicas are written in another order."""
    [engine] = bed.settings.engines
    settings = replace(bed.settings, engines=(replace(engine, urls=engine.urls[::-1]),))
    async with open_gate(settings, instance="other", logs=bed.logs) as gate:
        server = await asyncio.get_running_loop().create_server(gate.front, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        other = replace(bed, gate=gate, port=port, url=f"http://127.0.0.1:{port}")
        await other.until_ready()
        async with asyncio.timeout(10):
            while not all(replica.reachable for replica in gate.engines.engines[0].replicas):
                await asyncio.sleep(0.01)
        yield other
        server.close()
        await gate.drain(0.0)


async def asked_for(bed: GateBed, engines: Sequence[Simulator], document: object, **scope: str) -> int:
    """Which of the engines got the request."""
    before = [len(engine.requests) for engine in engines]
    status, _, body = await bed.post(document=document, headers=bed.headers(**scope))
    assert status == 200, body
    after = [len(engine.requests) for engine in engines]
    [asked] = [index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    return asked


def turns(*texts: str, system: str | None = None) -> dict[str, object]:
    first = [] if system is None else [{"role": "system", "content": system}]
    said = [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]
    return {"model": "tiny", "messages": [*first, *said], "max_tokens": 2}


@pytest.mark.slow
class TestAffinity:
    async def test_all_turns_of_a_conversation_go_to_one_replica_and_reuse_the_past(
        self, redis: RedisServer, tmp_path: Path
    ) -> None:
        async with simulators(4) as engines, gate_before(redis, tmp_path, engines) as bed:
            for conversation in range(10):
                said = [f"question {conversation}"]
                homes = []
                for turn in range(4):
                    homes.append(await asked_for(bed, engines, turns(*said)))
                    said += [f"answer {turn} " + "x " * 100, f"question {turn}"]
                assert len(set(homes)) == 1
            assert sum(engine.engine.counters.prefix_hits for engine in engines) > 0

    async def test_conversations_under_long_instructions_share_a_replica_and_short_ones_spread(
        self, redis: RedisServer, tmp_path: Path
    ) -> None:
        async with simulators(4) as engines, gate_before(redis, tmp_path, engines) as bed:
            long = {await asked_for(bed, engines, turns(f"q {n}", system=LONG)) for n in range(20)}
            short = {await asked_for(bed, engines, turns(f"q {n}", system="Be brief.")) for n in range(40)}
            assert len(long) == 1
            assert len(short) == 4

    async def test_members_of_a_border_share_a_home_and_other_borders_have_their_own(
        self, redis: RedisServer, tmp_path: Path
    ) -> None:
        async with simulators(4) as engines, gate_before(redis, tmp_path, engines) as bed:
            differ = 0
            for number in range(12):
                document = turns("Hi", system=f"{number} {LONG}")
                alice = await asked_for(bed, engines, document)
                carol = await asked_for(bed, engines, document, subject="u-carol-0003")
                ares = await asked_for(bed, engines, document, project="ares")
                assert alice == carol
                differ += alice != ares
            assert differ > 0

    async def test_another_worker_chooses_the_same_whatever_the_order_of_its_replicas(
        self, redis: RedisServer, tmp_path: Path
    ) -> None:
        documents = [turns(f"question {number}", system=LONG if number % 2 else None) for number in range(20)]
        async with simulators(4) as engines, gate_before(redis, tmp_path, engines) as bed:
            first = [await asked_for(bed, engines, document) for document in documents]
            async with another_worker(bed) as other:
                assert [await asked_for(other, engines, document) for document in documents] == first

    async def test_a_client_cannot_say_where_his_request_goes(self, redis: RedisServer, tmp_path: Path) -> None:
        """Not by a salt, nor by any header that a router reads."""
        async with simulators(4) as engines, gate_before(redis, tmp_path, engines) as bed:
            plain = await asked_for(bed, engines, turns("Hi"))
            for number in range(12):
                spelled = turns("Hi") | {
                    "cache_salt": f"sg1-k1-{number}",
                    "user": f"{number}",
                    "request_id": f"{number}",
                }
                headers = bed.headers() | {
                    "X-Request-Id": f"{number}",
                    "X-Session-ID": f"{number}",
                    "X-data-parallel-rank": f"{number}",
                }
                before = len(engines[plain].requests)
                assert (await bed.post(document=spelled, headers=headers))[0] == 200
                assert len(engines[plain].requests) == before + 1


def counted(bed: GateBed, name: str) -> dict[str, float]:
    """The value of each replica, by its address."""
    page = page_of(bed.gate.metrics)
    rows = [line for line in page.splitlines() if line.startswith(f"{name}{{")]
    return {line.partition('replica="')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in rows}


async def send(bed: GateBed, number: int, **scope: str) -> list[int]:
    """So many different prompts, one after the other: the statuses."""
    return [(await bed.post(document=chat(f"{n}"), headers=bed.headers(**scope)))[0] for n in range(number)]


@pytest.mark.slow
class TestOutliers:
    async def test_a_replica_that_takes_no_connection_is_ejected_told_and_counted(
        self, redis: RedisServer, tmp_path: Path
    ) -> None:
        async with (
            RawEngine(GOOD) as broken,
            RawEngine(GOOD) as sound,
            gate_before(redis, tmp_path, (broken, sound)) as bed,
        ):
            address = broken.url.removeprefix("http://")
            broken._server.close()  # the leash stays, so its proof does not say a word
            assert set(await send(bed, 60)) == {200}
            told = [line for line in bed.lines() if line["event"] == "engine.ejected"]
            assert [(line["engine"], line["replica"]) for line in told] == [("main", address)]
            assert counted(bed, "saltgate_engine_ejections_total")[address] == 1.0
            async with asyncio.timeout(5):
                while counted(bed, "saltgate_engine_ejected").get(address) != 1.0:
                    await asyncio.sleep(0.05)
            assert counted(bed, "saltgate_engine_up")[address] == 1.0

    @pytest.mark.parametrize("failure", [BAD, (Reset(),)], ids=["500", "no answer"])
    async def test_what_fails_for_one_caller_is_left_alone_by_him_and_by_all_when_two_found_it(
        self, failure: Sequence[Any], redis: RedisServer, tmp_path: Path
    ) -> None:
        async with (
            RawEngine(failure) as broken,
            RawEngine(GOOD) as sound,
            gate_before(redis, tmp_path, (broken, sound)) as bed,
        ):
            alices = await send(bed, 60)
            assert alices.count(200) == len(sound.requests)
            assert len(alices) - alices.count(200) == FAILURES
            assert not [line for line in bed.lines() if line["event"] == "engine.ejected"]
            bobs = await send(bed, 60, subject="u-bob-0002", project="hermes")
            assert len(bobs) - bobs.count(200) == FAILURES
            assert len([line for line in bed.lines() if line["event"] == "engine.ejected"]) == 1
            others = await send(bed, 30, subject="u-mallory-0009", project="vault", workspace="globex")
            assert set(others) == {200}

    async def test_who_asks_under_many_borders_is_one_caller_all_the_same(
        self, redis: RedisServer, tmp_path: Path
    ) -> None:
        """He chooses among them, so he would else take a replica from everybody by what he sends."""
        async with (
            RawEngine(BAD) as broken,
            RawEngine(GOOD) as sound,
            gate_before(redis, tmp_path, (broken, sound)) as bed,
        ):
            alice = [bed.headers(), bed.headers(project="ares"), bed.headers() | {"X-Saltgate-Unit": "user"}]
            failed = 0
            for headers in alice:
                asked = [await bed.post(document=chat(f"{number}"), headers=headers) for number in range(30)]
                failed += [status for status, _, _ in asked].count(502)
            units = {line["unit"] for line in await bed.completed(90)}
            assert len(units) == len(alice)
            assert failed == FAILURES
            assert not [line for line in bed.lines() if line["event"] == "engine.ejected"]
            assert (await send(bed, 60, subject="u-bob-0002", project="hermes")).count(502) == FAILURES

    async def test_what_the_caller_got_wrong_never_counts(self, redis: RedisServer, tmp_path: Path) -> None:
        wrong = (Send(json_answer(b'{"error":{"message":"no"}}', "400 Bad Request")),)
        async with (
            RawEngine(wrong) as first,
            RawEngine(wrong) as second,
            gate_before(redis, tmp_path, (first, second)) as bed,
        ):
            for scope in ({}, {"subject": "u-bob-0002", "project": "hermes"}):
                assert set(await send(bed, 40, **scope)) == {400}
            assert not [line for line in bed.lines() if line["event"] == "engine.ejected"]
            assert min(len(first.requests), len(second.requests)) > FAILURES

    async def test_requests_at_which_every_connection_breaks_keep_no_other_caller_away(
        self, redis: RedisServer, tmp_path: Path
    ) -> None:
        """As with a proxy before each replica that breaks off what it finds too long."""
        async with (
            RawEngine(GOOD) as first,
            RawEngine(GOOD) as second,
            gate_before(redis, tmp_path, (first, second)) as bed,
        ):
            replicas = bed.gate.engines.engines[0].replicas
            sound = [replica.pool for replica in replicas]
            for replica in replicas:
                replica.pool = LostPool(replica.pool.address, connect_seconds=5.0)
            assert set(await send(bed, FAILURES * 4)) == {503}
            for replica, pool in zip(replicas, sound, strict=True):
                replica.pool = pool
            assert not [line for line in bed.lines() if line["event"] == "engine.ejected"]
            assert set(await send(bed, 30, subject="u-bob-0002", project="hermes")) == {200}
            assert min(len(first.requests), len(second.requests)) > 0

    async def test_the_only_replica_is_never_ejected(self, redis: RedisServer, tmp_path: Path) -> None:
        async with RawEngine(*[BAD] * 30, GOOD) as engine, gate_before(redis, tmp_path, (engine,)) as bed:
            assert set(await send(bed, 30)) == {502}
            assert set(await send(bed, 3)) == {200}

    async def test_a_replica_that_comes_back_is_told_once(self, redis: RedisServer, tmp_path: Path) -> None:
        async with (
            RawEngine(GOOD) as first,
            RawEngine(GOOD) as second,
            gate_before(redis, tmp_path, (first, second)) as bed,
        ):
            names = [replica.pool.name for replica in bed.gate.engines.engines[0].replicas]
            almost_over = time.monotonic() - FIRST_SECONDS + 1.5
            for _ in range(FAILURES):
                bed.gate.engines.engines[0].outliers.unreachable(names[0], names, almost_over)
            async with asyncio.timeout(10):
                while counted(bed, "saltgate_engine_ejected").get(names[0]) != 1.0:
                    await asyncio.sleep(0.02)
                while counted(bed, "saltgate_engine_ejected")[names[0]] != 0.0:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(LOOK_SECONDS * 1.5)
            assert [line["replica"] for line in bed.lines() if line["event"] == "engine.returned"] == [names[0]]

    async def test_an_ejected_replica_is_better_than_none(self, redis: RedisServer, tmp_path: Path) -> None:
        async with (
            RawEngine(GOOD) as first,
            RawEngine(GOOD) as second,
            gate_before(redis, tmp_path, (first, second)) as bed,
        ):
            outliers = bed.gate.engines.engines[0].outliers
            names = [replica.pool.name for replica in bed.gate.engines.engines[0].replicas]
            now = asyncio.get_running_loop().time()
            for _ in range(FAILURES):
                outliers.unreachable(names[0], names, now)
            assert set(await send(bed, 20)) == {200}
            assert not first.requests
            second._server.close()
            for connection in second.connections:
                await connection.drop()
            assert set(await send(bed, 3)) == {200}


@dataclass(frozen=True, slots=True)
class Ended:
    """As much of an exchange as a finding looks at."""

    status: int
    stamped: StampedRequest
    begun: bool = True


@pytest.mark.parametrize(
    ("end", "status", "found"),
    [
        (End.UNREACHABLE, 0, Finding.UNREACHABLE),
        (End.UNSENT, 0, Finding.FAILED),
        (End.SILENT, 0, Finding.FAILED),
        (End.UNANSWERED, 0, Finding.FAILED),
        (End.BAD_ANSWER, 0, Finding.FAILED),
        (End.CONTENT_CODING, 0, Finding.FAILED),
        (End.COMPLETE, 500, Finding.FAILED),
        (End.COMPLETE, 502, Finding.FAILED),
        (End.COMPLETE, 504, Finding.FAILED),
        (End.COMPLETE, 200, Finding.GOOD),
        (End.COMPLETE, 400, Finding.GOOD),
        (End.COMPLETE, 404, Finding.GOOD),
        (End.COMPLETE, 429, Finding.NOTHING),
        (End.COMPLETE, 503, Finding.NOTHING),
        (End.TIMEOUT, 200, Finding.NOTHING),
        (End.BROKEN, 200, Finding.NOTHING),
        (End.FAILED, 200, Finding.NOTHING),
        (End.CLIENT_GONE, 0, Finding.NOTHING),
        (End.DRAINED, 0, Finding.NOTHING),
        (End.REVOKED, 0, Finding.NOTHING),
        (End.SALT_SEEN, 200, Finding.NOTHING),
    ],
)
def test_what_an_end_says_of_the_replica(end: End, status: int, found: Finding) -> None:
    ended = Ended(status, stamped(Operation.CHAT, body_of(Operation.CHAT)))
    assert finding(end, cast("Exchange", ended)) is found


@pytest.mark.parametrize("status", [0, 200], ids=["no head", "a head and no token"])
def test_an_engine_that_does_not_begin_in_time_has_failed(status: int) -> None:
    ended = Ended(status, stamped(Operation.CHAT, body_of(Operation.CHAT)), begun=False)
    assert finding(End.TIMEOUT, cast("Exchange", ended)) is Finding.FAILED


def test_a_grammar_that_the_engine_cannot_use_is_not_the_engines_fault() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"$ref": "#"}}}
    ended = Ended(500, stamped(Operation.CHAT, body_of(Operation.CHAT, response_format=form)))
    assert finding(End.COMPLETE, cast("Exchange", ended)) is Finding.NOTHING
