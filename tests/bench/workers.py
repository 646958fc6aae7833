"""Two workers: what each of them costs more than one alone, and how evenly long streams come to them.

Where both have to share a core, each finds its caches full of the other's things whenever it is its turn. What that
costs is told beside it: two gates that share nothing but the core, each under half of the load.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tests.bench import gate
from tests.bench.cases import CASES, Case, Limit
from tests.bench.compare import measure
from tests.bench.load import MockEngine, load_beside, mock_engine, run_load
from tests.bench.machine import OTHER_CORE, connections_of, spent
from tests.bench.report import Figure
from tests.bench.rounds import imbalance
from tests.bench.stage import Stage

STREAMS: Final = 400
SPREADS: Final = 5
_COMPARED: Final = tuple(case for case in CASES if case.name.startswith(("small", "paced")))


@dataclass(frozen=True, slots=True)
class _Gates:
    """A gate of one worker, one of two, and two of one worker each that share nothing but what they are pinned to."""

    one: gate.Served
    two: gate.Served
    apart: tuple[gate.Served, gate.Served]


def two_workers(stage: Stage, rounds: int) -> list[Figure]:
    with mock_engine(stage.programs, stage.folder) as engine, _served(stage, engine) as gates:
        costs = [_cost(case, stage, engine, gates, rounds) for case in _COMPARED]
        return [*costs, _spread(stage, engine, gates.two)]


@contextmanager
def _served(stage: Stage, engine: MockEngine) -> Iterator[_Gates]:
    engines = {gate.MODEL: (engine.port,)}
    alone, shared = gate.Setting(engines, cores=_cores(1)), gate.Setting(engines, workers=2, cores=_cores(2))
    beside = [gate.Setting(engines, cores=(core,)) for core in (_cores(2) * 2)[:2]]
    with (
        gate.served(stage, alone, "one") as one,
        gate.served(stage, shared, "two") as two,
        gate.served(stage, beside[0], "apart-1") as first,
        gate.served(stage, beside[1], "apart-2") as second,
    ):
        yield _Gates(one, two, (first, second))


def _cores(workers: int) -> tuple[int, ...]:
    """One each where the machine has them; else they share the gateway's, as one worker does."""
    free = sorted(set(range(os.cpu_count() or 1)) - {OTHER_CORE})
    return tuple(free[:workers])


def _cost(case: Case, stage: Stage, engine: MockEngine, gates: _Gates, rounds: int) -> Figure:
    shared, apart = [], []
    for _ in range(rounds + 1):
        one = measure(case, gates.one.proxy(), engine, stage).cost
        shared.append(measure(case, gates.two.proxy(), engine, stage).cost / one)
        apart.append(_cost_apart(case, stage, engine, gates.apart) / one)
    return Figure(
        f"two workers: {case.name}, CPU against one",
        statistics.median(shared[1:]),  # the first round warms
        "",
        Limit(1.1, 1.03),
        remark=f"two gates that share nothing: {statistics.median(apart[1:]):.2f}{_where()}",
    )


def _cost_apart(case: Case, stage: Stage, engine: MockEngine, gates: Sequence[gate.Served]) -> float:
    """CPU microseconds per unit of gates that bear half of the load each, at the same time. Raises LoadFailed."""
    engine.set(case.engine)
    words = ("-A", str(stage.tokens), *case.load.half().words)
    workers = [worker for served in gates for worker in served.workers()]
    before = spent(workers)
    with ThreadPoolExecutor(len(gates)) as loads:
        list(loads.map(lambda served: run_load(stage.programs, served.port, words), gates))
    return spent(workers).since(before).cpu / 1000 / case.load.units


def _where() -> str:
    return ", both on one core" if len(_cores(2)) < 2 else ""


def _spread(stage: Stage, engine: MockEngine, served: gate.Served) -> Figure:
    """The smaller share of long streams that begin within 0.2 s; the worst of some tries."""
    engine.set("n=100000&t=0&d=500&j=1&y=0")
    shares = []
    words = ("-A", str(stage.tokens), "-s", "-c", str(STREAMS), "-n", str(STREAMS), "-r", "200")
    for _ in range(SPREADS):
        with load_beside(stage.programs, served.port, words, stage.folder / "spread.load"):
            while engine.stats().active < STREAMS:
                time.sleep(0.1)
            shares.append(imbalance([connections_of(worker, served.port) for worker in served.workers()]))
        while engine.stats().active:
            time.sleep(0.1)
    return Figure(
        f"two workers: smaller share of {STREAMS} long streams, worst of {SPREADS}",
        min(shares),
        "",
        Limit(0.40, 0.45),
        at_least=True,
        remark=f"median {statistics.median(shares):.2f}",
    )
