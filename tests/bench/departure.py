"""A client leaves: how long until the engine's socket is closed. Every moment of an answer, FIN and RST."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import Final, Literal

from tests.bench import gate
from tests.bench.cases import Limit
from tests.bench.moments import MOMENTS, Moment, MomentEngine, moment_engine
from tests.bench.report import Figure
from tests.bench.rounds import percentile
from tests.bench.stage import Stage
from tests.parts.gone_client import GoneClient, post

Way = Literal["FIN", "RST"]
WAYS: Final[tuple[Way, ...]] = ("FIN", "RST")
TRIALS: Final = 20

_PATIENCE_SECONDS: Final = 5.0


def departures(stage: Stage) -> list[Figure]:
    """The median of the slowest kind, and the longest of all, in milliseconds."""
    found = asyncio.run(_all_kinds(stage))
    medians = {kind: percentile(delays, 0.5) for kind, delays in found.items()}
    longest = {kind: max(delays) for kind, delays in found.items()}
    by_median, by_longest = max(medians, key=medians.__getitem__), max(longest, key=longest.__getitem__)
    name, trials = "client leaves → engine's socket closed", TRIALS * len(found)
    return [
        Figure(f"{name}, p50 of the slowest kind", medians[by_median], "ms", Limit(50, 5), remark=", ".join(by_median)),
        Figure(f"{name}, longest of {trials}", longest[by_longest], "ms", Limit(100, 5), remark=", ".join(by_longest)),
    ]


async def _all_kinds(stage: Stage) -> dict[tuple[Moment, Way], list[float]]:
    with ExitStack() as stack:
        async with moment_engine() as engine:
            opening = gate.served(stage, gate.Setting({gate.MODEL: (engine.port,)}), "departure")
            served = await asyncio.to_thread(stack.enter_context, opening)
            return {
                (moment, way): [await _delay_ms(engine, served.port, stage.token, moment, way) for _ in range(TRIALS)]
                for moment in MOMENTS
                for way in WAYS
            }


async def _delay_ms(engine: MomentEngine, port: int, token: str, moment: Moment, way: Way) -> float:
    """One client that asks, waits for the moment and leaves."""
    engine.begin(moment)
    async with GoneClient(port, receive_buffer=65536) as client:
        document = {
            "model": "mock",
            "messages": [{"role": "user", "content": "hello"}],
            "stream": moment != "non-stream",
        }
        await client.send(post("/v1/chat/completions", document, {"Authorization": f"Bearer {token}"}))
        if moment == "mid-stream":
            await client.read_until(b"data:")
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await engine.reached.wait()
        left = time.perf_counter()
        if way == "FIN":
            client.leave_by_fin()
        else:
            client.leave_by_rst()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await engine.closed.wait()
        return (engine.closed_at - left) * 1000
