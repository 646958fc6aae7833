"""What a Prometheus reads: all that is counted, and how things are, as text and piece by piece.

Formats: Prometheus text 0.0.4 and OpenMetrics 1.0, by the scraper's `Accept`. Only OpenMetrics has exemplars.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from observability.counted import Exemplar, State
from observability.families import ACTIVE_STREAMS, FAMILIES, Family
from observability.label_text import escaped, label_text
from observability.layouts import LAYOUTS, Labels, Layout, Number, Part
from observability.totals import Total, Totals, is_there

PROMETHEUS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TEXT: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PIECE_ROWS: Final = 500
"""Of a histogram each: some milliseconds, and a hundred kilobytes."""

States = Mapping[str, Mapping[Labels, float]]
"""By family's name."""


def prefers_open_metrics(accept: str) -> bool:
    """Whether `Accept` (RFC 9110, section 12.5.1) prefers OpenMetrics to Prometheus' own format."""
    return _quality(accept, "application/openmetrics-text") > _quality(accept, "text/plain")


def merged(states: Iterable[State], totals: Totals) -> States:
    """One state for all who told one, by their family's rule; a model is called as in the totals."""
    found: dict[str, dict[Labels, float]] = {}
    for one in states:
        labels = (totals.model(*one.labels),) if one.family == ACTIVE_STREAMS.name else one.labels
        rows = found.setdefault(one.family, {})
        known = rows.get(labels)
        rows[labels] = one.value if known is None else _of_both(FAMILIES[one.family], known, one.value)
    return found


def exposition(totals: Totals, states: States, *, open_metrics: bool) -> Iterator[str]:
    """The page in pieces of whole lines. What is counted meanwhile may be in it; each series agrees with itself."""
    rows = {layout.key: totals.rows(layout) for layout in LAYOUTS.values()}
    for family in FAMILIES.values():
        layout, parts = _PLACES.get(family.name, _NO_PLACE)
        there = rows.get(layout, [])
        told = states.get(family.name, {})
        if there or told:
            yield _head(family, open_metrics=open_metrics)
        for start in range(0, len(there), PIECE_ROWS):
            piece = there[start : start + PIECE_ROWS]
            yield "".join([part.text(total, exemplars=open_metrics) for total in piece for part in parts])
        yield "".join(
            [_sample(family.name, label_text(family.labels, labels), value) for labels, value in told.items()]
        )
    if open_metrics:
        yield "# EOF\n"


class _PartText:
    """How one part of a layout's rows is written."""

    def __init__(self, layout: Layout, part: Part) -> None:
        family = part.family
        self._part = part
        self._name = family.name
        self._own = label_text(family.labels[len(layout.labels) :], part.own)
        self._bounds = (*(f'le="{float(bound)!r}"' for bound in family.buckets), 'le="+Inf"')
        self._is_histogram = family.kind == "histogram"

    def text(self, total: Total, *, exemplars: bool) -> str:
        numbers, part = total.numbers, self._part
        if not is_there(part, total):
            return ""
        labels = f"{total.text},{self._own}" if total.text and self._own else total.text or self._own
        if not self._is_histogram:
            return _sample(self._name, labels, numbers[part.at])
        counts = list(accumulate(numbers[part.at : part.end - 1]))
        name, before = self._name, f"{labels}," if labels else ""
        buckets = [
            f"{name}_bucket{{{before}{bound}}} {count}\n" for bound, count in zip(self._bounds, counts, strict=True)
        ]
        if exemplars and total.exemplars:
            buckets = [_with_exemplar(line, total.exemplars.get(at)) for at, line in enumerate(buckets, part.at)]
        braces = f"{{{labels}}}" if labels else ""
        return f"{''.join(buckets)}{name}_sum{braces} {numbers[part.end - 1]}\n{name}_count{braces} {counts[-1]}\n"


def _with_exemplar(line: str, exemplar: Exemplar | None) -> str:
    if exemplar is None:
        return line
    return f'{line[:-1]} # {{trace_id="{exemplar.trace_id}"}} {exemplar.value!r} {exemplar.time:.3f}\n'


def _places() -> Iterator[tuple[str, tuple[str, tuple[_PartText, ...]]]]:
    for layout in LAYOUTS.values():
        for name in {part.family.name for part in layout.parts}:
            yield name, (layout.key, tuple(_PartText(layout, part) for part in layout.of(FAMILIES[name])))


_PLACES: Final = dict(_places())
_NO_PLACE: Final[tuple[str, tuple[_PartText, ...]]] = ("", ())


def _head(family: Family, *, open_metrics: bool) -> str:
    # OpenMetrics names a counter's or info's family without the suffix that its samples have.
    name = family.name
    if open_metrics:
        name = name.removesuffix("_total") if family.kind == "counter" else name.removesuffix("_info")
    kind = "gauge" if family.kind == "info" and not open_metrics else family.kind
    return f"# HELP {name} {escaped(family.help)}\n# TYPE {name} {kind}\n"


def _sample(name: str, labels: str, value: Number) -> str:
    braces = f"{{{labels}}}" if labels else ""
    return f"{name}{braces} {int(value) if value == int(value) else value}\n"


def _of_both(family: Family, left: float, right: float) -> float:
    match family.merge:
        case "sum":
            return left + right
        case "min":
            return min(left, right)
        case "max":
            return max(left, right)


def _quality(accept: str, media_type: str) -> float:
    best = 0.0
    for item in accept.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        if name == media_type:
            best = max(best, _q(parameters))
    return best


def _q(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
