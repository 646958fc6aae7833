"""Does a gate that works for long give everything back? `make soak` tries for 30 minutes.

Two workers, replicas that die and come back, people of whom every fifth leaves in the middle, slow readers, whole
answers, short and long streams. After a warm-up, and at the end, the gate rests: memory, tasks, descriptors, streams
and queues must be back where they were. A log line of level error, a traceback, a request that hangs or ends as none
may are faults, too. Exit status 1 where there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench import gate
from tests.bench.load import MockEngine, mock_engine
from tests.bench.machine import open_descriptors, resident_bytes
from tests.bench.mean_clients import Fates, client
from tests.bench.stage import Stage, open_stage
from tests.bench.verdict import Rest, WorkerRest, faults_of_log, faults_of_rest, under_way
from tests.parts.redis_server import free_port

CLIENTS: Final = 100
REPLICAS: Final = 3
# Words of engine.c by model.
_ENGINES: Final[dict[str, tuple[str, ...]]] = {
    "short": ("-n", "12", "-t", "5", "-d", "5", "-j"),
    "long": ("-n", "300", "-t", "20", "-d", "20", "-j"),
    "flood": ("-n", "15000", "-b", "20"),
}
_WARM_SHARE, _LEAST_WARM_SECONDS = 0.15, 20.0
# Idle connections to the engines end after 4 s.
REST_SECONDS: Final = 15.0
_UP_SECONDS, _DOWN_SECONDS = (2.0, 8.0), (0.5, 3.0)
_PROBE: Final = Path(__file__).parent / "probe"
_PROBE_SECONDS: Final = 30.0
_LEAST_DONE_SHARE: Final = 0.5
_TOLD_EVERY_SECONDS: Final = 60.0


@dataclass(slots=True)
class Replica:
    """One engine process that can die and come back at its port."""

    model: str
    port: int
    running: ExitStack = field(default_factory=ExitStack)
    engine: MockEngine | None = None

    def start(self, stage: Stage) -> None:
        opening = mock_engine(stage.programs, stage.folder, *_ENGINES[self.model], port=self.port)
        self.engine = self.running.enter_context(opening)

    def kill(self) -> None:
        if self.engine is not None:
            os.kill(self.engine.pid, signal.SIGKILL)
        self.running.close()
        self.engine = None


@dataclass(slots=True)
class Soak:
    """One run: what serves, what became of the requests, how often an engine died."""

    stage: Stage
    served: gate.Served
    replicas: Sequence[Replica]
    fates: Fates = field(default_factory=Fates)
    deaths: int = 0

    async def load(self, seconds: float, clients: int) -> None:
        """People and dying engines for so long, then everybody has gone home and all engines are up."""
        stop, rng = asyncio.Event(), random.Random(len(self.fates.counts))
        async with asyncio.TaskGroup() as tasks:
            for number in range(clients):
                tasks.create_task(client(self.served.port, self.stage.token, random.Random(number), self.fates, stop))
            killing = tasks.create_task(self._kill_now_and_then(rng, stop))
            telling = tasks.create_task(self._tell())
            await asyncio.sleep(seconds)
            stop.set()
            await killing
            telling.cancel()

    async def rest(self, seconds: float) -> Rest:
        """The gate when nobody has asked for so long."""
        await asyncio.sleep(seconds)
        return await asyncio.to_thread(self._at_rest)

    async def _kill_now_and_then(self, rng: random.Random, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await asyncio.sleep(rng.uniform(*_UP_SECONDS))
            replica = rng.choice(self.replicas)
            replica.kill()
            self.deaths += 1
            await asyncio.sleep(rng.uniform(*_DOWN_SECONDS))
            await asyncio.to_thread(replica.start, self.stage)

    async def _tell(self) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(_TOLD_EVERY_SECONDS)
            memory = resident_bytes(self.served.workers()) / 1e6
            _say(f"{time.monotonic() - began:6.0f} s  {self.told()}  {memory:.0f} MB in the workers")

    def told(self) -> str:
        counts = "  ".join(f"{outcome} {count:,}" for outcome, count in sorted(self.fates.counts.items()))
        return f"{counts}  engines died {self.deaths}"

    def _at_rest(self) -> Rest:
        page = urllib.request.urlopen(f"http://127.0.0.1:{self.served.admin_port}/metrics").read().decode()
        active = sum(replica.engine.stats().active for replica in self.replicas if replica.engine is not None)
        workers = {worker: _worker_rest(worker, self.stage.folder) for worker in self.served.workers()}
        return Rest(workers, under_way(page), active)

    def faults(self, start: Rest, end: Rest) -> list[str]:
        found = [*faults_of_rest(start, end), *faults_of_log(self.served.log.read_text().splitlines())]
        if self.fates.wrong:
            found.append(f"{len(self.fates.wrong)} requests ended as none may, the first: {self.fates.wrong[0]}")
        asked = self.fates.counts.total()
        if self.fates.counts["done"] < asked * _LEAST_DONE_SHARE:
            found.append(f"only {self.fates.counts['done']:,} of {asked:,} requests were answered whole")
        return found


def _worker_rest(worker: int, folder: Path) -> WorkerRest:
    tasks = _tasks(worker, folder)  # before the memory: it collects what is garbage
    return WorkerRest(resident_bytes([worker]), open_descriptors(worker), tasks)


def _tasks(worker: int, folder: Path) -> int:
    """The worker's own word (probe/sitecustomize.py). Raises TimeoutError where it is silent."""
    told = folder / f"{worker}.tasks"
    told.unlink(missing_ok=True)
    os.kill(worker, signal.SIGUSR2)
    deadline = time.monotonic() + _PROBE_SECONDS
    while not told.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"worker {worker} does not tell its tasks")
        time.sleep(0.05)
    return int(told.read_text())


async def soak(
    stage: Stage, *, warm: float, seconds: float, rest: float = REST_SECONDS, clients: int = CLIENTS
) -> list[str]:
    """The faults of a run of so many seconds after so many of warm-up, with a rest of so many after each."""
    with ExitStack() as stack:
        replicas = [Replica(model, free_port()) for model in _ENGINES for _ in range(REPLICAS)]
        for replica in replicas:
            replica.start(stage)
            stack.callback(replica.kill)
        ports = {model: [replica.port for replica in replicas if replica.model == model] for model in _ENGINES}
        paths = os.pathsep.join(filter(None, (str(_PROBE), os.environ.get("PYTHONPATH"))))
        environment = {"PYTHONPATH": paths, "SOAK_PROBE": str(stage.folder)}
        collector = stack.enter_context(mock_engine(stage.programs, stage.folder))
        setting = gate.Setting(ports, collector=collector.port, workers=2, cores=(), environment=environment)
        served = await asyncio.to_thread(stack.enter_context, gate.served(stage, setting, "soak"))
        run = Soak(stage, served, replicas)
        await run.load(warm, clients)
        start = await run.rest(rest)
        _say(f"warm after {warm:.0f} s: {start}")
        await run.load(seconds, clients)
        end = await run.rest(rest)
        _say(f"in the end: {end}\n{run.told()}")
        return run.faults(start, end)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _main(seconds: float) -> list[str]:
    async with open_stage() as stage:
        return await soak(stage, warm=max(seconds * _WARM_SHARE, _LEAST_WARM_SECONDS), seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak ARGS=…", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long it works, warm-up and rests aside (30)")
    faults = asyncio.run(_main(parser.parse_args().minutes * 60))
    for fault in faults[:20]:
        _say(f"fault: {fault[:2000]}")
    _say(f"NO: {len(faults)} faults" if faults else "YES: everything is back where it was")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
