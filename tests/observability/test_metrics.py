"""The metrics: names and labels of the contract, counted once, bounded, merged, and readable by a Prometheus."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from observability import layouts, names
from observability.counted import Counted, Row, Rows, State, handed_over
from observability.exposition import exposition, merged, prefers_open_metrics
from observability.families import FAMILIES
from observability.layouts import OWN, Layout
from observability.metrics import Metrics
from observability.names import OUTCOMES, Outcome
from observability.totals import Bounds, Totals
from proxy.refusals import Refusal
from tests.observability.telling import Time, answers, goes_up, recorder, took
from tests.parts.scraped import page_of

SCOPE = {"workspace": "acme", "project": "apollo", "model": "tiny"}


def test_names_and_labels_are_the_contracts() -> None:
    scope = ("workspace", "project", "model")
    contract = {
        "saltgate_requests_total": ("workspace", "project", "model", "outcome"),
        "saltgate_time_to_first_token_seconds": scope,
        "saltgate_prompt_tokens_total": scope,
        "saltgate_reused_prompt_tokens_total": scope,
        "saltgate_reuse_known_prompt_tokens_total": scope,
        "saltgate_output_tokens_total": scope,
        "saltgate_refusals_total": ("code",),
        "saltgate_active_streams": ("model",),
        "saltgate_overhead_seconds": ("stage",),
    }
    assert {name: FAMILIES[name].labels for name in contract} == contract


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_counts_exactly_once(outcome: Outcome) -> None:
    metrics, time = new_metrics(), Time()
    with recorder(metrics, time=time).request(method="POST", route="/v1/chat/completions") as record:
        goes_up(record)
        record.ended(outcome)
    counted = {s.labels["outcome"]: s.value for s in scrape(metrics).of("saltgate_requests_total") if s.value}
    assert counted == {outcome: 1}
    assert scrape(metrics).value("saltgate_request_duration_seconds_count", model="tiny", outcome=outcome) == 1
    assert scrape(metrics).value("saltgate_active_streams", model="tiny") == 0


def test_a_good_stream_leaves_its_tokens_and_times() -> None:
    metrics, time = new_metrics(), Time()
    with recorder(metrics, time=time).request(method="POST", route="/v1/chat/completions") as record:
        took(record, "auth", time, milliseconds=0.2)
        goes_up(record)
        answers(record, time)
    page = scrape(metrics)
    assert page.value("saltgate_requests_total", **SCOPE, outcome="ok") == 1
    assert page.value("saltgate_prompt_tokens_total", **SCOPE) == 120
    assert page.value("saltgate_reused_prompt_tokens_total", **SCOPE) == 96
    assert page.value("saltgate_output_tokens_total", **SCOPE) == 31
    assert page.value("saltgate_time_to_first_token_seconds_count", **SCOPE) == 1
    assert page.value("saltgate_time_to_first_token_seconds_sum", **SCOPE) == pytest.approx(0.052)
    assert page.value("saltgate_model_time_to_first_token_seconds_count", model="tiny", kind="content") == 1
    assert page.value("saltgate_upstream_time_to_first_token_seconds_sum", model="tiny") == pytest.approx(0.05)
    assert page.value("saltgate_time_per_output_token_seconds_sum", model="tiny") == pytest.approx(0.01)
    assert page.value("saltgate_overhead_seconds_sum", stage="auth") == pytest.approx(0.0002)
    assert page.value("saltgate_overhead_seconds_sum", stage="relay") == pytest.approx(0.002)
    assert page.value("saltgate_model_overhead_seconds_count", model="tiny", stage="relay") == 1
    assert page.value("saltgate_time_to_first_content_seconds_sum", model="tiny") == pytest.approx(0.052)
    # Four events: 202 ms, 98 ms, and two of one read.
    assert page.value("saltgate_inter_chunk_seconds_count", model="tiny") == 3
    assert page.value("saltgate_inter_chunk_seconds_sum", model="tiny") == pytest.approx(0.3)
    assert page.value("saltgate_inter_chunk_seconds_bucket", model="tiny", le="0.0025") == 1
    assert page.value("saltgate_inter_chunk_seconds_bucket", model="tiny", le="0.1") == 2
    assert page.value("saltgate_largest_gap_seconds_count", model="tiny") == 1
    assert page.value("saltgate_largest_gap_seconds_sum", model="tiny") == pytest.approx(0.202)
    assert page.value("saltgate_queue_wait_seconds_count", model="tiny") == 0
    assert page.value("saltgate_usage_unknown_total", model="tiny", reason="not_told") == 0


def test_who_waited_for_a_place_is_counted_with_his_wait() -> None:
    metrics, time = new_metrics(), Time()
    with recorder(metrics, time=time).request(method="POST", route="/v1/chat/completions") as record:
        took(record, "queue", time, milliseconds=700)
        goes_up(record)
        answers(record, time)
    page = scrape(metrics)
    assert page.value("saltgate_queue_wait_seconds_sum", model="tiny") == pytest.approx(0.7)
    assert page.value("saltgate_queue_wait_seconds_count", model="tiny") == 1
    assert page.value("saltgate_overhead_seconds_sum", stage="queue") == pytest.approx(0.7)


def test_only_a_request_whose_trace_is_kept_is_an_exemplar_and_of_each_of_its_times() -> None:
    kept: set[str] = set()
    metrics, time = Metrics(version="1", drops={}, traced=lambda record: record.request_id in kept), Time()
    traces = []
    for is_kept in (False, True):
        with recorder(metrics, time=time).request(method="POST", route="/v1/chat/completions") as record:
            goes_up(record)
            if is_kept:
                kept.add(record.request_id)
                traces.append(record.trace_id)
            answers(record, time)
    page = page_of(metrics, open_metrics=True)
    found = re.findall(r'^(\w+)_bucket\{.*\} \d+ # \{trace_id="(\w+)"\}', page, re.MULTILINE)
    assert {trace for _, trace in found} == set(traces)
    assert sorted(name for name, _ in found) == [
        "saltgate_largest_gap_seconds",
        "saltgate_model_time_to_first_token_seconds",
        "saltgate_request_duration_seconds",
        "saltgate_time_per_output_token_seconds",
        "saltgate_time_to_first_content_seconds",
        "saltgate_time_to_first_token_seconds",
        "saltgate_upstream_time_to_first_token_seconds",
    ]


def test_a_worker_that_nobody_asks_holds_no_more_than_its_bounds() -> None:
    metrics = Metrics(version="1", drops={}, most_scopes=3, most_models=2)
    for number in range(50):
        with recorder(metrics).request(method="POST", route="/v1/x") as record:
            goes_up(record, project=f"p{number}", model=f"m{number}")
            record.ended("ok")
    mine = (layouts.SCOPE.key, layouts.MODEL.key)
    rows = [len(rows.rows) for piece in metrics.told() for rows in piece.counts if rows.layout in mine]
    assert sum(rows) <= 3 + 1 + 2 + 1 + 1
    assert len(list(metrics.told())[-1].states or ()) < 10


def test_how_late_the_loop_was_is_the_worst_workers() -> None:
    workers = [new_metrics(), new_metrics()]
    workers[0].loop_lag(0.002, latest=0.3)
    workers[1].loop_lag(0.001, latest=0.02)
    page = page_of_all(workers)
    assert page.value("saltgate_event_loop_lag_max_seconds") == 0.3
    assert page.value("saltgate_event_loop_lag_seconds_count") == 2


def test_what_is_counted_elsewhere_is_told_as_increases() -> None:
    metrics = new_metrics()
    for closed, told in ((2, 2), (2, 2), (5, 5)):
        metrics.connections(1, limit=10, closed={"idle": closed})
        assert scrape(metrics).value("saltgate_connections_closed_total", reason="idle") == told


def test_series_are_born_with_zero_when_the_request_goes_up() -> None:
    metrics = new_metrics()
    with recorder(metrics).request(method="POST", route="/v1/chat/completions") as record:
        goes_up(record)
        page = scrape(metrics)
        record.ended("ok")
    assert page.value("saltgate_requests_total", **SCOPE, outcome="ok") == 0
    assert page.value("saltgate_prompt_tokens_total", **SCOPE) == 0
    assert page.value("saltgate_time_to_first_token_seconds_count", **SCOPE) == 0
    assert page.value("saltgate_streams_without_token_total", model="tiny", reason="client_gone") == 0
    assert page.value("saltgate_active_streams", model="tiny") == 1


def test_a_refused_request_never_labels_with_what_it_only_claimed() -> None:
    metrics = new_metrics()
    with recorder(metrics).request(method="POST", route="/v1/chat/completions") as record:
        record.asked("chat", "claimed-model", stream=True)
        record.refused("not_a_member", 403)
    page = scrape(metrics)
    assert page.value("saltgate_requests_total", workspace="", project="", model="", outcome="refused") == 1
    assert page.value("saltgate_refusals_total", code="not_a_member") == 1
    assert "claimed" not in page.text


def test_who_waited_in_vain_counts_under_his_model_which_is_served() -> None:
    metrics, time = new_metrics(), Time()
    with recorder(metrics, time=time).request(method="POST", route="/v1/chat/completions") as record:
        record.scoped("acme", "apollo")
        record.asked("chat", "tiny", stream=True)
        record.served()
        took(record, "queue", time, milliseconds=700)
        record.refused("engine_busy", 503, "waited_too_long")
    page = scrape(metrics)
    assert page.value("saltgate_requests_total", **SCOPE, outcome="refused") == 1
    assert page.value("saltgate_queue_wait_seconds_sum", model="tiny") == pytest.approx(0.7)
    assert page.value("saltgate_model_overhead_seconds_count", model="tiny", stage="queue") == 1
    assert page.value("saltgate_streams_without_token_total", model="tiny", reason="refused") == 1
    # It went up to no engine: it has no time at one, its tokens are not unknown, and no stream of it was ever open.
    assert page.value("saltgate_request_duration_seconds_count", model="tiny", outcome="refused") == 0
    assert page.value("saltgate_usage_unknown_total", model="tiny", reason="refused") == 0
    assert not page.of("saltgate_active_streams")


def test_a_stream_counts_without_a_token_once_wherever_it_ended() -> None:
    metrics, time = new_metrics(), Time()
    for goes, has_token in ((False, False), (True, False), (True, True)):
        with recorder(metrics, time=time).request(method="POST", route="/v1/chat/completions") as record:
            record.asked("chat", "tiny", stream=True)
            record.served()
            if goes:
                goes_up(record)
            if has_token:
                answers(record, time)
            record.ended("client_gone")
    page = scrape(metrics)
    assert page.value("saltgate_streams_without_token_total", model="tiny", reason="client_gone") == 2
    assert sum(s.value for s in page.of("saltgate_streams_without_token_total")) == 2


def test_every_refusal_code_is_exported_as_zero_from_the_start() -> None:
    page = scrape(new_metrics())
    codes = {refusal.code for refusal in _refusals(Refusal)}
    assert codes == names.REFUSAL_CODES
    assert all(page.value("saltgate_refusals_total", code=code) == 0 for code in codes)


def test_an_unknown_refusal_code_makes_no_new_series() -> None:
    metrics = new_metrics()
    with recorder(metrics).request(method="POST", route="/v1/x") as record:
        record.refused("made_up", 400)
    assert scrape(metrics).value("saltgate_refusals_total", code="__other__") == 1
    assert "made_up" not in scrape(metrics).text


def test_unknown_usage_is_counted_as_unknown_and_not_as_no_tokens() -> None:
    metrics, time = new_metrics(), Time()
    for usage in ((), (100,), (100, 0, 5)):
        with recorder(metrics, time=time).request(method="POST", route="/v1/x") as record:
            goes_up(record)
            if usage:
                record.used(*usage)
            record.ended("ok")
    page = scrape(metrics)
    assert page.value("saltgate_usage_unknown_total", model="tiny", reason="not_told") == 1
    assert page.value("saltgate_reuse_unknown_total", model="tiny") == 1
    assert page.value("saltgate_prompt_tokens_total", **SCOPE) == 200
    assert page.value("saltgate_reuse_known_prompt_tokens_total", **SCOPE) == 100
    assert page.value("saltgate_streams_without_token_total", model="tiny", reason="empty") == 3


def test_scopes_and_models_over_the_bound_are_counted_as_other() -> None:
    metrics = new_metrics()
    for number in range(10):
        with recorder(metrics).request(method="POST", route="/v1/x") as record:
            goes_up(record, project=f"p{number}", model=f"m{number % 4}")
            record.ended("ok")
    page = Page(page_of(metrics, bounds=Bounds(scopes=3, models=2)))
    projects = {s.labels["project"] for s in page.of("saltgate_requests_total")}
    assert projects == {"p0", "p1", "p2", "__other__"}
    assert {s.labels["model"] for s in page.of("saltgate_active_streams")} == {"m0", "m1", "__other__"}
    assert page.value("saltgate_metrics_overflow_total", label="scope") == 7
    assert page.value("saltgate_metrics_overflow_total", label="model") == 4
    assert sum(s.value for s in page.of("saltgate_requests_total")) == 10
    assert all(s.value == 0 for s in page.of("saltgate_active_streams"))


def test_counts_of_workers_add_up_and_states_are_the_worst_workers() -> None:
    workers = [new_metrics(), new_metrics()]
    for metrics, up in zip(workers, (True, False), strict=True):
        time = Time()
        with recorder(metrics, time=time).request(method="POST", route="/v1/x") as record:
            goes_up(record)
            answers(record, time)
        metrics.engine_up("main", "10.0.0.7:8000", up)
        metrics.directory_up(up)
        metrics.directory_confirmed(1000.0 if up else 900.5)
        metrics.issuer_up("https://i", up)
        metrics.engine_proof("main", "10.0.0.7:8000", "/v1/chat/completions", "proven" if up else "unknown")
    page = page_of_all(workers)
    assert page.value("saltgate_requests_total", **SCOPE, outcome="ok") == 2
    assert page.value("saltgate_time_to_first_token_seconds_bucket", **SCOPE, le="0.08") == 2
    assert page.value("saltgate_engine_up", engine="main", replica="10.0.0.7:8000") == 0
    assert page.value("saltgate_directory_up") == 0
    assert page.value("saltgate_directory_confirmed_timestamp_seconds") == 900.5
    assert page.value("saltgate_issuer_up", issuer="https://i") == 0
    assert page.value("saltgate_build_info", version="0.1.0") == 1
    proof = {s.labels["state"]: s.value for s in page.of("saltgate_engine_proof")}
    assert proof == {"proven": 1, "unknown": 1, "failed": 0, "no cache": 0}


def test_an_isolation_violation_is_an_increase_from_a_zero_that_was_there_before() -> None:
    metrics = new_metrics()
    before = scrape(metrics).value("saltgate_isolation_violations_total", check="salt_in_answer")
    metrics.isolation_violation("salt_in_answer")
    after = scrape(metrics).value("saltgate_isolation_violations_total", check="salt_in_answer")
    assert (before, after) == (0, 1)


def test_a_replica_that_is_never_probed_has_its_counts_at_zero() -> None:
    metrics = new_metrics()
    metrics.engine_up("main", "r", up=True)
    page = scrape(metrics)
    for name in ("probes_total", "probe_prompt_tokens_total"):
        assert page.value(f"saltgate_engine_{name}", engine="main", replica="r") == 0


def test_a_proof_that_changes_leaves_its_old_state() -> None:
    metrics = new_metrics()
    metrics.engine_proof("main", "r", "/v1/chat/completions", "proven")
    metrics.engine_proof("main", "r", "/v1/chat/completions", "failed")
    states = {s.labels["state"]: s.value for s in scrape(metrics).of("saltgate_engine_proof")}
    assert states == {"proven": 0, "unknown": 0, "failed": 1, "no cache": 0}


def test_a_worker_that_ended_keeps_its_counts_and_loses_its_states() -> None:
    ended, metrics, totals = new_metrics(), new_metrics(), new_totals()
    with recorder(ended).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        ended.directory_up(False)
        record.ended("ok")
    told(ended, totals)
    metrics.directory_up(True)
    page = Page("".join(exposition(totals, merged(told(metrics, totals), totals), open_metrics=False)))
    assert page.value("saltgate_directory_up") == 1
    assert not page.of("saltgate_active_streams")
    assert page.value("saltgate_requests_total", **SCOPE, outcome="ok") == 1


def test_who_has_handed_over_is_counted_and_asked_for_no_view() -> None:
    left, metrics, totals = new_metrics(), new_metrics(), new_totals()
    left.directory_up(False)
    left.certificate(1.0, usable=False)
    metrics.directory_up(True)
    with recorder(left).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        states = [*handed_over(told(left, totals)), *told(metrics, totals)]
        record.ended("ok")
    page = Page("".join(exposition(totals, merged(states, totals), open_metrics=False)))
    assert page.value("saltgate_directory_up") == 1
    assert not page.of("saltgate_tls_certificate_files_usable")
    assert page.value("saltgate_active_streams", model="tiny") == 1
    assert page.of("saltgate_requests_total")


def test_what_is_told_is_told_once() -> None:
    metrics, totals = new_metrics(), new_totals()
    for _ in range(3):
        with recorder(metrics).request(method="POST", route="/v1/x") as record:
            goes_up(record)
            told(metrics, totals)
            record.ended("ok")
        told(metrics, totals)
        told(metrics, totals)
    page = Page("".join(exposition(totals, {}, open_metrics=False)))
    assert page.value("saltgate_requests_total", **SCOPE, outcome="ok") == 3
    assert page.value("saltgate_request_duration_seconds_count", model="tiny", outcome="ok") == 3


def test_what_another_version_tells_is_known_as_far_as_it_is_ours() -> None:
    refusals, unheard = OWN["saltgate_refusals_total"].key, "scope/00000000"
    mixed = Counted(
        [Rows(unheard, [Row((), [1])]), Rows(refusals, [Row(("x",), [2]), Row((), [1]), Row(("y",), [1, 2])])],
        [State("no_such", (), 1.0), State("saltgate_directory_up", (), 1.0), State("saltgate_issuer_up", (), 1.0)],
    )
    counted, is_strange = Counted.decode(mixed.encode())
    assert counted.counts == [Rows(refusals, [Row(("x",), [2])])]
    assert counted.states == [State("saltgate_directory_up", (), 1.0)]
    assert is_strange
    assert Counted.decode(counted.encode()) == (counted, False)
    for nothing in (b"", b"{}", b"\x00"):
        with pytest.raises(ValueError):
            Counted.decode(nothing)


def test_a_layout_with_other_parts_is_another_one() -> None:
    mine = Layout("scope", ("model",), ((FAMILIES["saltgate_reuse_unknown_total"], (), True),))
    theirs = Layout("scope", ("model",), ((FAMILIES["saltgate_active_streams"], (), True),))
    assert mine.key != theirs.key


def test_what_was_lost_on_the_way_is_told() -> None:
    metrics = Metrics(version="0.1.0", drops={"spans": lambda: 3, "logs": lambda: 0})
    assert scrape(metrics).value("saltgate_telemetry_dropped_total", signal="spans") == 3
    assert scrape(metrics).value("saltgate_telemetry_dropped_total", signal="logs") == 0


def test_a_label_cannot_break_out_of_its_quotes() -> None:
    metrics = new_metrics()
    hostile = 'a"} 1\nsaltgate_requests_total{x="\\'
    metrics.issuer_up(hostile, True)
    assert [s.labels["issuer"] for s in scrape(metrics).of("saltgate_issuer_up")] == [hostile]


@pytest.mark.parametrize(
    ("accept", "open_metrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4", True),
        ("application/openmetrics-text; q=0.2, text/plain", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x", False),
    ],
)
def test_the_scraper_chooses_the_format(accept: str, open_metrics: bool) -> None:
    metrics = new_metrics()
    metrics.directory_up(True)
    assert prefers_open_metrics(accept) is open_metrics
    text = page_of(metrics, open_metrics=open_metrics)
    assert text.endswith("# EOF\n") is open_metrics
    assert ("# TYPE saltgate_refusals counter" in text.splitlines()) is open_metrics
    assert ("# TYPE saltgate_build info" in text.splitlines()) is open_metrics
    Page(text)


def new_metrics() -> Metrics:
    return Metrics(version="0.1.0", drops={})


def new_totals(bounds: Bounds | None = None) -> Totals:
    return Totals(bounds or Bounds(), monotonic=lambda: 0.0, wall_clock=lambda: 1_796_000_000.0)


def told(metrics: Metrics, totals: Totals) -> list[State]:
    """What the worker tells is added; its states."""
    states: list[State] = []
    for piece in metrics.told():
        totals.add(piece)
        states += piece.states or []
    return states


def scrape(metrics: Metrics) -> Page:
    return Page(page_of(metrics))


def page_of_all(workers: Sequence[Metrics]) -> Page:
    totals = new_totals()
    states = [state for worker in workers for state in told(worker, totals)]
    return Page("".join(exposition(totals, merged(states, totals), open_metrics=False)))


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    labels: dict[str, str]
    value: float


class Page:
    """A strict reader of both text formats: what it does not understand is an error, and every rule is checked."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: list[Sample] = []
        self._kinds: dict[str, str] = {}
        assert self.text.endswith("\n")
        for line in self.text.removesuffix("# EOF\n").splitlines():
            self._read(line)
        assert len({(s.name, tuple(sorted(s.labels.items()))) for s in self.samples}) == len(self.samples)
        for family, kind in self._kinds.items():
            if kind == "histogram":
                self._check_histogram(family)

    def of(self, name: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.name == name]

    def value(self, name: str, **labels: str) -> float:
        (value,) = [sample.value for sample in self.of(name) if sample.labels == labels]
        return value

    def _read(self, line: str) -> None:
        if head := re.fullmatch(r"# (HELP|TYPE) ([a-z_]+) (.+)", line):
            if head[1] == "TYPE":
                assert head[2] not in self._kinds, "one TYPE a family"
                self._kinds[head[2]] = head[3]
            return
        sample = re.fullmatch(r"([a-z_]+)(?:\{(.*?)\})? ([0-9.e+-]+)(?: # (.*))?", line)
        assert sample is not None, line
        name = sample[1]
        family = next(f for f in (name, *(name.removesuffix(s) for s in SUFFIXES)) if f in self._kinds)
        assert family == list(self._kinds)[-1], "a family's samples stand together"
        self.samples.append(Sample(name, _labels(sample[2] or ""), float(sample[3])))

    def _check_histogram(self, family: str) -> None:
        rows: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        for sample in self.of(f"{family}_bucket"):
            rest = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            rows.setdefault(rest, []).append((float(sample.labels["le"]), sample.value))
        for labels, buckets in rows.items():
            assert buckets == sorted(buckets), "bounds and counts rise"
            assert [count for _, count in buckets] == sorted(count for _, count in buckets)
            assert buckets[-1] == (float("inf"), self.value(f"{family}_count", **dict(labels)))
            assert self.value(f"{family}_sum", **dict(labels)) >= 0


SUFFIXES = ("_bucket", "_sum", "_count", "_total", "_info")


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    while text:
        pair = re.match(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)', text)
        assert pair is not None, text
        assert pair[1] not in labels
        labels[pair[1]] = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], pair[2])
        text = text[pair.end() :]
    return labels


def _refusals(kind: type[Refusal]) -> list[type[Refusal]]:
    return [r for sub in kind.__subclasses__() for r in ([sub] if hasattr(sub, "code") else []) + _refusals(sub)]


def test_a_replica_has_the_version_that_it_tells_now_and_no_other() -> None:
    metrics = Metrics(version="1", drops={})
    for replica, version in (("a", "0.31.0"), ("b", "0.31.0"), ("a", "0.32.0"), ("a", "0.32.0")):
        metrics.engine_version("main", replica, version)
    told = {(s.labels["replica"], s.labels["version"]): s.value for s in scrape(metrics).of("saltgate_engine_info")}
    assert told == {("a", "0.32.0"): 1, ("b", "0.31.0"): 1}


def test_a_rule_counts_a_request_once_and_a_name_that_is_no_rule_makes_no_series() -> None:
    metrics = Metrics(version="1", drops={}, rules=("people", "__over_limit__"))
    name = "saltgate_isolation_rule_matches_total"
    page = page_of(metrics)
    assert f'{name}{{rule="people"}} 0' in page
    assert f'{name}{{rule="__over_limit__"}} 0' in page
    for rules in (("people",), ("people", "unheard-of"), ()):
        with recorder(metrics).request(method="POST", route="/v1/chat/completions") as record:
            record.narrowed(rules)
            record.answered(200)
    page = page_of(metrics)
    assert f'{name}{{rule="people"}} 2' in page
    assert f'{name}{{rule="__other__"}} 1' in page
    assert "unheard-of" not in page
