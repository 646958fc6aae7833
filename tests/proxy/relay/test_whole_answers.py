"""Answers that are no streams: what of an engine's own answer is the client's, and what is the gate's."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from tests.parts.gate_bed import GateBed, chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import (
    LAST_CHUNK,
    STREAM_HEAD,
    Close,
    RawEngine,
    Send,
    WaitForPeer,
    chunk,
    json_answer,
)
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, DONE, TOKEN, ask, on, outcome, stream

TOLD = b'{"error":{"message":"secret trace","type":"x","code":1}}'


@pytest.mark.parametrize("status", ["400 Bad Request", "413 Content Too Large", "422 Unprocessable Content"])
async def test_an_engine_that_finds_fault_with_the_request_is_heard_by_the_client(
    status: str, redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        got, _, body = await bed.post()
        assert (got, body) == (int(status[:3]), TOLD)

    await on(redis, tmp_path, RawEngine((Send(json_answer(TOLD, status)),)), use)


@pytest.mark.parametrize(
    ("status", "expected", "code"),
    [
        ("201 Created", 502, "engine_failed"),
        ("204 No Content", 502, "engine_failed"),
        ("302 Found", 502, "engine_failed"),
        ("401 Unauthorized", 502, "engine_failed"),
        ("403 Forbidden", 502, "engine_failed"),
        ("404 Not Found", 404, "model_not_found"),
        ("429 Too Many Requests", 503, "engine_busy"),
        ("500 Internal Server Error", 502, "engine_failed"),
        ("503 Service Unavailable", 503, "engine_busy"),
        ("599 Whatever", 502, "engine_failed"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_an_engines_own_fault_is_never_the_callers_and_none_of_its_bytes_are_told(
    status: str, expected: int, code: str, streaming: bool, redis: RedisServer, tmp_path: Path
) -> None:
    told = b"" if status.startswith("204") else TOLD

    async def use(bed: GateBed) -> None:
        got, headers, body = await bed.post(document=chat(stream=streaming))
        assert (got, json.loads(body)["error"]["code"]) == (expected, code)
        assert b"secret" not in body
        assert ("Retry-After" in headers) is (expected == 503)

    await on(redis, tmp_path, RawEngine((Send(json_answer(told, status)), Close())), use)


@pytest.mark.parametrize("media", [b"text/html", b"text/plain", b"", b"text/event-stream"])
@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad Request"])
async def test_what_is_no_json_is_not_given_out_as_json(
    media: bytes, status: bytes, redis: RedisServer, tmp_path: Path
) -> None:
    answer = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: 8\r\n\r\n<secret>" % (status, media)

    async def use(bed: GateBed) -> None:
        got, _, body = await bed.post()
        assert got == 502
        assert b"secret" not in body

    await on(redis, tmp_path, RawEngine((Send(answer),)), use)


@pytest.mark.parametrize("body", [b"[1]", b"<secret>", b'"secret"'])
async def test_a_success_that_is_no_json_object_is_none(body: bytes, redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        got, _, told = await bed.post()
        assert (got, json.loads(told)["error"]["code"]) == (502, "engine_failed")
        assert b"secret" not in told

    await on(redis, tmp_path, RawEngine((Send(json_answer(body)),)), use)


@pytest.mark.slow
async def test_an_answer_that_is_no_stream_and_has_no_end_is_left_at_a_bound(
    redis: RedisServer, tmp_path: Path
) -> None:
    piece = b"x" * 2**20
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    engine = RawEngine((Send(head), *[Send(piece)] * 200, WaitForPeer()))

    async def use(bed: GateBed) -> None:
        status, _, body = await bed.post()
        assert (status, json.loads(body)["error"]["code"]) == (502, "engine_failed")
        await engine.peer_closed(seconds=5)
        assert len(body) < 1000

    await on(redis, tmp_path, engine, use)


async def test_a_media_type_that_only_begins_like_a_streams_is_none(redis: RedisServer, tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-streamx\r\nContent-Length: 8\r\n\r\n<secret>"

    async def use(bed: GateBed) -> None:
        got, _, body = await bed.post(document=chat(stream=True))
        assert got == 502
        assert b"secret" not in body

    await on(redis, tmp_path, RawEngine((Send(answer),)), use)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("coding", [b"gzip", b"br", b"GZIP", b"identity, gzip", b"x-unheard-of"])
async def test_an_answer_that_is_compressed_although_nobody_asked_is_refused_by_its_own_name(
    coding: bytes, streaming: bool, redis: RedisServer, tmp_path: Path
) -> None:
    media = b"text/event-stream" if streaming else b"application/json"
    packed = gzip.compress(TOKEN + DONE if streaming else ANSWER)
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        media,
        coding,
        len(packed),
        packed,
    )

    async def use(bed: GateBed) -> None:
        status, _, body = await bed.post(document=chat(stream=streaming))
        assert (status, json.loads(body)["error"]["code"]) == (502, "engine_failed")
        assert (await outcome(bed))["reason"] == "content_coding"

    await on(redis, tmp_path, RawEngine((Send(answer),)), use)


async def test_nothing_of_an_answer_reaches_the_client_before_it_is_whole(redis: RedisServer, tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)

    async def use(bed: GateBed) -> None:
        got, _, body = await bed.post()
        assert got == 502
        assert b"usage" not in body

    await on(redis, tmp_path, RawEngine((Send(head + ANSWER[:-1]), Close())), use)


async def test_a_stream_is_whole_with_its_last_event_however_the_engine_ends_it(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        status, _, body = await bed.post(document=chat(stream=True))
        assert (status, body) == (200, TOKEN + DONE)
        assert (await outcome(bed))["outcome"] == "ok"

    await on(redis, tmp_path, RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN + DONE)), Close())), use)


async def test_a_stream_that_ends_in_order_without_its_last_event_is_not_whole(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=True)
            got = await client.read_to_end()
        assert b'"engine_failed"' in got
        assert b"[DONE]" not in got
        assert not got.endswith(LAST_CHUNK)
        assert (await outcome(bed))["outcome"] == "truncated"

    await on(redis, tmp_path, RawEngine(stream(TOKEN)), use)


ERROR = b'data: {"error":{"message":"out of memory","type":"server_error","code":500}}\n\n'
MESSAGES_ERROR = b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"out of memory"}}\n\n'


@pytest.mark.parametrize(
    ("path", "events"),
    [
        ("/v1/chat/completions", (TOKEN, ERROR, DONE)),
        ("/v1/chat/completions", (TOKEN, ERROR)),
        ("/v1/messages", (MESSAGES_ERROR,)),
    ],
)
async def test_an_error_that_the_engine_tells_itself_is_told_once_and_no_success(
    path: str, events: tuple[bytes, ...], redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        document = chat(stream=True, max_tokens=9)
        status, _, body = await bed.post(path, document)
        assert (status, body) == (200, b"".join(events))
        record = await outcome(bed)
        assert (record["outcome"], record["error_type"]) == ("truncated", "engine_error")

    await on(redis, tmp_path, RawEngine(stream(*events)), use)


async def test_a_client_that_closes_on_the_last_event_has_had_its_answer(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN + DONE)), WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=True)
            await client.read_until(DONE)
            client.leave_by_fin()
            await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "ok"

    await on(redis, tmp_path, engine, use)


async def test_a_client_that_leaves_a_stream_is_recorded_with_what_it_had(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=True)
            await client.read_until(TOKEN)
        record = await outcome(bed)
        assert (record["outcome"], record["status"], record["bytes_out"]) == ("client_gone", 200, len(TOKEN))
        assert "reason" not in record  # he left by himself

    await on(redis, tmp_path, engine, use)


@pytest.mark.slow
async def test_the_wait_for_an_upload_is_no_part_of_the_time_to_the_first_token(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        request = post("/v1/chat/completions", chat(stream=True), bed.headers())
        async with GoneClient.to(bed.url) as client:
            await client.send(request[:-5])
            await asyncio.sleep(1.0)
            await client.send(request[-5:])
            await client.read_until(DONE)
        record = await outcome(bed)
        assert isinstance(record["ttft_ms"], float)
        assert record["ttft_ms"] < 900

    await on(redis, tmp_path, RawEngine(stream(TOKEN, DONE)), use)
