"""A worker tells its supervisor of each request that has ended, and how many streams are open: a moment later, in
batches, and never so much at a time that a stream would wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import msgspec

from observability.history.told import Told as Requests
from proxy.channel import Told, frame
from proxy.gate import Gate

# What ended within this time before a worker is killed outright is untold.
MOMENT_SECONDS: Final = 0.1
# How long the number of open streams may be out of date.
OPEN_SECONDS: Final = 1.0
# What the supervisor has not read yet of what was told. Above that it is busy, and batches wait here.
MOST_UNREAD_BYTES: Final = 1024 * 1024

_ENCODER: Final = msgspec.msgpack.Encoder()


class Telling:
    """See the module."""

    def __init__(self, gate: Gate, writer: asyncio.StreamWriter) -> None:
        self._gate = gate
        self._writer = writer
        self._open: tuple[tuple[str, str, int], ...] = ()
        self._dropped = 0

    async def follow(self) -> None:
        """Tell as long as the supervisor is there. Endless."""
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while not self._writer.is_closing():
            await asyncio.sleep(MOMENT_SECONDS)
            await self._tell_ended()
            if loop.time() - looked >= OPEN_SECONDS:
                looked = loop.time()
                self._tell_open()

    async def tell_all(self) -> None:
        """At the end: everything that is left, and that nothing is open any more."""
        with contextlib.suppress(ConnectionError):
            while batch := self._gate.ended.take():
                self._write(Requests(summaries=batch))
                await self._writer.drain()
        self._write(Requests(open_streams=(), dropped=self._gate.ended.dropped))

    async def _tell_ended(self) -> None:
        while not self._is_full() and (batch := self._gate.ended.take()):
            self._write(Requests(summaries=batch, dropped=self._gate.ended.dropped))
            await asyncio.sleep(0)  # a burst is told between the events of the streams

    def _tell_open(self) -> None:
        streams = self._gate.gateway.relay.open_streams()
        now = tuple((workspace, project, number) for (workspace, project), number in sorted(streams.items()))
        dropped = self._gate.ended.dropped
        if (now, dropped) != (self._open, self._dropped) and not self._is_full():
            self._open, self._dropped = now, dropped
            self._write(Requests(open_streams=now, dropped=dropped))

    def _is_full(self) -> bool:
        return self._writer.transport.get_write_buffer_size() > MOST_UNREAD_BYTES

    def _write(self, requests: Requests) -> None:
        """Nothing where the supervisor is gone: uvloop takes a write then for a fault of ours."""
        if not self._writer.is_closing():
            self._writer.write(frame(Told(0, requests=_ENCODER.encode(requests))))
