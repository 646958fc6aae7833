"""People at a gate as they are: some leave, some read slowly, some want it whole; and what became of each request."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.parts.gone_client import GoneClient, post

Kind = Literal["short stream", "long stream", "slow reader", "whole answer"]
# `refused` and `broken` are what an engine's restart does to a request; `wrong` is nothing that may happen.
Outcome = Literal["done", "left", "refused", "broken", "wrong"]

# In percent of the requests.
_KINDS: Final[dict[Kind, int]] = {"short stream": 45, "whole answer": 25, "long stream": 20, "slow reader": 10}
MODELS: Final[dict[Kind, str]] = {
    "short stream": "short",
    "whole answer": "short",
    "long stream": "long",
    "slow reader": "flood",
}
_LEAVING_SHARE: Final = 0.2
_LEAVING_SECONDS: Final[dict[Kind, float]] = {
    "short stream": 0.08,
    "whole answer": 0.02,
    "long stream": 5.0,
    "slow reader": 3.0,
}
_REFUSALS: Final = frozenset({502, 503, 504})
_REUSED_SHARE: Final = 0.7
_HUNG_SECONDS: Final = 60.0
_DONE: Final = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Fates:
    """How many requests ended how, and the first of those that were wrong."""

    counts: Counter[Outcome] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, kind: Kind, outcome: Outcome, told: str = "") -> None:
        self.counts[outcome] += 1
        if outcome == "wrong":
            self.wrong.append(f"{kind}: {told}")


async def client(port: int, token: str, rng: random.Random, fates: Fates, stop: asyncio.Event) -> None:
    """One of them: asks, now on the same connection, now on a new one, until told to stop."""
    while not stop.is_set():
        try:
            async with GoneClient(port, receive_buffer=65536) as connection:
                while await _one(connection, token, rng, fates) and rng.random() < _REUSED_SHARE and not stop.is_set():
                    await asyncio.sleep(rng.random() * 0.2)
        except OSError as error:
            fates.add("short stream", "wrong", f"no connection: {error}")
            await asyncio.sleep(1)


async def _one(connection: GoneClient, token: str, rng: random.Random, fates: Fates) -> bool:
    """One request, and whether the connection can be used again."""
    kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    document = {
        "model": MODELS[kind],
        "stream": kind != "whole answer",
        "messages": [{"role": "user", "content": "x" * rng.choice((10, 1000, 50_000))}],
    }
    try:
        await connection.send(post("/v1/chat/completions", document, {"Authorization": f"Bearer {token}"}))
        if rng.random() < _LEAVING_SHARE:
            await _leave(connection, kind, rng)
            fates.add(kind, "left")
            return False
        outcome, told = await _take(connection, kind, rng)
    except TimeoutError:
        fates.add(kind, "wrong", f"nothing came for {_HUNG_SECONDS:.0f} s")
        return False
    except (EOFError, ConnectionResetError, BrokenPipeError):
        outcome, told = "broken", ""
    fates.add(kind, outcome, told)
    return outcome == "done"


async def _leave(connection: GoneClient, kind: Kind, rng: random.Random) -> None:
    """At some moment: before the head, between events, or while nothing is read."""
    await asyncio.sleep(rng.random() * _LEAVING_SECONDS[kind])
    if rng.random() < 0.5:
        connection.leave_by_fin()
    else:
        connection.leave_by_rst()


async def _take(connection: GoneClient, kind: Kind, rng: random.Random) -> tuple[Outcome, str]:
    """Reads the answer. Raises EOFError where it is cut, TimeoutError where nothing comes any more."""
    if kind == "whole answer":
        answer = await connection.read_answer(seconds=_HUNG_SECONDS)
        return ("done", "") if answer.status == 200 else _refused(answer.status, answer.body)
    head = await connection.read_until(b"\r\n\r\n", seconds=_HUNG_SECONDS)
    status = int(head.split(b" ", 2)[1])
    if status != 200:
        return _refused(status, await connection.read_until(b"}}", seconds=_HUNG_SECONDS))
    return await _take_stream(connection, kind, rng)


def _refused(status: int, body: bytes) -> tuple[Outcome, str]:
    return ("refused", "") if status in _REFUSALS else ("wrong", f"{status} {body[:300]!r}")


async def _take_stream(connection: GoneClient, kind: Kind, rng: random.Random) -> tuple[Outcome, str]:
    tail = b""
    while chunk := await connection.read_chunk(seconds=_HUNG_SECONDS):
        if b'data: {"error"' in chunk:
            return "broken", ""
        tail = (tail + chunk)[-len(_DONE) :]
        if kind == "slow reader":
            await asyncio.sleep(rng.random() * 0.03)
    return ("done", "") if tail == _DONE else ("wrong", f"a last chunk after {tail!r}")
