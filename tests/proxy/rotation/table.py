"""A run by half seconds: how much was reused, how long the first token took, how far the units have gone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.proxy.rotation.run import Arrival, Run

STEP_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """The requests whose first token came in the half second that begins `at` seconds after the rotation was ordered.

    `reuse` is the share of their prompt tokens that was reused; with the times to the first token (seconds) it is None
    where no token came. `due` and `gone` are the shares of the units whose moment has come by the end of it, and of
    those that have been seen under their new salt by then. `failures` counts by when the request was sent.
    """

    at: float
    requests: int
    reuse: float | None
    median: float | None
    p95: float | None
    due: float
    gone: float
    failures: int


def lines(run: Run, *, before: float, after: float) -> list[Line]:
    """From `before` seconds before the order to `after` seconds past the rotation's end."""
    arrivals = {arrival.number: arrival for arrival in run.arrivals}
    due, seen = [max(moment, run.began) for moment in run.moments.values()], _first_seen(run)
    steps = range(math.floor(-before / STEP_SECONDS), math.ceil((run.over + after) / STEP_SECONDS))
    return [_line(run, arrivals, due, seen, step * STEP_SECONDS) for step in steps]


def _line(run: Run, arrivals: Mapping[int, Arrival], due: Sequence[float], seen: Sequence[float], at: float) -> Line:
    start, end = run.began + at, run.began + at + STEP_SECONDS
    calls = [call for call in run.calls if call.first_token is not None and start <= call.first_token < end]
    waits = sorted((call.first_token or 0.0) - call.sent for call in calls)
    came = [arrivals[call.number] for call in calls]
    prompt = sum(arrival.prompt_tokens for arrival in came)
    return Line(
        at=at,
        requests=len(calls),
        reuse=sum(arrival.reused for arrival in came) / prompt if prompt else None,
        median=_quantile(waits, 0.5),
        p95=_quantile(waits, 0.95),
        due=_share(due, end),
        gone=_share(seen, end),
        failures=sum(call.fault is not None and start <= call.sent < end for call in run.calls),
    )


def latest(run: Run) -> float:
    """The longest that a unit was asked under its old salt after its moment, in seconds; 0 where none was."""
    salts = {arrival.number: arrival.salt for arrival in run.arrivals}
    units = ((call, call.caller.unit) for call in run.calls)
    late = (
        call.sent - max(run.moments[unit], run.began)
        for call, unit in units
        if salts.get(call.number) == run.right[unit][0]
    )
    return max((seconds for seconds in late if seconds > 0), default=0.0)


def _first_seen(run: Run) -> list[float]:
    """When each unit's first answer under its new salt began."""
    new = {salt for _, salt in run.right.values()}
    gone = {arrival.number for arrival in run.arrivals if arrival.salt in new}
    first = dict.fromkeys(run.right, math.inf)
    for call in run.calls:
        if call.number in gone and call.first_token is not None:
            first[call.caller.unit] = min(first[call.caller.unit], call.first_token)
    return list(first.values())


def _share(moments: Sequence[float], end: float) -> float:
    return sum(moment < end for moment in moments) / len(moments)


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """The nearest rank."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
