"""A worker and its supervisor over a real socket pair: what was counted comes in pieces, once, and only to who asks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import msgspec

from observability.counted import Counted
from observability.layouts import SCOPE
from observability.metrics import PIECE_ROWS, Metrics
from observability.totals import Bounds, Totals
from proxy.channel import Tell, Told, WorkerState, frame, read_frame
from proxy.gate import Gate
from proxy.listening.acceptor import Acceptor
from proxy.worker import Supervision
from tests.observability.telling import goes_up, recorder

SCOPES = 3 * PIECE_ROWS


@dataclass(slots=True)
class OfMetrics:
    """A gate of nothing but metrics. `asked` counts how often they were."""

    metrics: Metrics = field(default_factory=lambda: Metrics(version="0", drops={}))
    asked: int = 0

    def state(self) -> WorkerState:
        return WorkerState((), 0)

    def counted(self) -> Iterator[Counted]:
        self.asked += 1
        return self.metrics.told()

    def serves(self, scopes: int) -> None:
        for number in range(scopes):
            with recorder(self.metrics).request(method="POST", route="/v1/x") as record:
                goes_up(record, project=f"p{number}")
                record.ended("ok")


@asynccontextmanager
async def obeying(gate: OfMetrics) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    supervision = Supervision(*await asyncio.open_connection(sock=theirs))
    task = asyncio.get_running_loop().create_task(supervision.obey(cast("Gate", gate), cast("Acceptor", None)))
    try:
        yield reader, writer
    finally:
        writer.close()
        await task
        supervision.writer.close()


async def told(reader: asyncio.StreamReader, number: int) -> list[Told]:
    """Everything up to the answer of that number."""
    found: list[Told] = []
    async with asyncio.timeout(20):
        while not found or found[-1].number != number:
            found.append(msgspec.msgpack.decode(await read_frame(reader), type=Told))
    return found


async def test_who_asks_only_for_the_state_gets_nothing_that_was_counted() -> None:
    gate = OfMetrics()
    async with obeying(gate) as (reader, writer):
        gate.serves(3)
        writer.write(frame(Tell(1, counts=False)))
        assert await told(reader, 1) == [Told(1, WorkerState((), 0))]
        assert gate.asked == 0


async def test_what_was_counted_comes_before_the_answer_in_pieces_and_once() -> None:
    gate, totals = OfMetrics(), Totals(Bounds(scopes=SCOPES), monotonic=lambda: 0.0, wall_clock=lambda: 0.0)
    async with obeying(gate) as (reader, writer):
        gate.serves(SCOPES)
        for number in (1, 2):
            writer.write(frame(Tell(number)))
            *pieces, answer = await told(reader, number)
            assert answer == Told(number, WorkerState((), 0))
            assert {piece.number for piece in pieces} == {0}
            counted = [Counted.decode(piece.counted)[0] for piece in pieces]
            rows = [len(rows.rows) for piece in counted for rows in piece.counts]
            assert max(rows, default=0) <= PIECE_ROWS
            assert (sum(rows) >= SCOPES) is (number == 1)
            for piece in counted:
                totals.add(piece)
    assert sum(total.numbers[0] for total in totals.rows(SCOPE)) == SCOPES


async def test_what_is_on_its_way_when_the_worker_ends_is_told_to_the_end() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    supervision = Supervision(*await asyncio.open_connection(sock=theirs))
    gate = Ending()
    gate.serves(SCOPES)
    gate.obeying = asyncio.get_running_loop().create_task(supervision.obey(cast("Gate", gate), cast("Acceptor", None)))
    writer.write(frame(Tell(1)))
    async with asyncio.timeout(20):
        await asyncio.wait((gate.obeying,))
        gate.serves(2)
        await supervision.say_last(cast("Gate", gate))
        supervision.writer.close()
        assert await scopes_until_end(reader) == SCOPES + 2
    writer.close()


@dataclass(slots=True)
class Ending(OfMetrics):
    """A gate that ends when the first piece of what was counted has left it."""

    obeying: asyncio.Task[None] | None = None

    def counted(self) -> Iterator[Counted]:
        for piece in self.metrics.told():
            yield piece
            assert self.obeying is not None
            self.obeying.cancel()


async def scopes_until_end(reader: asyncio.StreamReader) -> int:
    rows = 0
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            told = msgspec.msgpack.decode(await read_frame(reader), type=Told)
            rows += sum(len(one.rows) for one in Counted.decode(told.counted)[0].counts if one.layout == SCOPE.key)
    return rows
