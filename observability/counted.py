"""What a worker counted since it was last asked, on its way to the process that adds it up."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from observability.families import FAMILIES
from observability.layouts import LAYOUTS, Number


class Exemplar(msgspec.Struct, frozen=True, array_like=True):
    """A request that is an example of a bucket's: `at` is the bucket's place in its row, `value` its own seconds,
    `time` when it ended, in Unix seconds.
    """

    at: int
    trace_id: str
    value: float
    time: float


class Row(msgspec.Struct, frozen=True, array_like=True):
    """What came to a row's numbers: label values in the order of its layout, and increases."""

    labels: tuple[str, ...]
    increases: list[Number]
    exemplars: tuple[Exemplar, ...] = ()


class Rows(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one layout, by its key."""

    layout: str
    rows: list[Row]


class State(msgspec.Struct, frozen=True, array_like=True):
    """A series that tells how something is, not how often it was: its whole value."""

    family: str
    labels: tuple[str, ...]
    value: float


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """A piece of what a worker tells. Increases are told once, in whatever piece; `states` are all of them, or None
    where a piece has none to tell.
    """

    counts: list[Rows]
    states: list[State] | None = None

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(data: bytes) -> tuple[Counted, bool]:
        """What `encode` made, perhaps of another version: less what is not ours, and whether there was any. Raises
        ValueError for what is none.
        """
        told = msgspec.msgpack.decode(data, type=Counted)
        states = None if told.states is None else [one for one in told.states if _is_ours(one)]
        known = Counted([_known(rows) for rows in told.counts if rows.layout in LAYOUTS], states)
        return known, _size(known) < _size(told)


def handed_over(states: Iterable[State]) -> list[State]:
    """What counts of a worker whose place others have taken, while it serves on: what it has open, not how it sees
    things that may be configured no more.
    """
    return [state for state in states if FAMILIES[state.family].merge == "sum"]


def _known(rows: Rows) -> Rows:
    layout = LAYOUTS[rows.layout]
    labels, width = len(layout.labels), layout.width
    return Rows(rows.layout, [row for row in rows.rows if len(row.labels) == labels and len(row.increases) == width])


def _is_ours(one: State) -> bool:
    family = FAMILIES.get(one.family)
    return family is not None and family.width == 1 and len(one.labels) == len(family.labels)


def _size(counted: Counted) -> int:
    return sum(len(rows.rows) for rows in counted.counts) + len(counted.states or ())
