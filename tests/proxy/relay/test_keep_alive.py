"""What a client hears while its engine is silent: something now and then, which is no part of its answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Literal

import pytest

from config.settings import Timeouts
from proxy.engines.profile import Operation
from proxy.relay.keep_alive import COMMENT, no_event
from proxy.relay.sse import MAX_EVENT_BYTES
from tests.parts.gate_bed import GateBed, chat
from tests.parts.gone_client import GoneClient
from tests.parts.raw_engine import (
    LAST_CHUNK,
    STREAM_HEAD,
    RawEngine,
    Send,
    Sleep,
    Wait,
    WaitForPeer,
    chunk,
    json_answer,
)
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, DONE, TOKEN, ask, on, outcome, until_paused

pytestmark = pytest.mark.slow

COMMENTS = Timeouts(keep_alive="comment", keep_alive_interval=0.1)
EVENTS = Timeouts(keep_alive="event", keep_alive_interval=0.1)
PLAIN: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


async def test_a_client_hears_a_comment_before_the_first_token_and_between_two(
    redis: RedisServer, tmp_path: Path
) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    script = (Send(chunk(TOKEN)), Wait(second), Send(chunk(TOKEN + DONE)), Send(LAST_CHUNK))
    engine = RawEngine((Send(STREAM_HEAD), Wait(first), *script))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=True)
            heard = [await client.read_until(COMMENT), await client.read_until(COMMENT)]
            first.set()
            heard += [await client.read_until(TOKEN), await client.read_until(COMMENT)]
            second.set()
            heard.append(await client.read_until(LAST_CHUNK))
        _, _, body = b"".join(heard).partition(b"\r\n\r\n")
        assert unchunked(body).replace(COMMENT, b"") == TOKEN + TOKEN + DONE
        assert (await outcome(bed))["outcome"] == "ok"

    await on(redis, tmp_path, engine, use, COMMENTS)


def unchunked(body: bytes) -> bytes:
    pieces = []
    while size := int(body.partition(b"\r\n")[0], 16):
        body = body.partition(b"\r\n")[2]
        pieces.append(body[:size])
        body = body[size + 2 :]
    return b"".join(pieces)


async def test_it_is_no_first_token_and_the_time_to_that_is_the_engines(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(STREAM_HEAD), Sleep(0.5), Send(chunk(TOKEN + DONE)), Send(LAST_CHUNK)))

    async def use(bed: GateBed) -> None:
        _, _, body = await bed.post(document=chat(stream=True))
        assert body.count(b'"delta":{}') >= 2
        record = await outcome(bed)
        assert isinstance(record["ttft_ms"], float)
        assert record["ttft_ms"] >= 490

    await on(redis, tmp_path, engine, use, EVENTS)


@pytest.mark.parametrize("timeouts", [Timeouts(), Timeouts(keep_alive="off", keep_alive_interval=0.1)])
async def test_by_default_the_silence_is_the_engines_own(
    timeouts: Timeouts, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((Send(STREAM_HEAD), Sleep(0.5), Send(chunk(TOKEN + DONE)), Send(LAST_CHUNK)))

    async def use(bed: GateBed) -> None:
        assert (await bed.post(document=chat(stream=True)))[2] == TOKEN + DONE

    await on(redis, tmp_path, engine, use, timeouts)


async def test_before_the_engines_head_nothing_is_begun_that_may_have_to_be_refused(
    redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((Sleep(0.5), Send(json_answer(b'{"error":{"message":"too long"}}', "400 Bad Request"))))

    async def use(bed: GateBed) -> None:
        assert (await bed.post(document=chat(stream=True)))[::2] == (400, b'{"error":{"message":"too long"}}')

    await on(redis, tmp_path, engine, use, EVENTS)


async def test_an_answer_that_is_no_stream_has_nothing_in_it(redis: RedisServer, tmp_path: Path) -> None:
    answer = json_answer(ANSWER)
    engine = RawEngine((Sleep(0.3), Send(answer[:-5]), Sleep(0.3), Send(answer[-5:])))

    async def use(bed: GateBed) -> None:
        assert (await bed.post())[::2] == (200, ANSWER)

    await on(redis, tmp_path, engine, use, EVENTS)


@pytest.mark.parametrize("timeouts", [COMMENTS, EVENTS], ids=["comment", "event"])
async def test_nothing_comes_into_an_event_that_is_on_its_way(
    timeouts: Timeouts, redis: RedisServer, tmp_path: Path
) -> None:
    """One too long to wait for its end."""
    event = b": " + b"x" * MAX_EVENT_BYTES + TOKEN
    engine = RawEngine(
        (Send(STREAM_HEAD), Send(chunk(event[:-9])), Sleep(0.5), Send(chunk(event[-9:] + DONE)), Send(LAST_CHUNK))
    )

    async def use(bed: GateBed) -> None:
        assert (await bed.post(document=chat(**PLAIN)))[2].endswith(event + DONE)

    await on(redis, tmp_path, engine, use, timeouts)


async def test_an_event_that_waits_at_the_gate_for_its_end_comes_whole_behind_a_comment(
    redis: RedisServer, tmp_path: Path
) -> None:
    """Nothing of an event leaves before its end: between two events is before it."""
    engine = RawEngine(
        (Send(STREAM_HEAD), Send(chunk(TOKEN[:30])), Sleep(0.5), Send(chunk(TOKEN[30:] + DONE)), Send(LAST_CHUNK))
    )

    async def use(bed: GateBed) -> None:
        _, _, body = await bed.post(document=chat(stream=True))
        assert body.startswith(COMMENT)
        assert body.replace(COMMENT, b"") == TOKEN + DONE

    await on(redis, tmp_path, engine, use, COMMENTS)


async def test_after_the_protocols_last_event_nothing_comes(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN + DONE)), Sleep(0.5), Send(LAST_CHUNK)))

    async def use(bed: GateBed) -> None:
        assert (await bed.post(document=chat(stream=True)))[2] == TOKEN + DONE

    await on(redis, tmp_path, engine, use, EVENTS)


async def test_behind_a_finish_reason_it_is_a_comment(redis: RedisServer, tmp_path: Path) -> None:
    finish = TOKEN.replace(b"}}]}", b'},"finish_reason":"stop"}]}')
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(finish)), Sleep(0.5), Send(chunk(DONE)), Send(LAST_CHUNK)))

    async def use(bed: GateBed) -> None:
        _, _, body = await bed.post(document=chat(stream=True))
        assert body.replace(COMMENT, b"") == finish + DONE
        assert COMMENT in body

    await on(redis, tmp_path, engine, use, EVENTS)


async def test_it_does_not_hide_that_the_engine_hangs(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(STREAM_HEAD), WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=True)
            body = await client.read_to_end()
        assert COMMENT in body
        assert b"engine_timeout" in body
        await engine.peer_closed()

    await on(redis, tmp_path, engine, use, Timeouts(keep_alive="comment", keep_alive_interval=0.1, first_byte=0.6))


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_not_written_to(redis: RedisServer, tmp_path: Path) -> None:
    flood = [Send(chunk(b": " + b"x" * 65_000 + b"\n\n")) for _ in range(1000)]
    engine = RawEngine((Send(STREAM_HEAD), *flood, WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=4096) as client:
            await ask(bed, client, streaming=True)
            await until_paused(bed)
            await asyncio.sleep(0.3)
            [downstream] = bed.gate.front.downstreams
            assert downstream._wire is not None
            waiting = downstream._wire.get_write_buffer_size()
            await asyncio.sleep(0.5)
            assert downstream._wire.get_write_buffer_size() == waiting

    await on(redis, tmp_path, engine, use, Timeouts(keep_alive="comment", keep_alive_interval=0.05))


@pytest.mark.parametrize("mode", ["comment", "event"])
@pytest.mark.parametrize("operation", [Operation.CHAT, Operation.COMPLETIONS, Operation.RESPONSES, Operation.MESSAGES])
def test_it_is_whole_and_bears_nothing(operation: Operation, mode: Literal["comment", "event"]) -> None:
    event = no_event(operation, mode, model="org/tiny", answer_id="1")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n\n") == 1
    if mode == "comment" or operation is Operation.RESPONSES:
        assert event == COMMENT
    else:
        data = json.loads(event.partition(b"data: ")[2])
        assert data.get("model", "org/tiny") == "org/tiny"
        assert data.get("type", "ping") == "ping"
