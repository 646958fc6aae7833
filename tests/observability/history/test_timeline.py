from __future__ import annotations

import random
from collections import Counter

import pytest

from observability.history.tally import Tally, bucket_of, quantile
from observability.history.timeline import LEVELS, Timeline
from tests.observability.history.summaries import summary

START = 1_700_000_000


def by_slot(timeline: Timeline, level: int, since: int = 0) -> Counter[int]:
    found: Counter[int] = Counter()
    for slot, tally in timeline.at(level, since):
        found[slot] += tally.requests
    return found


@pytest.mark.parametrize("seed", range(5))
def test_every_level_has_each_request_once_in_its_slot(seed: int) -> None:
    chance, timeline, now = random.Random(seed), Timeline(), START
    times = []
    for _ in range(400):
        now += chance.choice((0, 0, 1, 7, 15, 61, 400, 1500))
        timeline.count(summary(), now)
        times.append(now)
        level = chance.randrange(len(LEVELS))
        seconds, kept = LEVELS[level].seconds, LEVELS[level].kept
        since = now // seconds - kept + 1
        expected = Counter(time // seconds for time in times if time // seconds >= since)
        assert by_slot(timeline, level, since) == expected


def test_what_is_kept_is_bounded_however_long_it_goes_on() -> None:
    timeline = Timeline()
    for minute in range(0, 4 * 24 * 60, 1):
        timeline.count(summary(), START + minute * 60)
    assert timeline.slots <= sum(level.kept + 1 for level in LEVELS)
    timeline.trim(START + 30 * 24 * 3600)
    assert timeline.slots == 0


def test_a_clock_that_goes_back_loses_nothing() -> None:
    timeline = Timeline()
    for now in (START + 100, START + 10, START + 3000, START):
        timeline.count(summary(), now)
    assert sum(by_slot(timeline, 3).values()) == 4


def test_one_that_takes_up_another_has_the_sum_of_both_in_each_slot() -> None:
    one, other = Timeline(), Timeline()
    for number in range(200):
        one.count(summary(), START + number * 9)
        other.count(summary(), START + number * 31)
    expected = [by_slot(one, level) + by_slot(other, level) for level in range(len(LEVELS))]
    one.absorb(other)
    assert [by_slot(one, level) for level in range(len(LEVELS))] == expected


def test_a_packed_tally_is_the_same_again_and_small() -> None:
    tally = Tally()
    for number in range(50):
        tally.count(summary(ttft=0.01 * 1.05**number, refusal_code="blocked" if number % 9 == 0 else None))
    packed = tally.pack()
    again = Tally.unpack(packed)
    assert again.pack() == packed
    assert (again.requests, again.reused, again.refusals) == (50, 30000, {"blocked": 6})
    assert len(packed) < 200
    with pytest.raises(ValueError):
        Tally.unpack(b"\x90")


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_quantile_is_within_five_percent_of_the_true_one(share: float) -> None:
    chance = random.Random(1)
    times = sorted(chance.lognormvariate(-1.5, 1.2) for _ in range(5000))
    counts = Counter(bucket_of(time) for time in times)
    true = times[int(share * len(times)) - 1]
    found = quantile(counts, share)
    assert found is not None
    assert abs(found / true - 1) < 0.05


def test_times_beyond_every_bucket_still_count() -> None:
    assert [bucket_of(time) for time in (0.0, -1.0, 1e-9, 1e9)] == [0, 0, 0, 200]
    assert quantile({}, 0.5) is None


def test_what_is_unknown_is_no_zero() -> None:
    tally = Tally()
    tally.count(summary(reused_tokens=None))
    tally.count(summary(prompt_tokens=None, reused_tokens=None, output_tokens=None, ttft=None))
    assert (tally.prompt, tally.reuse_rate) == (1000, None)
    tally.count(summary(prompt_tokens=100, reused_tokens=50))
    assert (tally.prompt, tally.reuse_rate) == (1100, 0.5)
