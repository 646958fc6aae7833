"""No request without a salt, also on ways that are easily forgotten: every byte that went to an engine is looked at.

Each test lets a gate live its whole life, from its first probe to its end, on a wire that remembers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from proxy.demo.simulator import AT_ONCE, EngineShape, Fault, FaultKind, Pace, Simulator
from proxy.demo.simulator import Endpoint as Served
from proxy.engines.kinds import VLLM
from proxy.engines.profile import Endpoint, Operation
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.redis_server import RedisServer
from tests.parts.wire_tap import WireTap

pytestmark = pytest.mark.slow

SHAPE = EngineShape(pace=AT_ONCE, answer_tokens=4)
# Each endpoint is proven by four requests or more.
PROBES = 4 * len(VLLM.salted)
EVERY = pytest.mark.parametrize("endpoint", VLLM.salted, ids=lambda endpoint: endpoint.operation.value)


def asking(operation: Operation, **more: object) -> dict[str, object]:
    match operation:
        case Operation.CHAT:
            return chat() | more
        case Operation.MESSAGES:
            return chat(max_tokens=4) | more
        case Operation.COMPLETIONS:
            return {"model": "tiny", "prompt": "Hello"} | more
        case _:
            return {"model": "tiny", "input": "Hello"} | more


@asynccontextmanager
async def tapped(
    redis: RedisServer, folder: Path, *shapes: EngineShape
) -> AsyncIterator[tuple[GateBed, list[WireTap]]]:
    """A gate in front of as many replicas, each behind a wire of its own; at the end every wire is checked."""
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(Simulator(shape)) for shape in shapes or (SHAPE,)]
        taps = [await stack.enter_async_context(WireTap(engine.url)) for engine in engines]
        async with gate_bed(redis.settings(), [tap.url for tap in taps], folder) as bed:
            yield bed, taps
        for tap in taps:
            tap.check()


@EVERY
async def test_from_the_first_probe_to_the_last_answer(endpoint: Endpoint, redis: RedisServer, tmp_path: Path) -> None:
    async with tapped(redis, tmp_path) as (bed, (tap,)):
        for stream in (False, True) if endpoint.streams else (False,):
            more = {"stream": True} if stream else {}
            status, _, _ = await bed.post(endpoint.path, asking(endpoint.operation, **more))
            assert status == 200
        tap.check(least_posts=PROBES + 1)
        assert {up.target for up in tap.posts} == {other.path.encode() for other in VLLM.salted}


async def test_the_models_and_everything_else_that_saltgate_answers_itself_is_no_request(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with tapped(redis, tmp_path) as (bed, (tap,)):
        before = len(tap.posts)
        for path in ("/v1/models", "/v1/models/tiny", "/.well-known/oauth-protected-resource", "/health", "/metrics"):
            async with bed.session.get(bed.url + path, headers=bed.headers()) as answer:
                await answer.read()
        await asyncio.sleep(0.1)
        assert len(tap.posts) == before


@pytest.mark.parametrize("kind", [FaultKind.DIE_BEFORE_HEAD, FaultKind.STATUS_500, FaultKind.STATUS_503])
async def test_once_more_and_on_another_replica(kind: FaultKind, redis: RedisServer, tmp_path: Path) -> None:
    """Replicas that fail in turn, while there are waiting connections and while there are none."""
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(Simulator(SHAPE)) for _ in range(2)]
        taps = [await stack.enter_async_context(WireTap(engine.url)) for engine in engines]
        async with gate_bed(redis.settings(), [tap.url for tap in taps], tmp_path) as bed:
            async with asyncio.timeout(20):
                while not all(replica.settled for replica in bed.gate.engines.engines[0].replicas):
                    await asyncio.sleep(0.01)
            home, other = await _home_first(bed, taps)
            for _ in range(3):
                await bed.post()
                engines[home].faults.add(Fault(kind))
                await bed.post()
            engines[home].faults.add(Fault(kind, times=4))
            taps[home].refuse()
            await asyncio.gather(*(bed.post() for _ in range(6)))
        taps[home].check(least_posts=PROBES + 6)
        taps[other].check(least_posts=PROBES + 1)


async def _home_first(bed: GateBed, taps: list[WireTap]) -> tuple[int, int]:
    """The replica where the prompt of these requests is at home under the salt of this run, and the other one."""
    before = [len(tap.posts) for tap in taps]
    await bed.post()
    home = next(number for number, tap in enumerate(taps) if len(tap.posts) > before[number])
    return home, 1 - home


async def test_connections_that_break_while_requests_are_on_them(redis: RedisServer, tmp_path: Path) -> None:
    shape = EngineShape(pace=Pace(prefill_tokens_per_second=0.0, seconds_per_token=0.01), answer_tokens=20)
    async with tapped(redis, tmp_path, shape, shape) as (bed, taps):

        async def ask(stream: bool) -> None:
            with suppress(Exception):
                await bed.post(document=chat(stream=stream))

        for turn in range(3):
            async with asyncio.TaskGroup() as tasks:
                for number in range(6):
                    tasks.create_task(ask(stream=bool(number % 2)))
                await asyncio.sleep(0.05)
                taps[turn % 2].cut()
        await bed.until_ready()


async def test_an_engine_that_is_replaced_is_probed_and_asked_with_salts(redis: RedisServer, tmp_path: Path) -> None:
    async with Simulator(SHAPE) as first, Simulator(SHAPE) as second, WireTap(first.url) as tap:
        async with gate_bed(redis.settings(), [tap.url], tmp_path) as bed:
            assert (await bed.post())[0] == 200
            tap.lead_to(second.url)
            tap.cut()
            async with asyncio.timeout(20):
                while not second.requests:
                    await asyncio.sleep(0.01)
            await bed.until_ready()
            assert (await bed.post())[0] == 200
        tap.check(least_posts=2 * PROBES)


async def test_streams_that_end_badly_and_clients_that_leave_are_not_gone_on_with(
    redis: RedisServer, tmp_path: Path
) -> None:
    """A stream that breaks off is never continued or asked again."""
    async with Simulator(SHAPE) as engine, WireTap(engine.url) as tap:
        async with gate_bed(redis.settings(), [tap.url], tmp_path) as bed:
            for kind in (FaultKind.CUT_MID_STREAM, FaultKind.DIE_MID_STREAM, FaultKind.ERROR_MID_STREAM):
                before = len(tap.posts)
                engine.faults.add(Fault(kind))
                with suppress(Exception):
                    await bed.post(document=chat(stream=True))
                assert len(tap.posts) == before + 1
            for leave in (GoneClient.leave_by_fin, GoneClient.leave_by_rst):
                engine.faults.add(Fault(FaultKind.HANG))
                client = GoneClient(bed.port)
                async with client:
                    await client.send(post("/v1/chat/completions", chat(stream=True), bed.headers()))
                    await asyncio.sleep(0.05)
                    leave(client)
        tap.check(least_posts=PROBES + 3)


UPGRADES: dict[str, list[str]] = {
    "a WebSocket": [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AA==",
    ],
    "HTTP/2": ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"],
    "whatever comes": ["Connection: upgrade", "Upgrade: anything"],
}


@pytest.mark.parametrize("lines", UPGRADES.values(), ids=UPGRADES.keys())
@pytest.mark.parametrize("start", ["GET /v1/realtime", "GET /v1/chat/completions", "POST /v1/chat/completions"])
async def test_no_other_protocol_is_spoken_on_a_connection(
    start: str, lines: list[str], redis: RedisServer, tmp_path: Path
) -> None:
    """Neither with the gate nor through it: what is sent after the request never goes up."""
    async with tapped(redis, tmp_path) as (bed, (tap,)):
        before = len(tap.posts)
        fields = [*(f"{name}: {value}" for name, value in bed.headers().items()), *lines]
        body = json.dumps(chat()).encode() if start.startswith("POST") else b""
        framing = [f"Content-Length: {len(body)}", "Content-Type: application/json"] if body else []
        head = "\r\n".join([f"{start} HTTP/1.1", "Host: gate.test", *fields, *framing, "", ""]).encode()
        async with GoneClient(bed.port) as client:
            await client.send(head + body)
            answer = await client.read_answer()
            assert answer.status != 101
            with suppress(ConnectionError):
                await client.send(b"\x81\x85\x00\x00\x00\x00Hello" + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            with suppress(Exception):
                await client.read_to_end(seconds=0.2)
        assert len(tap.posts) - before <= int(answer.status == 200)
        assert all(up.target == b"/v1/chat/completions" for up in tap.posts[before:] if b"Hello" in up.body)


async def test_under_warn_also_what_is_not_proven_gets_a_salt(redis: RedisServer, tmp_path: Path) -> None:
    shape = EngineShape(pace=AT_ONCE, endpoints=frozenset({Served.CHAT}))
    async with Simulator(shape) as engine, WireTap(engine.url) as tap:
        async with gate_bed(redis.settings(), [tap.url], tmp_path, proof="warn") as bed:
            for endpoint in VLLM.salted:
                await bed.post(endpoint.path, asking(endpoint.operation, cache_salt="mine"))
        tap.check(least_posts=5)
        assert {up.target for up in tap.posts} >= {b"/v1/chat/completions"}


async def test_the_wire_itself_finds_what_is_wrong() -> None:
    """A test of the instrument: each of these goes up as it is, and is found."""
    good = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
    salt = "sg1-k1-" + "A" * 43
    bodies = [
        '{"prompt":"x"}',
        '{"cache_salt":null}',
        f'{{"cache_salt":"{salt}","cache_salt":"{salt}"}}',
        '{"cache_salt":"tenant"}',
        f'{{"a":{{"cache_salt":"{salt}"}}}}',
    ]
    wrong = [good % (len(body), body) for body in bodies]
    wrong.append("GET /reset_prefix_cache HTTP/1.1\r\nHost: x\r\n\r\n")
    wrong.append("POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    wrong.append("anything else\r\n\r\n")
    async with Simulator(SHAPE) as engine:
        for bytes_up in wrong:
            async with WireTap(engine.url) as tap, GoneClient.to(tap.url) as client:
                await client.send(bytes_up.encode())
                await client.read_until(b"\r\n\r\n")
                with pytest.raises(AssertionError):
                    tap.check(least_posts=0)
