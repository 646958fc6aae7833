"""Which connection and which replica a request goes to, and how often it may go."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from config.client_tls import client_context
from proxy.assurance.replica import Replica
from proxy.relay.leg import Home, Leg
from proxy.relay.pool import Address, Pool
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient
from tests.parts.raw_engine import Close, CloseIfIdle, RawEngine, Reset, Send, Sleep, Step, WaitForPeer, json_answer
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.choices import InOrder
from tests.proxy.relay.relay_parts import ANSWER, ask, nothing_held, on, outcome
from tests.proxy.relay.test_places import certificate

pytestmark = pytest.mark.slow

GOOD = (Send(json_answer(ANSWER)),)


@asynccontextmanager
async def gate_before(redis: RedisServer, folder: Path, *engines: RawEngine) -> AsyncIterator[GateBed]:
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine)
        urls = [engine.url for engine in engines]
        bed = await stack.enter_async_context(gate_bed(redis.settings(), urls, folder, proof="off", models=("tiny",)))
        replicas = bed.gate.engines.engines[0].replicas
        async with asyncio.timeout(10):
            while not all(replica.reachable for replica in replicas):
                await asyncio.sleep(0.01)
        bed.gate.gateway.relay.choice = InOrder()
        yield bed
        await nothing_held(bed)


def replicas_of(bed: GateBed) -> Sequence[Replica]:
    return bed.gate.engines.engines[0].replicas


def refuse_connections(engine: RawEngine) -> None:
    """From now on. Those that there are stay, so the gate does not know yet."""
    engine._server.close()


async def test_a_replica_that_takes_no_connection_is_passed_over(redis: RedisServer, tmp_path: Path) -> None:
    first, second = RawEngine(GOOD), RawEngine(GOOD)
    async with gate_before(redis, tmp_path, first, second) as bed:
        refuse_connections(first)
        for _ in range(3):
            assert (await bed.post())[0] == 200
        assert (len(first.requests), len(second.requests)) == (0, 3)


async def test_no_replica_that_takes_a_connection_is_a_503_that_says_when_to_try_again(
    redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine(GOOD)
    async with gate_before(redis, tmp_path, engine) as bed:
        refuse_connections(engine)
        status, headers, body = await bed.post()
        assert status == 503
        assert b'"engine_unavailable"' in body
        assert "Retry-After" in headers


@pytest.mark.parametrize("death", [(Close(),), (Reset(),), (Sleep(0.2), Close())], ids=["fin", "rst", "late"])
@pytest.mark.parametrize("size", [10, 1_000_000])
async def test_a_request_that_a_replica_has_read_never_goes_to_another(
    size: int, death: tuple[Step, ...], redis: RedisServer, tmp_path: Path
) -> None:
    first, second = RawEngine(death), RawEngine(GOOD)
    async with gate_before(redis, tmp_path, first, second) as bed:
        assert (await bed.post(document=chat("x" * size)))[0] == 502
        assert (len(first.requests), len(second.requests)) == (1, 0)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"The engine is currently busy","type":"Service Unavailable","param":null,"code":503}}',
        b'{"error":{"message":"please retry","type":"ServiceUnavailableError","param":null,"code":503}}',
        b'{"error":"The model is currently scaling. Please try again later."}',
    ],
    ids=["at the door", "while it ran", "scaling"],
)
async def test_an_answer_is_an_answer_also_a_503(body: bytes, redis: RedisServer, tmp_path: Path) -> None:
    """vLLM's three. Of several prompts the first may run when the second is refused at the door."""
    first, second = RawEngine((Send(json_answer(body, "503 Service Unavailable")),)), RawEngine(GOOD)
    async with gate_before(redis, tmp_path, first, second) as bed:
        status, headers, answer = await bed.post()
        assert (status, json.loads(answer)["error"]["code"]) == (503, "engine_busy")
        assert "Retry-After" in headers
        assert (len(first.requests), len(second.requests)) == (1, 0)


async def test_a_replica_that_is_not_who_it_should_be_is_passed_over(redis: RedisServer, tmp_path: Path) -> None:
    _, certified = certificate(tmp_path, "127.0.0.1")
    second = RawEngine(GOOD)
    async with RawEngine(GOOD, tls=certified) as stranger, gate_before(redis, tmp_path, RawEngine(), second) as bed:
        strangers = Address(host="127.0.0.1", port=stranger.port, tls=client_context(None, None))
        replicas_of(bed)[0].pool = Pool(strangers, connect_seconds=5.0)
        assert (await bed.post())[0] == 200
        assert (len(stranger.requests), len(second.requests)) == (0, 1)


class LostPool(Pool):
    """Its connections break as soon as they are made."""

    async def new_leg(self, home: Home | None = None, *, seconds: float | None = None) -> Leg:
        leg = await super().new_leg(home, seconds=seconds)
        leg.abort()
        return leg


async def test_a_connection_that_breaks_before_the_request_is_written_leads_to_another_replica(
    redis: RedisServer, tmp_path: Path
) -> None:
    first, second = RawEngine(GOOD), RawEngine(GOOD)
    async with gate_before(redis, tmp_path, first, second) as bed:
        replicas_of(bed)[0].pool = LostPool(Address(host="127.0.0.1", port=first.port), connect_seconds=5.0)
        assert (await bed.post())[0] == 200
        assert (len(first.requests), len(second.requests)) == (0, 1)


class HalfReader(asyncio.Protocol):
    """Reads some of what it is sent, and ends the connection before it can have all of it."""

    def __init__(self, end: Callable[[asyncio.Transport], None]) -> None:
        self.read = 0
        self._end = end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.read += len(data)
        if not self._transport.is_closing():
            self._end(self._transport)


@pytest.mark.parametrize("end", [asyncio.Transport.abort, asyncio.Transport.close], ids=["rst", "fin"])
async def test_a_request_that_was_never_written_whole_goes_to_another_replica_and_runs_once(
    end: Callable[[asyncio.Transport], None], redis: RedisServer, tmp_path: Path
) -> None:
    """No engine computes a document that has no end."""
    readers: list[HalfReader] = []

    def reader() -> HalfReader:
        readers.append(HalfReader(lambda transport: getattr(transport, end.__name__)()))
        return readers[-1]

    server = await asyncio.get_running_loop().create_server(reader, "127.0.0.1", 0)
    second = RawEngine(GOOD)
    async with server, gate_before(redis, tmp_path, RawEngine(), second) as bed:
        half = Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
        replicas_of(bed)[0].pool = Pool(half, connect_seconds=5.0)
        text = "x" * 20_000_000
        async with bed.session.post(
            f"{bed.url}/v1/chat/completions",
            data=io.BytesIO(json.dumps(chat(text)).encode()),
            headers={"Content-Type": "application/json"} | bed.headers(),
        ) as answer:
            assert answer.status == 200
        assert json.loads(second.requests[0].body)["messages"][0]["content"] == text
        assert len(second.requests) == 1
        assert [reader.read < len(text) for reader in readers] == [True]


async def test_the_once_more_of_a_reuse_race_may_go_to_another_replica(redis: RedisServer, tmp_path: Path) -> None:
    first, second = RawEngine(GOOD, (Reset(),)), RawEngine((Reset(),), GOOD)
    async with gate_before(redis, tmp_path, first, second) as bed:
        assert (await bed.post())[0] == 200
        refuse_connections(first)
        # The second replica breaks too: then the request was sent twice, and that is the end of it.
        assert (await bed.post())[0] == 502
        assert (len(first.requests), len(second.requests)) == (2, 1)


async def test_a_request_that_was_sent_and_can_go_nowhere_again_is_a_failure_of_the_engine(
    redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine(GOOD, (Reset(),))
    async with gate_before(redis, tmp_path, engine) as bed:
        assert (await bed.post())[0] == 200
        refuse_connections(engine)
        assert (await bed.post())[0] == 502


async def test_an_engine_that_always_breaks_off_gets_the_request_once_more_and_then_never(
    redis: RedisServer, tmp_path: Path
) -> None:
    """By RST, which is also what becomes of a request that nobody has read."""
    engine = RawEngine(GOOD, (Reset(),))

    async def use(bed: GateBed) -> None:
        assert (await bed.post())[0] == 200
        assert (await bed.post())[0] == 502
        assert len(engine.requests) == 3  # the good one, the waiting connection, the new one
        assert (await bed.post())[0] == 502
        assert len(engine.requests) == 4  # no connection waits any more, so there is no race to lose

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("place", ["tcp", "unix"])
@pytest.mark.parametrize("size", [10, 1_000_000])
async def test_an_engine_that_had_the_whole_request_and_ended_never_gets_it_again(
    size: int, place: str, redis: RedisServer, tmp_path: Path
) -> None:
    """Not even on a connection that had waited: it may have begun."""
    engine = RawEngine(GOOD, (Close(),), GOOD, unix=tmp_path / "engine.sock" if place == "unix" else None)

    async def use(bed: GateBed) -> None:
        assert (await bed.post())[0] == 200
        status, _, body = await bed.post(document=chat("x" * size))
        assert (status, json.loads(body)["error"]["code"]) == (502, "engine_failed")
        assert len(engine.requests) == 2
        assert engine.requests[0].connection == engine.requests[1].connection
        assert (await outcome(bed, 1))["reason"] == "unanswered"

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("seconds", [0.3, 0.7])
async def test_an_engine_that_resets_after_a_while_never_gets_the_request_again(
    seconds: float, redis: RedisServer, tmp_path: Path
) -> None:
    """Its kernel has confirmed the request by then, so it was no close in the very moment of it."""
    engine = RawEngine(GOOD, (Sleep(seconds), Reset()), GOOD)

    async def use(bed: GateBed) -> None:
        assert [(await bed.post())[0] for _ in range(3)] == [200, 502, 200]
        assert len(engine.requests) == 3
        assert (await outcome(bed, 1))["reason"] == "unanswered"

    await on(redis, tmp_path, engine, use)


async def test_a_connection_that_dies_late_had_begun_and_is_not_tried_again(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine(GOOD, (Sleep(1.2), Reset()), GOOD)

    async def use(bed: GateBed) -> None:
        assert (await bed.post())[0] == 200
        assert (await bed.post())[0] == 502
        assert len(engine.requests) == 2

    await on(redis, tmp_path, engine, use)


async def test_a_client_that_left_gets_no_second_try(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine(GOOD, (WaitForPeer(),), GOOD)

    async def use(bed: GateBed) -> None:
        assert (await bed.post())[0] == 200
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=False)
            await engine.request(1)
            client.leave_by_rst()
        assert (await outcome(bed, 1))["outcome"] == "client_gone"
        assert len(engine.requests) == 2

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("place", ["tcp", "unix"])
async def test_an_idle_connection_that_closes_as_it_is_taken_costs_nobody_an_answer_and_no_second_run(
    place: str, redis: RedisServer, tmp_path: Path
) -> None:
    """The engine closes after each answer, as uvicorn does: at about the moment of the next request, but never with a
    request read.
    """
    tries = 500
    answer = Send(json_answer(ANSWER))
    engine = RawEngine(
        *[(answer, Sleep(number % 7 * 0.0003), CloseIfIdle()) for number in range(tries)],
        unix=tmp_path / "engine.sock" if place == "unix" else None,
    )

    async def use(bed: GateBed) -> None:
        statuses = []
        for number in range(tries):
            statuses.append((await bed.post(document=chat(str(number))))[0])
            await asyncio.sleep(number % 5 * 0.0003)
        assert statuses == [200] * tries
        sent = Counter(json.loads(request.body)["messages"][0]["content"] for request in engine.requests)
        assert len(sent) == tries
        assert max(sent.values()) == 1
        reused = tries - len({request.connection for request in engine.requests})
        assert 0 < reused < tries  # the engine came first now and then, and now and then the request

    await on(redis, tmp_path, engine, use)
