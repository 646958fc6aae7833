"""The gaps of a stream are the engine's, each counted once."""

from __future__ import annotations

import pytest

from observability.rhythm import GAP_BUCKETS, Rhythm

MS = 1_000_000


def test_each_gap_falls_into_the_first_bucket_that_holds_it() -> None:
    rhythm, now = Rhythm(), 7
    rhythm.came(1, now)
    for bound in (*GAP_BUCKETS, 31.0):
        now += round(bound * 1e9)
        rhythm.came(1, now)
    assert rhythm.gaps == [1] * (len(GAP_BUCKETS) + 1)
    assert rhythm.gaps_ns == now - 7
    assert rhythm.largest_gap_ns == 31_000 * MS
    assert rhythm.last_ns == now


def test_a_gap_above_a_bound_is_not_below_it() -> None:
    rhythm = Rhythm()
    rhythm.came(1, 0)
    rhythm.came(1, round(GAP_BUCKETS[0] * 1e9) + 1)
    assert rhythm.gaps[:2] == [0, 1]


def test_events_of_one_read_came_at_once() -> None:
    rhythm = Rhythm()
    rhythm.came(3, 0)
    rhythm.came(5, 40 * MS)
    assert sum(rhythm.gaps) == 7
    assert rhythm.gaps[0] == 6
    assert rhythm.gaps_ns == rhythm.largest_gap_ns == 40 * MS


def test_the_first_token_has_no_gap_before_it() -> None:
    rhythm = Rhythm()
    rhythm.came(1, 90_000 * MS)
    assert (sum(rhythm.gaps), rhythm.largest_gap_ns) == (0, 0)


@pytest.mark.parametrize("holds", [1, 2])
def test_while_the_client_takes_nothing_no_gap_is_the_engines(holds: int) -> None:
    rhythm = Rhythm()
    rhythm.came(1, 0)
    rhythm.came(1, 10 * MS)
    for _ in range(holds):
        rhythm.hold(11 * MS)
    assert not rhythm.is_of_engine
    rhythm.came(1, 12 * MS)  # had been read already
    rhythm.release(5_000 * MS)
    rhythm.came(1, 5_001 * MS)
    rhythm.came(1, 5_021 * MS)
    assert (sum(rhythm.gaps), rhythm.gaps_ns, rhythm.largest_gap_ns) == (2, 30 * MS, 20 * MS)
    assert rhythm.held_ns == 4_989 * MS
    assert not rhythm.is_of_engine


def test_a_release_without_a_hold_is_no_hold() -> None:
    rhythm = Rhythm()
    rhythm.came(1, 0)
    rhythm.release(1)
    assert rhythm.is_of_engine
