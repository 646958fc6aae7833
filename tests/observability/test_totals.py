"""The sums over all workers: within bounds whatever comes, never falling, never counted twice."""

from __future__ import annotations

import hashlib
import hmac
import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from observability import families
from observability.counted import Counted, Exemplar, Row, Rows
from observability.exposition import PIECE_ROWS, exposition
from observability.layouts import MODEL, SCOPE
from observability.naming import Pseudonyms
from observability.totals import Bounds, Totals

KEY = b"0123456789abcdef0123456789abcdef"
OK = SCOPE.at(families.REQUESTS, "ok")
FIRST = SCOPE.at(families.TIME_TO_FIRST_TOKEN)
FIRST_LINES = len(families.SCOPE_BUCKETS) + 3


@dataclass(slots=True)
class Bed:
    """Totals on clocks that the test moves."""

    bounds: Bounds = field(default_factory=Bounds)
    now: float = 0.0
    totals: Totals = field(init=False)

    def __post_init__(self) -> None:
        self.totals = Totals(self.bounds, monotonic=lambda: self.now, wall_clock=lambda: 1_796_000_000 + self.now)

    def asks(self, project: str, *, times: int = 1, model: str = "tiny", workspace: str = "acme") -> None:
        self.totals.add(Counted([Rows(SCOPE.key, [requests(workspace, project, model, times)])]))

    def page(self, *, open_metrics: bool = False) -> str:
        return "".join(exposition(self.totals, {}, open_metrics=open_metrics))

    def requests(self) -> dict[tuple[str, str, str], int]:
        """Workspace, project and model of each `ok` series."""
        found = re.findall(
            r'^saltgate_requests_total\{workspace="(.*)",project="(.*)",model="(.*)",outcome="ok"\} (\d+)$',
            self.page(),
            re.MULTILINE,
        )
        return {(workspace, project, model): int(count) for workspace, project, model, count in found}

    def value(self, sample: str) -> float:
        (value,) = re.findall(rf"^{re.escape(sample)} (\S+)$", self.page(), re.MULTILINE)
        return float(value)


def requests(workspace: str, project: str, model: str, times: int, exemplars: Sequence[Exemplar] = ()) -> Row:
    numbers = SCOPE.zeros()
    numbers[OK] = times
    return Row((workspace, project, model), numbers, tuple(exemplars))


def test_no_room_is_made_before_somebody_was_idle_long_enough() -> None:
    bed = Bed(Bounds(scopes=2, idle_seconds=3600))
    bed.asks("a", times=5)
    bed.now = 10.0
    bed.asks("b", times=3)
    bed.now = 3600.0
    bed.asks("a")
    bed.asks("c", times=7)  # b was here 3590 s ago
    assert bed.requests() == {("acme", "a", "tiny"): 6, ("acme", "b", "tiny"): 3, ("__other__", "__other__", "tiny"): 7}
    assert bed.value('saltgate_metrics_overflow_total{label="scope"}') == 7
    assert bed.value('saltgate_metrics_evicted_total{label="scope"}') == 0


def test_whoever_was_idle_longest_makes_room_and_his_counts_go_nowhere() -> None:
    bed = Bed(Bounds(scopes=2, idle_seconds=3600))
    bed.asks("a", times=5)
    bed.asks("b", times=3)
    bed.now = 3601.0
    bed.asks("a")
    bed.asks("c", times=7)
    assert bed.requests() == {("acme", "a", "tiny"): 6, ("acme", "c", "tiny"): 7}
    assert bed.value('saltgate_metrics_overflow_total{label="scope"}') == 0
    assert bed.value('saltgate_metrics_evicted_total{label="scope"}') == 1


def test_whoever_asked_a_moment_ago_makes_no_room_however_long_he_has_been_there() -> None:
    bed = Bed(Bounds(scopes=1, models=1, idle_seconds=3600))
    bed.asks("a")
    bed.now = 3600.0
    bed.asks("a")
    bed.now = 3601.0
    bed.asks("b", model="other")
    assert bed.requests() == {("acme", "a", "tiny"): 2, ("__other__", "__other__", "__other__"): 1}


def test_what_ended_before_its_model_was_known_has_no_tokens_to_tell() -> None:
    bed = Bed()
    bed.asks("apollo", model="", times=0)
    numbers = SCOPE.zeros()
    numbers[SCOPE.at(families.REQUESTS, "refused")] = 3
    bed.totals.add(Counted([Rows(SCOPE.key, [Row(("acme", "apollo", ""), numbers)])]))
    samples = [line for line in bed.page().splitlines() if 'model=""' in line]
    labels = '{workspace="acme",project="apollo",model="",outcome="refused"}'
    assert samples == [f"saltgate_requests_total{labels} 3"]


def test_whoever_comes_back_begins_at_zero() -> None:
    """His old counts would be an increase that never was."""
    bed = Bed(Bounds(scopes=1, idle_seconds=60))
    bed.asks("a", times=100)
    bed.now = 61.0
    bed.asks("b")
    bed.now = 200.0
    bed.asks("a", times=2)
    assert bed.requests() == {("acme", "a", "tiny"): 2}
    (row,) = bed.totals.rows(SCOPE)
    assert row.born == 1_796_000_200


def test_no_series_falls_while_it_is_there_whoever_makes_room() -> None:
    bed = Bed(Bounds(scopes=3, models=2, idle_seconds=5))
    before: dict[tuple[str, str, str], int] = {}
    given_up = False
    for step in range(200):
        bed.now = float(step)
        bed.asks(f"p{step * 7 % 11}", model=f"m{step % 3}", times=step % 4)
        after = bed.requests()
        assert all(after[one] >= before[one] for one in before.keys() & after.keys())
        given_up = given_up or bool(before.keys() - after.keys())
        before = after
    assert given_up


def test_a_model_that_makes_room_leaves_every_scope() -> None:
    bed = Bed(Bounds(models=1, idle_seconds=60))
    bed.asks("a", model="old")
    bed.asks("b", model="old")
    bed.now = 61.0
    bed.asks("a", model="new")
    assert bed.requests() == {("acme", "a", "new"): 1}
    assert 'model="old"' not in bed.page()
    assert bed.value('saltgate_metrics_evicted_total{label="model"}') == 1


def test_nobody_and_the_others_are_never_given_up_and_take_no_room() -> None:
    bed = Bed(Bounds(scopes=1, models=1, idle_seconds=60))
    bed.totals.add(Counted([Rows(SCOPE.key, [requests("", "", "", 4)])]))
    bed.asks("a")
    bed.asks("b", times=2)
    bed.now = 1000.0
    bed.asks("c", model="other", times=3)
    assert bed.requests() == {("", "", ""): 4, ("acme", "c", "other"): 3}
    bed.asks("d", model="third", times=5)
    assert bed.requests()["__other__", "__other__", "__other__"] == 5


def test_a_lower_bound_ends_nothing_that_is_in_use() -> None:
    bed = Bed(Bounds(scopes=3, idle_seconds=60))
    for project in "abc":
        bed.asks(project)
    bed.totals.bounds = Bounds(scopes=1, idle_seconds=60)
    bed.asks("a")
    bed.asks("d")
    assert bed.requests()["acme", "a", "tiny"] == 2
    assert bed.requests()["__other__", "__other__", "tiny"] == 1


@pytest.mark.slow
def test_a_hundred_thousand_scopes_and_ten_thousand_models_stay_within_bounds() -> None:
    """All that they asked is counted, and no more is held than the bounds say."""
    bed = Bed(Bounds(scopes=50, models=5))
    tracemalloc.start()
    try:
        for start in range(0, 100_000, 500):
            rows = [requests("acme", f"p{n}", f"m{n % 10_000}", 1) for n in range(start, start + 500)]
            bed.totals.add(Counted([Rows(SCOPE.key, rows)]))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = bed.requests()
    assert sum(counted.values()) == 100_000
    assert len({scope[:2] for scope in counted}) == 51
    assert {model for *_, model in counted} == {"m0", "m1", "m2", "m3", "m4", "__other__"}
    assert len(bed.totals.rows(MODEL)) == 6
    assert held < 8_000_000
    assert bed.value('saltgate_metrics_overflow_total{label="scope"}') == 100_000 - 50


def test_the_page_is_made_in_pieces_that_do_not_grow_with_the_scopes() -> None:
    bed = Bed(Bounds(scopes=3 * PIECE_ROWS))
    rows = [requests("acme", f"p{number}", "tiny", 1) for number in range(3 * PIECE_ROWS)]
    bed.totals.add(Counted([Rows(SCOPE.key, rows)]))
    pieces = list(exposition(bed.totals, {}, open_metrics=False))
    assert sum(piece.count("saltgate_requests_total{") for piece in pieces) == 3 * PIECE_ROWS
    assert max(piece.count("\n") for piece in pieces) <= PIECE_ROWS * FIRST_LINES
    assert all(piece.endswith("\n") for piece in pieces if piece)


def test_over_all_models_the_overhead_is_the_sum_of_theirs() -> None:
    bed = Bed(Bounds(models=1))
    for model in ("a", "b", ""):
        numbers = MODEL.zeros()
        at = MODEL.at(families.MODEL_OVERHEAD, "auth")
        numbers[at], numbers[at + 15] = 2, 0.00002
        bed.totals.add(Counted([Rows(MODEL.key, [Row((model,), numbers)])]))
    assert bed.value('saltgate_overhead_seconds_count{stage="auth"}') == 6
    assert bed.value('saltgate_overhead_seconds_sum{stage="auth"}') == pytest.approx(0.00006)
    assert bed.value('saltgate_model_overhead_seconds_count{model="__other__",stage="auth"}') == 2
    assert bed.value('saltgate_model_overhead_seconds_count{model="",stage="auth"}') == 2


# Exemplars.


def exemplar(trace: int, *, time: float, bucket: int = 0, value: float = 0.05) -> Exemplar:
    return Exemplar(FIRST + bucket, f"{trace:032x}", value, time)


def test_an_exemplar_stands_at_its_bucket_in_open_metrics_only() -> None:
    bed = Bed()
    row = requests("acme", "a", "tiny", 1, [exemplar(7, time=1_796_000_001.25, bucket=1, value=0.09)])
    row.increases[FIRST + 1] = 1
    bed.totals.add(Counted([Rows(SCOPE.key, [row])]))
    line = 'saltgate_time_to_first_token_seconds_bucket{workspace="acme",project="a",model="tiny",le="0.16"} 1'
    assert f'{line} # {{trace_id="{7:032x}"}} 0.09 1796000001.250\n' in bed.page(open_metrics=True)
    assert bed.page(open_metrics=True).count(" # {") == 1
    assert f"{line}\n" in bed.page()
    assert "trace_id" not in bed.page()


def test_of_two_workers_exemplars_the_newer_one_stands_whoever_tells_first() -> None:
    bed = Bed()
    for trace, time in ((1, 20.0), (2, 30.0), (3, 25.0)):
        bed.totals.add(Counted([Rows(SCOPE.key, [requests("acme", "a", "tiny", 1, [exemplar(trace, time=time)])])]))
    assert re.findall(r'trace_id="0*(\d+)"', bed.page(open_metrics=True)) == ["2"]


def test_exemplars_are_bounded_and_the_oldest_go_first() -> None:
    bed = Bed(Bounds(exemplars=20))
    for number in range(30):
        row = requests("acme", f"p{number}", "tiny", 0, [exemplar(number, time=float(number))])
        bed.totals.add(Counted([Rows(SCOPE.key, [row])]))
    kept = [one for row in bed.totals.rows(SCOPE) for one in row.exemplars.values()]
    assert len(kept) == 20
    assert min(one.time for one in kept) == 10.0


def test_the_exemplars_of_a_scope_that_made_room_take_none_of_its_successors() -> None:
    bed = Bed(Bounds(scopes=1, idle_seconds=60))
    for now in (0.0, 100.0, 200.0):
        bed.now = now
        project = "a" if now != 100.0 else "b"
        row = requests("acme", project, "tiny", 1, [exemplar(int(now), time=now)])
        bed.totals.add(Counted([Rows(SCOPE.key, [row])]))
    (row_of_a,) = bed.totals.rows(SCOPE)
    assert [one.time for one in row_of_a.exemplars.values()] == [200.0]


# Names.


def test_pseudonyms_are_the_documented_hmac_and_hide_both_names() -> None:
    def of(text: str) -> str:
        return hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()[:12]

    bed = Bed()
    bed.asks("apollo")
    bed.totals.rename(Pseudonyms(KEY))
    bed.asks("apollo")
    bed.asks("ares")
    assert bed.requests() == {
        (of("acme"), of("acme/apollo"), "tiny"): 2,
        (of("acme"), of("acme/ares"), "tiny"): 1,
    }
    assert not re.search("acme|apollo|ares", bed.page(open_metrics=True))


def test_the_same_project_in_two_workspaces_has_two_pseudonyms_and_nobody_has_none() -> None:
    bed = Bed(Bounds(scopes=2))
    bed.totals.rename(Pseudonyms(KEY))
    for workspace, project in (("a", "p"), ("b", "p"), ("c", "p"), ("", "")):
        bed.asks(project, workspace=workspace)
    scopes = {scope[:2] for scope in bed.requests()}
    assert {("", ""), ("__other__", "__other__")} < scopes
    assert len({project for _, project in scopes}) == 4


def test_a_key_is_never_shown() -> None:
    assert KEY.decode() not in repr(Pseudonyms(KEY))
