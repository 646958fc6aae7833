"""Two workers: what each of them costs more than one alone, and how evenly long streams come to them."""

from __future__ import annotations

import os
import statistics
import time
from typing import Final

from tests.bench import gate
from tests.bench.cases import CASES, Case, Limit
from tests.bench.compare import measure
from tests.bench.load import MockEngine, load_beside, mock_engine
from tests.bench.machine import OTHER_CORE, connections_of
from tests.bench.report import Figure
from tests.bench.rounds import Runs, imbalance
from tests.bench.stage import Stage

STREAMS: Final = 400
SPREADS: Final = 5
_COMPARED: Final = tuple(case for case in CASES if case.name.startswith(("small", "paced")))


def two_workers(stage: Stage, rounds: int) -> list[Figure]:
    with (
        mock_engine(stage.programs, stage.folder) as engine,
        gate.served(stage, gate.Setting({gate.MODEL: (engine.port,)}, cores=_cores(1)), "one") as one,
        gate.served(stage, gate.Setting({gate.MODEL: (engine.port,)}, workers=2, cores=_cores(2)), "two") as two,
    ):
        costs = [_cost(case, stage, engine, one, two, rounds) for case in _COMPARED]
        return [*costs, _spread(stage, engine, two)]


def _cores(workers: int) -> tuple[int, ...]:
    """One each where the machine has them; else they share the gateway's, as one worker does."""
    free = sorted(set(range(os.cpu_count() or 1)) - {OTHER_CORE})
    return tuple(free[:workers])


def _cost(case: Case, stage: Stage, engine: MockEngine, one: gate.Served, two: gate.Served, rounds: int) -> Figure:
    runs = {1: Runs(), 2: Runs()}
    for _ in range(rounds + 1):
        for number, served in ((1, one), (2, two)):
            runs[number].kept.append(measure(case, served.proxy(), engine, stage))
    ratios = [second.cost / first.cost for first, second in zip(runs[1].kept[1:], runs[2].kept[1:], strict=True)]
    return Figure(f"two workers: {case.name}, CPU against one", statistics.median(ratios), "", Limit(1.1, 1.03))


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
