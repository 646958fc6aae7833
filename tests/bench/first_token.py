"""What an idle gate adds to the time to the first token, against asking the engine directly; and what others add."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import Final

from tests.bench import gate
from tests.bench.cases import Limit
from tests.bench.load import mock_engine, run_load
from tests.bench.proxies import Absent, NotServing, Proxy, nginx
from tests.bench.report import Figure
from tests.bench.stage import Stage

ROUNDS: Final = 9
_ONE_AFTER_THE_OTHER: Final = ("-c", "1", "-n", "400", "-s")


def first_token(stage: Stage) -> list[Figure]:
    """Interleaved: direct, through each proxy, direct, …"""
    with ExitStack() as stack:
        engine = stack.enter_context(mock_engine(stage.programs, stage.folder))
        setting = gate.Setting({gate.MODEL: (engine.port,)})
        ours = stack.enter_context(gate.served(stage, setting, "first-token")).proxy()
        others = _others(stack, stage, engine.port)
        engine.set("n=2&t=0&d=0&j=0&y=0")
        added: dict[str, list[float]] = {proxy.name: [] for proxy in (ours, *others)}
        for _ in range(ROUNDS + 1):
            direct = _first_token_ms(stage, engine.port)
            for proxy in (ours, *others):
                added[proxy.name].append(_first_token_ms(stage, proxy.port) - direct)
    # The first round warms.
    medians = {name: statistics.median(each[1:]) for name, each in added.items()}
    remark = ", ".join(f"{proxy.name} adds {medians[proxy.name]:.2f} ms" for proxy in others)
    name = "time to the first token added, idle, p50"
    return [Figure(name, medians[ours.name], "ms", Limit(0.25, 0.15), remark=remark)]


def _others(stack: ExitStack, stage: Stage, engine_port: int) -> list[Proxy]:
    """nginx, where it is there: a proxy without any job wakes the same processes in the same order."""
    try:
        return [stack.enter_context(nginx(stage, engine_port))]
    except (Absent, NotServing):
        return []


def _first_token_ms(stage: Stage, port: int) -> float:
    return run_load(stage.programs, port, ("-A", str(stage.tokens), *_ONE_AFTER_THE_OTHER)).ttft_ms.p50
