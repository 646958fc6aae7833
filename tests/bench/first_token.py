"""What an idle gate adds to the time to the first token, against asking the engine directly."""

from __future__ import annotations

import statistics
from typing import Final

from tests.bench import gate
from tests.bench.cases import Limit
from tests.bench.load import mock_engine, run_load
from tests.bench.report import Figure
from tests.bench.stage import Stage

ROUNDS: Final = 5
_ONE_AFTER_THE_OTHER: Final = ("-c", "1", "-n", "400", "-s")


def first_token(stage: Stage) -> list[Figure]:
    """Interleaved: direct, through the gate, direct, …"""
    with (
        mock_engine(stage.programs, stage.folder) as engine,
        gate.served(stage, gate.Setting({gate.MODEL: (engine.port,)}), "first-token") as served,
    ):
        engine.set("n=2&t=0&d=0&j=0&y=0")
        words = ("-A", str(stage.tokens), *_ONE_AFTER_THE_OTHER)
        added = [
            run_load(stage.programs, served.port, words).ttft_ms.p50
            - run_load(stage.programs, engine.port, words).ttft_ms.p50
            for _ in range(ROUNDS + 1)
        ]
    # The first round warms.
    return [Figure("time to the first token added, idle, p50", statistics.median(added[1:]), "ms", Limit(0.25, 0.15))]
