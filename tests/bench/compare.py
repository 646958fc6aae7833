"""The cases, measured: one run of a proxy under a load, and all proxies in turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.bench.cases import Case
from tests.bench.load import LoadFailed, MockEngine, run_load
from tests.bench.machine import spent
from tests.bench.proxies import Proxy
from tests.bench.report import CaseResult
from tests.bench.rounds import Run, Runs
from tests.bench.stage import Stage


def measure(case: Case, proxy: Proxy, engine: MockEngine, stage: Stage) -> Run:
    """One run. Raises LoadFailed."""
    load = case.light if proxy.slow else case.load
    engine.set(case.engine)
    before = spent(proxy.processes)
    try:
        seen = run_load(stage.programs, proxy.port, ("-A", str(stage.tokens), *load.words))
    except LoadFailed as error:
        raise LoadFailed(f"{proxy.name}, {case.name}: {error}") from error
    cost = spent(proxy.processes).since(before)
    relay = seen.relay_ms.p50 if case.paced and not proxy.slow else None
    return Run(cost.cpu / 1000 / load.units, relay, cost.waited / cost.cpu)


def compare(case: Case, proxies: Sequence[Proxy], engine: MockEngine, stage: Stage, rounds: int) -> CaseResult:
    """Interleaved: each round measures every proxy before the next one begins."""
    found = {proxy.name: Runs() for proxy in proxies}
    for _ in range(rounds):
        for proxy in proxies:
            found[proxy.name].add_round(partial(measure, case, proxy, engine, stage))
    return CaseResult(case, found)
