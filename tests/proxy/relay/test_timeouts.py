"""An engine that is too slow is left, and its client told: 504 before its answer, the protocol's error event after."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from config.settings import EngineTimeouts, ModelTimeouts, Timeouts
from proxy.relay.sse import MAX_EVENT_BYTES
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import (
    LAST_CHUNK,
    STREAM_HEAD,
    RawEngine,
    Send,
    Sleep,
    Step,
    WaitForPeer,
    chunk,
    json_answer,
)
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, DONE, TOKEN, ask, nothing_held, on, outcome, until_paused

pytestmark = pytest.mark.slow

COMMENT = b": keep-alive\n\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'


def endlessly(event: bytes, seconds: float = 0.02) -> Sequence[Step]:
    """For as long as a test may take."""
    return [step for _ in range(1000) for step in (Send(chunk(event)), Sleep(seconds))]


async def ended(bed: GateBed, engine: RawEngine, *, path: str = "/v1/chat/completions") -> bytes:
    """What the client of a stream gets until it ends, by a limit."""
    async with GoneClient.to(bed.url) as client:
        await ask(bed, client, streaming=True, path=path)
        got = await client.read_to_end()
    await engine.peer_closed()
    assert (await outcome(bed))["outcome"] == "engine_timeout"
    assert b"engine_timeout" in got or b"api_error" in got
    assert b"[DONE]" not in got
    assert not got.endswith(b"0\r\n\r\n")
    return got


# What counts, and what does not.


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_an_engine_whose_comments_go_on_is_late_all_the_same(
    path: str, redis: RedisServer, tmp_path: Path
) -> None:
    """vLLM's keep-alive comes from its HTTP process, which lives on while the scheduler hangs."""
    engine = RawEngine((Send(STREAM_HEAD), *endlessly(COMMENT)))

    async def use(bed: GateBed) -> None:
        assert COMMENT in await ended(bed, engine, path=path)
        assert (await outcome(bed))["error_type"] == "engine_timeout_first_byte"

    await on(redis, tmp_path, engine, use, Timeouts(first_byte=0.3))


async def test_comments_between_two_tokens_do_not_prolong_the_wait(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), *endlessly(COMMENT)))

    async def use(bed: GateBed) -> None:
        assert TOKEN in await ended(bed, engine)
        assert (await outcome(bed))["error_type"] == "engine_timeout_idle"

    await on(redis, tmp_path, engine, use, Timeouts(idle=0.3))


async def test_a_head_and_a_role_are_no_beginning(redis: RedisServer, tmp_path: Path) -> None:
    """Some engines send both before they compute: what then counts is the time of long prompts, not that of tokens."""
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(ROLE)), Sleep(0.6), Send(chunk(DONE)), Send(LAST_CHUNK)))

    async def use(bed: GateBed) -> None:
        assert (await bed.post(document=chat(stream=True)))[2] == ROLE + DONE

    await on(redis, tmp_path, engine, use, Timeouts(idle=0.1))


@pytest.mark.parametrize("event", [TOKEN, b"data: " + b"x" * 200_000 + b"\n\n", b"data: no json\n\n"])
async def test_events_that_go_on_are_never_late(event: bytes, redis: RedisServer, tmp_path: Path) -> None:
    """Also those that nobody here understands."""
    steps = [step for _ in range(10) for step in (Send(chunk(event)), Sleep(0.1))]
    engine = RawEngine((Send(STREAM_HEAD), *steps, Send(chunk(DONE)), Send(LAST_CHUNK)))

    async def use(bed: GateBed) -> None:
        assert (await bed.post(document=chat(stream=True)))[2] == event * 10 + DONE

    await on(redis, tmp_path, engine, use, Timeouts(first_byte=0.6, idle=0.6))


@pytest.mark.parametrize("length", [100_000, MAX_EVENT_BYTES])
async def test_a_long_event_is_a_beginning(length: int, redis: RedisServer, tmp_path: Path) -> None:
    """Also one that is too long to look at: then the time of tokens counts, not that of long prompts."""
    event = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * length + b'"}}]}\n\n'
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(event)), Sleep(2.5), Send(chunk(DONE)), Send(LAST_CHUNK)))

    async def use(bed: GateBed) -> None:
        assert (await bed.post(document=chat(stream=True)))[2] == event + DONE
        assert (await outcome(bed))["ttft_ms"] is not None

    await on(redis, tmp_path, engine, use, Timeouts(first_byte=1))


async def test_a_whole_answer_that_trickles_is_not_late_and_one_that_stops_is(
    redis: RedisServer, tmp_path: Path
) -> None:
    answer = json_answer(ANSWER)
    trickle = [step for byte in answer for step in (Send(bytes([byte])), Sleep(0.005))]
    engine = RawEngine(trickle, (Send(answer[:-1]), WaitForPeer()))

    async def use(bed: GateBed) -> None:
        assert (await bed.post())[::2] == (200, ANSWER)
        assert (await bed.post())[0] == 504
        assert (await outcome(bed, 1))["reason"] == "engine_timeout_idle"

    await on(redis, tmp_path, engine, use, Timeouts(idle=0.5))


async def test_a_head_alone_is_no_answer(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(json_answer(ANSWER)[: -len(ANSWER)]), WaitForPeer()))

    async def use(bed: GateBed) -> None:
        status, _, body = await bed.post()
        assert (status, json.loads(body)["error"]["code"]) == (504, "engine_timeout")
        await engine.peer_closed()

    await on(redis, tmp_path, engine, use, Timeouts(first_byte=0.3))


@pytest.mark.slow
async def test_the_time_of_a_slow_client_is_none_of_the_engines(redis: RedisServer, tmp_path: Path) -> None:
    pieces = [b"data: %06d " % number + b"x" * 60_000 + b"\n\n" for number in range(200)]
    engine = RawEngine(
        (Send(STREAM_HEAD), *(Send(chunk(piece)) for piece in pieces), Send(chunk(DONE)), Send(LAST_CHUNK))
    )

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=16_384) as client:
            document = chat(stream=True, stream_options={"include_usage": True})
            await client.send(post("/v1/chat/completions", document, bed.headers()))
            await until_paused(bed)
            await asyncio.sleep(1.5)
            assert (await client.read_answer(seconds=60)).body == b"".join(pieces) + DONE
        assert (await outcome(bed))["outcome"] == "ok"

    await on(redis, tmp_path, engine, use, Timeouts(first_byte=0.4, idle=0.4))


# The whole.


async def test_a_stream_that_goes_on_ends_with_the_time_of_the_whole(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(STREAM_HEAD), *endlessly(TOKEN)))

    async def use(bed: GateBed) -> None:
        got = await ended(bed, engine)
        assert got.count(TOKEN) > 3
        assert (await outcome(bed))["error_type"] == "engine_timeout_total"

    await on(redis, tmp_path, engine, use, Timeouts(total=0.5))


async def test_a_whole_answer_that_does_not_end_in_time_is_a_504(redis: RedisServer, tmp_path: Path) -> None:
    trickle = [step for _ in range(1000) for step in (Send(b" "), Sleep(0.02))]
    engine = RawEngine((Send(json_answer(b" " * 1001)[:-1001]), *trickle))

    async def use(bed: GateBed) -> None:
        status, _, body = await bed.post()
        assert (status, json.loads(body)["error"]["code"]) == (504, "engine_timeout")
        await engine.peer_closed()
        assert (await outcome(bed))["reason"] == "engine_timeout_total"

    await on(redis, tmp_path, engine, use, Timeouts(total=0.5))


# Whose limit.


async def test_a_models_own_time_goes_before_the_engines_and_that_before_the_general_one(
    redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((WaitForPeer(),))

    async def use(bed: GateBed) -> None:
        patience = bed.gate.engines.engines[0].patience_with
        assert [patience(model).first_byte for model in ("tiny", "org/big.v1")] == [30, 0.2]
        assert [(patience(model).idle, patience(model).total) for model in ("tiny", "org/big.v1")] == [(40, 50)] * 2
        status, _, _ = await bed.post(document=chat() | {"model": "org/big.v1"})
        assert status == 504
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await bed.post()

    await on(
        redis,
        tmp_path,
        engine,
        use,
        Timeouts(first_byte=20, idle=40, total=90),
        models=("tiny", "org/big.v1"),
        engine_timeouts=EngineTimeouts(first_byte=30, total=50),
        model_timeouts=(ModelTimeouts(models=("org/big.v1",), first_byte=0.2),),
    )


async def test_an_engine_may_lift_the_limit_of_the_whole(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Sleep(0.5), Send(json_answer(ANSWER))))

    async def use(bed: GateBed) -> None:
        assert (await bed.post())[0] == 200

    await on(redis, tmp_path, engine, use, Timeouts(total=0.1), engine_timeouts=EngineTimeouts(total=0.0))


async def test_a_client_that_stalls_is_cut_after_the_engines_own_time(redis: RedisServer, tmp_path: Path) -> None:
    flood = [Send(chunk(b": " + b"x" * 65_000 + b"\n\n")) for _ in range(1000)]
    engine = RawEngine((Send(STREAM_HEAD), *flood, WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=4096) as client:
            await ask(bed, client, streaming=True)
            await engine.peer_closed()
        assert (await outcome(bed))["outcome"] == "client_gone"
        async with asyncio.timeout(10):
            while bed.gate.front.downstreams:
                await asyncio.sleep(0.01)

    await on(redis, tmp_path, engine, use, engine_timeouts=EngineTimeouts(stall=0.3))


async def test_a_connection_that_is_not_made_in_the_models_time_leads_to_the_next_replica(
    redis: RedisServer, tmp_path: Path
) -> None:
    with socket.socket() as full:
        # With its queue full, the kernel answers no further connection: neither yes nor no.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        async with (
            RawEngine((Send(json_answer(ANSWER)),)) as ready,
            gate_bed(
                redis.settings(),
                [f"http://127.0.0.1:{full.getsockname()[1]}", ready.url],
                tmp_path,
                proof="off",
                models=("tiny",),
                timeouts=Timeouts(connect=60.0),
                model_timeouts=(ModelTimeouts(models=("tiny",), connect=0.2),),
            ) as bed,
        ):
            first, second = bed.gate.engines.engines[0].replicas
            first.reachable = True
            second.pool.outstanding += 1  # so that the other one is asked first
            async with asyncio.timeout(30):
                assert (await bed.post())[::2] == (200, ANSWER)
            second.pool.outstanding -= 1
            await nothing_held(bed)
        for one in waiting:
            one.close()
