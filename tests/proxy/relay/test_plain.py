"""What is read without llhttp is read as llhttp reads it: its bytes, its end, and what becomes of the connection."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from proxy.relay.plain import Chunks, Stop, plain_head
from tests.proxy.relay.test_leg_fuzz import Taken, taken_of

LINES = (
    b"Content-Type: text/event-stream; charset=utf-8\r\n",
    b"content-type: application/json\r\n",
    b"date: Mon, 30 Nov 2026 21:00:00 GMT\r\n",
    b"server: uvicorn\r\n",
    b"Retry-After: 7\r\n",
    b"X-Request-Id:  two spaces \r\n",
    b"x-empty:\r\n",
    b"X-Odd: \xc3\xa4\t\r\n",
)
FRAMINGS = (
    b"Transfer-Encoding: chunked\r\n",
    b"transfer-encoding: chunked\r\n",
    b"Transfer-Encoding: Chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Content-Length: %d\r\n",
    b"content-length: %d\r\n",
    b"Content-Length: +%d\r\n",
    b"Content-Length: 0%d\r\n",
    b"",
)
DOUBTS = (
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Proxy-Connection: close\r\n",
    b"Keep-Alive: timeout=5\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Content-Encoding: identity\r\n",
    b"Upgrade: h2c\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    b"Trailer: X\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b" folded\r\n",
    b"bad name: x\r\n",
    b": nameless\r\n",
)
STATUSES = (b"200 OK", b"200 ", b"200", b"400 Bad Request", b"503 Service Unavailable", b"204 No Content", b"304 x")
INTERESTING = b"\r\n\x00 ;:0123456789abcdefABCDEFx\xff"


def content(rng: random.Random) -> bytes:
    return bytes(rng.choice(b"0a\r\n;") for _ in range(rng.choice((0, 1, 2, 7, 15, 16, 40))))


def chunk(rng: random.Random) -> bytes:
    piece = content(rng) or b"x"
    size = rng.choice((b"%x", b"%X", b"%04x")) % len(piece) + (b";a=b" if rng.random() < 0.05 else b"")
    return size + b"\r\n" + piece + b"\r\n"


def answer(rng: random.Random) -> bytes:
    lines = rng.sample(LINES[:5], rng.randrange(5)) + ([rng.choice(LINES)] if rng.random() < 0.1 else [])
    lines += [rng.choice(DOUBTS)] if rng.random() < 0.15 else []
    framing = rng.choice(FRAMINGS[:2] if rng.random() < 0.6 else FRAMINGS)
    if b"%d" in framing:
        body = content(rng)
        framing = framing % len(body)
    else:
        lasts = (b"0\r\n\r\n", b"000\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"0;a\r\n\r\n")
        body = b"".join(chunk(rng) for _ in range(rng.randrange(5))) + rng.choices(lasts, (30, 1, 1, 1))[0]
    lines.insert(rng.randrange(len(lines) + 1), framing)
    status = rng.choice(STATUSES[:1] if rng.random() < 0.8 else STATUSES)
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" if rng.random() < 0.05 else b""
    return interim + b"HTTP/1.1 " + status + b"\r\n" + b"".join(lines) + b"\r\n" + body


def spoiled(wire: bytes, rng: random.Random) -> bytes:
    """With a few bytes of it changed, doubled or left out, or with something behind it."""
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        at = rng.randrange(len(wire) + 1)
        odd = bytes([rng.choice(INTERESTING)])
        wire = wire[:at] + rng.choice((odd, b"", odd * 2)) + wire[at + rng.choice((0, 1)) :]
    if rng.random() < 0.2:
        return wire[: rng.randrange(len(wire) + 1)]
    return wire + (rng.choice((b"\r\n", b"x", b"\x00", wire)) if rng.random() < 0.1 else b"")


def cut(length: int, rng: random.Random) -> list[int]:
    """Lengths of reads: often the whole, often the head and more at once, sometimes one byte after the other."""
    sizes = [rng.choice((1, 60, 120, 150, 200, 1000, 10_000, 10_000))]
    while sum(sizes) < length:
        sizes.append(rng.choice((1, 2, 3, 5, 17, 50, 1000)))
    return sizes


def read_alike(wire: bytes, sizes: Sequence[int], *, fin: bool) -> bool:
    """Whether it is the same where llhttp reads it, as it does to the end where the first byte comes alone."""
    alone = [1, *([sizes[0] - 1] if sizes[0] > 1 else []), *sizes[1:]]
    return shown(taken_of(wire, sizes, fin=fin)) == shown(taken_of(wire, alone, fin=fin))


def shown(taken: Taken) -> tuple[object, ...]:
    return taken.heads, taken.content, taken.endings, taken.came_back


def read_otherwise(seeds: Sequence[int]) -> list[tuple[bytes, list[int]]]:
    found = []
    for seed in seeds:
        rng = random.Random(seed)
        wire = spoiled(answer(rng), rng)
        sizes = cut(len(wire), rng)
        found += [(wire, sizes) for fin in (False, True) if not read_alike(wire, sizes, fin=fin)]
    return found


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"3\r\nabc\r\n0a\r\n0123456789\r\n0\r\n\r\n"
LENGTH = b"Content-Length: 3\r\n"
FORMS = (
    *(OK + doubt + CHUNKED + b"\r\n" + CHUNKS for doubt in (b"", *DOUBTS)),
    *(OK + doubt + LENGTH + b"\r\nabc" for doubt in (b"", *DOUBTS)),
    *(b"HTTP/1.1 %b\r\n" % status + CHUNKED + b"\r\n" + CHUNKS for status in STATUSES),
    *(b"HTTP/1.1 %b\r\n" % status + LENGTH + b"\r\nabc" for status in STATUSES),
    *(OK + framing.replace(b"%d", b"3") + b"\r\nabc" for framing in FRAMINGS if b"%d" in framing),
    *(OK + framing + b"\r\n" + CHUNKS for framing in FRAMINGS if b"%d" not in framing),
    *(OK + line + CHUNKED + b"\r\n" + CHUNKS for line in LINES),
    b"HTTP/1.1 101 Switching Protocols\r\n" + LENGTH + b"\r\nabc",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n" + CHUNKED + b"\r\n" + CHUNKS,
    b"HTTP/1.1 100 Continue\r\n" + CHUNKED + b"\r\n" + CHUNKS,
    b"HTTP/1.0 200 OK\r\n" + LENGTH + b"\r\nabc",
    b"HTTP/1.1 200 OK\r\nContent-Type: a \r\nContent-Type:  b\r\nRetry-After: 5 \r\n" + LENGTH + b"\r\nabc",
    OK + b"Content-Length: 0\r\n\r\n",
    OK + LENGTH + b"\r\nabcd",
    OK + LENGTH + b"\r\nabc\r\n",
    OK + LENGTH + b"\r\nabcHTTP/1.1 200 OK\r\n\r\n",
    OK + LENGTH + b"\r\nab",
    *(
        OK + CHUNKED + b"\r\n" + chunks
        for chunks in (
            CHUNKS + b"x",
            CHUNKS + b"\r\n",
            CHUNKS + b"HTTP/1.1 200 OK\r\n\r\n",
            CHUNKS[:-2],
            CHUNKS[:-10],
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"3\r\nabc\n\n0\r\n\r\n",
            b"3\r\nabcx\n0\r\n\r\n",
            b"3\r\nabc\rx0\r\n\r\n",
            b"3\nabc\r\n0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b"+3\r\nabc\r\n0\r\n\r\n",
            b" 3\r\nabc\r\n0\r\n\r\n",
            b"3 \r\nabc\r\n0\r\n\r\n",
            b"3_0\r\nabc\r\n0\r\n\r\n",
            b"-3\r\nabc\r\n0\r\n\r\n",
            b"\r\nabc\r\n0\r\n\r\n",
            b"3;a=b\r\nabc\r\n0\r\n\r\n",
            b"0000000003\r\nabc\r\n0\r\n\r\n",
            b"10000000000000003\r\nabc\r\n0\r\n\r\n",
            b"3\r\nabc\r\n00\r\n\r\n",
            b"3\r\nabc\r\n0\r\nX: y\r\n\r\n",
            b"3\r\nabc\r\n0\r\nContent-Length: 3\r\n\r\n",
            b"3\r\nabc\r\n0\r\n\n",
            b"0\r\n\r\n",
        )
    ),
)


@pytest.mark.parametrize("wire", FORMS)
def test_each_form_of_an_answer_is_read_as_llhttp_reads_it_wherever_its_body_is_cut(wire: bytes) -> None:
    body = wire.find(b"\r\n\r\n") + 4
    for begin in range(body, len(wire) + 1):
        assert read_alike(wire, [begin, len(wire)], fin=True), begin


def test_answers_of_many_forms_are_read_as_llhttp_reads_them() -> None:
    assert not read_otherwise(range(300))


@pytest.mark.slow
def test_answers_of_thousands_of_forms_are_read_as_llhttp_reads_them() -> None:
    assert not read_otherwise(range(300, 20_000))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_plain_chunks_stay_plain_however_they_are_cut(size: int) -> None:
    chunks = Chunks()
    pieces = []
    for begin in range(0, len(CHUNKS), size):
        assert chunks.stop is None
        pieces.append(chunks.content(CHUNKS[begin : begin + size]))
    assert (b"".join(pieces), chunks.stop) == (b"abc0123456789", Stop.LAST)


def test_what_has_come_of_a_chunk_is_given_at_once() -> None:
    chunks = Chunks()
    assert [chunks.content(piece) for piece in (b"1", b"0\r", b"\nab", b"c", b"0123456789012\r")] == [
        b"",
        b"",
        b"ab",
        b"c",
        b"0123456789012",
    ]


def test_a_head_as_vllm_sends_it_is_plain() -> None:
    head = b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 21:00:00 GMT\r\nserver: uvicorn\r\n"
    whole = plain_head(head + b"content-length: 3\r\ncontent-type: application/json\r\n\r\nabc")
    stream = plain_head(head + b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n")
    assert whole is not None
    assert stream is not None
    assert (whole.status, whole.content_type, whole.length) == (200, b"application/json", 3)
    assert (stream.content_type, stream.length) == (b"text/event-stream; charset=utf-8", None)
