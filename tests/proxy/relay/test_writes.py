"""What comes from an engine in one read leaves for the client in one write, whatever it ends with."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest
from aiohttp import HttpVersion10, HttpVersion11, StreamReader
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from proxy.engines.profile import Operation
from proxy.relay.alarm import Alarm
from proxy.relay.answer import Answer
from proxy.relay.downstream import Downstream
from proxy.relay.exchange import End, Exchange
from proxy.relay.keep_alive import COMMENT
from proxy.relay.leg import Leg
from proxy.relay.patience import Patience
from proxy.relay.request import Request
from tests.observability.telling import recorder
from tests.proxy.engines.asking import SALT, body_of, stamped
from tests.proxy.relay.test_leg_fuzz import Taken, Wire

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
FAILED = b'data: {"error":{"message":"no","type":"x","code":500}}\n\n'


class Written(Wire):
    """A client's transport: each write that came."""

    def __init__(self, place: socket.socket) -> None:
        super().__init__(place)
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))


class Client:
    """What an Answer asks of a connection."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


PATIENCE = Patience(first_byte=60, idle=60)


async def nothing_more(_: Exchange) -> None:
    pass


async def written_for(
    *reads: bytes,
    fin: bool = False,
    http11: bool = True,
    patience: Patience = PATIENCE,
    then: Callable[[Exchange], Awaitable[None]] = nothing_more,
) -> tuple[End | None, list[bytes]]:
    """How an exchange ended, and what its client was written, by writes. `then` happens before it is left."""
    with socket.socket() as place:
        client = Written(place)
        version = HttpVersion11 if http11 else HttpVersion10
        fields: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())
        head = RawRequestMessage("POST", "/", version, fields, (), False, None, False, True, URL("/"))
        request = Request(head, cast("StreamReader", None), cast("Downstream", Client(client)))
        exchange = Exchange(
            stamped(Operation.CHAT, body_of(Operation.CHAT, stream=True)),
            Answer(request),
            recorder().request(method="POST", route="/v1/chat/completions"),
            patience,
            Alarm(asyncio.get_running_loop()),
        )
        leg = Leg(Taken())
        leg.connection_made(Wire(place))
        exchange.send(leg, b"Host: a\r\n")
        for read in reads:
            memoryview(leg.get_buffer(-1))[: len(read)] = read
            leg.buffer_updated(len(read))
        if fin:
            leg.eof_received()
        assert request.begun is bool(client.writes)  # so that no failure writes an answer into another
        await then(exchange)
        end = exchange.done.result() if exchange.done.done() else None
        exchange.leave()
        return end, client.writes


def whole(*events: bytes) -> bytes:
    return HEAD + b"".join(map(chunk, events)) + b"0\r\n\r\n"


def body_in(write: bytes) -> bytes:
    assert write.startswith(b"HTTP/1.1 200 OK\r\n")
    return write.partition(b"\r\n\r\n")[2]


async def test_a_stream_that_comes_whole_is_written_at_once() -> None:
    end, writes = await written_for(whole(TOKEN, TOKEN, USAGE, DONE))
    assert end is End.COMPLETE
    assert list(map(body_in, writes)) == [chunk(TOKEN * 2 + DONE) + b"0\r\n\r\n"]


async def test_a_stream_whose_last_event_has_no_end_is_written_at_once() -> None:
    end, writes = await written_for(whole(TOKEN, DONE[:-2]))
    assert end is End.COMPLETE
    assert list(map(body_in, writes)) == [chunk(TOKEN) + chunk(DONE[:-2]) + b"0\r\n\r\n"]


async def test_a_stream_without_an_event_is_written_at_once() -> None:
    end, writes = await written_for(whole())
    assert end is End.BROKEN
    assert len(writes) == 1


async def test_an_event_without_end_does_not_wait_where_the_engine_breaks_off_after_it_told_of_a_failure() -> None:
    end, writes = await written_for(HEAD + chunk(FAILED + TOKEN[:-2]), fin=True)
    assert end is End.FAILED
    assert [body_in(writes[0]), *writes[1:]] == [chunk(FAILED), chunk(TOKEN[:-2])]


async def test_a_head_that_comes_alone_is_written_at_once_and_so_is_each_event() -> None:
    reads = (HEAD, chunk(TOKEN), chunk(USAGE), chunk(DONE) + b"0\r\n\r\n")
    for number in range(1, len(reads) + 1):
        end, writes = await written_for(*reads[:number])
        expected = [b"", chunk(TOKEN), chunk(DONE) + b"0\r\n\r\n"][: number if number < 3 else number - 1]
        assert [body_in(writes[0]), *writes[1:]] == expected
        assert end is (End.COMPLETE if number == len(reads) else None)


async def test_a_head_whose_event_has_only_begun_is_written_at_once() -> None:
    _, writes = await written_for(HEAD + chunk(TOKEN[:20]))
    assert len(writes) == 1
    assert body_in(writes[0]) == b""


async def test_a_last_chunk_that_comes_alone_is_written_at_once() -> None:
    end, writes = await written_for(HEAD + chunk(TOKEN + DONE), b"0\r\n\r\n")
    assert end is End.COMPLETE
    assert [body_in(writes[0]), *writes[1:]] == [chunk(TOKEN + DONE), b"0\r\n\r\n"]


async def test_an_answer_to_http_1_0_is_written_whole_too() -> None:
    end, writes = await written_for(whole(TOKEN, DONE), http11=False)
    assert end is End.COMPLETE
    assert list(map(body_in, writes)) == [TOKEN + DONE]


@pytest.mark.parametrize(
    ("reads", "fin", "end", "tells"),
    [
        ((HEAD + chunk(TOKEN),), True, End.BROKEN, "engine_failed"),
        ((whole(TOKEN),), False, End.BROKEN, "engine_failed"),
        ((whole(),), False, End.BROKEN, "engine_failed"),
        ((HEAD + chunk(TOKEN) + b"x\r\n",), False, End.BROKEN, "engine_failed"),
        ((HEAD + chunk(TOKEN) + b"5\r\n", b"abcdefgh"), False, End.BROKEN, "engine_failed"),
        ((whole(TOKEN, FAILED),), False, End.FAILED, "no"),
        ((HEAD + chunk(TOKEN) + chunk(FAILED),), True, End.FAILED, "no"),
        ((HEAD + chunk(TOKEN) + chunk(FAILED) + b"x\r\n",), False, End.FAILED, "no"),
        ((whole(FAILED + b"data: " + SALT.value.encode("ascii")),), False, End.SALT_SEEN, "engine_failed"),
        ((whole(FAILED, TOKEN, b"data: " + SALT.value.encode("ascii")[:9]),), False, End.FAILED, "no"),
    ],
)
async def test_nothing_waits_where_an_answer_breaks_off(
    reads: Sequence[bytes], fin: bool, end: End, tells: str
) -> None:
    ended, writes = await written_for(*reads, fin=fin)
    assert ended is end
    told = b"".join(writes)
    assert told.startswith(b"HTTP/1.1 200 OK\r\n")
    assert told.endswith(b"0\r\n\r\n") is (end is End.FAILED and not fin and reads[-1].endswith(b"0\r\n\r\n"))
    errors = [json.loads(line.partition(b": ")[2])["error"] for line in told.splitlines() if b'"error"' in line]
    assert [error["code"] if tells == "engine_failed" else error["message"] for error in errors] == [tells]


# Between an exchange's end and the turn in which its request ends.

COMMENTS = Patience(first_byte=60, idle=60, keep_alive="comment", keep_alive_interval=0.02)


async def a_comment_is_asked_for(exchange: Exchange) -> None:
    assert not exchange.comment()


async def the_client_would_hear_something(_: Exchange) -> None:
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("then", [a_comment_is_asked_for, the_client_would_hear_something])
@pytest.mark.parametrize("reads", [(whole(TOKEN, DONE),), (whole(TOKEN),), (whole(FAILED),)])
async def test_nothing_is_written_behind_the_end(
    reads: Sequence[bytes], then: Callable[[Exchange], Awaitable[None]]
) -> None:
    """A chunk behind the last one would be the beginning of the next answer."""
    _, expected = await written_for(*reads)
    _, writes = await written_for(*reads, patience=COMMENTS, then=then)
    assert list(map(body_in, writes[:1])) == list(map(body_in, expected[:1]))
    assert writes[1:] == expected[1:]


async def test_a_comment_is_written_while_the_stream_runs() -> None:
    async def comments(exchange: Exchange) -> None:
        assert exchange.comment()

    _, writes = await written_for(HEAD + chunk(TOKEN), then=comments)
    assert writes[1:] == [chunk(COMMENT)]
