"""Requests that nobody wrote: the hostile corpus cut, doubled, flipped and spliced, sent raw to a whole gate.

`python -m tests.proxy.raw_fuzz --seconds 3600` goes on as long as it is told, and ends with status 1 and the request at
the first that reached the engine in another form than the gate's own. `make fuzz` runs it for an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from tests.parts.gate_bed import GateBed, gate_bed
from tests.parts.hostile import KINDS
from tests.parts.hostile.sending import send
from tests.parts.redis_server import RedisServer
from tests.proxy.stamped import alices_salts, assert_stamped

LONGEST: Final = 64 * 1024
_LENGTH: Final = re.compile(rb"Content-Length: [0-9]+")
_RIGHT_LENGTH: Final = 0.8
CASES: Final = tuple(case for kind in KINDS.values() for case in kind.values() if len(case) <= LONGEST)


@dataclass(frozen=True, slots=True)
class Counts:
    sent: int
    answered: int
    reached: int


def mutants(rng: random.Random, cases: Sequence[bytes] = CASES) -> Iterator[bytes]:
    """Endless; the same for the same seed."""
    while True:
        head, end, body = rng.choice(cases).partition(b"\r\n\r\n")
        # Most heads that are not as they should be are refused whole, so it is mostly the body that is mutated.
        for _ in range(rng.randint(1, 3)):
            mutate = rng.choice(_MUTATIONS)
            head, body = (mutate(rng, head, cases), body) if rng.random() < 0.2 else (head, mutate(rng, body, cases))
        case = head + end + body
        # A wrong length alone would have most of them refused before anything else is looked at.
        yield _with_its_length(case[:LONGEST]) if rng.random() < _RIGHT_LENGTH else case[:LONGEST]


def _with_its_length(case: bytes) -> bytes:
    head, end, body = case.partition(b"\r\n\r\n")
    return _LENGTH.sub(b"Content-Length: %d" % len(body), head, count=1) + end + body


def _flip(rng: random.Random, case: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(case) or 1)
    return case[:at] + bytes([rng.randrange(256)]) + case[at + 1 :]


def _cut(rng: random.Random, case: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = sorted((rng.randrange(len(case) + 1), rng.randrange(len(case) + 1)))
    return case[:begin] + case[min(end, begin + rng.randrange(1, 20)) :]


def _double(rng: random.Random, case: bytes, _: Sequence[bytes]) -> bytes:
    lines = case.split(b"\r\n")
    at = rng.randrange(len(lines))
    return b"\r\n".join([*lines[: at + 1], *lines[at:]])


def _swap(rng: random.Random, case: bytes, _: Sequence[bytes]) -> bytes:
    lines = case.split(b"\r\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\r\n".join(lines)


def _splice(rng: random.Random, case: bytes, cases: Sequence[bytes]) -> bytes:
    other = rng.choice(cases)
    return case[: rng.randrange(len(case) + 1)] + other[rng.randrange(len(other)) :]


def _put(rng: random.Random, case: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(case) + 1)
    return case[:at] + rng.choice(_TOKENS) + case[at:]


_TOKENS: Final = (
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b'"', b"\\", b"{", b"}", b"[", b"]", b"\xff", b"\xc3",
    b'"cache_salt":"x",', b"\\u0063", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\n", b"@credentials@\r\n", b"1e999", b"null", b"\xef\xbb\xbf",
)  # fmt: skip
_MUTATIONS: Final[tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...]] = (
    _flip, _cut, _double, _swap, _splice, _put, _put,
)  # fmt: skip


async def fuzz(bed: GateBed, engine: Simulator, rng: random.Random, goes_on: Callable[[int], bool]) -> Counts:
    """Sends mutants while `goes_on` says so of their number. Raises AssertionError at the first that breaks a rule."""
    sent = answered = reached = 0
    salts = alices_salts(bed.mint.issuer)
    for mutant in mutants(rng):
        if not goes_on(sent):
            break
        engine.requests.clear()
        statuses = await send(bed.port, bed.headers(), mutant, answers=1, seconds=0.1)
        sent += 1
        answered += bool(statuses)
        assert not {status for status in statuses if status >= 500}, (statuses, mutant)
        for received in engine.requests:
            reached += 1
            assert_stamped(received, repr(mutant), salts)
    return Counts(sent, answered, reached)


async def _run(seconds: float, seed: int) -> Counts:
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name, RedisServer(Path(name)) as redis:
        async with (
            Simulator(EngineShape(pace=AT_ONCE, answer_tokens=2)) as engine,
            # No proof: the probes that repeat it would pass for requests of a client.
            gate_bed(redis.settings(), [engine.url], Path(name), proof="off") as bed,
        ):
            return await fuzz(bed, engine, random.Random(seed), lambda _: time.monotonic() < until)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    arguments = parser.parse_args()
    sys.stdout.write(f"seed {arguments.seed}\n")
    counts = asyncio.run(_run(arguments.seconds, arguments.seed))
    sys.stdout.write(f"{counts}: every request that reached the engine had the gate's one salt\n")


if __name__ == "__main__":
    main()
