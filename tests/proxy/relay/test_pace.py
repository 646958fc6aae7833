"""Those whom nobody knows are refused at once while they are few, and in their turn when they are many."""

from __future__ import annotations

import asyncio
import itertools

from hypothesis import given
from hypothesis import strategies as st

from proxy.relay.pace import BURST_SECONDS, HEAD_BYTES, LONGEST_SECONDS, RATE, WAITING_AT_MOST, Pace, Turns

BURST = round(RATE * BURST_SECONDS)
A_FLOOD = 10**9


def test_few_wait_for_nothing() -> None:
    turns = Turns()
    assert {turns.wait(100.0, 500) for _ in range(BURST)} == {0.0}


def test_a_steady_stream_at_the_rate_waits_for_nothing_for_ever() -> None:
    turns = Turns()
    assert max(turns.wait(number / RATE, 500) for number in range(5 * BURST)) < 1e-6


def test_many_at_once_come_one_after_the_other() -> None:
    turns = Turns()
    waits = [turns.wait(100.0, 500) for _ in range(2 * BURST)][BURST:]
    assert waits == sorted(waits)
    assert abs(waits[-1] - BURST / RATE) < 1e-6
    assert all(later - earlier > 0.9 / RATE for earlier, later in itertools.pairwise(waits))


def test_a_large_head_takes_several_turns() -> None:
    small, large = Turns(), Turns()
    for _ in range(BURST):
        small.wait(100.0, HEAD_BYTES - 1)
    for _ in range(BURST // 5):
        large.wait(100.0, 4 * HEAD_BYTES)
    assert abs(small.wait(100.0, 0) - large.wait(100.0, 0)) < 1e-6


def test_nobody_waits_longer_than_the_longest_and_a_flood_is_forgotten_soon_after_it() -> None:
    turns = Turns()
    assert max(turns.wait(100.0, 30_000) for _ in range(100 * BURST)) == LONGEST_SECONDS
    assert turns.wait(100.0 + LONGEST_SECONDS + BURST_SECONDS, 0) == 0.0


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 10**6)), max_size=60))
def test_whatever_comes_when_a_wait_is_within_its_bounds(comings: list[tuple[float, int]]) -> None:
    turns, now = Turns(), 0.0
    for after, head_bytes in comings:
        now += after
        assert 0.0 <= turns.wait(now, head_bytes) <= LONGEST_SECONDS


async def test_only_so_many_are_kept_waiting_and_the_others_end_at_once() -> None:
    pace = Pace()
    waiting = [asyncio.create_task(pace.turn(A_FLOOD)) for _ in range(WAITING_AT_MOST)]
    await asyncio.sleep(0)
    assert not await pace.turn()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert pace.waiting == 0


async def test_at_the_end_of_the_worker_nobody_waits_any_more() -> None:
    pace = Pace()
    waiting = [asyncio.create_task(pace.turn(A_FLOOD)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    pace.end()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await pace.turn(A_FLOOD)
