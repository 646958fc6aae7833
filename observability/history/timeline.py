"""The tallies of one scope and model by time: fine for the last minutes, coarse for the last two days.

Each level has slots of so many seconds. A request is counted in the open slot of the finest level; when that closes,
its tally is packed, and added to the open slot of the next level. So nothing is counted twice, and a request costs one
count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from observability.history.summary import Summary
from observability.history.tally import Tally, sum_of


@dataclass(frozen=True, slots=True)
class Level:
    """Slots of `seconds`, of which `kept` are kept behind the open one."""

    seconds: int
    kept: int


# Each window of the pages is 60 slots of a level; the window before it is read from the next level.
LEVELS: Final = (Level(15, 60), Level(60, 60), Level(360, 60), Level(1440, 120))


class Timeline:
    """See the module. Times are Unix seconds, and never go back: what comes with an earlier one counts as now."""

    __slots__ = ("_closed", "_open", "_open_slot", "touched")

    def __init__(self) -> None:
        self._closed: tuple[dict[int, bytes], ...] = tuple({} for _ in LEVELS)
        self._open: list[Tally | None] = [None] * len(LEVELS)
        self._open_slot = [-1] * len(LEVELS)
        self.touched = 0.0

    def count(self, summary: Summary, now: float) -> None:
        self.touched = max(self.touched, now)
        slot = int(self.touched) // LEVELS[0].seconds
        tally = self._open[0]
        if tally is None or slot != self._open_slot[0]:
            tally = self._opened(0, slot)
        tally.count(summary)

    def at(self, level: int, since: int) -> Iterator[tuple[int, Tally]]:
        """The slots of a level that are not empty, from `since` on, with what the finer levels have not handed on yet.
        One slot may come several times.
        """
        for slot, packed in self._closed[level].items():
            if slot >= since:
                yield slot, Tally.unpack(packed)
        for finer in range(level + 1):
            tally = self._open[finer]
            slot = self._open_slot[finer] * LEVELS[finer].seconds // LEVELS[level].seconds
            if tally is not None and slot >= since:
                yield slot, tally

    def in_slot(self, level: int, slot: int) -> Tally | None:
        """All that happened in it so far; None where nothing did."""
        packed = self._closed[level].get(slot)
        found = [] if packed is None else [Tally.unpack(packed)]
        for finer in range(level + 1):
            tally = self._open[finer]
            if tally is not None and self._open_slot[finer] * LEVELS[finer].seconds // LEVELS[level].seconds == slot:
                found.append(tally)
        return sum_of(found) if found else None

    def replace(self, level: int, slot: int, packed: bytes) -> None:
        """Put a tally in the place of what is in a slot of one level. Raises ValueError for what is none."""
        Tally.unpack(packed)
        self._closed[level][slot] = packed

    def absorb(self, other: Timeline) -> None:
        """The other's requests, too, each in its slot."""
        self.touched = max(self.touched, other.touched)
        for level, _ in enumerate(LEVELS):
            for slot, tally in other.at(level, 0):
                self.put(level, slot, tally)

    def put(self, level: int, slot: int, tally: Tally) -> None:
        """Add to a slot of one level alone."""
        closed = self._closed[level]
        known = closed.get(slot)
        if known is not None:
            merged = Tally.unpack(known)
            merged.add(tally)
            tally = merged
        closed[slot] = tally.pack()

    def trim(self, now: float) -> None:
        """Forget what is too old."""
        for level, closed in zip(LEVELS, self._closed, strict=True):
            oldest = int(now) // level.seconds - level.kept
            for slot in [slot for slot in closed if slot < oldest]:
                del closed[slot]

    @property
    def slots(self) -> int:
        """How many are kept, of all levels."""
        return sum(map(len, self._closed))

    def _opened(self, level: int, slot: int) -> Tally:
        """The open tally of the slot, after the one before was closed and handed on."""
        before, before_slot = self._open[level], self._open_slot[level]
        fresh = self._open[level] = Tally()
        self._open_slot[level] = slot
        if before is not None:
            self._close(level, before_slot, before, slot)
        return fresh

    def _close(self, level: int, slot: int, tally: Tally, newest: int) -> None:
        closed = self._closed[level]
        self.put(level, slot, tally)
        while (oldest := next(iter(closed), newest)) < newest - LEVELS[level].kept:
            del closed[oldest]
        if level + 1 == len(LEVELS):
            return
        coarser = slot * LEVELS[level].seconds // LEVELS[level + 1].seconds
        above = self._open[level + 1]
        if above is None or coarser != self._open_slot[level + 1]:
            above = self._opened(level + 1, coarser)
        above.add(tally)
