"""A worker tells of each request once, and goes on where nobody is there to be told."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import uvloop

from observability.history.told import MOST_AT_ONCE, Ended
from observability.history.told import Told as Requests
from observability.recorder import Recorder
from proxy.channel import Told, read_frame
from proxy.telling import Telling

if TYPE_CHECKING:
    from proxy.gate import Gate


@dataclass
class Open:
    """What a gate has open now."""

    now: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def relay(self) -> Open:
        return self

    def open_streams(self) -> Counter[tuple[str, str]]:
        return self.now


@dataclass
class OfRequests:
    """As much of a gate as this is about."""

    ended: Ended = field(default_factory=Ended)
    gateway: Open = field(default_factory=Open)

    def refuses(self, times: int) -> None:
        recorder = Recorder((self.ended,), monotonic_ns=time.monotonic_ns, wall_ns=time.time_ns)
        for _ in range(times):
            with recorder.request(method="POST", route=None) as record:
                record.refused("invalid_token", 401)


async def requests(reader: asyncio.StreamReader) -> Requests:
    told = msgspec.msgpack.decode(await read_frame(reader), type=Told)
    assert (told.number, told.state) == (0, None)
    return msgspec.msgpack.decode(told.requests, type=Requests)


async def of_a_burst() -> None:
    ours, theirs = socket.socketpair()
    (reader, ours_writer), (_, writer) = [await asyncio.open_connection(sock=each) for each in (ours, theirs)]
    gate = OfRequests()
    telling = Telling(cast("Gate", gate), writer)
    gate.gateway.now["acme", "apollo"] = 2
    gate.refuses(MOST_AT_ONCE + 6)
    following = asyncio.get_running_loop().create_task(telling.follow())
    async with asyncio.timeout(20):
        assert [len((await requests(reader)).summaries) for _ in range(2)] == [MOST_AT_ONCE, 6]
        assert (await requests(reader)).open_streams == (("acme", "apollo", 2),)
        following.cancel()
        gate.refuses(3)
        await telling.tell_all()
        assert len((await requests(reader)).summaries) == 3
        assert (await requests(reader)).open_streams == ()
    for each in (ours_writer, writer):
        each.close()


async def of_nobody() -> None:
    ours, theirs = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=theirs)
    ours.close()
    gate = OfRequests()
    telling = Telling(cast("Gate", gate), writer)
    gate.refuses(500)
    await telling.tell_all()
    writer.close()
    await asyncio.sleep(0.05)
    gate.refuses(500)
    await telling.tell_all()
    await telling.follow()


@pytest.mark.slow
@pytest.mark.parametrize("story", [of_a_burst, of_nobody])
def test_on_the_loop_of_a_worker(story: Any) -> None:
    made: Coroutine[Any, Any, None] = story()
    uvloop.run(made)
