"""One connection to an engine: what counts as an answer, and when a connection may carry another one."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from proxy.engines.profile import Operation
from proxy.engines.stamp import StampedRequest
from proxy.relay.exchange import WholeAnswer
from proxy.relay.leg import Ending, Leg
from proxy.relay.pool import Address, Pool
from proxy.relay.question import EngineUnreachable, ask, ask_on
from tests.parts.raw_engine import (
    Close,
    CloseIfIdle,
    HalfClose,
    RawEngine,
    Reset,
    Send,
    Sleep,
    Step,
    Wait,
    WaitForPeer,
    json_answer,
)
from tests.proxy.engines.asking import body_of, stamped

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ANSWER = b'{"n":1}'
LENGTH = b"Content-Length: 7\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"7\r\n" + ANSWER + b"\r\n0\r\n\r\n"


def request(text: str = "Hello") -> StampedRequest:
    return stamped(Operation.CHAT, body_of(Operation.CHAT, messages=[{"role": "user", "content": text}]))


@asynccontextmanager
async def pool_to(engine: RawEngine) -> AsyncIterator[Pool]:
    async with engine:
        pool = Pool(Address(host="127.0.0.1", port=engine.port), connect_seconds=5.0)
        try:
            yield pool
        finally:
            pool.close()


async def answer_of(*script: Step) -> WholeAnswer:
    async with pool_to(RawEngine(script)) as pool:
        return await ask(pool, request(), seconds=5.0)


GOOD = {
    "length": OK + LENGTH + b"\r\n" + ANSWER,
    "chunks": OK + CHUNKED + b"\r\n" + CHUNKS,
    "chunk extensions": OK + CHUNKED + b'\r\n7;a="b;c"\r\n' + ANSWER + b"\r\n0;d\r\n\r\n",
    "trailers": OK
    + CHUNKED
    + b"\r\n7\r\n"
    + ANSWER
    + b"\r\n0\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n",
    "until it closes": OK + b"\r\n" + ANSWER,
    "http 1.0": OK.replace(b"1.1", b"1.0") + b"\r\n" + ANSWER,
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    + OK
    + LENGTH
    + b"\r\n"
    + ANSWER,
    "identity coding": OK + LENGTH + b"Content-Encoding: identity\r\n\r\n" + ANSWER,
    "more after the last answer": OK + LENGTH + b"Connection: close\r\n\r\n" + ANSWER + b"nonsense",
    "zeros before a chunk size": OK + CHUNKED + b"\r\n0007\r\n" + ANSWER + b"\r\n000\r\n\r\n",
    "a coding in capitals": OK + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n" + CHUNKS,
    "chunks of one byte": OK + CHUNKED + b"\r\n" + b"".join(b"1\r\n%c\r\n" % byte for byte in ANSWER) + b"0\r\n\r\n",
    "no reason": OK.replace(b" OK", b"") + LENGTH + b"\r\n" + ANSWER,
    "an empty line before": b"\r\n" + OK + LENGTH + b"\r\n" + ANSWER,
    "bytes that are no ASCII in a value": OK + b"X: \xff\xfe\r\n" + LENGTH + b"\r\n" + ANSWER,
    "another answer behind": (OK + LENGTH + b"\r\n" + ANSWER) * 2,
}


@pytest.mark.parametrize("answer", GOOD.values(), ids=GOOD.keys())
@pytest.mark.parametrize("pieces", ["one read", "byte by byte"])
async def test_every_way_to_frame_an_answer_gives_the_same_body(answer: bytes, pieces: str) -> None:
    sends = [Send(answer)] if pieces == "one read" else [Send(bytes([byte])) for byte in answer]
    steps: list[Step] = []
    for send in sends:
        steps += [send, Wait(turned())] if pieces != "one read" else [send]
    got = await answer_of(*steps, Close())
    assert (got.status, got.content_type, got.body) == (200, b"application/json", ANSWER)


def turned() -> asyncio.Event:
    """An event that is set in a few turns of the loop, so that each byte is a read of its own."""
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, event.set)
    return event


@pytest.mark.parametrize("lines", [b"", LENGTH, CHUNKED], ids=["plain", "length", "chunks"])
@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_ends_with_its_head_whatever_that_says(status: int, lines: bytes) -> None:
    """RFC 9112 section 6.3."""
    got = await answer_of(Send(b"HTTP/1.1 %d X\r\n%b\r\n" % (status, lines)), WaitForPeer())
    assert (got.status, got.body) == (status, b"")


BAD = {
    "no answer": b"",
    "not http": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "half a head": OK,
    "two equal lengths": OK + LENGTH + LENGTH + b"\r\n" + ANSWER,
    "two lengths": OK + LENGTH + b"Content-Length: 3\r\n\r\n" + ANSWER,
    "a list of lengths": OK + b"Content-Length: 7, 7\r\n\r\n" + ANSWER,
    "a signed length": OK + b"Content-Length: +7\r\n\r\n" + ANSWER,
    "length and chunks": OK + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
    "chunks and length": OK + CHUNKED + LENGTH + b"\r\n" + CHUNKS,
    "chunks twice": OK + CHUNKED + CHUNKED + b"\r\n" + CHUNKS,
    "another coding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "chunks not last": OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + CHUNKS,
    "chunks in http 1.0": OK.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n" + CHUNKS,
    "another version": OK.replace(b"1.1", b"2.0") + LENGTH + b"\r\n" + ANSWER,
    "no version": b"HTTP/0.9 200 OK\r\n" + LENGTH + b"\r\n" + ANSWER,
    "packed": OK + LENGTH + b"Content-Encoding: gzip\r\n\r\n" + ANSWER,
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "interim answer with a body": b"HTTP/1.1 103 Early Hints\r\n"
    + LENGTH
    + b"\r\n"
    + ANSWER
    + OK
    + LENGTH
    + b"\r\n"
    + ANSWER,
    "interim answer with chunks": b"HTTP/1.1 100 Continue\r\n"
    + CHUNKED
    + b"\r\n"
    + CHUNKS
    + OK
    + LENGTH
    + b"\r\n"
    + ANSWER,
    "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 15_000,
    "a head without end": OK + b"X-A: b\r\n" * 40_000,
    "a field without end": OK + b"X-A: " + b"b" * 300_000,
    "trailers without end": OK + CHUNKED + b"\r\n7\r\n" + ANSWER + b"\r\n0\r\n" + b"X-A: b\r\n" * 40_000,
    "a trailer without end": OK + CHUNKED + b"\r\n7\r\n" + ANSWER + b"\r\n0\r\nX-A: " + b"b" * 300_000,
    "a chunk extension without end": OK + CHUNKED + b"\r\n7;" + b"b" * 300_000,
    "NUL in a field": OK + b"X-A: a\0b\r\n" + LENGTH + b"\r\n" + ANSWER,
    "blank before the colon": OK + b"Content-Length : 7\r\n\r\n" + ANSWER,
    "too short": OK + b"Content-Length: 8\r\n\r\n" + ANSWER,
    "no chunk size": OK + CHUNKED + b"\r\n0x7\r\n" + ANSWER + b"\r\n0\r\n\r\n",
    "a huge chunk size": OK + CHUNKED + b"\r\nfffffffffffffffff\r\n" + ANSWER,
    "no end of a chunk": OK + CHUNKED + b"\r\n7\r\n" + ANSWER + b"0\r\n\r\n",
    "half a chunk": OK + CHUNKED + b"\r\n7\r\n" + ANSWER[:3],
    "a length in a trailer": OK + CHUNKED + b"\r\n7\r\n" + ANSWER + b"\r\n0\r\nContent-Length: 3\r\n\r\n",
    "a status line without end": b"HTTP/1.1 200 " + b"O" * 300_000,
    "bytes without end": b"\0" * 300_000,
    "letters without end": b"H" * 300_000,
    "empty lines without end": b"\r\n" * 200_000,
    "a body without a head": ANSWER,
    "two digits of a status": b"HTTP/1.1 20 OK\r\n" + LENGTH + b"\r\n" + ANSWER,
    "four digits of a status": b"HTTP/1.1 2000 OK\r\n" + LENGTH + b"\r\n" + ANSWER,
    "a status of letters": b"HTTP/1.1 abc OK\r\n" + LENGTH + b"\r\n" + ANSWER,
    "LF line ends": (OK + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + ANSWER,
    "one LF": OK + b"Content-Length: 7\n\r\n" + ANSWER,
    "a folded line": OK + LENGTH + b"X: a\r\n b\r\n\r\n" + ANSWER,
    "a CR within a value": OK + LENGTH + b"X: a\rb\r\n\r\n" + ANSWER,
    "a line without a colon": OK + LENGTH + b"xx\r\n\r\n" + ANSWER,
    "a negative length": OK + b"Content-Length: -7\r\n\r\n" + ANSWER,
    "no length's number": OK + b"Content-Length: \r\n\r\n" + ANSWER,
    "a length in hex": OK + b"Content-Length: 0x7\r\n\r\n" + ANSWER,
    "a length past all bounds": OK + b"Content-Length: 99999999999999999999\r\n\r\n" + ANSWER,
    "a length that never comes": OK + b"Content-Length: 9223372036854775807\r\n\r\n" + ANSWER,
    "nearly chunks": OK + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    "chunks behind a control": OK + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS,
    "a chunk size with a sign": OK + CHUNKED + b"\r\n+7\r\n" + ANSWER + b"\r\n0\r\n\r\n",
    "a negative chunk size": OK + CHUNKED + b"\r\n-7\r\n" + ANSWER + b"\r\n0\r\n\r\n",
    "a chunk size of nothing": OK + CHUNKED + b"\r\n\r\n" + ANSWER + b"\r\n0\r\n\r\n",
    "zeros of a chunk size without end": OK + CHUNKED + b"\r\n" + b"0" * 300_000,
    "a chunk that is longer": OK + CHUNKED + b"\r\n6\r\n" + ANSWER + b"\r\n0\r\n\r\n",
    "chunks that end with LF": OK + CHUNKED + b"\r\n7\n" + ANSWER + b"\n0\n\n",
    "chunks in small letters, and a length": OK + b"transfer-encoding: chunked\r\ncontent-length: 7\r\n\r\n" + CHUNKS,
    "half a last chunk": OK + CHUNKED + b"\r\n7\r\n" + ANSWER + b"\r\n0\r\n",
    "packed in a second line": OK + LENGTH + b"Content-Encoding: identity\r\nContent-Encoding: gzip\r\n\r\n" + ANSWER,
    "packed, then identity": OK + LENGTH + b"Content-Encoding: gzip\r\nContent-Encoding: identity\r\n\r\n" + ANSWER,
    "no last chunk": OK + CHUNKED + b"\r\n7\r\n" + ANSWER + b"\r\n",
}


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD.keys())
async def test_what_is_no_whole_and_clear_answer_is_none(answer: bytes) -> None:
    with pytest.raises(EngineUnreachable):
        await answer_of(Send(answer), Close())


ENDLESS = [name for name in BAD if "without end" in name]


@pytest.mark.parametrize("name", ENDLESS)
async def test_an_engine_that_never_comes_to_the_point_is_left_at_once(name: str) -> None:
    engine = RawEngine((Send(BAD[name]), WaitForPeer()))
    async with pool_to(engine) as pool:
        with pytest.raises(EngineUnreachable):
            await ask(pool, request(), seconds=30.0)
        await engine.peer_closed(seconds=5.0)


async def test_an_answer_to_our_own_question_has_a_bound() -> None:
    piece = b"x" * 2**20
    engine = RawEngine((Send(OK + b"\r\n"), *[Send(piece)] * 40, WaitForPeer()))
    async with pool_to(engine) as pool:
        with pytest.raises(EngineUnreachable):
            await ask(pool, request(), seconds=30.0)
        await engine.peer_closed(seconds=5.0)


async def test_a_reset_is_no_end_of_an_answer_that_ends_with_its_connection() -> None:
    with pytest.raises(EngineUnreachable):
        await answer_of(Send(OK + b"\r\n" + ANSWER), Sleep(0.05), Reset())


Doing = Callable[[RawEngine, Pool], Awaitable[None]]


async def connections_of_two(first: Sequence[Step], between: Doing | None = None) -> tuple[int, int]:
    """On which connections two requests went, the first of which was answered in this way."""
    engine = RawEngine(first, (Send(json_answer(ANSWER)),))
    async with pool_to(engine) as pool:
        for number in range(2):
            leg = pool.idle_leg() or await pool.new_leg()
            assert (await ask_on(leg, pool, request(), seconds=5.0)).body == ANSWER
            if number == 0 and between is not None:
                await between(engine, pool)
        return engine.requests[0].connection, engine.requests[1].connection


async def test_a_connection_is_used_again_after_an_answer_in_good_order() -> None:
    for answer in (OK + LENGTH + b"\r\n" + ANSWER, GOOD["trailers"], GOOD["interim answers"]):
        first, second = await connections_of_two((Send(answer),))
        assert first == second


@pytest.mark.parametrize(
    "answer",
    [
        GOOD["another answer behind"],
        GOOD["more after the last answer"],
        OK + LENGTH + b"\r\n" + ANSWER + b"nonsense",
        OK + LENGTH + b"Connection: close\r\n\r\n" + ANSWER,
        OK.replace(b"1.1", b"1.0") + LENGTH + b"\r\n" + ANSWER,
    ],
    ids=["an answer behind", "nonsense after close", "nonsense", "close", "http 1.0"],
)
async def test_a_connection_is_not_used_again_after_any_other(answer: bytes) -> None:
    first, second = await connections_of_two((Send(answer), WaitForPeer()))
    assert first != second


async def test_an_engine_that_speaks_out_of_turn_is_left() -> None:
    speak = asyncio.Event()

    async def between(engine: RawEngine, pool: Pool) -> None:
        speak.set()
        await engine.peer_closed()

    first, second = await connections_of_two(
        (Send(json_answer(ANSWER)), Wait(speak), Send(json_answer(b"evil"))), between
    )
    assert first != second


async def test_a_connection_that_the_engine_closed_is_not_taken() -> None:
    speak = asyncio.Event()

    async def between(engine: RawEngine, pool: Pool) -> None:
        speak.set()
        await engine.peer_closed()

    first, second = await connections_of_two((Send(json_answer(ANSWER)), Wait(speak), HalfClose()), between)
    assert first != second


@pytest.mark.slow
async def test_a_connection_that_nobody_uses_is_closed_in_order_before_the_engine_would() -> None:
    """uvicorn closes one after 5 s, and keeps state for one that was reset."""
    engine = RawEngine((Send(json_answer(ANSWER)), Sleep(5.0), CloseIfIdle()))
    async with pool_to(engine) as pool:
        await ask(pool, request(), seconds=5.0)
        assert await engine.peer_closed(seconds=10.0) == "fin"
        assert pool.idle_leg() is None


async def test_the_connection_that_was_used_last_is_used_first() -> None:
    """So the others come of age, and no more are kept than are needed."""
    engine = RawEngine((Send(json_answer(ANSWER)),))
    async with pool_to(engine) as pool:
        legs = [await pool.new_leg() for _ in range(3)]
        for leg in legs:
            await ask_on(leg, pool, request(), seconds=5.0)
        assert [pool.idle_leg() for _ in range(4)] == [*reversed(legs), None]


@asynccontextmanager
async def hasty_engine(*says: bytes, then: Literal["stays", "FIN", "RST"] = "stays") -> AsyncIterator[Pool]:
    """An engine that reads the beginning of a request and no more, says this, and ends so."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readexactly(1000)
        writer.writelines(says)
        if then == "FIN":
            writer.write_eof()
        elif then == "RST":  # what a close over bytes that were not read becomes
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1000)
    try:
        yield Pool(Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1]), connect_seconds=5.0)
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()


LARGE = request("x" * 8_000_000)  # more than the kernel takes for an engine that does not read
EARLY = {
    "413": (json_answer(ANSWER, "413 Content Too Large"), 413),
    "200": (json_answer(ANSWER), 200),
    "chunks": (OK + CHUNKED + b"\r\n" + CHUNKS, 200),
}


@pytest.mark.parametrize("then", ["stays", "FIN", "RST"])
@pytest.mark.parametrize(("answer", "status"), EARLY.values(), ids=EARLY.keys())
async def test_an_answer_that_comes_before_the_request_was_read_is_heard_and_its_connection_not_used_again(
    answer: bytes, status: int, then: Literal["stays", "FIN", "RST"]
) -> None:
    """The rest would be the beginning of the next request, and may never be read."""
    async with hasty_engine(answer, then=then) as pool:
        got = await ask(pool, LARGE, seconds=10.0)
        assert (got.status, got.body) == (status, ANSWER)
        assert pool.idle_leg() is None


@pytest.mark.parametrize("then", ["FIN", "RST"])
async def test_an_engine_that_ends_without_reading_the_request_is_noticed_at_once(then: Literal["FIN", "RST"]) -> None:
    """Not when its side of the connection has taken all, which may be never."""
    async with hasty_engine(then=then) as pool:
        with pytest.raises(EngineUnreachable, match="unsent"):
            await ask(pool, LARGE, seconds=10.0)


class Deaths:
    """What a server's kernel does to a request as its process ends, or a keep-alive time. Nothing awaits in between."""

    @staticmethod
    def closed_before(server: socket.socket, send: Callable[[], None]) -> None:
        server.close()
        send()

    @staticmethod
    def closed_unread(server: socket.socket, send: Callable[[], None]) -> None:
        send()
        server.close()

    @staticmethod
    def closed_half_read(server: socket.socket, send: Callable[[], None]) -> None:
        send()
        server.recv(100)
        server.close()

    @staticmethod
    def closed_when_read(server: socket.socket, send: Callable[[], None]) -> None:
        send()
        server.recv(1_000_000)
        server.close()

    @staticmethod
    def reset_after_work(server: socket.socket, send: Callable[[], None]) -> None:
        """By a process that lingers for nothing, longer after the request than a kernel keeps back that it came."""
        send()
        server.recv(1_000_000)
        time.sleep(0.3)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX], ids=["tcp", "unix"])
@pytest.mark.parametrize(
    ("death", "ending"),
    [
        (Deaths.closed_before, "silent"),
        (Deaths.closed_unread, "silent"),
        (Deaths.closed_half_read, "silent"),
        (Deaths.closed_when_read, "unanswered"),
        (Deaths.reset_after_work, "unanswered"),
    ],
)
async def test_whether_the_engine_had_the_request_is_known(
    family: socket.AddressFamily,
    death: Callable[[socket.socket, Callable[[], None]], None],
    ending: str,
    tmp_path: Path,
) -> None:
    """What an engine cannot have read, it cannot have begun. A machine that stands still for a moment lets the kernel
    confirm what nobody has read: then it is not known, so once in some tries is enough.
    """
    found = []
    for number in range(5 if ending == "silent" else 1):
        found.append(await _ending_of(death, family, tmp_path / str(number)))
        if found[-1] == ending:
            break
    assert ending in found


async def _ending_of(
    death: Callable[[socket.socket, Callable[[], None]], None], family: socket.AddressFamily, tmp_path: Path
) -> str:
    tmp_path.mkdir()
    path = str(tmp_path / "engine.sock")
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(path if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen()
        unix = path if family == socket.AF_UNIX else None
        port = 0 if unix else listener.getsockname()[1]
        leg = await Pool(Address(host="127.0.0.1", port=port, unix=unix), connect_seconds=5.0).new_leg()
        with listener.accept()[0] as server:
            assert await _Ended.of(leg, lambda send: _answered(server, send)) is Ending.COMPLETE
            return (await _Ended.of(leg, lambda send: death(server, send))).value


def _answered(server: socket.socket, send: Callable[[], None]) -> None:
    """Once, since only a connection that had waited for its request has one sent again."""
    send()
    server.recv(1_000_000)
    server.sendall(json_answer(ANSWER))


class _Ended:
    """A Sink that waits for the end."""

    def __init__(self) -> None:
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    @classmethod
    async def of(cls, leg: Leg, around: Callable[[Callable[[], None]], None]) -> Ending:
        sink = cls()
        around(lambda: leg.send(request(), headers=b"Host: a\r\n", sink=sink))
        async with asyncio.timeout(5):
            return await sink.ending

    def head(self, status: int, content_type: bytes) -> None:
        pass

    def body(self, data: bytes) -> None:
        pass

    def end(self, ending: Ending) -> None:
        self.ending.set_result(ending)


async def test_a_connection_that_was_lost_before_the_request_takes_none() -> None:
    async with pool_to(RawEngine()) as pool:
        leg = await pool.new_leg()
        leg.abort()
        with pytest.raises(EngineUnreachable, match="unsent"):
            await ask_on(leg, pool, request(), seconds=5.0)
        await asyncio.sleep(0)
        with pytest.raises(EngineUnreachable, match="unsent"):
            await ask_on(leg, pool, request(), seconds=5.0)


async def test_a_request_is_built_from_constants_and_carries_one_length() -> None:
    engine = RawEngine((Send(json_answer(ANSWER)),))
    async with pool_to(engine) as pool:
        asked = request()
        await ask(pool, asked, seconds=5.0)
        sent = await engine.request()
    assert sent.line == b"POST /v1/chat/completions HTTP/1.1"
    assert sent.body == asked.body
    assert sent.header(b"content-length") == [b"%d" % len(asked.body)]
    assert sent.header(b"accept-encoding") == [b"identity"]
    assert not sent.header(b"transfer-encoding")
