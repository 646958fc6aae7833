"""Half a day of six customers, invented request by request and counted by the gate's own history: for the pictures."""

from __future__ import annotations

import heapq
import json
import math
import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from observability.history.answers import Alarm, EngineReplica, Gate
from observability.history.figures import Around, found, overview, scope_view, window_of
from observability.history.history import Bounds, History
from observability.history.summary import Summary
from observability.names import ISOLATION_CHECKS
from observability.waterfall import Times
from proxy.observers import VERSION
from tests.proxy.pages.figures import CAST, NOW, PROOFS, beside

Json = dict[str, Any]
SECONDS: Final = 12 * 3600
TURN_SECONDS: Final = 80 * 60  # so long ago, what is the matter with some projects began
_NO_TOKENS: Final = ("refused", "engine_failed", "engine_timeout")
_STATUS: Final = {"refused": 403, "engine_failed": 502, "engine_timeout": 504}


class Day:
    """What the admin listener would answer at `NOW`."""

    def __init__(self) -> None:
        self._history = History(Bounds(scopes=1000, recent=4000), since=NOW - SECONDS)
        for ended, summary in heapq.merge(*(_requests(*project) for project in CAST), key=lambda one: one[0]):
            self._history.add(summary, ended)
        self._open = {(workspace, project): round(rate * 0.15) for workspace, project, rate, *_ in CAST}

    def overview(self, window: str) -> Json:
        gate = Gate(
            version=VERSION, workers=4, ready=True, waits_for=[], open_streams=sum(self._open.values()), waiting=2,
            kept_in="memory",
        )  # fmt: skip
        alarms = tuple(Alarm(check, 0, None) for check in ISOLATION_CHECKS)
        engines = tuple(
            EngineReplica(engine="main", replica=f"10.0.8.{number}:8000", up=True, proofs=dict(PROOFS))
            for number in (11, 12, 13)
        )
        around = Around(gate, alarms, engines, self._open)
        return _plain(overview((self._history,), window_of(window, NOW), around))

    def scope(self, workspace: str, project: str, window: str) -> Json | None:
        view = scope_view((self._history,), window_of(window, NOW), workspace, project, self._open)
        return None if view is None else beside(_plain(view))

    def request(self, request_id: str) -> Json | None:
        request = found((self._history,), request_id)
        return None if request is None else beside(_plain(request))


def _plain(answer: object) -> Json:
    plain: Json = json.loads(msgspec.json.encode(answer))
    return plain


def _requests(
    workspace: str, project: str, rate: float, reuse: float, ttft: float, matter: str | None
) -> Iterator[tuple[float, Summary]]:
    """Each with the time at which it had ended, in that order."""
    noise = random.Random(f"{workspace}/{project}")
    at = NOW - SECONDS
    while True:
        busy = 1 + 0.4 * math.sin((at - NOW) / SECONDS * 9 + len(project))
        at += noise.expovariate(rate * busy / 60)
        if at >= NOW:
            return
        if matter != "quiet" or not 3600 < NOW - at < 9000:
            yield at, _request(noise, workspace, project, at, reuse=reuse, ttft=ttft, matter=matter)


def _request(
    noise: random.Random, workspace: str, project: str, at: float, *, reuse: float, ttft: float, matter: str | None
) -> Summary:
    late = min(1.0, max(0.0, (at - NOW + TURN_SECONDS) / 1200))
    outcome = _outcome(noise, matter, late)
    prompt = round(noise.lognormvariate(7.4, 0.5))
    hit = min(0.97, reuse * 1.08) * (1 - 0.8 * late if matter == "reuse" else 1.0)
    # A prompt finds nearly all of its beginning, or nothing.
    reused = int(prompt * noise.uniform(0.86, 0.99) / 16) * 16 if noise.random() < hit else 0
    prefill = ttft * noise.lognormvariate(-1.2, 0.4) + (prompt - reused) * 0.00021 * noise.uniform(0.85, 1.3)
    if matter == "slower":
        prefill *= 1 + 2.4 * late
    queue = noise.uniform(0.02, 0.3) if noise.random() < 0.18 else 0.0
    times = _times(noise, outcome, prefill=prefill, queue=queue)
    duration, first = _seconds(times.ended) or 0.0, _seconds(times.first_token_written)
    spoke = outcome not in _NO_TOKENS
    fault = None if outcome in ("ok", "client_gone", "refused") else outcome
    counted = outcome == "ok"
    return Summary(
        f"req_{noise.getrandbits(96):024x}", f"{noise.getrandbits(128):032x}", at - duration, workspace, project,
        f"project:{workspace}/{project}", None if outcome == "refused" else _model(noise), "chat", True, outcome,
        _STATUS.get(outcome, 200), {"refused": "model_not_allowed"}.get(outcome, fault if not spoke else None), fault,
        None if outcome == "refused" else f"10.0.8.{noise.choice((11, 12, 13))}:8000",
        None if outcome == "refused" else "baa6d2677094", None if outcome == "refused" else 1795960800,
        duration, first, "content" if spoke else None, prefill if spoke else None,
        noise.uniform(0.03, 0.2) if spoke else None, prompt if counted else None, reused if counted else None,
        noise.randrange(40, 600) if counted else None, ("stop",) if counted else (), times,
    )  # fmt: skip


def _outcome(noise: random.Random, matter: str | None, late: float) -> str:
    draw = noise.random()
    if matter == "failing" and late and draw < 0.14:
        return noise.choice(("engine_failed", "truncated", "engine_timeout"))
    if draw < (0.31 if matter == "refused" else 0.004):
        return "refused"
    return "client_gone" if draw > 0.985 else "ok"


def _model(noise: random.Random) -> str:
    return "qwen3-32b" if noise.random() < 0.8 else "qwen3-coder-30b"


def _times(noise: random.Random, outcome: str, *, prefill: float, queue: float) -> Times:
    """From 0 on, as the gate would have noted them."""
    took = (
        ("auth", noise.uniform(0.0001, 0.0009)), ("directory", noise.uniform(0.00005, 0.0004)),
        ("body", noise.uniform(0.001, 0.03)), ("queue", queue), ("stamp", noise.uniform(0.0001, 0.0006)),
    )  # fmt: skip
    intervals, at = [], 0
    for name, seconds in took[:3] if outcome == "refused" else took:
        if seconds:
            intervals.append((name, at, at + _ns(seconds)))
        at += _ns(seconds)
    if outcome == "refused":
        return Times(0, None, None, None, None, at, intervals)
    first = at + _ns(prefill)
    if outcome in _NO_TOKENS:
        return Times(0, at, None, None, None, first, intervals)
    last = first + _ns(noise.uniform(0.8, 9.0))
    return Times(0, at, first, first + _ns(0.00006), last, last + _ns(0.0002), intervals)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9
