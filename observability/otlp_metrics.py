"""The same numbers by OTLP: cumulative sums and histograms with explicit bounds, each since its series was born.

A metric is called as in Prometheus, less what its unit and kind say again there: a receiver that adds these, as
Prometheus' own does, comes to the names of contract section 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Exemplar,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from observability import counted
from observability.exposition import States
from observability.families import FAMILIES, Family
from observability.layouts import LAYOUTS, Labels, Part
from observability.totals import Total, Totals, is_there

MOST_POINTS: Final = 500
"""In one export: some milliseconds to make, and 100 KB."""

_UNITS: Final = (("_seconds", "s"), ("_bytes", "By"))
_CUMULATIVE: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def exports(totals: Totals, states: States, resource: dict[str, str], *, now: float) -> Iterator[tuple[bytes, int]]:
    """Everything as it is at `now`, Unix seconds: messages of type ExportMetricsServiceRequest, and of how many data
    points each is.
    """
    about = Resource(attributes=[_attribute(name, value) for name, value in resource.items()])
    gathered: list[Metric] = []
    points = 0
    for metric, count in _metrics(totals, states, round(now * 1e9)):
        if not count:
            continue
        gathered.append(metric)
        points += count
        if points >= MOST_POINTS:
            yield _message(about, gathered), points
            gathered, points = [], 0
    if gathered:
        yield _message(about, gathered), points


def _metrics(totals: Totals, states: States, now_ns: int) -> Iterator[tuple[Metric, int]]:
    for layout in LAYOUTS.values():
        rows = totals.rows(layout)
        families = {part.family.name: part.family for part in layout.parts}
        for start in range(0, len(rows), MOST_POINTS):
            for family in families.values():
                yield _counted(family, layout.of(family), rows[start : start + MOST_POINTS], now_ns)
    for name, values in states.items():
        yield _state(FAMILIES[name], values, now_ns, since_ns=round(totals.born * 1e9))


def _counted(family: Family, parts: Sequence[Part], rows: Sequence[Total], now_ns: int) -> tuple[Metric, int]:
    metric = _named(family)
    there = [(part, total) for total in rows for part in parts if is_there(part, total)]
    if family.kind == "histogram":
        metric.histogram.aggregation_temporality = _CUMULATIVE
        metric.histogram.data_points.extend(_histogram_point(part, total, now_ns) for part, total in there)
    else:
        metric.sum.aggregation_temporality, metric.sum.is_monotonic = _CUMULATIVE, True
        metric.sum.data_points.extend(_sum_point(part, total, now_ns) for part, total in there)
    return metric, len(there)


def _state(family: Family, values: Mapping[Labels, float], now_ns: int, *, since_ns: int) -> tuple[Metric, int]:
    metric = _named(family)
    is_counter = family.kind == "counter"
    if is_counter:
        metric.sum.aggregation_temporality, metric.sum.is_monotonic = _CUMULATIVE, True
    points = metric.sum.data_points if is_counter else metric.gauge.data_points
    points.extend(
        NumberDataPoint(
            attributes=_attributes(family, labels),
            start_time_unix_nano=since_ns if is_counter else 0,
            time_unix_nano=now_ns,
            as_double=value,
        )
        for labels, value in values.items()
    )
    return metric, len(values)


def _named(family: Family) -> Metric:
    name = family.name.removesuffix("_total").removesuffix("_info") if family.kind != "gauge" else family.name
    for suffix, unit in _UNITS:
        if name.endswith(suffix):
            return Metric(name=name.removesuffix(suffix), description=family.help, unit=unit)
    return Metric(name=name, description=family.help)


def _sum_point(part: Part, total: Total, now_ns: int) -> NumberDataPoint:
    point = NumberDataPoint(
        attributes=_attributes(part.family, (*total.shown, *part.own)),
        start_time_unix_nano=round(total.born * 1e9),
        time_unix_nano=now_ns,
    )
    number = total.numbers[part.at]
    if isinstance(number, int):
        point.as_int = number
    else:
        point.as_double = number
    return point


def _histogram_point(part: Part, total: Total, now_ns: int) -> HistogramDataPoint:
    *counts, seconds = total.numbers[part.at : part.end]
    return HistogramDataPoint(
        attributes=_attributes(part.family, (*total.shown, *part.own)),
        start_time_unix_nano=round(total.born * 1e9),
        time_unix_nano=now_ns,
        count=int(sum(counts)),
        sum=seconds,
        bucket_counts=[int(count) for count in counts],
        explicit_bounds=part.family.buckets,
        exemplars=[
            Exemplar(
                time_unix_nano=round(one.time * 1e6) * 1000, as_double=one.value, trace_id=bytes.fromhex(one.trace_id)
            )
            for at, one in total.exemplars.items()
            if part.at <= at < part.end
        ],
    )


def _exemplar(one: counted.Exemplar) -> Exemplar:
    trace_id = bytes.fromhex(one.trace_id)
    return Exemplar(time_unix_nano=round(one.time * 1e6) * 1000, as_double=one.value, trace_id=trace_id)


def _attributes(family: Family, labels: Labels) -> list[KeyValue]:
    return [_attribute(name, value) for name, value in zip(family.labels, labels, strict=True)]


def _attribute(name: str, value: str) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(string_value=value))


def _message(resource: Resource, metrics: Sequence[Metric]) -> bytes:
    scope = ScopeMetrics(scope=InstrumentationScope(name="saltgate"), metrics=metrics)
    message = ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])])
    return bytes(message.SerializeToString())
