"""The worker's side: which requests have ended since it was last emptied, and how many streams are open."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from observability.history.summary import Summary, summary_of
from observability.record import Record

# Some 20 MB of records, and seconds of a busy worker: more wait only where the supervisor stands still.
MOST_WAITING: Final = 8192
# Made at one go, between two turns of the worker's loop: half a millisecond.
MOST_AT_ONCE: Final = 64


class Told(msgspec.Struct, frozen=True):
    """What a worker tells at a time: requests that have ended, each once; its open streams now, where that has changed,
    as (workspace, project, number); how many requests it could not tell so far.
    """

    summaries: tuple[Summary, ...] = ()
    open_streams: tuple[tuple[str, str, int], ...] | None = None
    dropped: int = 0


class Ended:
    """An observer of records. What it is told costs an append; everything else happens in `take`."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._waiting: deque[Record] = deque()
        self._open: Mapping[tuple[str, str], int] = {}
        self.dropped = 0

    def finished(self, record: Record) -> None:
        if len(self._waiting) < self._most:
            self._waiting.append(record)
        else:
            self.dropped += 1

    def take(self) -> tuple[Summary, ...]:
        """Some of those that have ended, the oldest first; nothing where all were taken. Pages of our own are left out
        where nothing was refused: nobody asked for a model.
        """
        taken: list[Summary] = []
        while self._waiting and len(taken) < MOST_AT_ONCE:
            record = self._waiting.popleft()
            if record.workspace is not None or record.refusal_code is not None or record.outcome != "ok":
                taken.append(summary_of(record))
        return tuple(taken)

    def __len__(self) -> int:
        return len(self._waiting)
