"""How a figure comes about (rounds.py)."""

import pytest

from tests.bench.rounds import Run, Runs, imbalance, percentile


def quiet(cost: float) -> Run:
    return Run(cost, 0.05, 0.01)


LATE = Run(7.0, 0.31, 0.01)
CROWDED = Run(7.0, None, 0.2)


def test_a_run_is_disturbed_where_its_events_came_late() -> None:
    assert LATE.disturbed()
    assert not Run(7.0, 0.29, 0.01).disturbed()


def test_a_run_is_disturbed_where_the_proxy_waited_for_its_core() -> None:
    assert CROWDED.disturbed()
    assert not Run(7.0, None, 0.1).disturbed()


def test_a_disturbed_run_is_thrown_away_and_measured_again() -> None:
    runs, measured = Runs(), iter([LATE, CROWDED, quiet(20.0), quiet(99.0)])
    runs.add_round(lambda: next(measured))
    assert (runs.cost, runs.thrown_away, runs.kept_disturbed) == (20.0, 2, 0)
    assert next(measured).cost == 99.0


def test_where_every_try_is_disturbed_the_least_disturbed_one_is_kept_and_counted() -> None:
    runs, measured = Runs(), iter([Run(1.0, None, 0.9), Run(2.0, None, 0.2), Run(3.0, None, 0.5)])
    runs.add_round(lambda: next(measured), tries=3)
    assert (runs.cost, runs.thrown_away, runs.kept_disturbed) == (2.0, 2, 1)


def test_the_cost_is_the_median_of_the_rounds() -> None:
    runs = Runs([quiet(30.0), quiet(10.0), quiet(11.0)])
    assert runs.cost == 11.0
    assert runs.spread == (10.0, 30.0)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5.0), (0.9, 9.0), (0.91, 10.0), (1.0, 10.0), (0.0, 1.0)])
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(10, 0, -1)], share) == expected


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_an_even_spread_over_two_is_a_half() -> None:
    assert imbalance([200, 200]) == 0.5
    assert imbalance([100, 300]) == 0.25


def test_nothing_spread_has_no_spread() -> None:
    with pytest.raises(ValueError, match="nothing"):
        imbalance([0, 0])
