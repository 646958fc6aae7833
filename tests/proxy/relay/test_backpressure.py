"""A client that takes slowly or not at all: it holds its own engine and nothing else, and loses no byte."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from config.settings import Public, Timeouts
from proxy.relay.exchange import Exchange
from proxy.relay.leg import READ_BUFFER_BYTES
from proxy.relay.sse import MAX_EVENT_BYTES
from proxy.relay.wire import UNREAD_BYTES, UNSENT_BYTES
from tests.parts.gate_bed import GateBed, chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import (
    LAST_CHUNK,
    STREAM_HEAD,
    RawEngine,
    RawRequest,
    Send,
    Step,
    WaitForPeer,
    chunk,
    json_answer,
)
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, DONE, ask, on, outcome, until_paused

pytestmark = pytest.mark.slow

SIOCOUTQNSD = 0x894B  # linux/sockios.h: what was not sent yet
FRAME_BYTES = 4_096  # of a chunk, the head, and the event that a read has cut
PATH = "/v1/chat/completions"
PLAIN: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def large_stream(mark: bytes, pieces: int) -> Sequence[bytes]:
    return [b": %b %06d " % (mark, number) + mark * 15_000 + b"\n\n" for number in range(pieces)]


def steps(events: Sequence[bytes]) -> Sequence[Step]:
    return (Send(STREAM_HEAD), *(Send(chunk(event)) for event in events), Send(chunk(DONE)), Send(LAST_CHUNK))


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


class ByText(RawEngine):
    """Answers each request with the large stream that its text names."""

    def answer_to(self, request: RawRequest) -> Sequence[Step]:
        super().answer_to(request)
        if not request.body:
            return super().answer_to(request)
        mark = json.loads(request.body)["messages"][0]["content"].encode()
        return steps(large_stream(mark, 300))


async def test_two_streams_that_stall_keep_their_own_bytes(redis: RedisServer, tmp_path: Path) -> None:
    """Both are read through one buffer, so a piece that waits must not be that buffer's."""

    async def use(bed: GateBed) -> None:
        marks = [b"abcd", b"wxyz"]
        async with (
            GoneClient.to(bed.url, receive_buffer=16_384) as first,
            GoneClient.to(bed.url, receive_buffer=16_384) as second,
        ):
            clients = [first, second]
            for client, mark in zip(clients, marks, strict=True):
                await client.send(post(PATH, chat(mark.decode(), **PLAIN), bed.headers()))
                await client.read_until(b"\r\n\r\n")
            await until_paused(bed, 2)
            bodies = await asyncio.gather(*(_body(client) for client in clients))
        for body, mark in zip(bodies, marks, strict=True):
            expected = b"".join(large_stream(mark, 300)) + DONE
            assert hashlib.sha256(body).digest() == hashlib.sha256(expected).digest()

    await on(redis, tmp_path, ByText(), use)


async def _body(client: GoneClient) -> bytes:
    pieces = []
    while size := int(await client.read_until(b"\r\n", seconds=60), 16):
        pieces.append((await client._read_exactly(size + 2, 60))[:-2])
    return b"".join(pieces)


async def test_200_mib_at_a_client_that_stalls_take_no_memory_of_the_gate_and_all_arrive_later(
    redis: RedisServer, tmp_path: Path
) -> None:
    events = [b": %d " % number + b"x" * 65_000 + b"\n\n" for number in range(16)]
    order = [number * 7 % 16 if number % 5 else number % 3 for number in range(3300)]
    pieces = [chunk(event) for event in events]  # few objects, so that the engine itself adds little
    engine = RawEngine((Send(STREAM_HEAD), *(Send(pieces[one]) for one in order), Send(chunk(DONE)), Send(LAST_CHUNK)))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=16_384) as client:
            await client.send(post(PATH, chat(**PLAIN), bed.headers()))
            await client.read_until(b"\r\n\r\n")
            await until_paused(bed)
            [downstream] = [one for one in bed.gate.front.downstreams if one.writing_paused]
            assert downstream._wire is not None
            before, waiting = resident_bytes(), []
            for _ in range(20):
                await asyncio.sleep(0.02)
                waiting.append(downstream._wire.get_write_buffer_size())
            # While something may have to be hidden, an event leaves as a whole.
            assert max(waiting) < bed.settings.public.write_buffer + READ_BUFFER_BYTES + MAX_EVENT_BYTES + FRAME_BYTES
            assert resident_bytes() - before < 8_000_000
            assert max(connection.unsent for connection in engine.connections) > 180_000_000
            expected = hashlib.sha256(b"".join(events[one] for one in order) + DONE)
            assert await _digest(client) == expected.hexdigest()
            assert resident_bytes() - before < 32_000_000

    await on(redis, tmp_path, engine, use)


async def _digest(client: GoneClient) -> str:
    digest = hashlib.sha256()
    while size := int(await client.read_until(b"\r\n", seconds=60), 16):
        digest.update((await client._read_exactly(size + 2, 60))[:-2])
    return digest.hexdigest()


@pytest.mark.parametrize("hidden", [False, True], ids=["usage asked for", "usage hidden"])
async def test_a_hundred_thousand_tiny_events_keep_their_order_and_none_is_lost_or_doubled(
    hidden: bool, redis: RedisServer, tmp_path: Path
) -> None:
    events = [b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % number for number in range(100_000)]
    # Some alone, some together, some cut in their middle.
    whole, sizes = b"".join(events), [60, 1, 7000, 61, 59, 300, 65_536]
    sends: list[Step] = []
    at = number = 0
    while at < len(whole):
        size = sizes[number % len(sizes)]
        sends.append(Send(chunk(whole[at : at + size])))
        at, number = at + size, number + 1
    engine = RawEngine((Send(STREAM_HEAD), *sends, Send(chunk(DONE)), Send(LAST_CHUNK)))
    more: dict[str, Any] = {"stream": True} if hidden else PLAIN

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(post(PATH, chat(**more), bed.headers()))
            await client.read_until(b"\r\n\r\n")
            assert await _body(client) == whole + DONE
        assert (await outcome(bed))["outcome"] == "ok"

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("write_buffer", [4_096, 262_144])
async def test_so_much_waits_for_a_client_as_is_set(write_buffer: int, redis: RedisServer, tmp_path: Path) -> None:
    """In the gate, and little more in the kernel: megabytes of its buffers would be filled before the gate notices."""
    piece = chunk(b": " + b"x" * 1_000 + b"\n\n") * 30
    engine = RawEngine((Send(STREAM_HEAD), *[Send(piece)] * 1000, WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=16_384) as client:
            await ask(bed, client, streaming=True)
            await until_paused(bed)
            await asyncio.sleep(0.2)
            [downstream] = [one for one in bed.gate.front.downstreams if one.writing_paused]
            wire = downstream._wire
            assert wire is not None
            waiting = wire.get_write_buffer_size()
            assert write_buffer < waiting < write_buffer + READ_BUFFER_BYTES + FRAME_BYTES
            assert told(wire, SIOCOUTQNSD) < UNSENT_BYTES + READ_BUFFER_BYTES
            assert isinstance(downstream.listener, Exchange)
            assert downstream.listener._leg is not None
            engines = downstream.listener._leg._transport
            assert engines is not None
            connection = engines.get_extra_info("socket")
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * UNREAD_BYTES  # socket(7)

    await on(redis, tmp_path, engine, use, public=Public(write_buffer=write_buffer))


def told(wire: asyncio.Transport, request: int) -> int:
    """What the kernel tells of a connection."""
    told: int = struct.unpack("i", fcntl.ioctl(wire.get_extra_info("socket").fileno(), request, bytes(4)))[0]
    return told


async def test_a_slow_client_of_a_large_whole_answer_is_not_cut_while_it_reads(
    redis: RedisServer, tmp_path: Path
) -> None:
    answer = b'{"text":"' + b"x" * 8_000_000 + b'"}'

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=16_384) as client:
            await ask(bed, client, streaming=False)
            await client.read_until(b"\r\n\r\n")
            got = bytearray()
            async with asyncio.timeout(60):
                while len(got) < len(answer):
                    # A limit's time and more goes by in all, with a little taken all along.
                    await asyncio.sleep(0.02)
                    got += await client._read_exactly(min(100_000, len(answer) - len(got)), 10)
        assert got == answer
        assert (await outcome(bed))["outcome"] == "ok"

    await on(redis, tmp_path, RawEngine((Send(json_answer(answer)),)), use, Timeouts(stall=0.5))


@pytest.mark.parametrize("leave", ["stays", "half_close"])
async def test_a_client_that_never_takes_a_whole_answer_is_cut(leave: str, redis: RedisServer, tmp_path: Path) -> None:
    answer = b'{"text":"' + b"x" * 16_000_000 + b'"}'

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=16_384) as client:
            await ask(bed, client, streaming=False)
            await outcome(bed)
            if leave == "half_close":
                client.half_close()
            async with asyncio.timeout(10):
                while bed.gate.front.downstreams:
                    await asyncio.sleep(0.01)

    await on(redis, tmp_path, RawEngine((Send(json_answer(answer)),)), use, Timeouts(stall=0.3))


async def test_requests_whose_answers_nobody_takes_are_not_answered_one_after_the_other(
    redis: RedisServer, tmp_path: Path
) -> None:
    """Each of them is small; without an end of them, their answers would fill the memory."""
    answer = b'{"text":"' + b"x" * 4_000_000 + b'"}'
    engine = RawEngine((Send(json_answer(answer)),))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=16_384) as client:
            await client.send(post(PATH, chat(), bed.headers()) * 20)
            await until_paused(bed)
            await asyncio.sleep(0.5)
            assert len(engine.requests) <= 3
            assert [len((await client.read_answer()).body) for _ in range(20)] == [len(answer)] * 20

    await on(redis, tmp_path, engine, use)


async def test_a_stream_behind_an_answer_that_waits_to_be_taken_is_held_from_its_first_byte(
    redis: RedisServer, tmp_path: Path
) -> None:
    whole = b'{"text":"' + b"x" * 4_000_000 + b'"}'
    engine = RawEngine((Send(json_answer(whole)),), steps([b": x\n\n"]))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=16_384) as client:
            await ask(bed, client, streaming=False)
            await until_paused(bed)
            await client.send(post(PATH, chat(**PLAIN), bed.headers()))
            assert (await client.read_answer()).body == whole
            assert (await client.read_answer()).body == b": x\n\n" + DONE

    await on(redis, tmp_path, engine, use)


async def test_a_connection_to_an_engine_that_was_held_reads_again_for_the_next_request(
    redis: RedisServer, tmp_path: Path
) -> None:
    events = large_stream(b"abcd", 300)
    engine = RawEngine(steps(events), (Send(json_answer(ANSWER)),))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=16_384) as client:
            await client.send(post(PATH, chat(**PLAIN), bed.headers()))
            await client.read_until(b"\r\n\r\n")
            await until_paused(bed)
            assert await _body(client) == b"".join(events) + DONE
        await outcome(bed)
        assert (await bed.post())[0] == 200
        assert len({request.connection for request in engine.requests}) == 1

    await on(redis, tmp_path, engine, use)
