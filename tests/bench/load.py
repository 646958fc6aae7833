"""The two C programs of the benchmark, built when needed: a mock engine and a load generator."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from tests.parts.redis_server import free_port

FOLDER: Final = Path(__file__).parent
START_SECONDS: Final = 20.0


class Percentiles(msgspec.Struct, frozen=True):
    """Of latencies, in milliseconds."""

    n: int
    p50: float
    p99: float
    max: float
    min: float


class Seen(msgspec.Struct, frozen=True):
    """What the load generator prints at its end. `relay_ms` is how long an event took from the engine to the client."""

    ok: int
    errors: int
    first_error: str
    events: int
    seq_errors: int
    wall_s: float
    relay_ms: Percentiles
    ttft_ms: Percentiles


class LoadFailed(Exception):  # noqa: N818 - what the person at the terminal reads
    """A request of the load did not end as it must, so its cost means nothing."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the built programs are."""

    engine: Path
    load: Path


def build(folder: Path) -> Programs:
    """Raises CalledProcessError where the compiler refuses, FileNotFoundError where there is none."""
    for name in ("engine", "load"):
        subprocess.run(["cc", "-O2", "-o", str(folder / name), str(FOLDER / f"{name}.c"), "-lm"], check=True)
    return Programs(folder / "engine", folder / "load")


@contextmanager
def process(
    *command: str, log: Path, env: Mapping[str, str] = MappingProxyType({})
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs while entered; what it prints goes to `log`. `env` is added to the environment."""
    with log.open("wb") as stream:
        running = subprocess.Popen(command, stdout=stream, stderr=stream, env={**os.environ, **env})
        try:
            yield running
        finally:
            running.terminate()
            running.wait()


@dataclass(frozen=True, slots=True)
class MockEngine:
    """A running mock engine (engine.c) on loopback."""

    port: int
    pid: int

    def set(self, defaults: str) -> None:
        """`defaults` as engine.c's `/set` takes them: n=events, t=first_ms, d=gap_ms, j=random phase, y=in step."""
        self._get(f"/set?{defaults}")

    def stats(self) -> EngineStats:
        return msgspec.json.decode(self._get("/stats"), type=EngineStats)

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
            body: bytes = answer.read()
            return body


class EngineStats(msgspec.Struct, frozen=True):
    """The engine's counters: open connections, running streams, all requests, streams whose reader went away."""

    open: int
    active: int
    reqs: int
    aborted: int
    done: int
    salted: int


@contextmanager
def mock_engine(programs: Programs, folder: Path, *words: str, port: int | None = None) -> Iterator[MockEngine]:
    number = free_port() if port is None else port
    with process(str(programs.engine), "-p", str(number), *words, log=folder / f"engine-{number}.log") as running:
        _until_listening(number)
        yield MockEngine(number, running.pid)


def _until_listening(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)):
                return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def run_load(programs: Programs, port: int, words: Sequence[str], *, seconds: float = 120.0) -> Seen:
    """One run against 127.0.0.1:port. Raises LoadFailed where a request failed, or an event was lost or reordered."""
    done = subprocess.run(_command(programs, port, words, seconds), capture_output=True, check=False)
    seen = msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Seen)
    if seen.errors or seen.seq_errors:
        raise LoadFailed(f"{seen.errors} errors, {seen.seq_errors} events out of order; the first: {seen.first_error}")
    return seen


@contextmanager
def load_beside(programs: Programs, port: int, words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The load runs while entered, whatever becomes of its requests; leaving ends it, and all its connections."""
    with process(*_command(programs, port, words, 600.0), log=log) as running:
        yield running


def _command(programs: Programs, port: int, words: Sequence[str], seconds: float) -> tuple[str, ...]:
    limits = ("-d", str(seconds), "-T", str(seconds))
    return (str(programs.load), "-u", f"127.0.0.1:{port}", "-m", "mock", *limits, *words)
