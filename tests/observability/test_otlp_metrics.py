"""Metrics as an OTLP collector gets them: cumulative since birth, under names of which a receiver makes ours."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)

from observability import families
from observability.counted import Counted, Exemplar, Row, Rows, State
from observability.exposition import merged
from observability.families import FAMILIES
from observability.layouts import LAYOUTS, MODEL, SCOPE
from observability.naming import Pseudonyms
from observability.otlp_metrics import MOST_POINTS, exports
from observability.totals import Bounds, Totals

BORN, NOW = 1_796_000_000.0, 1_796_000_060.5
RESOURCE = {"service.name": "saltgate", "service.instance.id": "here-1"}


def totals_of(*rows: Rows, bounds: Bounds | None = None) -> Totals:
    totals = Totals(bounds or Bounds(), monotonic=lambda: 0.0, wall_clock=lambda: BORN)
    totals.add(Counted(list(rows)))
    return totals


def one_of_everything() -> tuple[Totals, list[State]]:
    rows = [
        Rows(layout.key, [Row(tuple(f"{name}-1" for name in layout.labels), [1] * layout.width)])
        for layout in LAYOUTS.values()
    ]
    states = [
        State(family.name, tuple(f"{name}-1" for name in family.labels), 1.0)
        for family in FAMILIES.values()
        if family.kind in ("gauge", "info")
    ]
    return totals_of(*rows), states


def received(totals: Totals, states: list[State] | None = None) -> Iterator[ExportMetricsServiceRequest]:
    for message, points in exports(totals, merged(states or [], totals), RESOURCE, now=NOW):
        request = ExportMetricsServiceRequest.FromString(message)
        assert sum(map(points_in, metrics_of(request))) == points
        yield request


def metrics_of(request: ExportMetricsServiceRequest) -> list[Metric]:
    (resource,) = request.resource_metrics
    assert {one.key: one.value.string_value for one in resource.resource.attributes} == RESOURCE
    (scope,) = resource.scope_metrics
    return list(scope.metrics)


def points_in(metric: Metric) -> int:
    return len(metric.sum.data_points) + len(metric.gauge.data_points) + len(metric.histogram.data_points)


def all_metrics(totals: Totals, states: list[State] | None = None) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for request in received(totals, states):
        for metric in metrics_of(request):
            assert metric.name not in found, "so few points are one metric's in one message"
            found[metric.name] = metric
    return found


def prometheus_name(metric: Metric) -> str:
    """As Prometheus' receiver makes it (OpenMetrics compatibility, prometheus/otlptranslator)."""
    unit = {"s": "_seconds", "By": "_bytes", "": ""}[metric.unit]
    total = "_total" if metric.sum.is_monotonic else ""
    return metric.name + unit + total


def attributes(point: NumberDataPoint | HistogramDataPoint) -> dict[str, str]:
    return {one.key: one.value.string_value for one in point.attributes}


def test_every_family_arrives_under_its_name_with_its_labels() -> None:
    metrics = all_metrics(*one_of_everything())
    names = {prometheus_name(metric): metric for metric in metrics.values()}
    infos = {family.name for family in FAMILIES.values() if family.kind == "info"}
    assert FAMILIES.keys() - infos == names.keys() - {name.removesuffix("_info") for name in infos}
    for name, metric in names.items():
        family = FAMILIES[name] if name in FAMILIES else FAMILIES[f"{name}_info"]
        points = metric.sum.data_points or metric.gauge.data_points or metric.histogram.data_points
        for point in points:
            assert tuple(attributes(point)) == family.labels


def test_sums_are_cumulative_monotonic_and_begin_when_their_series_was_born() -> None:
    numbers = SCOPE.zeros()
    numbers[SCOPE.at(families.REQUESTS, "ok")] = 7
    metric = all_metrics(totals_of(Rows(SCOPE.key, [Row(("acme", "apollo", "tiny"), numbers)])))["saltgate_requests"]
    assert metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert metric.sum.is_monotonic
    (point,) = metric.sum.data_points
    labels = {"workspace": "acme", "project": "apollo", "model": "tiny", "outcome": "ok"}
    assert (point.as_int, attributes(point)) == (7, labels)
    assert (point.start_time_unix_nano, point.time_unix_nano) == (round(BORN * 1e9), round(NOW * 1e9))


def test_a_histogram_has_its_counts_each_by_itself_and_its_exemplars() -> None:
    at = MODEL.at(families.MODEL_DURATION, "ok")
    numbers = MODEL.zeros()
    numbers[at], numbers[at + 2], numbers[at + 14], numbers[at + 15] = 3, 2, 1, 100.5
    exemplar = Exemplar(at + 14, "ab" * 16, 99.0, 1_796_000_030.25)
    totals = totals_of(Rows(MODEL.key, [Row(("tiny",), numbers, (exemplar,))]))
    metric = all_metrics(totals)["saltgate_request_duration"]
    assert metric.unit == "s"
    (point,) = [one for one in metric.histogram.data_points if attributes(one)["outcome"] == "ok"]
    assert [one for one in metric.histogram.data_points if one.exemplars] == [point]
    assert list(point.bucket_counts) == [3, 0, 2, *[0] * 11, 1]
    assert list(point.explicit_bounds) == list(families.MODEL_BUCKETS)
    assert (point.count, point.sum) == (6, 100.5)
    (told,) = point.exemplars
    assert (told.trace_id.hex(), told.as_double, told.time_unix_nano) == ("ab" * 16, 99.0, 1_796_000_030_250_000_000)


def test_pseudonyms_hide_names_here_too() -> None:
    totals = totals_of(Rows(SCOPE.key, [Row(("acme", "apollo", "tiny"), SCOPE.zeros())]))
    totals.rename(Pseudonyms(b"k" * 32))
    (message, _), *_ = exports(totals, {}, RESOURCE, now=NOW)
    assert b"tiny" in message
    assert b"acme" not in message
    assert b"apollo" not in message


def test_very_many_scopes_come_in_many_messages_of_bounded_size() -> None:
    rows = [Row(("acme", f"p{number}", "tiny"), [1] * SCOPE.width) for number in range(2 * MOST_POINTS)]
    totals = totals_of(Rows(SCOPE.key, rows), bounds=Bounds(scopes=len(rows)))
    found = [metric for request in received(totals) for metric in metrics_of(request)]
    assert max(map(points_in, found)) <= MOST_POINTS * 8
    prompts = [metric for metric in found if metric.name == "saltgate_prompt_tokens"]
    projects = [attributes(point)["project"] for metric in prompts for point in metric.sum.data_points]
    assert sorted(projects) == sorted(f"p{number}" for number in range(len(rows)))


def test_states_are_gauges_and_counters_among_them_are_sums() -> None:
    states = [State("saltgate_directory_up", (), 1.0), State("saltgate_worker_deaths_total", (), 2.0)]
    metrics = all_metrics(totals_of(), states)
    (up,) = metrics["saltgate_directory_up"].gauge.data_points
    assert up.as_double == 1.0
    deaths: NumberDataPoint
    (deaths,) = metrics["saltgate_worker_deaths"].sum.data_points
    assert (deaths.as_double, deaths.start_time_unix_nano) == (2.0, round(BORN * 1e9))
