"""What every request of a rotation under load got, and what of it was wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proxy.isolation.unit import Unit


@dataclass(frozen=True, slots=True)
class Caller:
    """One person in one project, and the border of what he asks."""

    project: str
    subject: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class Call:
    """One request at its client: when it was sent and when its first token came, in Unix seconds; what went wrong."""

    number: int
    caller: Caller
    sent: float
    first_token: float | None
    fault: str | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request at the engine. `number` is its call's."""

    number: int
    salt: str | None
    prompt_tokens: int
    reused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One rotation under load. `began` (Unix seconds) is when it was ordered, `over` the seconds it was given.

    `right` are the old and the new salt of each unit, `moments` when it shall go from one to the other. `foreign` are
    the salts of the engine's other requests: those of the engine proof. `prefix_tokens` can be reused once held.
    """

    calls: tuple[Call, ...]
    arrivals: tuple[Arrival, ...]
    foreign: tuple[str | None, ...]
    right: Mapping[Unit, tuple[str, str]]
    moments: Mapping[Unit, float]
    prefix_tokens: int
    began: float
    over: float


def breaches(run: Run, *, late: float) -> list[str]:
    """Everything that a rotation must not do, and this one did.

    `late` is how many seconds after its moment, or after the order, a unit may still use its old salt.
    """
    return [
        *_failures(run),
        *_wrong_salts(run),
        *_returns(run),
        *_wrong_moments(run, late),
        *_wrong_reuse(run),
    ]


def _failures(run: Run) -> Iterator[str]:
    yield from (f"request {call.number} failed: {call.fault}" for call in run.calls if call.fault is not None)
    arrived = [arrival.number for arrival in run.arrivals]
    if sorted(arrived) != sorted(call.number for call in run.calls):
        yield "the engine did not get each request exactly once"


def _wrong_salts(run: Run) -> Iterator[str]:
    units = {call.number: call.caller.unit for call in run.calls}
    for arrival in run.arrivals:
        unit = units[arrival.number]
        if arrival.salt not in run.right[unit]:
            yield f"request {arrival.number} of {unit} came with a salt that is not the unit's"
    ours = {salt for both in run.right.values() for salt in both}
    yield from (
        "a request that is nobody's came with a unit's salt" for salt in run.foreign if salt in ours or not salt
    )


def _returns(run: Run) -> Iterator[str]:
    """Each caller goes over once, and all do."""
    new = {salt for _, salt in run.right.values()}
    for caller, has_gone in _by_caller(run, new).items():
        if has_gone != sorted(has_gone):
            yield f"{caller.subject} of {caller.unit} went back to the old salt"
        if not has_gone or not has_gone[-1]:
            yield f"{caller.subject} of {caller.unit} never went over"


def _by_caller(run: Run, new: set[str]) -> dict[Caller, list[bool]]:
    salts = {arrival.number: arrival.salt for arrival in run.arrivals}
    found: dict[Caller, list[bool]] = {}
    for call in sorted(run.calls, key=lambda call: call.number):
        found.setdefault(call.caller, []).append(salts.get(call.number) in new)
    return found


def _wrong_moments(run: Run, late: float) -> Iterator[str]:
    salts = {arrival.number: arrival.salt for arrival in run.arrivals}
    for call in run.calls:
        unit = call.caller.unit
        is_new = salts.get(call.number) == run.right[unit][1]
        if is_new and call.first_token is not None and call.first_token < max(run.moments[unit], run.began):
            yield f"request {call.number} of {unit} used the new salt before its moment"
        if not is_new and call.sent > max(run.moments[unit], run.began) + late:
            yield f"request {call.number} of {unit} used the old salt {late} s after its moment"


def _wrong_reuse(run: Run) -> Iterator[str]:
    """Under each salt one request computes the prompt, and all others reuse it."""
    computed: dict[str | None, int] = {arrival.salt: 0 for arrival in run.arrivals}
    for arrival in run.arrivals:
        if arrival.reused == 0:
            computed[arrival.salt] += 1
        elif arrival.reused < run.prefix_tokens:
            yield f"request {arrival.number} reused {arrival.reused} of {run.prefix_tokens} tokens"
    yield from (f"a prompt was computed {times} times under one salt" for times in computed.values() if times != 1)
