"""How a figure comes about: rounds that are interleaved, disturbed ones thrown away, the median of the rest. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

# Whoever relays undisturbed does so in 0.05 to 0.1 ms. Later, somebody else had the core: events then come in batches,
# and each of them looks cheaper than it is.
LATEST_RELAY_MS: Final = 0.3
# A proxy that has a core to itself waits for it next to never.
MOST_WAITING: Final = 0.15
TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one proxy: CPU microseconds per unit, the median relay time of its events in milliseconds (None where
    they queue anyhow), and what its threads waited for a core in proportion to what they ran.
    """

    cost: float
    relay_p50_ms: float | None
    waiting: float

    def disturbed(self) -> bool:
        late = self.relay_p50_ms is not None and self.relay_p50_ms > LATEST_RELAY_MS
        return late or self.waiting > MOST_WAITING


@dataclass(slots=True)
class Runs:
    """The runs of one proxy in one case. `thrown_away` were disturbed; `kept_disturbed` were kept all the same, since
    every try of their round was.
    """

    kept: list[Run] = field(default_factory=list)
    thrown_away: int = 0
    kept_disturbed: int = 0

    def add_round(self, measure: Callable[[], Run], tries: int = TRIES) -> None:
        """Measures until a run is undisturbed, at most `tries` times; then the least disturbed one has to do."""
        seen: list[Run] = []
        while len(seen) < tries:
            seen.append(measure())
            if not seen[-1].disturbed():
                break
        best = min(seen, key=lambda run: (run.disturbed(), run.waiting))
        self.kept.append(best)
        self.thrown_away += len(seen) - 1
        self.kept_disturbed += best.disturbed()

    @property
    def cost(self) -> float:
        return statistics.median(run.cost for run in self.kept)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest cost."""
        costs = [run.cost for run in self.kept]
        return min(costs), max(costs)


def percentile(values: Iterable[float], share: float) -> float:
    """The least value that at least `share` (0 to 1) of them do not exceed. Raises ValueError where there are none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def imbalance(counts: Sequence[int]) -> float:
    """The smallest share of all, 0 to 1/len: 0.5 is an even spread over two. Raises ValueError where all are 0."""
    if not sum(counts):
        raise ValueError("nothing was spread")
    return min(counts) / sum(counts)
