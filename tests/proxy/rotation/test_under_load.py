"""A rotation under load: nobody notices but by one prompt that is computed anew; and whatever went wrong is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.demo.simulator import AT_ONCE
from proxy.isolation.unit import ProjectUnit
from tests.parts.redis_server import RedisServer
from tests.proxy.rotation.load import Load, rotation
from tests.proxy.rotation.run import Arrival, Call, Caller, Run, breaches

pytestmark = pytest.mark.slow

QUICK = Load(projects=6, prefix_tokens=64, pause=0.05, before=0.2, after=2.0, pace=AT_ONCE, answer_tokens=2)
LATE = 5.0  # a second, by contract section 4, on a machine that is not busy with other tests


@pytest.mark.parametrize("over", [2.0, 0.0])
async def test_no_request_fails_or_has_a_wrong_salt_and_each_unit_computes_its_prompt_once_more(
    redis: RedisServer, tmp_path: Path, over: float
) -> None:
    run = await rotation(QUICK, tmp_path, redis, over=over)
    assert breaches(run, late=LATE) == []


RED, BLUE = (Caller(name, "u-alice-0001", ProjectUnit("acme", name)) for name in ("red", "blue"))


def well() -> Run:
    """Red goes at 101, blue at 103; each asks at 100, 102 and 104."""
    calls = [
        Call(2 * turn + at, caller, sent=100.0 + 2 * turn, first_token=100.1 + 2 * turn, fault=None)
        for turn in range(3)
        for at, caller in enumerate((RED, BLUE))
    ]
    salts = ("red old", "blue old", "red new", "blue old", "red new", "blue new")
    reused = (0, 0, 0, 32, 48, 0)
    return Run(
        calls=tuple(calls),
        arrivals=tuple(Arrival(number, salts[number], 40, reused[number]) for number in range(6)),
        foreign=("of the proof",),
        right={RED.unit: ("red old", "red new"), BLUE.unit: ("blue old", "blue new")},
        moments={RED.unit: 101.0, BLUE.unit: 103.0},
        prefix_tokens=32,
        began=100.5,
        over=3.0,
    )


def arrived(run: Run, number: int, *, salt: str | None = None, reused: int | None = None) -> Run:
    """The run where one request came to the engine otherwise."""
    was = run.arrivals[number]
    other = replace(was, salt=salt or was.salt, reused=was.reused if reused is None else reused)
    return replace(run, arrivals=(*run.arrivals[:number], other, *run.arrivals[number + 1 :]))


def called(run: Run, number: int, **changed: object) -> Run:
    other = replace(run.calls[number], **changed)  # type: ignore[arg-type]
    return replace(run, calls=(*run.calls[:number], other, *run.calls[number + 1 :]))


def test_a_run_in_which_all_went_well_has_no_breach() -> None:
    assert breaches(well(), late=1.5) == []


@pytest.mark.parametrize(
    ("told", "spoilt"),
    [
        ("request 3 failed: 503", lambda run: called(run, 3, fault="503")),
        ("exactly once", lambda run: replace(run, arrivals=run.arrivals[:-1])),
        ("exactly once", lambda run: replace(run, arrivals=(*run.arrivals, run.arrivals[-1]))),
        ("not the unit's", lambda run: arrived(run, 3, salt="red old")),
        ("not the unit's", lambda run: arrived(run, 3, salt="a third")),
        ("not the unit's", lambda run: replace(run, arrivals=(replace(run.arrivals[0], salt=None), *run.arrivals[1:]))),
        ("nobody's", lambda run: replace(run, foreign=("blue old",))),
        ("nobody's", lambda run: replace(run, foreign=(None,))),
        ("went back", lambda run: arrived(run, 4, salt="red old")),
        ("never went over", lambda run: arrived(run, 5, salt="blue old")),
        ("before its moment", lambda run: arrived(run, 3, salt="blue new")),
        ("before its moment", lambda run: replace(run, began=102.5)),
        ("after its moment", lambda run: arrived(run, 5, salt="blue old")),
        ("reused 16 of 32", lambda run: arrived(run, 4, reused=16)),
        ("computed 2 times", lambda run: arrived(run, 4, reused=0)),
        ("computed 0 times", lambda run: arrived(run, 5, reused=32)),
    ],
)
def test_what_goes_wrong_is_told(told: str, spoilt: Callable[[Run], Run]) -> None:
    assert any(told in breach for breach in breaches(spoilt(well()), late=0.5))
