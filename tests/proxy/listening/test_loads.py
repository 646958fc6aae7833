"""Whose turn it is: the rule, and the page of memory that workers share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proxy.listening.loads import ABSENT, LoadPage, Loads, load_page, most_to_take


@pytest.mark.parametrize(
    ("connections", "most"),
    [
        ([0, 0], 0),
        ([3, 5], 3),
        ([ABSENT, 5], 5),  # who is not there is not waited for
        ([200, 220], 212),  # a few percent are no difference
        ([15, 40], 15),
        ([16, 40], 17),
        ([ABSENT], 0),
    ],
)
def test_whoever_has_little_more_than_the_least_may_take_one(connections: list[int], most: int) -> None:
    assert most_to_take(connections) == most


@pytest.fixture
def page() -> Iterator[LoadPage]:
    made = load_page(3)
    yield made
    made.close()


def is_rung(loads: Loads) -> bool:
    try:
        return os.eventfd_read(loads.bell) > 0
    except BlockingIOError:
        return False


def test_each_sees_what_the_others_have(page: LoadPage) -> None:
    with closing(Loads(page, 0)) as one, closing(Loads(page, 1)) as other:
        one.tell(1)
        assert one.may_take()  # nobody else is there
        other.tell(0)
        assert not one.may_take()
        assert other.may_take()
        other.tell(1)
        assert one.may_take()


def test_a_resting_worker_is_woken_when_it_becomes_its_turn_and_not_before(page: LoadPage) -> None:
    with closing(Loads(page, 0)) as one, closing(Loads(page, 1)) as other:
        one.tell(2)
        other.tell(0)
        one.rest(True)
        other.tell(1)
        assert not is_rung(one)
        other.tell(2)
        assert is_rung(one)
        one.rest(False)
        other.tell(3)
        assert not is_rung(one)  # it looks for itself


def test_one_that_leaves_wakes_those_who_left_their_connections_to_it(page: LoadPage) -> None:
    with closing(Loads(page, 0)) as one, closing(Loads(page, 1)) as other:
        one.tell(2)
        other.tell(0)
        one.rest(True)
        other.leave()
        assert is_rung(one)
        assert one.may_take()


def test_a_bell_that_was_heard_is_heard_once(page: LoadPage) -> None:
    with closing(Loads(page, 2)) as loads:
        loads.heard()
        os.eventfd_write(loads.bell, 1)
        loads.heard()
        assert not is_rung(loads)


def test_nothing_of_a_page_stays_open() -> None:
    before = set(Path("/proc/self/fd").iterdir())
    page = load_page(4)
    Loads(page, 0).close()
    page.close()
    assert set(Path("/proc/self/fd").iterdir()) == before
