"""Any stream, framed in any way and read in any pieces, passes exactly; what comes after it never does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.relay.leg import Ending, Leg
from tests.proxy.relay.test_leg import request


class Wire(asyncio.Transport):
    """A transport in memory: it takes everything at once, and goes nowhere."""

    def __init__(self, place: socket.socket) -> None:
        super().__init__({"socket": place})
        self.closed = False

    def write(self, data: Any) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Taken:
    """The leg's Sink and its Home: all that it gives out, in order."""

    def __init__(self) -> None:
        self.heads: list[tuple[int, bytes]] = []
        self.content = b""
        self.endings: list[Ending] = []
        self.came_back = False

    def head(self, status: int, content_type: bytes) -> None:
        assert not self.content
        self.heads.append((status, content_type))

    def body(self, data: bytes) -> None:
        assert self.heads
        assert not self.endings
        self.content += data

    def end(self, ending: Ending) -> None:
        self.endings.append(ending)

    def back(self, leg: Leg) -> None:
        self.came_back = True

    def lost(self, leg: Leg) -> None:
        pass


def taken_of(wire: bytes, cuts: Sequence[int], *, fin: bool) -> Taken:
    """What a leg gives out when it reads the wire in pieces of these lengths, over and over."""
    with socket.socket() as place:
        return asyncio.run(_fed(Wire(place), wire, cuts, fin=fin))


async def _fed(transport: Wire, wire: bytes, cuts: Sequence[int], *, fin: bool) -> Taken:
    taken = Taken()
    leg = Leg(taken)
    leg.connection_made(transport)
    leg.send(request(), headers=b"Host: a\r\n", sink=taken)
    at = number = 0
    while at < len(wire) and leg.usable:
        piece = wire[at : at + cuts[number % len(cuts)]]
        memoryview(leg.get_buffer(-1))[: len(piece)] = piece
        leg.buffer_updated(len(piece))
        at, number = at + len(piece), number + 1
    if fin and leg.usable:
        leg.eof_received()
    return taken


PIECES = st.lists(st.binary(min_size=1, max_size=200), max_size=8)
CUTS = st.lists(st.integers(1, 90), min_size=1, max_size=8)
EXTENSIONS = st.sampled_from([b"", b";a", b';a=b;c="d"'])
TRAILERS = st.sampled_from([b"", b"X: y\r\n", b"X: y\r\nZ: 1\r\n"])
INTERIM = st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 2])
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def chunked(pieces: Sequence[bytes], extension: bytes, trailers: bytes) -> bytes:
    chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailers + b"\r\n"


@given(PIECES, CUTS, EXTENSIONS, TRAILERS, INTERIM)
@settings(max_examples=100, deadline=None)
def test_a_stream_in_chunks_passes_exactly_however_it_is_read(
    pieces: list[bytes], cuts: list[int], extension: bytes, trailers: bytes, interim: bytes
) -> None:
    taken = taken_of(interim + chunked(pieces, extension, trailers), cuts, fin=False)
    assert (taken.heads, taken.content) == ([(200, b"text/event-stream")], b"".join(pieces))
    assert (taken.endings, taken.came_back) == ([Ending.COMPLETE], True)


@given(st.binary(max_size=900), CUTS, st.sampled_from(["length", "connection"]))
@settings(max_examples=100, deadline=None)
def test_a_body_by_length_or_until_the_end_passes_exactly_however_it_is_read(
    body: bytes, cuts: list[int], framing: str
) -> None:
    length = b"Content-Length: %d\r\n" % len(body) if framing == "length" else b""
    taken = taken_of(HEAD + length + b"\r\n" + body, cuts, fin=True)
    assert (taken.heads, taken.content) == ([(200, b"text/event-stream")], body)
    assert (taken.endings, taken.came_back) == ([Ending.COMPLETE], framing == "length")


@given(PIECES, CUTS, EXTENSIONS, TRAILERS, st.data())
@settings(max_examples=100, deadline=None)
def test_an_answer_that_is_cut_anywhere_is_never_whole_and_gives_out_nothing_that_it_did_not_hold(
    pieces: list[bytes], cuts: list[int], extension: bytes, trailers: bytes, data: st.DataObject
) -> None:
    wire = chunked(pieces, extension, trailers)
    cut = data.draw(st.integers(0, len(wire) - 1))
    taken = taken_of(wire[:cut], cuts, fin=True)
    assert len(taken.endings) == 1
    assert taken.endings[0] is not Ending.COMPLETE
    assert b"".join(pieces).startswith(taken.content)
    assert not taken.came_back


@given(PIECES, CUTS, st.binary(min_size=1, max_size=300))
@settings(max_examples=100, deadline=None)
def test_nothing_behind_an_answer_is_given_out_and_the_connection_is_not_used_again(
    pieces: list[bytes], cuts: list[int], behind: bytes
) -> None:
    taken = taken_of(chunked(pieces, b"", b"") + behind, cuts, fin=True)
    assert taken.content == b"".join(pieces)
    assert taken.endings == [Ending.COMPLETE]


@given(st.binary(max_size=600), CUTS)
@settings(max_examples=100, deadline=None)
def test_any_bytes_have_one_end_and_no_answer_that_is_none(wire: bytes, cuts: list[int]) -> None:
    taken = taken_of(wire, cuts, fin=True)
    assert len(taken.endings) == 1
    assert taken.endings[0] is not Ending.COMPLETE
