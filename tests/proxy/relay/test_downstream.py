"""The client's connection: framing, order, edges of HTTP, and what is read before anybody asked for it."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import suppress
from pathlib import Path

import pytest

from config.settings import Public, Timeouts
from proxy.refusals import Refusal
from proxy.relay.answer import Answer
from proxy.relay.front import Front
from proxy.relay.request import Request
from tests.parts.gate_bed import GateBed, chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import STREAM_HEAD, Close, RawEngine, Send, WaitForPeer, chunk, json_answer
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, DONE, TOKEN, ask, on, outcome, stream

pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
GOOD = (Send(json_answer(ANSWER)),)


def head(line: str, headers: dict[str, str]) -> bytes:
    fields = [line, "Host: a", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*fields, "", ""]).encode()


def chunked(bed: GateBed, *pieces: bytes, more: str = "Content-Type: application/json") -> bytes:
    name, _, value = more.partition(": ")
    begun = head(f"POST {PATH} HTTP/1.1", bed.headers() | {"Transfer-Encoding": "chunked", name: value})
    return begun + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


@pytest.mark.parametrize(
    "line",
    [
        f"GET {PATH} HTTP/1.1",
        f"PUT {PATH} HTTP/1.1",
        f"OPTIONS {PATH} HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        f"POST http://a{PATH} HTTP/1.1",
        f"POST {PATH.replace('chat', '%63hat')} HTTP/1.1",
        f"POST {PATH.replace('/chat', '%2fchat')} HTTP/1.1",
        f"POST {PATH}/ HTTP/1.1",
        f"POST /{PATH} HTTP/1.1",
        f"POST /v1/../v1{PATH.removeprefix('/v1')} HTTP/1.1",
        f"POST {PATH};a HTTP/1.1",
        "POST /tokenize HTTP/1.1",
    ],
)
async def test_only_the_exact_method_and_path_exist(line: str, redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine(GOOD)

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(head(line, bed.headers() | {"Content-Length": "0"}))
            answer = await client.read_answer()
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (404, "endpoint_not_allowed")
        assert not engine.requests

    await on(redis, tmp_path, engine, use)


async def test_the_answer_to_a_head_request_has_no_body_that_the_next_one_begins_with(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(head(f"HEAD {PATH} HTTP/1.1", bed.headers()))
            got = await client.read_until(b"\r\n\r\n")
            assert got.startswith(b"HTTP/1.1 404 ")
            await ask(bed, client, streaming=False)
            assert (await client.read_until(b"\r\n")) == b"HTTP/1.1 200 OK\r\n"

    await on(redis, tmp_path, RawEngine(GOOD), use)


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.0"])
async def test_an_offer_of_another_protocol_is_passed_over_and_the_connection_ends_with_the_answer(
    protocol: str, redis: RedisServer, tmp_path: Path
) -> None:
    """RFC 9110 section 7.8; Java's own client makes one with each first request."""
    engine = RawEngine(GOOD)

    async def use(bed: GateBed) -> None:
        request = post(PATH, chat(), bed.headers() | {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": protocol})
        async with GoneClient.to(bed.url) as client:
            await client.send(request[:-3])
            await asyncio.sleep(0.05)
            await client.send(request[-3:] + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            got = await client.read_to_end()
        assert got.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nConnection: close\r\n" in got
        assert got.count(b"HTTP/1.1 ") == 1
        assert len(engine.requests) == 1

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("end", [b"0\r\nX: y\r\n\r\n", b"0\r\n\r\n"], ids=["trailer", "plain"])
async def test_a_body_in_chunks_goes_up_with_a_length(end: bytes, redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine(GOOD)

    async def use(bed: GateBed) -> None:
        body = json.dumps(chat()).encode()
        async with GoneClient.to(bed.url) as client:
            await client.send(chunked(bed, body[:5], body[5:]) + end)
            assert (await client.read_answer()).status == 200
        sent = await engine.request()
        assert sent.header(b"content-length") == [b"%d" % len(sent.body)]
        assert not sent.header(b"x")

    await on(redis, tmp_path, engine, use)


BAD_BODIES = {
    "no chunk size": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a huge chunk size": b"fffffffffffffffff\r\nhello",
    "no end of a chunk": b"2\r\n{}0\r\n\r\n",
    "bare line feeds": b"2\n{}\n0\n\n",
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
async def test_a_body_whose_chunks_make_no_sense_is_a_400_and_the_end_of_the_connection(
    body: bytes, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine(GOOD)

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(chunked(bed) + body)
            got = await client.read_to_end()
        assert got.startswith(b"HTTP/1.1 400 ")
        assert got.count(b"HTTP/1.1 ") <= 2  # one for the request, and at most one for the rest
        assert not engine.requests

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize(
    "lines",
    [
        f"POST {PATH} HTTP/1.1\nHost: a\nContent-Length: 0\n\n".encode(),
        f"POST {PATH} HTTP/1.1\r\nHost: a\nContent-Length: 0\r\n\r\n".encode(),
        f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n".encode(),
        f"POST {PATH} HTTP/1.1\r\nHost: a\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n".encode(),
    ],
    ids=["line feeds", "one line feed", "a negative length", "NUL"],
)
async def test_a_head_that_two_readers_may_read_differently_is_refused(
    lines: bytes, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine(GOOD)

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(lines)
            got = await client.read_to_end()
        assert got.startswith(b"HTTP/1.1 400 ")
        assert got.count(b"Connection: close") == 1
        assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_request"
        assert not engine.requests

    await on(redis, tmp_path, engine, use)


async def test_a_body_over_the_limit_is_refused_while_it_still_comes(redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(chunked(bed, b"x" * 60_000, b"x" * 60_000))  # and there is more to come
            answer = await client.read_answer()
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (413, "body_too_large")

    await on(redis, tmp_path, RawEngine(GOOD), use, public=Public(max_body=100_000))


@pytest.mark.parametrize(
    ("start", "framing"),
    [
        ("POST {path} HTTP/1.1", "Transfer-Encoding: gzip, chunked"),
        ("POST {path} HTTP/1.1", "Transfer-Encoding: identity, chunked"),
        ("POST {path} HTTP/1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        ("POST {path} HTTP/1.0", "Transfer-Encoding: chunked"),
        ("GET /v1/models HTTP/1.0", "Transfer-Encoding: chunked"),
        ("GET /nowhere HTTP/1.1", "Transfer-Encoding: gzip, chunked"),
    ],
)
async def test_framing_that_two_readers_may_read_differently_ends_the_connection(
    start: str, framing: str, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine(GOOD)

    async def use(bed: GateBed) -> None:
        head = chunked(bed).replace(b"Transfer-Encoding: chunked", framing.encode(), 1)
        lines = start.format(path=PATH).encode() + head[head.index(b"\r\n") :]
        body = json.dumps(chat()).encode()
        smuggled = f"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {bed.token()}\r\n\r\n".encode()
        async with GoneClient.to(bed.url) as client:
            await client.send(lines + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) + smuggled)
            got = await client.read_to_end()
        assert got.startswith(b"HTTP/1.1 400 ")
        assert got.count(b"HTTP/1.1 ") == 1
        assert not engine.requests

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("more", ["Content-Encoding: gzip", "Content-Type: text/plain"])
async def test_a_body_in_disguise_is_a_415(more: str, redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        name, _, value = more.partition(": ")
        request = post(PATH, chat(), bed.headers() | {name: value})
        async with GoneClient.to(bed.url) as client:
            await client.send(request)
            assert (await client.read_answer()).status == 415

    await on(redis, tmp_path, RawEngine(GOOD), use)


async def test_a_second_content_encoding_does_not_hide_behind_the_first(redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        request = post(PATH, chat(), bed.headers())
        twice = request.replace(b"\r\n\r\n", b"\r\nContent-Encoding: identity\r\nContent-Encoding: gzip\r\n\r\n", 1)
        async with GoneClient.to(bed.url) as client:
            await client.send(twice)
            assert (await client.read_answer()).status in {400, 415}

    await on(redis, tmp_path, RawEngine(GOOD), use)


async def test_a_head_that_does_not_arrive_in_time_ends_the_connection(redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=False)
            assert (await client.read_answer()).status == 200
            await client.send(b"POST /v1/chat/com")
            with pytest.raises((EOFError, ConnectionResetError)):
                await client.read_until(b"\r\n", seconds=10)

    await on(redis, tmp_path, RawEngine(GOOD), use, Timeouts(request=0.3))


async def test_a_body_that_trickles_is_refused_though_each_byte_comes_soon(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine(GOOD)

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            head = post("/v1/chat/completions", chat("x" * 1000), bed.headers()).partition(b"\r\n\r\n")[0]
            await client.send(head + b"\r\n\r\n{")

            async def trickle() -> None:
                while True:
                    await client.send(b" ")
                    await asyncio.sleep(0.05)

            trickling = asyncio.ensure_future(trickle())
            answer = await client.read_answer()
            assert answer.status == 400
            assert b"did not arrive within" in answer.body
            trickling.cancel()
            await asyncio.gather(trickling, return_exceptions=True)
        assert not engine.requests

    await on(redis, tmp_path, engine, use, Timeouts(request=0.5))


async def test_a_connection_that_waits_between_requests_is_not_a_late_head(redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            for _ in range(2):
                await ask(bed, client, streaming=False)
                assert (await client.read_answer()).status == 200
                await asyncio.sleep(0.6)

    await on(redis, tmp_path, RawEngine(GOOD), use, Timeouts(request=0.3))


async def test_nothing_of_one_request_is_left_for_the_next_on_its_connection(
    redis: RedisServer, tmp_path: Path
) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n'
    engine = RawEngine(stream(TOKEN, usage, DONE), stream(TOKEN, usage, DONE), GOOD, stream(TOKEN))
    asks = {"stream": True, "stream_options": {"include_usage": True}}

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            bodies = []
            for more in (asks, {"stream": True}, {}):
                await client.send(post(PATH, chat(**more), bed.headers()))
                bodies.append((await client.read_answer()).body)
            assert bodies == [TOKEN + usage + DONE, TOKEN + DONE, ANSWER]
            await client.send(post(PATH, chat(stream=True), bed.headers()))
            assert b'"engine_failed"' in await client.read_to_end()
        assert [(await outcome(bed, number))["outcome"] for number in range(4)] == ["ok", "ok", "ok", "truncated"]

    await on(redis, tmp_path, engine, use)


async def test_connection_close_is_kept_and_told(redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(post(PATH, chat(), bed.headers() | {"Connection": "close"}))
            got = await client.read_to_end()
        assert got.endswith(ANSWER)
        assert got.count(b"Connection: close\r\n") == 1

    await on(redis, tmp_path, RawEngine(GOOD), use)


async def test_a_body_queued_behind_an_open_request_ends_both(redis: RedisServer, tmp_path: Path) -> None:
    """Once it is not read any more, neither would be the client's FIN or RST."""
    engine = RawEngine((WaitForPeer(),))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=False)
            await engine.request()
            with pytest.raises(ConnectionError):
                await client.send(chunked(bed, b"x" * 8_000_000))
            await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "client_gone"

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("version", [b"HTTP/2.0", b"HTTP/0.9"])
async def test_another_version_of_http_is_refused(version: bytes, redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine(GOOD)

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(post(PATH, chat(), bed.headers()).replace(b"HTTP/1.1", version, 1))
            assert (await client.read_to_end()).startswith(b"HTTP/1.1 400 ")
        assert not engine.requests

    await on(redis, tmp_path, engine, use)


async def test_a_fault_of_ours_after_the_head_cuts_the_answer_and_puts_no_second_head_into_it() -> None:
    faults: list[BaseException | None] = []

    async def handle(request: Request) -> Answer:
        answer = Answer(request)
        answer.head(200, b"Content-Type: text/event-stream\r\n")
        answer.body(TOKEN)
        raise RuntimeError("a fault")

    def failed(refusal: Refusal, error: BaseException | None) -> bytes:
        faults.append(error)
        return b""

    front = Front(handle, failed, request_seconds=5.0, stall_seconds=5.0)
    server = await asyncio.get_running_loop().create_server(front, "127.0.0.1", 0)
    async with server, GoneClient(server.sockets[0].getsockname()[1]) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        got = await client.read_to_end()
        server.close()
    assert got.count(b"HTTP/1.1 ") == 1
    assert got.endswith(b"%x\r\n%b\r\n" % (len(TOKEN), TOKEN))


async def test_a_fault_of_ours_before_the_head_is_a_500_that_tells_nothing() -> None:
    faults: list[BaseException | None] = []

    async def handle(request: Request) -> Answer:
        raise RuntimeError("secret")

    def failed(refusal: Refusal, error: BaseException | None) -> bytes:
        faults.append(error)
        return b""

    front = Front(handle, failed, request_seconds=5.0, stall_seconds=5.0)
    server = await asyncio.get_running_loop().create_server(front, "127.0.0.1", 0)
    async with server, GoneClient(server.sockets[0].getsockname()[1]) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        got = await client.read_to_end()
        server.close()
    assert got.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in got
    assert [type(fault) for fault in faults] == [RuntimeError]


async def test_a_head_without_end_is_refused_and_not_kept(redis: RedisServer, tmp_path: Path) -> None:
    """Each line is within its bound, and so is their number: the head as a whole is not."""
    line = b"X-%d: " + b"a" * 32_000 + b"\r\n"

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(f"GET /v1/models HTTP/1.1\r\nHost: a\r\n{bed_lines(bed)}\r\n".encode())
            for number in range(5):
                await client.send(line % number)
            assert (await client.read_to_end()).startswith(b"HTTP/1.1 400 ")

    await on(redis, tmp_path, RawEngine(GOOD), use)


async def test_what_waits_behind_an_open_request_is_bounded(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((WaitForPeer(),))
    head = b"GET /v1/models HTTP/1.1\r\nHost: a\r\n" + b"X: %b\r\n" % (b"a" * 8_000) * 8 + b"\r\n"

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=False)
            await engine.request()
            with suppress(ConnectionError):
                for _ in range(100):
                    await client.send(head)
            await engine.peer_closed(seconds=5)

    await on(redis, tmp_path, engine, use)


async def test_answers_of_every_kind_come_in_the_order_of_their_requests(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine(GOOD, stream(TOKEN, DONE), (Send(json_answer(b"{}", "500 Internal Server Error")),), GOOD)

    async def use(bed: GateBed) -> None:
        requests = [
            post(PATH, chat(), bed.headers()),
            post(PATH, chat(stream=True), bed.headers()),
            post(PATH, chat()),
            head("GET /v1/models/tiny HTTP/1.1", bed.headers()),
            post(PATH, chat(), bed.headers()),
            post("/nowhere", chat(), bed.headers()),
            chunked(bed, json.dumps(chat()).encode()) + b"0\r\n\r\n",
        ]
        async with GoneClient.to(bed.url) as client:
            await client.send(b"".join(requests))
            answers = [await client.read_answer() for _ in requests]
        assert [answer.status for answer in answers] == [200, 200, 401, 200, 502, 404, 200]
        assert [answers[number].body for number in (0, 1, 6)] == [ANSWER, TOKEN + DONE, ANSWER]

    await on(redis, tmp_path, engine, use)


async def test_what_comes_behind_a_stream_that_broke_is_not_served(redis: RedisServer, tmp_path: Path) -> None:
    """Its connection ends, so nobody could be answered; and the engine shall not work for nobody."""
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), Close()), GOOD)

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(post(PATH, chat(stream=True), bed.headers()) + post(PATH, chat(), bed.headers()) * 2)
            got = await client.read_to_end()
        assert got.count(b"HTTP/1.1 ") == 1
        await outcome(bed)
        assert len(engine.requests) == 1

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("leave", ["leave_by_fin", "leave_by_rst"])
async def test_a_client_that_leaves_in_the_middle_of_its_requests_has_no_more_of_them_sent(
    leave: str, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine(GOOD, (Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()), GOOD)

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            plain = post(PATH, chat(), bed.headers())
            await client.send(plain + post(PATH, chat(stream=True), bed.headers()) + plain * 3)
            assert (await client.read_answer()).body == ANSWER
            await client.read_until(TOKEN)
            getattr(client, leave)()
            await engine.peer_closed(1, seconds=5)
        assert [(await outcome(bed, number))["outcome"] for number in range(2)] == ["ok", "client_gone"]
        assert len(engine.requests) == 2

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_may_be_as_long_as_the_limit_and_no_longer(
    framing: str, redis: RedisServer, tmp_path: Path
) -> None:
    limit = 50_000

    async def use(bed: GateBed) -> None:
        for over, status in ((0, 200), (1, 413)):
            body = json.dumps(chat("x" * (limit + over - len(json.dumps(chat(""))))))
            assert len(body) == limit + over
            sent = head(
                f"POST {PATH} HTTP/1.1",
                bed.headers() | {"Content-Type": "application/json"} | {"Content-Length": str(len(body))},
            )
            request = sent + body.encode() if framing == "length" else chunked(bed, body.encode()) + b"0\r\n\r\n"
            async with GoneClient.to(bed.url) as client:
                await client.send(request)
                assert (await client.read_answer()).status == status

    await on(redis, tmp_path, RawEngine(GOOD), use, public=Public(max_body=limit))


@pytest.mark.parametrize("number", [31, 32, 33, 100])
async def test_many_requests_in_one_write_are_all_answered(number: int, redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        request = f"GET /v1/models HTTP/1.1\r\nHost: a\r\n{bed_lines(bed)}\r\n\r\n".encode()
        async with GoneClient.to(bed.url) as client:
            await client.send(request * number)
            assert [(await client.read_answer()).status for _ in range(number)] == [200] * number

    await on(redis, tmp_path, RawEngine(GOOD), use)


async def test_requests_in_a_row_on_one_connection_never_add_up(redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        request = f"GET /v1/models HTTP/1.1\r\nHost: a\r\n{bed_lines(bed)}\r\nX: {'a' * 20_000}\r\n\r\n".encode()
        async with GoneClient.to(bed.url) as client:
            for _ in range(20):
                await client.send(request)
                assert (await client.read_answer()).status == 200

    await on(redis, tmp_path, RawEngine(GOOD), use)


async def test_large_bodies_in_a_row_on_one_connection_are_all_served(redis: RedisServer, tmp_path: Path) -> None:
    """Each comes in several reads, of which some are there before the request is begun."""
    sizes = [100_000, 700_000, 300_000, 3_000_000] * 6
    engine = RawEngine(*[(Send(json_answer(ANSWER)),) for _ in sizes])

    async def use(bed: GateBed) -> None:
        headers = bed.headers() | {"Content-Type": "application/json"}
        for size in sizes:
            body = io.BytesIO(json.dumps(chat("x" * size)).encode())
            async with bed.session.post(bed.url + PATH, data=body, headers=headers) as answer:
                assert answer.status == 200

    await on(redis, tmp_path, engine, use, public=Public())


async def test_a_whole_request_is_served_though_garbage_comes_with_its_end(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine(GOOD)

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(chunked(bed))
            await asyncio.sleep(0.05)  # the request is begun, and waits for its body
            body = json.dumps(chat()).encode()
            await client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) + b"\0garbage\r\n\r\n")
            assert (await client.read_answer()).status == 200
            assert (await client.read_answer()).status == 400

    await on(redis, tmp_path, engine, use)


async def test_a_broken_body_behind_a_refusal_is_no_fault_of_ours(redis: RedisServer, tmp_path: Path) -> None:
    """Whoever has no token could fill the operator's log with alarms."""

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            nobodys = b"\r\n".join(
                line for line in chunked(bed).split(b"\r\n") if not line.lower().startswith(b"authorization")
            )
            await client.send(nobodys + b"1\r\na\r\n")
            assert (await client.read_answer()).status == 401
            await client.send(b"zz\r\n")
            await client.read_to_end()

    await on(redis, tmp_path, RawEngine(GOOD), use)


def bed_lines(bed: GateBed) -> str:
    return "\r\n".join(f"{name}: {value}" for name, value in bed.headers().items())


@pytest.mark.parametrize("rest", [b"garbage\r\n" * 10, b"1\r\nab\r\n", b"zz\r\n"])
async def test_a_broken_chunk_is_answered_at_once_and_what_follows_is_not_kept(
    rest: bytes, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine(GOOD)

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(chunked(bed) + b"1\r\na\r\n")
            await asyncio.sleep(0.05)  # the request is begun, and waits for its body
            await client.send(rest)
            assert (await client.read_answer(seconds=5)).status == 400
            assert await client.read_to_end() == b""
        assert not engine.requests

    await on(redis, tmp_path, engine, use, timeouts=Timeouts(request=60.0))
