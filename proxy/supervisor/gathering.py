"""What all workers tell of requests, gathered: into the history, and how many streams are open now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from observability.history.history import History
from observability.history.summary import summary_of
from observability.history.told import Told
from observability.record import Record

_DECODER: Final = msgspec.msgpack.Decoder(Told)


class Gathering:
    """`clock` is Unix seconds. A worker is named by its instance, which no other has or had."""

    def __init__(self, history: History, clock: Callable[[], float]) -> None:
        self.history = history
        self._clock = clock
        self._open: dict[str, tuple[tuple[str, str, int], ...]] = {}
        self._dropped: Counter[str] = Counter()
        self._dropped_before = 0

    def take(self, worker: str, data: bytes) -> None:
        """Raises ValueError where another version of a worker tells what is not understood."""
        told = _DECODER.decode(data)
        now = self._clock()
        for summary in told.summaries:
            self.history.add(summary, now)
        if told.open_streams is not None:
            self._open[worker] = told.open_streams
        if told.dropped:
            self._dropped[worker] = told.dropped

    def finished(self, record: Record) -> None:
        """A request that ended with its worker (`Losses`), which tells of it no more."""
        self.history.add(summary_of(record), self._clock())

    def end(self, worker: str) -> None:
        """It has ended: nothing of it is open any more."""
        self._open.pop(worker, None)
        self._dropped_before += self._dropped.pop(worker, 0)

    @property
    def untold(self) -> int:
        """How many requests have ended without being counted here."""
        return self._dropped_before + self._dropped.total()

    def open_streams(self) -> Counter[tuple[str, str]]:
        """By workspace and project."""
        sums: Counter[tuple[str, str]] = Counter()
        for told in self._open.values():
            for workspace, project, number in told:
                sums[workspace, project] += number
        return sums
