"""How numbers that change together stand side by side in one list, so that a request is counted by few operations.

A row is a list of numbers for one set of shared label values; a part of it is one series. The parts of a scope's row
are all that is counted per scope and model, those of a model's row all that is counted per model.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from observability import families
from observability.families import FAMILIES, Family
from observability.names import OUTCOMES, STAGES, TOKEN_KINDS, USAGE_UNKNOWN_REASON, WITHOUT_TOKEN_REASON

Labels = tuple[str, ...]
Number = int | float


@dataclass(frozen=True, slots=True)
class Part:
    """One series of a row: its numbers begin at `at`. `own` are the label values that it has beside the row's.

    `is_born`: it is there, at zero, from the row's birth on, because Prometheus takes the first value of a series for
    no increase; where it `needs_model`, only in a row with a model. Else it comes with its first count.
    """

    family: Family
    own: Labels
    at: int
    is_born: bool
    needs_model: bool

    @property
    def end(self) -> int:
        return self.at + self.family.width


class Layout:
    """The parts of rows of one kind. `labels` names the label values that a row has for all of them.

    `key` names the layout between processes: with other parts, buckets or labels it is another one.
    """

    def __init__(self, name: str, labels: Labels, parts: Sequence[tuple[Family, tuple[str, ...], bool]]) -> None:
        self.labels = labels
        placed: list[Part] = []
        at = 0
        for family, own, is_born in parts:
            placed.append(Part(family, own, at, is_born, labels[-1:] == ("model",)))
            at = placed[-1].end
        self.parts = tuple(placed)
        self.width = at
        self._at = {(part.family.name, part.own): part.at for part in placed}
        described = repr([(family.name, family.labels, family.buckets, own) for family, own, _ in parts])
        self.key = f"{name}/{zlib.crc32(described.encode()):08x}"

    def at(self, family: Family, *own: str) -> int:
        """Where the numbers of this part begin."""
        return self._at[family.name, own]

    def of(self, family: Family) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.family is family)

    def zeros(self) -> list[Number]:
        """A new row."""
        return [0] * self.width


SCOPE: Final = Layout(
    "scope",
    families.REUSED_PROMPT_TOKENS.labels,
    (
        *((families.REQUESTS, (outcome,), outcome == "ok") for outcome in OUTCOMES),
        (families.PROMPT_TOKENS, (), True),
        (families.REUSED_PROMPT_TOKENS, (), True),
        (families.REUSE_KNOWN_PROMPT_TOKENS, (), True),
        (families.OUTPUT_TOKENS, (), True),
        (families.TIME_TO_FIRST_TOKEN, (), True),
    ),
)
MODEL: Final = Layout(
    "model",
    families.REUSE_UNKNOWN.labels,
    (
        *((families.MODEL_OVERHEAD, (stage,), True) for stage in STAGES),
        *((families.MODEL_DURATION, (outcome,), True) for outcome in OUTCOMES),
        *((families.MODEL_TIME_TO_FIRST_TOKEN, (kind,), True) for kind in TOKEN_KINDS),
        (families.MODEL_UPSTREAM_TIME_TO_FIRST_TOKEN, (), True),
        (families.MODEL_TIME_TO_FIRST_CONTENT, (), True),
        (families.MODEL_TIME_PER_OUTPUT_TOKEN, (), True),
        (families.MODEL_INTER_CHUNK, (), True),
        (families.MODEL_LARGEST_GAP, (), True),
        (families.MODEL_QUEUE_WAIT, (), True),
        *((families.STREAMS_WITHOUT_TOKEN, (reason,), True) for reason in WITHOUT_TOKEN_REASON.values()),
        *((families.USAGE_UNKNOWN, (reason,), True) for reason in USAGE_UNKNOWN_REASON.values()),
        (families.REUSE_UNKNOWN, (), True),
    ),
)

_SHARED: Final = frozenset(part.family.name for layout in (SCOPE, MODEL) for part in layout.parts)
# What is counted by itself: a row of one part.
OWN: Final[dict[str, Layout]] = {
    family.name: Layout(family.name, family.labels, ((family, (), True),))
    for family in FAMILIES.values()
    if family.kind in ("counter", "histogram") and family.name not in _SHARED
}
LAYOUTS: Final[dict[str, Layout]] = {layout.key: layout for layout in (SCOPE, MODEL, *OWN.values())}
