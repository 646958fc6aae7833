"""What opaque tokens cost at 200 requests a second, and what an issuer that is slow or away does to everybody else.

`python -m tests.proxy.introspection_load [SECONDS [WORDS OF A ROW]]` prints a table; it needs a redis-server. A whole
gate runs in this process with its clients, the introspection endpoint in one of its own. Callers with signed tokens
come 20 times a second beside the others. All ask for `/v1/models`, which is authenticated like everything else and asks
no engine. Questions that hang count as being there at once until the end.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp

from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from tests.parts.gate_bed import GateBed, gate_bed
from tests.parts.introspection_server import Behaviour, IntrospectionServer, http
from tests.parts.redis_server import RedisServer

RATE, SIGNED_RATE = 200.0, 20.0


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    tokens: Callable[[], Iterator[str]]
    behaviour: Behaviour = "answer"
    seconds: float = 0.0
    status: str | None = None
    warm: bool = False
    """Whether the provider is well for the first second."""


@dataclass(slots=True)
class Callers:
    """What one kind of caller met. Times in seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)

    def told(self) -> str:
        ordered = sorted(self.times)
        p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
        return f"{p50 * 1e3:.1f} / {p99 * 1e3:.1f} / {ordered[-1] * 1e3:.1f}"


def one() -> Iterator[str]:
    return itertools.repeat("good-one")


def hundred() -> Iterator[str]:
    return itertools.cycle([f"good-{number}" for number in range(100)])


def distinct() -> Iterator[str]:
    return (f"good-{number}" for number in itertools.count())


def wrong() -> Iterator[str]:
    return (f"wrong-{number}" for number in itertools.count())


def hundred_and_wrong() -> Iterator[str]:
    return (token for pair in zip(hundred(), wrong(), strict=False) for token in pair)


CASES = (
    Case("well, one token", one),
    Case("well, 100 tokens", hundred),
    Case("well, each another token", distinct),
    Case("well, each another wrong token", wrong),
    Case("well, 100 tokens among wrong ones", hundred_and_wrong),
    Case("300 ms slow, one token", one, seconds=0.3),
    Case("300 ms slow, each another token", distinct, seconds=0.3),
    Case("1 s slow, 100 tokens among wrong ones", hundred_and_wrong, seconds=1.0),
    Case("hangs, one token", one, behaviour="hang"),
    Case("hangs, each another token", distinct, behaviour="hang"),
    Case("hangs after 1 s, 100 tokens", hundred, behaviour="hang", warm=True),
    Case("hangs after 1 s, each another token", distinct, behaviour="hang", warm=True),
    Case("503, each another token", distinct, status="503 Service Unavailable"),
    Case("503 after 1 s, 100 tokens", hundred, status="503 Service Unavailable", warm=True),
    Case("503 after 1 s, each another token", distinct, status="503 Service Unavailable", warm=True),
)


class Everybody(dict[str, dict[str, object]]):
    """Each token that begins with good- is active, of a person of its own name."""

    def get(self, token: str, _: object = None) -> dict[str, object] | None:  # type: ignore[override]
        if not token.startswith("good-"):
            return None
        told = {"active": True, "sub": "u-alice-0001", "aud": "saltgate", "exp": int(time.time()) + 300}
        return told | {"client_id": "chat-ui"}


def serve(case: Case, pipe: Connection) -> None:
    asyncio.run(_serve(case, pipe))


async def _serve(case: Case, pipe: Connection) -> None:
    async with IntrospectionServer() as server:
        server.active = Everybody()
        pipe.send(server.port)
        if case.warm:
            await asyncio.to_thread(pipe.recv)
            await asyncio.sleep(1.0)
        server.behaviour, server.seconds, server.probes_too = case.behaviour, case.seconds, True
        server.raw = None if case.status is None else http(b"", status=case.status)
        await asyncio.to_thread(pipe.recv)
        pipe.send((len(server.asked), server.probes, server.most_at_once))


@contextmanager
def provider(case: Case) -> Iterator[tuple[int, Connection]]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(case, theirs))
    process.start()
    try:
        yield ours.recv(), ours
    finally:
        process.join(10)
        process.kill()


async def call(session: aiohttp.ClientSession, url: str, token: str, met: Callers) -> None:
    headers = {"Authorization": f"Bearer {token}", "OpenAI-Organization": "acme", "OpenAI-Project": "apollo"}
    began = time.perf_counter()
    async with session.get(f"{url}/v1/models", headers=headers) as answer:
        await answer.read()
    met.times.append(time.perf_counter() - began)
    met.statuses[answer.status] += 1


async def arrive(bed: GateBed, rate: float, tokens: Iterator[str], seconds: float) -> Callers:
    """So many a second, whether or not the ones before are done."""
    met = Callers()
    loop = asyncio.get_running_loop()
    began = loop.time()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            group.create_task(call(session, bed.url, next(tokens), met))
    return met


async def measure(case: Case, redis: RedisServer, folder: Path, seconds: float) -> str:
    redis.command("FLUSHALL")
    with provider(case) as (port, pipe):
        server = IntrospectionServer()
        server.port = port
        introspection = server.issuer().introspection
        async with (
            Simulator(EngineShape(pace=AT_ONCE)) as engine,
            gate_bed(redis.settings(), [engine.url], folder, introspection=introspection) as bed,
        ):
            if case.warm:
                pipe.send("now")
            signed_tokens = itertools.cycle([bed.token() for _ in range(20)])
            async with asyncio.TaskGroup() as group:
                opaque = group.create_task(arrive(bed, RATE, case.tokens(), seconds))
                signed = group.create_task(arrive(bed, SIGNED_RATE, signed_tokens, seconds))
            pipe.send("stop")
            asked, probes, at_once = pipe.recv()
    statuses = "/".join(str(opaque.result().statuses[status]) for status in (200, 401, 503))
    others = sum(signed.result().statuses.values()) - signed.result().statuses[200]
    return (
        f"| {case.name} | {asked} | {probes} | {at_once} | {statuses} | {opaque.result().told()} "
        f"| {others} | {signed.result().told()} |"
    )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    cases = [case for case in CASES if len(sys.argv) < 3 or sys.argv[2] in case.name]
    print(f"{seconds:g} s a row, {RATE:g} requests a second with opaque tokens and {SIGNED_RATE:g} with signed ones.\n")
    print(
        "| issuer, tokens | questions | probes | at once | 200/401/503 | opaque p50 / p99 / max ms "
        "| signed ones refused | signed p50 / p99 / max ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as redis:
        for case in cases:
            print(asyncio.run(measure(case, redis, Path(folder), seconds)), flush=True)


if __name__ == "__main__":
    main()
