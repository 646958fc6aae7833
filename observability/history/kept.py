"""What of a history is kept outside of this process, so that it outlives a restart and several gates show one: the
slots of a minute and more, and single requests. Pure.

A kept slot is absolute: written again, it takes the place of what was there. So it may be written as often as one
likes, also before it is over. Each life of a gate writes its own, and whoever reads adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from observability.history.history import MOST_MODELS, OF_SCOPE, Bounds, Key
from observability.history.recent import Recent
from observability.history.speed import PrefillSpeeds
from observability.history.summary import Summary
from observability.history.timeline import LEVELS, Timeline
from observability.names import OTHER

# The finest level stays in the process: it would be written too often.
KEPT_LEVELS: Final = (1, 2, 3)
MINUTE_SECONDS: Final = LEVELS[1].seconds
# Gates, and their lives before, that are shown together.
MOST_GATES: Final = 32
_FINE_IN_A_MINUTE: Final = LEVELS[1].seconds // LEVELS[0].seconds


class KeptSlot(msgspec.Struct, frozen=True, array_like=True):
    """One slot of a level, by how many seconds its slots have. `data` are rows of all that happened in it."""

    seconds: int
    slot: int
    data: bytes


class _Row(msgspec.Struct, frozen=True, array_like=True):
    workspace: str
    project: str
    model: str
    tally: bytes


_ENCODER: Final = msgspec.msgpack.Encoder()
_ROWS: Final = msgspec.msgpack.Decoder(tuple[_Row, ...])
_SUMMARY: Final = msgspec.msgpack.Decoder(Summary)


def slots_of(timelines: Iterable[tuple[Key, Timeline]], minutes: Iterable[int]) -> list[KeptSlot]:
    """The slots in which these minutes lie, of every kept level."""
    timelines, minutes = tuple(timelines), tuple(minutes)
    return [
        KeptSlot(LEVELS[level].seconds, slot, _rows(timelines, level, slot))
        for level in KEPT_LEVELS
        for slot in sorted({minute * MINUTE_SECONDS // LEVELS[level].seconds for minute in minutes})
    ]


def slots_until(now: float) -> list[tuple[int, int]]:
    """All that may be kept as of now, as (seconds, slot), the oldest first."""
    return [
        (LEVELS[level].seconds, slot)
        for level in KEPT_LEVELS
        for slot in range(int(now) // LEVELS[level].seconds - LEVELS[level].kept, int(now) // LEVELS[level].seconds + 1)
    ]


class Others:
    """What other gates have kept, and this one in its lives before; of the shape of a `History`, and as bounded."""

    def __init__(self, bounds: Bounds) -> None:
        self.since = float("inf")
        self.speeds = PrefillSpeeds(0)
        self.recent = Recent(most=bounds.recent, of_scope=OF_SCOPE, scopes=bounds.scopes)
        self._bounds = bounds
        self._gates: dict[str, dict[Key, Timeline]] = {}

    def timelines(self) -> Iterator[tuple[Key, Timeline]]:
        for timelines in self._gates.values():
            yield from timelines.items()

    def take(self, gate: str, kept: KeptSlot) -> None:
        """Raises ValueError for what no gate of this version keeps."""
        level = _LEVEL_OF.get(kept.seconds)
        if level is None:
            raise ValueError("no level of this version")
        timelines = self._gates.get(gate)
        if timelines is None:
            if len(self._gates) >= MOST_GATES:
                return
            timelines = self._gates[gate] = {}
        self.since = min(self.since, float(kept.slot * kept.seconds))
        for row in _ROWS.decode(kept.data):
            timeline = self._timeline(timelines, Key(row.workspace, row.project, row.model))
            timeline.replace(level, kept.slot, row.tally)
            if level == 1:  # the finest level has it, too, at the minute's end
                timeline.replace(0, kept.slot * _FINE_IN_A_MINUTE + _FINE_IN_A_MINUTE - 1, row.tally)

    def take_request(self, packed: bytes) -> None:
        """Raises ValueError for what is none."""
        self.recent.add(_SUMMARY.decode(packed))

    def trim(self, now: float) -> None:
        """Forget what is too old."""
        for gate, timelines in tuple(self._gates.items()):
            for key, timeline in tuple(timelines.items()):
                timeline.trim(now)
                if not timeline.slots:
                    del timelines[key]
            if not timelines:
                del self._gates[gate]

    def _timeline(self, timelines: dict[Key, Timeline], key: Key) -> Timeline:
        if key not in timelines and len(timelines) >= self._bounds.scopes + MOST_MODELS + 1:
            key = Key(OTHER, OTHER, OTHER)
        return timelines.setdefault(key, Timeline())


_LEVEL_OF: Final = {LEVELS[level].seconds: level for level in KEPT_LEVELS}


def _rows(timelines: Iterable[tuple[Key, Timeline]], level: int, slot: int) -> bytes:
    rows = []
    for key, timeline in timelines:
        tally = timeline.in_slot(level, slot)
        if tally is not None:
            rows.append(_Row(*key, tally.pack()))
    return _ENCODER.encode(rows)
