"""A flood of bad tokens: it is few questions to the issuer, and a good caller does not stand in its queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from config.settings import Cors
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.relay.pace import BURST_SECONDS, HEAD_BYTES, RATE, Pace
from tests.parts.gate_bed import GateBed, gate_bed
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import signing_key
from tests.proxy.account.scene import LOGIN
from tests.proxy.token_flood import KINDS

pytestmark = pytest.mark.slow

A_FLOOD = 10**9
HEAD = b"GET /v1/models HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture
async def bed(redis: RedisServer, tmp_path: Path) -> AsyncIterator[GateBed]:
    async with (
        Simulator(EngineShape(pace=AT_ONCE)) as engine,
        gate_bed(
            redis.settings(), [engine.url], tmp_path, cors=Cors(origins=("https://chat.test",)), login=LOGIN
        ) as one,
    ):
        yield one


def wires(tokens: Sequence[str]) -> list[bytes]:
    return [HEAD + f"Authorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode() for token in tokens]


async def status(bed: GateBed, wire: bytes) -> int:
    """0 where the connection ends without an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bed.port)
    try:
        writer.write(wire)
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
    return int(answer.split(b" ", 2)[1]) if answer else 0


async def ask(bed: GateBed) -> int:
    named = "OpenAI-Organization: acme\r\nOpenAI-Project: apollo\r\nConnection: close\r\n\r\n"
    return await status(bed, HEAD + f"Authorization: Bearer {bed.token()}\r\n{named}".encode())


async def test_a_flood_of_every_kind_asks_the_issuer_for_its_keys_once(bed: GateBed) -> None:
    asked = bed.issuer.hits["jwks"]
    statuses = []
    # One wave after the other: within one, all would wait for the same question.
    for kind in (*KINDS.values(), *KINDS.values()):
        statuses += await asyncio.gather(*(status(bed, wire) for wire in wires(kind(bed.mint)[:15])))
    assert bed.issuer.hits["jwks"] == asked + 1
    assert set(statuses) <= {400, 401, 503, 0}
    assert statuses.count(401) > 60
    assert await ask(bed) == 200


@asynccontextmanager
async def queue_of(bed: GateBed, wire: bytes, pace: Pace | None = None) -> AsyncIterator[list[asyncio.Task[int]]]:
    """Some who are refused just after a flood: in the body, they wait for their turns. Then they leave. `pace` is that
    of refusals unless said otherwise.
    """
    pace = pace or bed.gate.entrance.pace
    flood = asyncio.create_task(pace.turn(A_FLOOD))
    ahead = [asyncio.create_task(status(bed, wire)) for _ in range(5)]
    async with asyncio.timeout(10):
        while pace.waiting < 1 + len(ahead):
            await asyncio.sleep(0)
    yield ahead
    for task in (flood, *ahead):
        task.cancel()
    await asyncio.gather(flood, *ahead, return_exceptions=True)


async def test_a_good_caller_is_answered_before_those_who_were_refused_ahead_of_him(bed: GateBed) -> None:
    bad = wires([bed.mint.token(key=signing_key("RS256", bed.mint.key().key_id, number=77))])[0]
    async with queue_of(bed, bad) as ahead:
        assert await ask(bed) == 200
        assert not any(task.done() for task in ahead)


async def test_who_is_known_and_refused_waits_for_no_turn(bed: GateBed) -> None:
    mallory = wires([bed.token("u-mallory-0009")])[0].replace(b"Host: a\r\n", b"Host: a\r\nOpenAI-Project: apollo\r\n")
    async with queue_of(bed, wires(["nothing"])[0]) as ahead:
        assert await status(bed, mallory) == 403
        assert not any(task.done() for task in ahead)


@pytest.mark.parametrize("wire", [b"no request\r\n\r\n", HEAD + b"\r\n", b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"])
async def test_whatever_else_is_refused_before_anybody_is_known_waits_too(bed: GateBed, wire: bytes) -> None:
    async with queue_of(bed, wire) as ahead:
        assert await ask(bed) == 200
        assert not any(task.done() for task in ahead)


FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
PREFLIGHT = b"Host: a\r\nOrigin: https://chat.test\r\nAccess-Control-Request-Method: GET\r\n\r\n"


@pytest.mark.parametrize(
    "wire",
    [
        b"GET /.well-known/oauth-protected-resource HTTP/1.1\r\nHost: a\r\n\r\n",
        b"OPTIONS /v1/models HTTP/1.1\r\n" + PREFLIGHT,
        b"GET /account HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /auth/signed-out HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /auth/backchannel-logout HTTP/1.1\r\nHost: a\r\nContent-Length: 16\r\n" + FORM + b"\r\nlogout_token=a.b",
    ],
)
async def test_what_anybody_is_answered_waits_too(bed: GateBed, wire: bytes) -> None:
    """It costs as much as a refusal: who floods would else ask for this. Pages have a pace of their own."""
    is_page = wire.startswith((b"GET /auth/", b"GET /account ", b"POST /auth/"))
    gate = bed.gate.entrance
    # Where nobody can sign in, /account shows a program nothing: that is a refusal.
    async with queue_of(bed, wire, gate.page_pace if is_page and b"/account" not in wire else gate.pace) as ahead:
        assert await ask(bed) == 200
        assert not any(task.done() for task in ahead)


async def test_who_looks_at_his_account_waits_for_nobody(bed: GateBed) -> None:
    own = f"GET /account HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer {bed.token()}\r\n\r\n"
    async with queue_of(bed, wires(["nothing"])[0]) as ahead:
        assert await status(bed, own.encode()) == 200
        assert not any(task.done() for task in ahead)


async def test_who_waited_for_his_turn_is_told_why(bed: GateBed) -> None:
    await bed.gate.entrance.pace.turn(round(RATE * BURST_SECONDS) * HEAD_BYTES)
    assert set(await asyncio.gather(*(status(bed, wire) for wire in wires(["nothing"]) * 5))) == {401}


async def test_who_leaves_the_queue_is_forgotten_and_harms_nobody(bed: GateBed) -> None:
    async with queue_of(bed, wires(["nothing"])[0]):
        pass
    assert await ask(bed) == 200
