from __future__ import annotations

import random
from collections import Counter

import pytest

from observability.history.answers import Gate
from observability.history.figures import Around, overview, window_of
from observability.history.history import MOST_MODELS, Bounds, History
from observability.history.kept import MOST_GATES, KeptSlot, Others, slots_of, slots_until
from tests.observability.history.summaries import summary

BOUNDS = Bounds(scopes=20, recent=100, kept=True)
NOW = 1_700_000_000.0 // 1440 * 1440
GATE = Gate(version="1", workers=1, ready=True, waits_for=[], open_streams=0, waiting=0, kept_in="redis")
AROUND = Around(GATE, (), (), {})


def filled(seed: int, until: float) -> History:
    chance, history = random.Random(seed), History(BOUNDS, since=NOW)
    now = NOW
    while now < until:
        history.add(summary(project=chance.choice(("apollo", "ares")), model=chance.choice("ab")), now)
        now += chance.choice((1, 5, 40, 200))
    return history


@pytest.mark.parametrize("window", ["1h", "6h", "24h"])
def test_what_was_kept_by_several_shows_as_what_they_saw(window: str) -> None:
    end = NOW + 5000
    gates = {f"gate{number}": filled(number, end) for number in range(3)}
    others = Others(BOUNDS)
    for at in (NOW + 1000, end):  # written early and again: the later takes the place of the earlier
        for name, history in tuple(gates.items())[1:]:
            for kept in slots_of(history.timelines(), range(int(NOW) // 60, int(at) // 60 + 1)):
                others.take(name, kept)
    seen = overview((gates["gate0"], others), window_of(window, end), AROUND)
    true = overview(gates.values(), window_of(window, end), AROUND)
    assert seen.workspaces == true.workspaces
    assert seen.total == true.total


def test_a_quarter_of_an_hour_has_what_was_kept_of_its_minutes() -> None:
    history, others = filled(1, NOW + 600), Others(BOUNDS)
    for kept in slots_of(history.timelines(), range(int(NOW) // 60, int(NOW) // 60 + 10)):
        others.take("gate", kept)
    seen = overview((History(BOUNDS, since=NOW), others), window_of("15m", NOW + 600), AROUND)
    assert seen.total.requests == overview((history,), window_of("15m", NOW + 600), AROUND).total.requests > 0


def test_what_others_keep_cannot_grow_without_bound() -> None:
    others = Others(BOUNDS)
    for gate in range(MOST_GATES + 5):
        history = History(Bounds(scopes=2000, recent=10), since=NOW)
        for number in range(130):
            history.add(summary(project=f"p{number}"), NOW)
        for kept in slots_of(history.timelines(), [int(NOW) // 60]):
            others.take(f"gate{gate}", kept)
    counts = Counter(key for key, _ in others.timelines())
    assert max(counts.values()) == MOST_GATES
    assert len(counts) == BOUNDS.scopes + MOST_MODELS + 1 + 1
    others.trim(NOW + 60 * 3600)
    assert list(others.timelines()) == []


def test_what_no_gate_of_this_version_keeps_is_refused() -> None:
    others = Others(BOUNDS)
    good = slots_of(filled(1, NOW + 60).timelines(), [int(NOW) // 60])[0]
    for bad in (
        KeptSlot(61, good.slot, good.data),
        KeptSlot(60, good.slot, b"nonsense"),
        KeptSlot(60, good.slot, good.data[:-3]),
    ):
        with pytest.raises(ValueError):
            others.take("gate", bad)
    with pytest.raises(ValueError):
        others.take_request(b"nonsense")


def test_all_that_may_be_kept_is_asked_for_once() -> None:
    slots = slots_until(NOW)
    assert len(slots) == len(set(slots)) == 61 + 61 + 121
    assert max(slot * seconds for seconds, slot in slots) <= NOW


def test_the_outbox_is_bounded_and_empty_where_nothing_is_kept() -> None:
    kept, not_kept = History(BOUNDS, since=NOW), History(Bounds(scopes=1, recent=1), since=NOW)
    for _ in range(1500):
        kept.add(summary(), NOW)
        not_kept.add(summary(), NOW)
    assert (len(kept.outbox), len(not_kept.outbox)) == (1000, 0)
