"""The whole data path, from a client's socket to an engine's and back, on byte-exact engines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from config.settings import Isolation, IsolationKey, Timeouts
from proxy.relay.sse import MAX_EVENT_BYTES
from tests.parts.gate_bed import KEY, GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import (
    LAST_CHUNK,
    STREAM_HEAD,
    Close,
    RawEngine,
    RawRequest,
    Reset,
    Send,
    Sleep,
    Step,
    Wait,
    WaitForPeer,
    chunk,
    json_answer,
)
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, DONE, TOKEN, ask, on, outcome, stream


@pytest.mark.parametrize(
    "events",
    [
        (TOKEN, DONE),
        (TOKEN.replace(b"\n", b"\r\n"), b"data: [DONE]\r\n\r\n"),
        (b": keep-alive\n\n", TOKEN, b": keep-alive\n\n", DONE),
        (TOKEN[:44], TOKEN[44:], DONE),  # between two bytes of one character
        (b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 2**23 + b'"}}]}\n\n', DONE),
        tuple(bytes([byte]) for byte in TOKEN + DONE),
        (TOKEN + TOKEN + DONE,),
    ],
    ids=["plain", "crlf", "comments", "split character", "8 MiB line", "byte by byte", "in one read"],
)
async def test_the_bytes_of_a_stream_reach_the_client_unchanged(
    events: tuple[bytes, ...], redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        # With include_usage nothing is withheld.
        document = chat(stream=True, stream_options={"include_usage": True})
        status, headers, body = await bed.post(document=document)
        assert (status, body) == (200, b"".join(events))
        assert headers["Content-Type"].startswith("text/event-stream")

    await on(redis, tmp_path, RawEngine(stream(*events)), use)


async def test_a_stream_ends_as_failed_at_an_event_too_long_to_hide_the_reuse_in_it(
    redis: RedisServer, tmp_path: Path
) -> None:
    """What came before it is given, and the engine is left at once."""
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN + b"data: " + b"x" * MAX_EVENT_BYTES)), WaitForPeer()))
    hiding = Isolation(show_reuse=False, keys=(IsolationKey(id="k1", secret=KEY),))
    async with (
        engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",), isolation=hiding) as bed,
        GoneClient.to(bed.url) as client,
    ):
        await ask(bed, client, streaming=True)
        got = await client.read_to_end()
        record = await outcome(bed)
    assert TOKEN in got
    assert b"xxx" not in got
    assert b'data: {"error":{"message":' in got
    assert b"[DONE]" not in got
    assert not got.endswith(LAST_CHUNK)
    assert (record["outcome"], record["error_type"]) == ("truncated", "event_too_long")


async def test_an_event_reaches_the_client_before_the_engine_sends_the_next_one(
    redis: RedisServer, tmp_path: Path
) -> None:
    seen = asyncio.Event()
    script = (Send(STREAM_HEAD), Send(chunk(TOKEN)), Wait(seen), Send(chunk(DONE)), Send(LAST_CHUNK))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=True)
            await client.read_until(TOKEN)
            seen.set()
            await client.read_until(DONE)
        assert (await outcome(bed))["outcome"] == "ok"

    await on(redis, tmp_path, RawEngine(script), use)


async def test_usage_is_asked_of_the_engine_and_hidden_from_a_client_that_did_not_ask(
    redis: RedisServer, tmp_path: Path
) -> None:
    told = b'{"prompt_tokens":7,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}'
    usage = b'data: {"choices":[],"usage":%b}\n\n' % told
    engine = RawEngine(stream(TOKEN, usage, DONE))

    async def use(bed: GateBed) -> None:
        _, _, body = await bed.post(document=chat(stream=True))
        assert body == TOKEN + DONE
        record = await outcome(bed)
        assert (record["prompt_tokens"], record["reused_tokens"], record["output_tokens"]) == (7, 4, 1)
        sent = json.loads((await engine.request()).body)
        assert sent["stream_options"] == {"include_usage": True, "continuous_usage_stats": False}

    await on(redis, tmp_path, engine, use)


BEFORE_THE_HEAD: dict[str, Sequence[Step]] = {
    "silence": (Close(),),
    "reset": (Reset(),),
    "no http": (Send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), Close()),
    "endless head": (Send(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 40_000), Close()),
    "two lengths": (Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"), Close()),
    "length and chunked": (
        Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        Close(),
    ),
    "another coding": (Send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), Close()),
    "packed": (Send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"), Close()),
    "another protocol": (
        Send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
        Close(),
    ),
    "too short": (Send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{}"), Close()),
    "redirect": (
        Send(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://evil/\r\nContent-Length: 0\r\n\r\n"),
        Close(),
    ),
    "unauthorized": (Send(json_answer(b'{"error":"Unauthorized"}', "401 Unauthorized")), Close()),
    "crash": (Send(json_answer(b'{"error":"secret trace"}', "500 Internal Server Error")), Close()),
}


@pytest.mark.parametrize("script", BEFORE_THE_HEAD.values(), ids=BEFORE_THE_HEAD.keys())
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_an_engine_that_breaks_before_its_answer_is_a_502_without_a_byte_of_it(
    script: Sequence[Step], path: str, redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        document = chat(max_tokens=9)
        status, headers, body = await bed.post(path, document)
        error = json.loads(body)["error"]
        assert (status, error["code"]) == (502, "engine_failed")
        assert error["type"] == ("api_error" if path == "/v1/messages" else "server_error")
        assert "Location" not in headers
        assert b"secret" not in body
        assert b"evil" not in body
        assert (await outcome(bed))["outcome"] == "engine_failed"

    # As many scripts as connections: the gate must not need more than two.
    await on(redis, tmp_path, RawEngine(script, script), use)


@pytest.mark.parametrize(
    "answer",
    [
        json_answer(ANSWER),
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + json_answer(ANSWER),
        b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + ANSWER,
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"%x;a=b\r\n%b\r\n0\r\nX-Trailer: no\r\n\r\n" % (len(ANSWER), ANSWER),
    ],
    ids=["length", "1xx first", "until close", "chunk extension and trailer"],
)
async def test_every_framing_of_a_whole_answer_gives_the_client_the_same(
    answer: bytes, redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        status, headers, body = await bed.post()
        assert (status, body, headers["Content-Length"]) == (200, ANSWER, str(len(ANSWER)))
        assert "Link" not in headers
        assert "X-Trailer" not in headers

    await on(redis, tmp_path, RawEngine((Send(answer), Close())), use)


@pytest.mark.parametrize(
    ("path", "sign"),
    [("/v1/chat/completions", b'data: {"error"'), ("/v1/messages", b"event: error"), ("/v1/responses", b"event: ")],
)
@pytest.mark.parametrize("last", [(Close(),), (Reset(),), (Send(b"0x5\r\n"),)], ids=["fin", "rst", "bad chunk"])
async def test_an_engine_that_breaks_mid_stream_is_told_as_an_error_event_and_never_as_an_end(
    path: str, sign: bytes, last: Sequence[Step], redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            document = chat(stream=True, max_tokens=9) if path == "/v1/messages" else chat(stream=True)
            if path == "/v1/responses":
                document = {"model": "tiny", "input": "hi", "stream": True}
            await client.send(post(path, document, bed.headers()))
            got = await client.read_to_end()
        assert sign in got
        assert b"[DONE]" not in got
        assert not got.endswith(b"0\r\n\r\n")
        assert (await outcome(bed))["outcome"] == "truncated"

    first = b": hello\n\n"
    await on(redis, tmp_path, RawEngine((Send(STREAM_HEAD), Send(chunk(first)), *last)), use)


async def test_an_answer_that_holds_the_salt_never_reaches_the_client(redis: RedisServer, tmp_path: Path) -> None:
    salt = "sg1-k1-"

    class Echo(RawEngine):
        def answer_to(self, request: RawRequest) -> Sequence[Step]:
            return (Send(json_answer(request.body)),) if request.body else super().answer_to(request)

    async def use(bed: GateBed) -> None:
        status, _, body = await bed.post()
        assert status == 502
        assert salt.encode() not in body

    await on(redis, tmp_path, Echo(), use)


LEAVING = ["leave_by_fin", "leave_by_rst", "half_close"]


@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize("when", ["before the head", "before the first event", "mid-stream", "non-streaming"])
async def test_a_client_that_leaves_frees_the_engine(
    leave: Literal["leave_by_fin", "leave_by_rst", "half_close"], when: str, redis: RedisServer, tmp_path: Path
) -> None:
    sent: dict[str, Sequence[Step]] = {
        "before the head": (WaitForPeer(),),
        "non-streaming": (WaitForPeer(),),
        "before the first event": (Send(STREAM_HEAD), WaitForPeer()),
        "mid-stream": (Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()),
    }
    engine = RawEngine(sent[when])

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=when != "non-streaming")
            await engine.request()
            if when == "mid-stream":
                await client.read_until(TOKEN)
            elif when == "before the first event":
                await client.read_until(b"\r\n\r\n")
            getattr(client, leave)()
            await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "client_gone"

    await on(redis, tmp_path, engine, use)


async def test_a_paused_client_that_sends_only_fin_frees_the_engine(redis: RedisServer, tmp_path: Path) -> None:
    flood = [Send(chunk(b": " + b"x" * 65_000 + b"\n\n")) for _ in range(1000)]
    engine = RawEngine((Send(STREAM_HEAD), *flood, WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=4096) as client:
            await ask(bed, client, streaming=True)
            await client.read_until(b"\r\n\r\n")
            async with asyncio.timeout(20):
                while not any(downstream.writing_paused for downstream in bed.gate.front.downstreams):
                    await asyncio.sleep(0.01)
            client.half_close()
            await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "client_gone"

    await on(redis, tmp_path, engine, use)


@pytest.mark.slow
async def test_a_client_that_does_not_read_stops_the_engine_and_gets_every_byte_later(
    redis: RedisServer, tmp_path: Path
) -> None:
    pieces = [b"data: %06d " % number + b"x" * 60_000 + b"\n\n" for number in range(300)]
    engine = RawEngine(
        (Send(STREAM_HEAD), *(Send(chunk(piece)) for piece in pieces), Send(chunk(DONE)), Send(LAST_CHUNK))
    )

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=65536) as client:
            await client.send(
                post(
                    "/v1/chat/completions",
                    chat(stream=True, stream_options={"include_usage": True}),
                    bed.headers() | {"Connection": "close"},
                )
            )
            await client.read_until(b"\r\n\r\n")
            async with asyncio.timeout(20):
                while not any(downstream.writing_paused for downstream in bed.gate.front.downstreams):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert (
                max(connection.unsent for connection in engine.connections) > 5_000_000
            )  # of 36 MB: the engine was held, not our memory filled
            got = await client.read_to_end(seconds=60)
        for piece in pieces:
            assert piece[:13] in got

    await on(redis, tmp_path, engine, use)


@pytest.mark.slow
async def test_a_client_that_never_reads_is_cut_after_the_stall_limit(redis: RedisServer, tmp_path: Path) -> None:
    flood = [Send(chunk(b": " + b"x" * 65_000 + b"\n\n")) for _ in range(1000)]
    engine = RawEngine((Send(STREAM_HEAD), *flood, WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=4096) as client:
            await ask(bed, client, streaming=True)
            await engine.peer_closed(seconds=10)
        line = await outcome(bed)
        assert (line["outcome"], line["reason"]) == ("client_gone", "client_stalled")

    await on(redis, tmp_path, engine, use, Timeouts(stall=0.3))


async def test_a_reused_connection_that_dies_silently_is_tried_once_more_on_a_new_one(
    redis: RedisServer, tmp_path: Path
) -> None:
    answer = (Send(json_answer(ANSWER)),)
    engine = RawEngine(answer, (Reset(),), answer)

    async def use(bed: GateBed) -> None:
        for _ in range(2):
            status, _, body = await bed.post()
            assert (status, body) == (200, ANSWER)
        assert [request.connection == engine.requests[0].connection for request in engine.requests] == [
            True,
            True,
            False,
        ]

    await on(redis, tmp_path, engine, use)


async def test_a_request_is_never_sent_again_after_one_byte_of_an_answer(redis: RedisServer, tmp_path: Path) -> None:
    answer = (Send(json_answer(ANSWER)),)
    engine = RawEngine(answer, (Send(b"H"), Sleep(0.05), Reset()), answer)

    async def use(bed: GateBed) -> None:
        assert (await bed.post())[0] == 200
        assert (await bed.post())[0] == 502
        assert len(engine.requests) == 2

    await on(redis, tmp_path, engine, use)


async def test_bytes_after_an_answer_end_the_connection_and_reach_nobody(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine(
        (Send(json_answer(ANSWER) + json_answer(b'{"evil":1}')), WaitForPeer()), (Send(json_answer(ANSWER)),)
    )

    async def use(bed: GateBed) -> None:
        for _ in range(2):
            status, _, body = await bed.post()
            assert (status, body) == (200, ANSWER)

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("streaming", [False, True])
async def test_an_engine_that_never_answers_is_a_504(streaming: bool, redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        status, _, body = await bed.post(document=chat(stream=streaming))
        assert (status, json.loads(body)["error"]["code"]) == (504, "engine_timeout")
        assert (await outcome(bed))["outcome"] == "engine_timeout"

    await on(redis, tmp_path, RawEngine((WaitForPeer(),)), use, Timeouts(first_byte=0.2))


async def test_an_engine_that_falls_silent_ends_the_stream_with_an_error_event(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=True)
            got = await client.read_to_end()
        assert TOKEN in got
        assert b"engine_timeout" in got
        assert b"[DONE]" not in got
        assert (await outcome(bed))["outcome"] == "engine_timeout"

    await on(
        redis, tmp_path, RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer())), use, Timeouts(idle=0.3)
    )


POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
FRAMING = {
    "length and chunked": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "folded header": POST + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "space before colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "lower-case method": POST.replace(b"POST", b"post") + b"Content-Length: 0\r\n\r\n",
    "huge token": POST + b"Authorization: Bearer " + b"SeCrEt" * 8000 + b"\r\n\r\n",
    "no http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03SeCrEt\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", FRAMING.values(), ids=FRAMING.keys())
async def test_doubtful_framing_is_refused_and_quoted_nowhere(
    request_bytes: bytes, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine()

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(request_bytes)
            got = await client.read_to_end()
        assert got.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 401 "))
        assert b'"error"' in got
        assert b"SeCrEt" not in got
        assert "SeCrEt" not in bed.log.read_text()

    await on(redis, tmp_path, engine, use)


async def test_pipelined_requests_are_answered_in_order_on_one_connection(redis: RedisServer, tmp_path: Path) -> None:
    answers = [b'{"n":%d}' % number for number in range(3)]
    engine = RawEngine(*[(Send(json_answer(answer)),) for answer in answers])

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(post("/v1/chat/completions", chat(), bed.headers()) * 3)
            got = [(await client.read_answer()).body for _ in range(3)]
        assert got == answers

    await on(redis, tmp_path, engine, use)


@pytest.mark.slow
async def test_a_client_that_expects_100_is_told_to_go_on_only_when_it_is_admitted(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        request = post("/v1/chat/completions", chat(), bed.headers() | {"Expect": "100-continue"})
        head, _, body = request.partition(b"\r\n\r\n")
        async with GoneClient.to(bed.url) as client:
            await client.send(head + b"\r\n\r\n")
            await client.read_until(b"HTTP/1.1 100 Continue\r\n\r\n")
            await client.send(body)
            assert (await client.read_answer()).status == 200
        stranger = post("/v1/chat/completions", chat(), {"Expect": "100-continue"}).partition(b"\r\n\r\n")[0]
        async with GoneClient.to(bed.url) as client:
            await client.send(stranger + b"\r\n\r\n")
            assert (await client.read_answer()).status == 401

    await on(redis, tmp_path, RawEngine((Send(json_answer(ANSWER)),)), use)


@pytest.mark.slow
async def test_a_body_over_the_limit_is_refused_before_it_has_arrived(redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        head = post("/v1/chat/completions", {}, bed.headers() | {"Content-Length": str(2**40)}).partition(b"{")[0]
        async with GoneClient.to(bed.url) as client:
            await client.send(head)
            answer = await client.read_answer()
        assert answer.status == 413
        assert json.loads(answer.body)["error"]["code"] == "body_too_large"

    await on(redis, tmp_path, RawEngine(), use)


@pytest.mark.slow
async def test_a_body_that_does_not_arrive_in_time_is_refused(redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        head = post("/v1/chat/completions", {}, bed.headers() | {"Content-Length": "100"}).partition(b"{")[0]
        async with GoneClient.to(bed.url) as client:
            await client.send(head + b"{")
            answer = await client.read_answer()
        assert answer.status == 400

    await on(redis, tmp_path, RawEngine(), use, Timeouts(request=0.2))


async def test_an_http_1_0_client_gets_its_stream_without_chunks(redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        request = post("/v1/chat/completions", chat(stream=True, stream_options={"include_usage": True}), bed.headers())
        async with GoneClient.to(bed.url) as client:
            await client.send(request.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
            got = await client.read_to_end()
        assert got.partition(b"\r\n\r\n")[2] == TOKEN + DONE

    await on(redis, tmp_path, RawEngine(stream(TOKEN, DONE)), use)


async def test_an_open_stream_finishes_during_a_drain_and_a_new_request_is_refused(
    redis: RedisServer, tmp_path: Path
) -> None:
    go = asyncio.Event()
    script = (Send(STREAM_HEAD), Send(chunk(TOKEN)), Wait(go), Send(chunk(DONE)), Send(LAST_CHUNK))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client, GoneClient.to(bed.url) as late:
            await ask(bed, client, streaming=True)
            await client.read_until(TOKEN)
            draining = asyncio.ensure_future(bed.gate.drain(20))
            await asyncio.sleep(0)
            await ask(bed, late, streaming=True)
            answer = await late.read_answer()
            assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "draining")
            assert b"Retry-After" in answer.head
            go.set()
            await client.read_until(DONE)
            await draining

    await on(redis, tmp_path, RawEngine(script), use)


async def test_a_stream_that_outlasts_the_drain_limit_ends_with_an_error_event(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=True)
            await client.read_until(TOKEN)
            draining = asyncio.ensure_future(bed.gate.drain(0.1))
            got = await client.read_to_end()
            await draining
        assert b'"draining"' in got
        assert b"[DONE]" not in got
        assert (await outcome(bed))["outcome"] == "drained"

    await on(redis, tmp_path, RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer())), use)


@pytest.mark.parametrize("leave", ["leave_by_fin", "leave_by_rst"])
async def test_requests_queued_behind_an_open_one_do_not_hide_that_the_client_left(
    leave: str, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((WaitForPeer(),))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=False)
            await engine.request()
            await client.send(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
            getattr(client, leave)()
            await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "client_gone"

    await on(redis, tmp_path, engine, use)
