"""What counts as a request, byte for byte: what two readers may read differently is refused, and ends its connection.

Behind each request comes another one of the same caller's, which a reader that lost its place would take for something
else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tests.parts.gate_bed import GateBed, chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import RawEngine, Send, json_answer
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, DONE, TOKEN, on, stream

GET = b"GET /v1/models HTTP/1.1\r\n"
HOST = b"Host: a\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"

# Heads without their last line: the caller's own lines come behind them, then the end, then what is given here.
REFUSED_HEADS: Mapping[str, tuple[bytes, bytes]] = {
    # Lines and their ends.
    "LF line ends": (b"GET /v1/models HTTP/1.1\nHost: a\n", b""),
    "one LF": (GET + b"Host: a\n", b""),
    "a CR within a value": (GET + HOST + b"X: a\rb\r\n", b""),
    "a LF within a value": (GET + HOST + b"X: a\nY: b\r\n", b""),
    "a NUL within a value": (GET + HOST + b"X: a\0b\r\n", b""),
    "a control within a value": (GET + HOST + b"X: a\x01b\r\n", b""),
    "a folded line": (GET + HOST + b"X: a\r\n b\r\n", b""),
    "a first line that is folded": (GET + b" " + HOST, b""),
    "a line without a colon": (GET + HOST + b"xx\r\n", b""),
    "a line without a name": (GET + HOST + b": x\r\n", b""),
    "a blank before a colon": (GET + b"Host : a\r\n", b""),
    "a tab before a colon": (GET + b"Host\t: a\r\n", b""),
    "a control in a name": (GET + HOST + b"X\x01: a\r\n", b""),
    "a name that is no token": (GET + HOST + "É: a\r\n".encode(), b""),
    # The request line.
    "tabs in the request line": (b"GET\t/v1/models\tHTTP/1.1\r\n" + HOST, b""),
    "no version": (b"GET /v1/models\r\n" + HOST, b""),
    "half a version": (b"GET /v1/models HTTP/1\r\n" + HOST, b""),
    "a small version": (b"GET /v1/models http/1.1\r\n" + HOST, b""),
    "HTTP/1.2": (b"GET /v1/models HTTP/1.2\r\n" + HOST, b""),
    "HTTP/2": (b"GET /v1/models HTTP/2.0\r\n" + HOST, b""),
    "a small method": (b"get /v1/models HTTP/1.1\r\n" + HOST, b""),
    "a NUL in the target": (b"GET /v1/mo\0dels HTTP/1.1\r\n" + HOST, b""),
    "bytes in the target": ("GET /v1/modéls HTTP/1.1\r\n".encode() + HOST, b""),
    "a long target": (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n" + HOST, b""),
    # What a head must have once (RFC 9112 section 3.2).
    "no host": (GET, b""),
    "two hosts": (GET + HOST + b"Host: b\r\n", b""),
    "a host that is none": (GET + b"Host: a b\x7f\r\n", b""),
    # Lengths (section 6.3).
    "two lengths": (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n", b"hello!"),
    "two equal lengths": (POST + b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"),
    "a list of lengths": (POST + b"Content-Length: 5, 5\r\n", b"hello"),
    "a length with a sign": (POST + b"Content-Length: +5\r\n", b"hello"),
    "a negative length": (POST + b"Content-Length: -5\r\n", b"hello"),
    "a length in hex": (POST + b"Content-Length: 0x5\r\n", b"hello"),
    "a length of two words": (POST + b"Content-Length: 5 5\r\n", b"hello"),
    "no length": (POST + b"Content-Length: \r\n", b"hello"),
    "a length past all bounds": (POST + b"Content-Length: 99999999999999999999\r\n", b"hello"),
    # Codings (section 6.1).
    "length and chunks": (POST + b"Content-Length: 5\r\n" + CHUNKED, b"0\r\n\r\n"),
    "chunks and length": (POST + CHUNKED + b"Content-Length: 5\r\n", b"0\r\n\r\n"),
    "chunks twice": (POST + CHUNKED + CHUNKED, b"0\r\n\r\n"),
    "chunks in chunks": (POST + b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n"),
    "chunks and another": (POST + b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"),
    "another and chunks": (POST + b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
    "nearly chunks": (POST + b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    "chunks behind a control": (POST + b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n"),
    "chunks in HTTP/1.0": (POST.replace(b"1.1", b"1.0") + CHUNKED, b"0\r\n\r\n"),
    "chunks in HTTP/1.0 that stays": (
        POST.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\n" + CHUNKED,
        b"0\r\n\r\n",
    ),
    # Chunks (section 7.1).
    "a chunk size with 0x": (POST + CHUNKED, b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a chunk size with a sign": (POST + CHUNKED, b"+2\r\n{}\r\n0\r\n\r\n"),
    "a negative chunk size": (POST + CHUNKED, b"-2\r\n{}\r\n0\r\n\r\n"),
    "a chunk size past all bounds": (POST + CHUNKED, b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
    "no chunk size": (POST + CHUNKED, b"\r\n{}\r\n0\r\n\r\n"),
    "a chunk that is longer": (POST + CHUNKED, b"1\r\n{}\r\n0\r\n\r\n"),
    "chunks that end with LF": (POST + CHUNKED, b"2\n{}\n0\n\n"),
    "a chunk extension with LF": (POST + CHUNKED, b"2;a\n{}\r\n0\r\n\r\n"),
    "a length in a trailer": (POST + CHUNKED, b"2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n"),
    "a folded trailer": (POST + CHUNKED, b"2\r\n{}\r\n0\r\nX: a\r\n b\r\n\r\n"),
}
# Whole connections of something else, without a line of ours.
OTHER_PROTOCOLS: dict[str, bytes] = {
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "TLS": bytes.fromhex("16030100c4010000c00303") + os.urandom(190),
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "PROXY": b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + GET + HOST + b"\r\n",
    "HTTP/0.9": b"GET /v1/models\r\n\r\n",
    "CRs": b"GET /v1/models HTTP/1.1\rHost: a\r\r",
}


def lines_of(bed: GateBed) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in bed.headers().items()).encode()


async def test_what_two_readers_may_read_differently_is_refused_and_nothing_behind_it_is_served(
    redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((Send(json_answer(ANSWER)),))

    async def use(bed: GateBed) -> None:
        behind = GET + HOST + lines_of(bed) + b"\r\n"
        cases = {
            name: head + lines_of(bed) + b"\r\n" + body + behind for name, (head, body) in REFUSED_HEADS.items()
        } | OTHER_PROTOCOLS
        for name, sent in cases.items():
            async with GoneClient.to(bed.url) as client:
                await client.send(sent)
                got = await client.read_to_end()
            assert got.startswith(b"HTTP/1.1 400 "), name
            assert got.count(b"\r\nDate: ") == 1, name
            assert got.count(b"Connection: close\r\n") == 1, name
            assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_request", name
        assert not engine.requests

    await on(redis, tmp_path, engine, use)


BODY = json.dumps(chat()).encode()
CHUNK = b"%x" % len(BODY)
BYTES = b"".join(b"1\r\n%c\r\n" % byte for byte in json.dumps(chat("x" * 100_000)).encode())
# What is unusual and clear. The caller's own lines come first in the place of LINES.
SERVED: Mapping[str, bytes] = {
    "an empty line before": b"\r\n" + GET + HOST + b"LINES\r\n",
    "two blanks in the request line": b"GET  /v1/models HTTP/1.1\r\n" + HOST + b"LINES\r\n",
    "a GET with a body": GET + HOST + b"LINESContent-Length: 5\r\n\r\nhello",
    "a GET in chunks": GET + HOST + b"LINES" + CHUNKED + b"\r\n5\r\nhello\r\n0\r\n\r\n",
    "a body that is a request": GET + HOST + b"LINESContent-Length: 36\r\n\r\n" + GET + HOST + b"\r\n",
    "bytes that are no ASCII in a value": GET + HOST + b"LINESX: \xff\xe9\r\n\r\n",
    "chunk extensions": POST + b"LINES" + CHUNKED + b"\r\n" + CHUNK + b';a=b;c="d"\r\n' + BODY + b"\r\n0;e\r\n\r\n",
    "trailers": POST + b"LINES" + CHUNKED + b"\r\n" + CHUNK + b"\r\n" + BODY + b"\r\n0\r\nX: y\r\nZ: 0\r\n\r\n",
    "zeros before a chunk size": POST + b"LINES" + CHUNKED + b"\r\n000" + CHUNK + b"\r\n" + BODY + b"\r\n000\r\n\r\n",
    "a coding in capitals": POST
    + b"LINESTransfer-Encoding: CHUNKED\r\n\r\n"
    + CHUNK
    + b"\r\n"
    + BODY
    + b"\r\n0\r\n\r\n",
    "chunks of one byte": POST + b"LINES" + CHUNKED + b"\r\n" + BYTES + b"0\r\n\r\n",
    "an underscore for a dash": POST
    + b"LINESTransfer_Encoding: chunked\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    + BODY,
    "an expectation that nobody knows": POST
    + b"LINESExpect: 200-maybe\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    + BODY,
}


async def test_what_is_unusual_and_clear_is_served_and_so_is_what_comes_behind(
    redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((Send(json_answer(ANSWER)),))

    async def use(bed: GateBed) -> None:
        behind = b"GET /v1/models/tiny HTTP/1.1\r\n" + HOST + lines_of(bed) + b"\r\n"
        for name, request in SERVED.items():
            async with GoneClient.to(bed.url) as client:
                await client.send(request.replace(b"LINES", lines_of(bed), 1) + behind)
                assert (await client.read_answer()).status == 200, name
                answer = await client.read_answer()
                assert (answer.status, json.loads(answer.body)["object"]) == (200, "model"), name
        for sent in engine.requests:
            assert sent.header(b"content-length") == [b"%d" % len(sent.body)]
            assert not sent.header(b"transfer-encoding")
            assert not sent.header(b"x")

    await on(redis, tmp_path, engine, use)


ENDLESS = {
    "extensions": (b"1;", b"x" * 65_536),
    "zeros of a chunk size": (b"", b"0" * 65_536),
    "trailers": (b"1\r\n{\r\n0\r\n", b"".join(b"X-%d: a\r\n" % number for number in range(5000))),
    "one trailer": (b"1\r\n{\r\n0\r\nX: ", b"y" * 65_536),
    "extensions of small chunks": (b"", b"1;" + b"x" * 60_000 + b"\r\n{\r\n"),
}


async def test_a_body_without_content_is_left_long_before_its_time_is_over(redis: RedisServer, tmp_path: Path) -> None:
    """Also that of a caller whom nobody knows, and who has his refusal already."""
    engine = RawEngine((Send(json_answer(ANSWER)),))

    async def use(bed: GateBed) -> None:
        for name, (begin, more) in ENDLESS.items():
            for lines in (lines_of(bed), b""):
                async with GoneClient.to(bed.url) as client:
                    await client.send(POST + lines + CHUNKED + b"\r\n" + begin)
                    assert await sent_until_left(client, more) < 64_000_000, name
        assert not engine.requests

    await on(redis, tmp_path, engine, use)


async def sent_until_left(client: GoneClient, data: bytes) -> int:
    sent = 0
    try:
        while sent < 64_000_000:
            await client.send(data)
            sent += len(data)
    except ConnectionError:
        pass
    return sent


async def test_http_1_0_is_answered_with_a_length_or_to_the_end_and_never_in_chunks(
    redis: RedisServer, tmp_path: Path
) -> None:
    """Also where the client asks to stay: it gets what it asked for, and the end of the connection (section 9.3)."""
    engine = RawEngine(stream(TOKEN, DONE))
    plain = chat(stream=True, stream_options={"include_usage": True})

    async def use(bed: GateBed) -> None:
        for connection in ({}, {"Connection": "keep-alive"}, {"Connection": "close"}, {"Expect": "100-continue"}):
            for request, body in (
                (post("/v1/chat/completions", plain, bed.headers() | connection), TOKEN + DONE),
                (b"GET /v1/models/tiny HTTP/1.1\r\n" + lines_of(bed) + b"\r\n", None),
                (b"GET /nowhere HTTP/1.1\r\n\r\n", None),
            ):
                async with GoneClient.to(bed.url) as client:
                    await client.send(request.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1))
                    head, _, got = (await client.read_to_end()).partition(b"\r\n\r\n")
                assert head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 404 "))
                assert b"\r\nConnection: close" in head
                assert b"Transfer-Encoding" not in head
                if body is None:
                    assert b"\r\nContent-Length: %d" % len(got) in head
                else:
                    assert got == body

    await on(redis, tmp_path, engine, use)


async def test_whoever_offers_another_protocol_is_answered_in_this_one_and_the_connection_ends(
    redis: RedisServer, tmp_path: Path
) -> None:
    """Else what he sends behind it would be taken for that protocol's, and wait for ever."""

    async def use(bed: GateBed) -> None:
        for protocol in (b"h2c", b"websocket", b"TLS/1.0"):
            offer = b"Connection: Upgrade\r\nUpgrade: " + protocol + b"\r\n"
            request = GET + HOST + lines_of(bed) + offer + b"\r\n"
            async with GoneClient.to(bed.url) as client:
                await client.send(request * 2)
                got = await client.read_to_end()
            assert got.startswith(b"HTTP/1.1 200 ")
            assert got.count(b"HTTP/1.1 ") == 1
            assert b"\r\nConnection: close\r\n" in got

    await on(redis, tmp_path, RawEngine(), use)
