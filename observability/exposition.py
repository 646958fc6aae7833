"""From the workers' snapshots to what a Prometheus reads: merged, then written as text.

Formats: Prometheus text 0.0.4 and OpenMetrics 1.0, by the scraper's `Accept`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from observability.families import FAMILIES, Family

PROMETHEUS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TEXT: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Series(msgspec.Struct, frozen=True, array_like=True):
    """One series: its family's name, its label values in the family's order, and its numbers (`Family.width` many)."""

    family: str
    labels: tuple[str, ...]
    values: tuple[float, ...]


class Snapshot(msgspec.Struct, frozen=True):
    """The metrics of one worker, or of several merged."""

    series: list[Series]

    def encode(self) -> bytes:
        """As JSON, to be carried to the process that merges."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> Snapshot:
        """What `encode` made. Raises ValueError for anything else, also for a family or a width that is not ours."""
        snapshot = msgspec.json.decode(data, type=Snapshot)
        for one in snapshot.series:
            if not _is_ours(one):
                raise ValueError(f"no series of this version: {one.family}")
        return snapshot

    @staticmethod
    def decode_known(data: bytes) -> tuple[Snapshot, bool]:
        """What `encode` made, perhaps of another version: less the series that are not ours, and whether there were
        any. Raises ValueError for what is no snapshot.
        """
        snapshot = msgspec.json.decode(data, type=Snapshot)
        known = [one for one in snapshot.series if _is_ours(one)]
        return Snapshot(series=known), len(known) < len(snapshot.series)

    def handed_over(self) -> Snapshot:
        """What counts of a worker whose place others have taken, while it serves on: what it counted and what it has
        open, not how it sees things that may be configured no more.
        """
        return Snapshot(series=[one for one in self.series if FAMILIES[one.family].merge == "sum"])

    def retired(self) -> Snapshot:
        """What stays true of a worker that has ended: what it counted, not how it was.

        Whoever merges must keep it: a sum that falls when a worker ends looks like a restart of all of them.
        """
        return Snapshot(series=[one for one in self.series if FAMILIES[one.family].kind in _LASTING])


@dataclass(frozen=True, slots=True)
class Exposition:
    """A scrape's answer."""

    content_type: str
    body: bytes


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """One snapshot for all: counts are added, states merged by their family's rule."""
    merged: dict[tuple[str, tuple[str, ...]], tuple[float, ...]] = {}
    for snapshot in snapshots:
        for one in snapshot.series:
            key = (one.family, one.labels)
            known = merged.get(key)
            merged[key] = one.values if known is None else _merged(FAMILIES[one.family], known, one.values)
    return Snapshot(series=[Series(family, labels, values) for (family, labels), values in merged.items()])


def exposition(snapshot: Snapshot, accept: str = "") -> Exposition:
    """The snapshot as text, in OpenMetrics if `accept` (RFC 9110, section 12.5.1) prefers it, else Prometheus' own."""
    if _quality(accept, "application/openmetrics-text") > _quality(accept, "text/plain"):
        return Exposition(OPENMETRICS_TEXT, _text(snapshot, open_metrics=True))
    return Exposition(PROMETHEUS_TEXT, _text(snapshot, open_metrics=False))


def _is_ours(one: Series) -> bool:
    family = FAMILIES.get(one.family)
    return family is not None and len(one.values) == family.width and len(one.labels) == len(family.labels)


_LASTING: Final = frozenset({"counter", "histogram"})


def _merged(family: Family, left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...]:
    if family.merge != "sum":
        worst = min if family.merge == "min" else max
        return tuple(worst(pair) for pair in zip(left, right, strict=True))
    return tuple(a + b for a, b in zip(left, right, strict=True))


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


def _text(snapshot: Snapshot, *, open_metrics: bool) -> bytes:
    rows: dict[str, list[Series]] = {}
    for one in snapshot.series:
        rows.setdefault(one.family, []).append(one)
    lines: list[str] = []
    for family in FAMILIES.values():
        if family.name in rows:
            lines += _head(family, open_metrics=open_metrics)
            for one in sorted(rows[family.name], key=lambda series: series.labels):
                lines += _histogram(family, one) if family.kind == "histogram" else [_line(family, one)]
    if open_metrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode("utf-8")


def _head(family: Family, *, open_metrics: bool) -> list[str]:
    # OpenMetrics names a counter's or info's family without the suffix that its samples have.
    name = family.name
    if open_metrics:
        name = name.removesuffix("_total") if family.kind == "counter" else name.removesuffix("_info")
    kind = "gauge" if family.kind == "info" and not open_metrics else family.kind
    return [f"# HELP {name} {_escaped(family.help)}", f"# TYPE {name} {kind}"]


def _line(family: Family, one: Series) -> str:
    return f"{family.name}{_braces(_pairs(family, one))} {_number(one.values[0])}"


def _histogram(family: Family, one: Series) -> list[str]:
    pairs = _pairs(family, one)
    lines: list[str] = []
    below = 0.0
    for bound, count in zip((*map(_bound, family.buckets), "+Inf"), one.values[:-1], strict=True):
        below += count
        bucket = _braces([*pairs, f'le="{bound}"'])
        lines.append(f"{family.name}_bucket{bucket} {_number(below)}")
    lines.append(f"{family.name}_sum{_braces(pairs)} {one.values[-1]!r}")
    lines.append(f"{family.name}_count{_braces(pairs)} {_number(below)}")
    return lines


def _pairs(family: Family, one: Series) -> list[str]:
    return [f'{name}="{_escaped(value)}"' for name, value in zip(family.labels, one.labels, strict=True)]


def _braces(pairs: list[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _bound(bound: float) -> str:
    return repr(float(bound))


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
