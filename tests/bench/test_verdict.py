"""Has a gate given everything back? (verdict.py)"""

from dataclasses import replace

import pytest

from tests.bench.verdict import Rest, WorkerRest, faults_of_log, faults_of_rest, under_way

WORKER = WorkerRest(memory=100_000_000, descriptors=20, tasks=5)
REST = Rest({7: WORKER}, {"saltgate_active_streams": 0.0}, 0)


def worse(**changed: int) -> Rest:
    return replace(REST, workers={7: replace(WORKER, **changed)})


def test_a_gate_that_is_back_where_it_was_has_no_faults() -> None:
    assert list(faults_of_rest(REST, REST)) == []
    assert list(faults_of_rest(REST, worse(memory=110_000_000, descriptors=22, tasks=6))) == []


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (worse(memory=130_000_000), "memory of worker 7: 100.0 MB became 130.0 MB"),
        (worse(descriptors=24), "descriptors of worker 7: 20 became 24"),
        (worse(tasks=8), "tasks of worker 7: 5 became 8"),
        (replace(REST, under_way={"saltgate_active_streams": 2.0}), "saltgate_active_streams is 2 at rest"),
        (replace(REST, engines_active=1), "1 requests still run at the engines"),
        (replace(REST, workers={8: WORKER}), "the workers are others: [7] became [8]"),
    ],
)
def test_whatever_is_not_back_is_a_fault(end: Rest, told: str) -> None:
    assert list(faults_of_rest(REST, end)) == [told]


def test_gauges_of_what_is_under_way_are_summed_over_their_labels() -> None:
    page = """# TYPE saltgate_active_streams gauge
saltgate_active_streams{model="a"} 2
saltgate_active_streams{model="b"} 3
saltgate_waiting_requests{engine="a"} 1
saltgate_requests_total{outcome="ok"} 7
saltgate_engine_up{engine="a"} 1
saltgate_queue_wait_seconds_count{model="a"} 4
"""
    assert under_way(page) == {"saltgate_active_streams": 5.0, "saltgate_waiting_requests": 1.0}


def test_a_line_of_level_error_is_a_fault_unless_it_was_announced() -> None:
    lines = ['{"level":"info","event":"a"}', '{"level":"error","event":"b"}', '{"level":"error","event":"c"}']
    assert list(faults_of_log(lines, frozenset({"c"}))) == ['{"level":"error","event":"b"}']


def test_a_traceback_is_a_fault_inside_and_outside_of_log_lines() -> None:
    inside = '{"level":"warning","event":"x","exception":"Traceback (most recent call last): …"}'
    assert list(faults_of_log([inside, "Traceback (most recent call last):"])) == [
        inside,
        "Traceback (most recent call last):",
    ]
