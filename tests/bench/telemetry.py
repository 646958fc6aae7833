"""What everything that saltgate tells of a request costs it: `make telemetry-cost`.

Two gates are the same but for one thing: the one keeps a record of each request and tells it to metrics, log lines and
spans, none of which is sampled; the other forgets it. They take turns, so that whatever else the machine does meets
both. What an event costs is too little for that: its clock and its note in the relay's loop are counted by themselves.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from observability.rhythm import Rhythm
from tests.bench import gate
from tests.bench.cases import Limit
from tests.bench.load import mock_engine, process, run_load
from tests.bench.machine import GATEWAY_CORE, TooFewCores, keep_to_other_core, spent
from tests.bench.proxies import until_served
from tests.bench.report import Figure
from tests.bench.stage import Stage, open_stage
from tests.parts.redis_server import free_port

PER_REQUEST: Final = Limit(60.0, 40.0)
PER_EVENT: Final = Limit(1.0, 0.5)
# Many short rounds: whatever else the machine does lasts longer than one.
ROUNDS: Final = 31
_REQUESTS: Final = 800
_WORDS: Final = ("-c", "32", "-n", str(_REQUESTS), "-s")
_EVENTS: Final = 200_000
_TURNS: Final = 7
_START_SECONDS: Final = 180.0
_GAP_NS: Final = 20_000_000


def telemetry_cost(stage: Stage, rounds: int) -> list[Figure]:
    """Of streams of eight events, since each has all that is told of a request."""
    with mock_engine(stage.programs, stage.folder) as engine, mock_engine(stage.programs, stage.folder) as collector:
        engine.set("n=8&t=0&d=0&j=0&y=0")
        setting = gate.Setting({gate.MODEL: (engine.port,)}, collector=collector.port, trace_ratio=0.0)
        with _telling(stage, setting, "on") as telling, _telling(stage, setting, "off") as silent:
            added = [_added(stage, telling, silent, number) for number in range(max(rounds, ROUNDS) + 1)]
    # The first round warms.
    lower, median, upper = statistics.quantiles(added[1:], n=4)
    return [
        Figure(
            "all that is told of an unsampled request, CPU",
            median,
            "µs",
            PER_REQUEST,
            remark=f"the middle half of {len(added) - 1} rounds: {lower:.0f} to {upper:.0f}",
        ),
        Figure("all that is noted of an event, CPU", _event(), "µs", PER_EVENT),
    ]


@contextmanager
def _telling(stage: Stage, setting: gate.Setting, telling: str) -> Iterator[tuple[int, int]]:
    """A gate's port and process."""
    port = free_port()
    configuration = gate.prepared(stage, setting, f"telemetry-{telling}", port)
    log = stage.folder / f"telemetry-{telling}.log"
    words = ("taskset", "-c", str(GATEWAY_CORE), sys.executable, "-m", "tests.bench.telling_gate")
    with process(*words, str(configuration), str(port), telling, log=log) as running:
        until_served(f"telemetry {telling}", port, stage.token, log, _START_SECONDS)
        yield port, running.pid


def _added(stage: Stage, telling: tuple[int, int], silent: tuple[int, int], number: int) -> float:
    """CPU microseconds per request. Each of the two is asked first in every other round."""
    if number % 2:
        return -_cost(stage, silent) + _cost(stage, telling)
    return _cost(stage, telling) - _cost(stage, silent)


def _cost(stage: Stage, telling: tuple[int, int]) -> float:
    """CPU microseconds per request."""
    port, pid = telling
    before = spent((pid,))
    run_load(stage.programs, port, ("-A", str(stage.tokens), *_WORDS))
    return spent((pid,)).since(before).cpu / _REQUESTS / 1000


def _event() -> float:
    """CPU microseconds of what the relay's loop does for each read that brings a token, but for the bytes."""
    return min(_noting() - _idling() for _ in range(_TURNS))


def _noting() -> float:
    rhythm, before, now = Rhythm(), 0, 0
    began = time.process_time_ns()
    for events in range(1, _EVENTS + 1):
        time.monotonic_ns()
        if events != before:
            now += _GAP_NS
            rhythm.came(events - before, now)
            before = events
    return (time.process_time_ns() - began) / _EVENTS / 1000


def _idling() -> float:
    before = 0
    began = time.process_time_ns()
    for events in range(1, _EVENTS + 1):
        before = events
    assert before == _EVENTS
    return (time.process_time_ns() - began) / _EVENTS / 1000


async def _main() -> int:
    async with open_stage() as stage:
        figures = await asyncio.to_thread(telemetry_cost, stage, ROUNDS)
    for figure in figures:
        sys.stdout.write(figure.told())
    return int(any("missed" in figure.verdict() for figure in figures))


if __name__ == "__main__":
    try:
        keep_to_other_core()
    except TooFewCores as error:
        sys.exit(str(error))
    sys.exit(asyncio.run(_main()))
