"""What a scraper would read of one worker's metrics, without a supervisor."""

from __future__ import annotations

import re
import time
from weakref import WeakKeyDictionary

from observability.counted import Counted
from observability.exposition import exposition, merged
from observability.metrics import Metrics
from observability.totals import Bounds, Totals

_TOTALS: WeakKeyDictionary[Metrics, Totals] = WeakKeyDictionary()


def page_of(metrics: Metrics, *, open_metrics: bool = False, bounds: Bounds | None = None) -> str:
    """The page as it is now: all that these metrics ever told. What they tell goes through its encoding."""
    totals = _TOTALS.get(metrics)
    if totals is None:
        totals = _TOTALS[metrics] = Totals(bounds or Bounds(), monotonic=time.monotonic, wall_clock=time.time)
    states = []
    for piece in metrics.told():
        counted, strange = Counted.decode(piece.encode())
        assert not strange
        totals.add(counted)
        states += counted.states or []
    return "".join(exposition(totals, merged(states, totals), open_metrics=open_metrics))


def values_of(metrics: Metrics, family: str) -> dict[tuple[str, ...], float]:
    """The family's samples by their label values."""
    lines = re.findall(rf"^{family}(?:\{{(.*)\}})? (\S+)$", page_of(metrics), re.MULTILINE)
    return {tuple(re.findall(r'="([^"]*)"', labels)): float(value) for labels, value in lines}
