"""The worker's side: which requests have ended since it was last emptied, and how many streams are open."""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from observability.history.summary import Summary, summary_of
from observability.record import Record

# Some 10 MB, and seconds of a busy worker: more wait only where the supervisor stands still.
MOST_WAITING: Final = 8192
# Encoded at one go, between two turns of the worker's loop.
MOST_AT_ONCE: Final = 64


class Told(msgspec.Struct, frozen=True):
    """What a worker tells at a time: requests that have ended, each once; its open streams now, where that has changed,
    as (workspace, project, number); how many requests it could not tell so far.
    """

    summaries: tuple[Summary, ...] = ()
    open_streams: tuple[tuple[str, str, int], ...] | None = None
    dropped: int = 0


class Ended:
    """An observer of records that keeps their summaries until they are taken: a record holds five times as much."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._waiting: deque[Summary] = deque()
        self.dropped = 0

    def finished(self, record: Record) -> None:
        """Pages of our own are left out where nothing was refused: nobody asked for a model."""
        if record.workspace is None and record.refusal_code is None and record.outcome == "ok":
            return
        if len(self._waiting) < self._most:
            self._waiting.append(summary_of(record))
        else:
            self.dropped += 1

    def take(self) -> tuple[Summary, ...]:
        """Some of those that have ended, the oldest first; nothing where all were taken."""
        return tuple(self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_AT_ONCE)))

    def __len__(self) -> int:
        return len(self._waiting)
