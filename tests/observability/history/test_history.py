from __future__ import annotations

import random
from collections import Counter

from observability.history.answers import Gate, Overview
from observability.history.figures import Around, found, overview, scope_view, window_of
from observability.history.history import IDLE_SECONDS, Bounds, History
from observability.history.recent import Recent
from observability.names import OTHER
from tests.observability.history.summaries import summary

NOW = 1_700_000_000.0


def around(**open_streams: int) -> Around:
    gate = Gate(version="1", workers=2, ready=True, waits_for=[], open_streams=0, waiting=0, kept_in="memory")
    scopes = {("acme", project): number for project, number in open_streams.items()}
    return Around(gate, (), (), scopes)


def shown(history: History, now: float = NOW, window: str = "15m", **open_streams: int) -> Overview:
    return overview((history,), window_of(window, now), around(**open_streams))


def test_sums_add_up_from_projects_over_workspaces_to_the_total() -> None:
    chance, history = random.Random(2), History(Bounds(scopes=50, recent=100), since=NOW)
    sent: Counter[tuple[str, str]] = Counter()
    for _ in range(500):
        scope = chance.choice((("acme", "apollo"), ("acme", "ares"), ("globex", "vault")))
        sent[scope] += 1
        history.add(summary(workspace=scope[0], project=scope[1], model=chance.choice("ab")), NOW)
    refused = {"outcome": "refused", "refusal_code": "blocked", "prompt_tokens": None, "reused_tokens": None}
    history.add(summary(workspace=None, project=None, model=None, **refused), NOW)
    view = shown(history, apollo=3)
    told = {(w.workspace, p.project): p.requests for w in view.workspaces for p in w.projects}
    assert told == sent
    assert [w.requests for w in view.workspaces] == [
        sum(n for (workspace, _), n in sent.items() if workspace == w.workspace) for w in view.workspaces
    ]
    assert view.total.requests == 501
    assert view.unscoped is not None
    assert (view.unscoped.requests, view.unscoped.outcomes) == (1, {"refused": 1})
    assert [(one.code, one.count) for one in view.refusals] == [("blocked", 1)]
    assert (view.total.open_streams, view.workspaces[0].open_streams) == (3, 3)
    assert view.total.reused_tokens == 500 * 600
    assert view.total.reuse_rate == 0.6
    points = view.total.points
    assert points is not None
    assert len(points.requests) == 60
    assert points.requests[-1] == 501
    assert points.reuse_rate[:-1] == [None] * 59


def test_the_window_before_is_told_apart() -> None:
    history = History(Bounds(scopes=50, recent=100), since=NOW)
    history.add(summary(reused_tokens=500), NOW - 2400)  # in neither
    history.add(summary(reused_tokens=100), NOW - 1200)
    history.add(summary(reused_tokens=900), NOW)
    view = shown(history).total
    assert (view.requests, view.reuse_rate, view.reuse_rate_before) == (1, 0.9, 0.1)
    day = shown(history, window="24h").total
    assert (day.requests, day.reuse_rate, day.reuse_rate_before) == (3, 0.5, None)


def test_what_prefill_was_saved_is_unknown_until_enough_was_computed() -> None:
    history = History(Bounds(scopes=50, recent=100), since=NOW)
    for _ in range(7):
        history.add(summary(prompt_tokens=1000, reused_tokens=0, upstream_ttft=0.5), NOW)
    for _ in range(20):  # a short prompt says nothing of it
        history.add(summary(prompt_tokens=10, reused_tokens=0, upstream_ttft=0.5), NOW)
    assert shown(history).total.prefill_seconds_saved is None
    history.add(summary(prompt_tokens=2000, reused_tokens=1000, upstream_ttft=0.5), NOW)
    assert shown(history).total.prefill_seconds_saved == 0.5


def test_a_hundred_thousand_scopes_do_not_grow_it_and_none_of_their_requests_is_lost() -> None:
    history = History(Bounds(scopes=20, recent=50), since=NOW)
    now = NOW
    for number in range(3000):
        now += 0.5
        history.add(summary(workspace="acme", project=f"p{number}"), now)
    assert len(history) == 20
    assert len(history.recent) <= 50 + 20 * 100
    assert IDLE_SECONDS <= 1500 / 1.1, "else nobody was evicted here"
    view = shown(history, now, "1h")
    assert view.other is not None
    assert view.total.requests == 3000
    assert view.other.requests == 3000 - sum(p.requests for w in view.workspaces for p in w.projects)
    assert {p.project for w in view.workspaces for p in w.projects}.isdisjoint({OTHER})


def test_many_models_of_a_scope_do_not_grow_it() -> None:
    history = History(Bounds(scopes=10, recent=50), since=NOW)
    for number in range(1000):
        history.add(summary(model=f"m{number}"), NOW)
    assert len(list(history.timelines())) <= 10 + 101
    assert shown(history).total.requests == 1000


def test_nobody_gives_way_before_he_was_idle_for_a_while() -> None:
    history = History(Bounds(scopes=1, recent=50), since=NOW)
    history.add(summary(), NOW)
    history.add(summary(project="ares"), NOW + IDLE_SECONDS - 1)
    assert [p.project for w in shown(history, NOW + 800, "1h").workspaces for p in w.projects] == ["apollo"]
    history.add(summary(project="ares"), NOW + IDLE_SECONDS)
    assert [p.project for w in shown(history, NOW + 900, "1h").workspaces for p in w.projects] == ["ares"]


def test_a_scope_in_use_never_gives_way() -> None:
    history = History(Bounds(scopes=2, recent=50), since=NOW)
    for minute in range(60):
        history.add(summary(), NOW + minute * 60)
        history.add(summary(project=f"p{minute}"), NOW + minute * 60)
    view = scope_view((history,), window_of("1h", NOW + 59 * 60), "acme", "apollo", {})
    assert view is not None
    assert view.requests == 60


def test_a_request_is_found_as_long_as_its_scope_or_all_remember_it() -> None:
    recent = Recent(most=3, of_scope=2, scopes=2)
    first = summary()
    recent.add(first)
    recent.add(first)
    for _ in range(5):
        recent.add(summary(workspace=None, project=None))
    assert recent.find(first.request_id) == first
    assert len(recent) == 4
    others = [summary() for _ in range(2)]
    for other in others:
        recent.add(other)
    assert recent.find(first.request_id) is None
    assert [one.request_id for one in recent.of(("acme", "apollo"))] == [one.request_id for one in others[::-1]]
    for number in range(50):
        recent.add(summary(project=f"p{number}"))
    assert len(recent) <= 3 + 2 * 2
    assert len(recent._holders) == len(recent)


def test_an_unknown_scope_and_an_unknown_request_are_none() -> None:
    history = History(Bounds(scopes=2, recent=50), since=NOW)
    assert scope_view((history,), window_of("1h", NOW), "acme", "apollo", {}) is None
    assert found((history,), "req_1") is None
    assert scope_view((history,), window_of("1h", NOW), "acme", "apollo", {("acme", "apollo"): 1}) is not None
