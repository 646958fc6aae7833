"""What a request and an event cost one worker, against nginx that does no job at all, in the same rounds.

`make bench` builds the mock engine and the load generator (C) and runs them against `saltgate serve` with everything on
that a deployment has: token, membership, salt, metrics, a log line, one trace in ten. The figures are CPU time of the
process (all threads) per unit, medians of the rounds, and their ratio to nginx. The proxies have a core of their own,
engine and load another one. Needs a C compiler and two cores; nginx for the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.parts.redis_server import RedisServer, free_port
from tests.parts.tokens import IssuerServer, TokenMint

FOLDER: Final = Path(__file__).parent
PROXY_CORE, LOAD_CORE = "0", "1"
SALTGATE: Final = (sys.executable, "-c", "from proxy.cli import main; main()")


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load. `units` is what its cost is divided by; `engine` are the mock's defaults while it runs."""

    name: str
    load: tuple[str, ...]
    units: int
    engine: str


CASES: Final = (
    Case("small request", ("-c", "32", "-n", "5000"), 5000, "n=200&t=0&d=0&j=0"),
    Case(
        "paced event (400 streams)",
        ("-c", "400", "-n", "400", "-s", "-r", "20", "-d", "30"),
        400 * 250,
        "n=250&t=50&d=20&j=1",
    ),
    Case("back-to-back event", ("-c", "32", "-n", "300", "-s"), 300 * 200, "n=200&t=0&d=0&j=0"),
    Case("8-event stream, whole", ("-c", "32", "-n", "3000", "-s"), 3000, "n=8&t=0&d=0&j=0"),
    Case("1 MB prompt", ("-c", "4", "-n", "300", "-S", "1000000"), 300, "n=2&t=0&d=0&j=0"),
)


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy under load: where it listens, its processes, and what a client of it sends."""

    name: str
    port: int
    processes: tuple[int, ...]
    headers: tuple[str, ...] = ()


def cpu_ns(processes: Sequence[int]) -> int:
    """CPU time of all threads so far (/proc/PID/task/*/schedstat)."""
    threads = (thread for process in processes for thread in Path(f"/proc/{process}/task").iterdir())
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


def measure(case: Case, proxy: Proxy, engine_port: int, load: Path) -> tuple[float, dict[str, Any]]:
    """CPU microseconds per unit, and what the load generator saw. Raises RuntimeError where a request failed."""
    urllib.request.urlopen(f"http://127.0.0.1:{engine_port}/set?{case.engine}").read()
    command = ["taskset", "-c", LOAD_CORE, str(load), "-u", f"127.0.0.1:{proxy.port}", "-m", "mock", "-T", "30"]
    before = cpu_ns(proxy.processes)
    done = subprocess.run([*command, *case.load, *proxy.headers], capture_output=True, text=True, check=False)
    spent = cpu_ns(proxy.processes) - before
    seen: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if seen["errors"]:
        raise RuntimeError(f"{proxy.name}, {case.name}: {seen['errors']} errors, the first: {seen['first_error']}")
    return spent / 1000 / case.units, seen


def run(cases: Sequence[Case], proxies: Sequence[Proxy], engine_port: int, load: Path, rounds: int) -> None:
    """Interleaved: each round measures every proxy before the next one begins."""
    for case in cases:
        costs: dict[str, list[float]] = {proxy.name: [] for proxy in proxies}
        for _ in range(rounds):
            for proxy in proxies:
                costs[proxy.name].append(measure(case, proxy, engine_port, load)[0])
        medians = {name: statistics.median(found) for name, found in costs.items()}
        told = "   ".join(
            f"{name} {medians[name]:8.1f} µs ({min(found):.1f} to {max(found):.1f})" for name, found in costs.items()
        )
        ratio = f"   ratio {medians['saltgate'] / medians['nginx']:.2f}" if "nginx" in medians else ""
        sys.stdout.write(f"{case.name:28} {told}{ratio}\n")
        sys.stdout.flush()


@contextmanager
def process(*command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as stream:
        running = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            yield running
        finally:
            running.terminate()
            running.wait()


def built(folder: Path) -> tuple[Path, Path]:
    for name in ("engine", "load"):
        subprocess.run(["cc", "-O2", "-o", str(folder / name), str(FOLDER / f"{name}.c"), "-lm"], check=True)
    return folder / "engine", folder / "load"


async def configured(folder: Path, redis: RedisServer, issuer: IssuerServer, port: int, engine_port: int) -> Path:
    """The configuration of a gate that does the whole job, its directory filled."""
    (folder / "salt").write_text("0123456789abcdef0123456789abcdef")
    (folder / "directory.toml").write_text(
        f'workspaces.acme = {{ issuer = "{issuer.mint.issuer}", projects.apollo.members = ["user:u-alice-0001"] }}\n'
    )
    configuration = folder / "saltgate.toml"
    configuration.write_text(
        f"""
public.listen = "127.0.0.1:{port}"
admin.listen = "127.0.0.1:{free_port()}"
engines = [{{ name = "mock", urls = ["http://127.0.0.1:{engine_port}"], models = ["mock"], proof = "off" }}]
issuers = [{{ issuer = "{issuer.mint.issuer}", audiences = ["saltgate"] }}]
directory.redis = "{redis.url}"
isolation.keys = [{{ id = "k1", secret = {{ file = "salt" }} }}]
telemetry.trace_ratio = 0.1
"""
    )
    words = (*SALTGATE, "directory", "import", str(folder / "directory.toml"), "-c", str(configuration))
    importing = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.DEVNULL)
    if await importing.wait():
        raise RuntimeError("the directory could not be imported")
    return configuration


async def until_served(port: int, headers: dict[str, str]) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models", headers=headers)
    for _ in range(300):
        try:
            await asyncio.to_thread(lambda: urllib.request.urlopen(request).read())
        except OSError:
            await asyncio.sleep(0.1)
        else:
            return
    raise RuntimeError("it does not serve")


def children(process: int) -> tuple[int, ...]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return tuple(map(int, listed))


async def bench(rounds: int, cases: Sequence[Case]) -> None:
    with tempfile.TemporaryDirectory() as name, RedisServer(Path(name)) as redis:
        folder = Path(name)
        engine, load = built(folder)
        engine_port, gate_port, nginx_port = free_port(), free_port(), free_port()
        async with IssuerServer(TokenMint()) as issuer:
            configuration = await configured(folder, redis, issuer, gate_port, engine_port)
            token = issuer.mint.token(subject="u-alice-0001", groups=[], lifetime=3600)
            gate = ("taskset", "-c", PROXY_CORE, *SALTGATE, "serve", "-c", str(configuration))
            with (
                process("taskset", "-c", LOAD_CORE, str(engine), "-p", str(engine_port), log=folder / "engine.log"),
                process(*gate, log=folder / "gate.log") as supervisor,
                nginx(folder, nginx_port, engine_port) as beside,
            ):
                await until_served(gate_port, {"Authorization": f"Bearer {token}"})
                workers = children(supervisor.pid)
                measured = Proxy("saltgate", gate_port, workers, ("-H", f"Authorization: Bearer {token}"))
                await asyncio.to_thread(measure, CASES[0], measured, engine_port, load)  # warm
                await asyncio.to_thread(run, cases, [*beside, measured], engine_port, load, rounds)


@contextmanager
def nginx(folder: Path, port: int, engine_port: int) -> Iterator[list[Proxy]]:
    if shutil.which("nginx") is None:
        sys.stdout.write("nginx is not installed: no ratios\n")
        yield []
        return
    text = (FOLDER / "nginx.conf").read_text()
    for word, value in (("FOLDER", str(folder)), ("ENGINE", str(engine_port)), ("LISTEN", str(port))):
        text = text.replace(word, value)
    (folder / "nginx.conf").write_text(text)
    command = ("taskset", "-c", PROXY_CORE, "nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder))
    with process(*command, log=folder / "nginx.log") as running:
        yield [Proxy("nginx", port, (running.pid,))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="cases whose name begins so")
    arguments = parser.parse_args()
    cases = [case for case in CASES if case.name.startswith(arguments.only or "")]
    sys.stdout.write(f"{arguments.rounds} rounds, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}\n")
    asyncio.run(bench(arguments.rounds, cases))


if __name__ == "__main__":
    main()
