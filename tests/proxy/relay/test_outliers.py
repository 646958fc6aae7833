"""When a replica is left alone, for how long, how it comes back, and who cannot bring it about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.relay.outliers import (
    FAILURES,
    FIRST_SECONDS,
    LONGEST_SECONDS,
    MAXIMUM_CALLERS,
    RETURN_SECONDS,
    Outliers,
)

FOUR = ("a", "b", "c", "d")
TWO = ("a", "b")


def break_off(outliers: Outliers, replica: str, now: float, among: tuple[str, ...] = FOUR) -> float | None:
    """As many connections that cannot be made as are too many."""
    return [outliers.unreachable(replica, among, now) for _ in range(FAILURES)][-1]


def fail(outliers: Outliers, replica: str, caller: str, now: float, among: tuple[str, ...] = FOUR) -> float | None:
    return [outliers.failed(replica, caller, among, now) for _ in range(FAILURES)][-1]


def test_one_failure_less_than_too_many_ejects_nobody() -> None:
    outliers = Outliers()
    for _ in range(FAILURES - 1):
        assert outliers.unreachable("a", FOUR, 0.0) is None
    assert outliers.weight("a", "acme", 0.0) == 1.0
    assert outliers.unreachable("a", FOUR, 0.0) == FIRST_SECONDS
    assert outliers.weight("a", "acme", 0.0) == 0.0
    assert outliers.ejected(0.0) == {"a"}


def test_an_answer_in_between_makes_the_count_begin_anew() -> None:
    outliers = Outliers()
    for _ in range(FAILURES * 3):
        for _ in range(FAILURES - 1):
            outliers.unreachable("a", FOUR, 0.0)
            outliers.failed("a", "acme", FOUR, 0.0)
        outliers.answered("a", "acme")
    assert outliers.weight("a", "acme", 0.0) == 1.0


def test_it_comes_back_slowly_and_is_told_once() -> None:
    outliers = Outliers()
    break_off(outliers, "a", 0.0)
    assert outliers.weight("a", "acme", FIRST_SECONDS - 0.01) == 0.0
    assert outliers.returned(FIRST_SECONDS - 0.01) == frozenset()
    weights = [outliers.weight("a", "acme", FIRST_SECONDS + part * RETURN_SECONDS) for part in (0, 0.25, 0.5, 1, 9)]
    assert weights == pytest.approx([0.1, 0.325, 0.55, 1.0, 1.0])
    assert outliers.returned(FIRST_SECONDS) == {"a"}
    assert outliers.returned(FIRST_SECONDS) == frozenset()


def test_while_it_comes_back_one_failure_is_enough_and_the_time_doubles_up_to_a_limit() -> None:
    outliers, now = Outliers(), 0.0
    times: list[float] = []
    seconds = break_off(outliers, "a", now)
    while seconds is not None and len(times) < 8:
        times.append(seconds)
        now += seconds + RETURN_SECONDS / 2
        seconds = outliers.unreachable("a", FOUR, now)
    assert times == [10, 20, 40, 80, 160, 300, 300, 300]


def test_what_was_long_ago_is_forgotten() -> None:
    outliers = Outliers()
    break_off(outliers, "a", 0.0)
    later = FIRST_SECONDS + LONGEST_SECONDS + 1
    for _ in range(FAILURES - 1):
        assert outliers.unreachable("a", FOUR, later) is None
    assert outliers.unreachable("a", FOUR, later) == FIRST_SECONDS


def test_what_was_under_way_when_it_was_ejected_makes_it_no_longer() -> None:
    outliers = Outliers()
    break_off(outliers, "a", 0.0)
    fail(outliers, "b", "acme", 0.0)
    for _ in range(FAILURES * 3):
        assert outliers.unreachable("a", FOUR, 1.0) is None
        assert outliers.failed("b", "acme", FOUR, 1.0) is None
    assert outliers.weight("a", "acme", FIRST_SECONDS) > 0.0
    assert outliers.weight("b", "acme", FIRST_SECONDS) > 0.0


@pytest.mark.parametrize(("among", "most"), [(("a",), 0), (TWO, 1), (("a", "b", "c"), 1), (FOUR, 2)])
def test_never_more_than_half_of_them_and_never_the_last(among: tuple[str, ...], most: int) -> None:
    outliers = Outliers()
    for replica in among:
        break_off(outliers, replica, 0.0, among)
    assert len(outliers.ejected(0.0)) == most


def test_where_others_may_not_be_asked_the_last_that_may_is_kept() -> None:
    outliers = Outliers()
    break_off(outliers, "a", 0.0)
    assert break_off(outliers, "b", 0.0, ("a", "b")) is None


def test_no_caller_alone_takes_a_replica_from_the_others() -> None:
    outliers = Outliers()
    for number in range(1000):
        assert outliers.failed("a", "mallory", FOUR, number / 1000) is None
    assert outliers.weight("a", "mallory", 1.0) == 0.0
    assert outliers.weight("a", "acme", 1.0) == 1.0
    assert outliers.ejected(1.0) == frozenset()


def test_what_two_callers_find_holds_for_all() -> None:
    outliers = Outliers()
    assert fail(outliers, "a", "acme", 0.0) is None
    assert fail(outliers, "a", "globex", 1.0) == FIRST_SECONDS
    assert outliers.weight("a", "initech", 1.0) == 0.0


def test_a_caller_for_which_all_replicas_fail_keeps_one() -> None:
    """Then it is what it sends: it must not be left with none, nor take any from the others."""
    outliers = Outliers()
    for replica in FOUR * 3:
        fail(outliers, replica, "mallory", 0.0)
    assert sum(outliers.weight(replica, "mallory", 0.0) > 0 for replica in FOUR) == 1


def test_callers_do_not_pile_up() -> None:
    outliers = Outliers()
    for number in range(MAXIMUM_CALLERS * 2):
        outliers.failed("a", f"caller-{number}", FOUR, 0.0)
    assert len(outliers._for_caller) == MAXIMUM_CALLERS


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["unreachable", "failed", "answered"]),
            st.sampled_from(FOUR),
            st.sampled_from(["acme", "globex"]),
            st.floats(0.0, 60.0),
        ),
        max_size=200,
    )
)
def test_whatever_happens_a_caller_has_somewhere_to_go(steps: list[tuple[str, str, str, float]]) -> None:
    outliers, now = Outliers(), 0.0
    for what, replica, caller, passed in steps:
        now += passed
        match what:
            case "unreachable":
                outliers.unreachable(replica, FOUR, now)
            case "failed":
                outliers.failed(replica, caller, FOUR, now)
            case _:
                outliers.answered(replica, caller)
        assert len(outliers.ejected(now)) <= 2
        assert all(0.0 <= outliers.weight(one, caller, now) <= 1.0 for one in FOUR)
