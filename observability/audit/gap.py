"""How many lines were lost, and when, until a line has told it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final

import msgspec

from observability.audit.entries import timestamp

AUDIT_GAP: Final = "audit.gap"


class AuditGap(msgspec.Struct, frozen=True, kw_only=True):
    """So many lines could not be written, of what ended in this time, and are lost."""

    event: str
    lost: int
    first_ts: str
    last_ts: str
    why: str


class Gap:
    """What is lost and was not told yet. From any thread."""

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._lock = Lock()
        self._untold = 0
        self._first_ns = self._last_ns = 0
        self.lost = 0

    @property
    def is_open(self) -> bool:
        """Whether anything is lost that was not told."""
        return self._untold > 0

    def add(self) -> None:
        with self._lock:
            self._last_ns = self._wall_ns()
            if not self._untold:
                self._first_ns = self._last_ns
            self._untold += 1
            self.lost += 1

    def line(self, why: str) -> AuditGap | None:
        """What is to be told now; it counts as told with `told`."""
        with self._lock:
            if not self._untold:
                return None
            return AuditGap(
                event=AUDIT_GAP,
                lost=self._untold,
                first_ts=timestamp(self._first_ns),
                last_ts=timestamp(self._last_ns),
                why=why,
            )

    def told(self, line: AuditGap) -> None:
        """That line is on disk. What was lost meanwhile is still to be told."""
        with self._lock:
            self._untold -= line.lost
            self._first_ns = self._last_ns
