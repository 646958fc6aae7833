"""Is every relayed event there, once, and in its place? `make sequence` looks at 10 million of them.

Many streams at once through a whole gate, their events numbered by the engine and counted by the client, cut into
chunks of every size, some readers slow. Exit status 1 where an event was lost, doubled or out of order, or a stream
did not end as it must.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

import aiohttp
import msgspec
from aiohttp import web

from tests.bench import gate
from tests.bench.numbered import CUTS, Arrived, Cut, chunks
from tests.bench.stage import Stage, open_stage

_AT_ONCE: Final = 48
Manner = Literal["as fast as it goes", "paced by the engine", "read slowly"]
# Share in percent, and how many events such a stream has.
_MANNERS: Final[dict[Manner, tuple[int, tuple[int, int]]]] = {
    "as fast as it goes": (50, (500, 30_000)),
    "paced by the engine": (30, (500, 4_000)),
    "read slowly": (20, (500, 5_000)),
}
_TOLD_EVERY_SECONDS: Final = 10.0
_STALLED_SECONDS: Final = 120.0
_TURN_CHUNKS: Final = 50
_PACE_SECONDS: Final = 0.002
_RETRY_SECONDS: Final = 1.0


class Order(msgspec.Struct, frozen=True):
    """What a stream is to be; it travels to the engine as the prompt."""

    events: int
    cut: Cut
    seed: int
    manner: Manner


@dataclass(slots=True)
class Tally:
    """All streams so far."""

    wanted: int
    ordered: int = 0
    streams: int = 0
    events: int = 0
    refused: int = 0
    manners: Counter[Manner] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, order: Order, found: Arrived) -> None:
        self.streams += 1
        self.manners[order.manner] += 1
        self.events += found.events
        if not found.is_whole(order.events):
            self.faults.append(
                f"{order}: {found.events} came, {found.lost} lost, {found.again} again, done {found.done}"
            )

    def verdict(self) -> str:
        manners = ", ".join(f"{count:,} {manner}" for manner, count in sorted(self.manners.items()))
        told = f"{self.events:,} events in {self.streams:,} streams ({manners}; {self.refused} refused before)"
        if self.faults:
            return (
                f"NO: {told}; {len(self.faults)} streams are not as the engine sent them, the first: {self.faults[0]}"
            )
        return f"YES: {told}: none lost, none doubled, none out of order"


async def sequence(stage: Stage, events: int, workers: int) -> Tally:
    """Streams until so many events have come. Raises TimeoutError where nothing comes any more."""
    tally = Tally(events)
    rng = random.Random(20261130)
    with ExitStack() as stack:
        async with _engine() as engine_port:
            setting = gate.Setting({gate.MODEL: (engine_port,)}, workers=workers, cores=())
            served = await asyncio.to_thread(stack.enter_context, gate.served(stage, setting, "sequence"))
            connector = aiohttp.TCPConnector(limit=0, force_close=False)
            headers = {"Authorization": f"Bearer {stage.token}"}
            base = f"http://127.0.0.1:{served.port}"
            limits = aiohttp.ClientTimeout(total=None, sock_read=_STALLED_SECONDS)
            async with (
                aiohttp.ClientSession(base, connector=connector, headers=headers, timeout=limits) as session,
                asyncio.TaskGroup() as tasks,
            ):
                telling = tasks.create_task(_tell(tally))
                readers = [tasks.create_task(_reader(session, tally, rng)) for _ in range(_AT_ONCE)]
                await asyncio.wait(readers)
                telling.cancel()
    return tally


async def _reader(session: aiohttp.ClientSession, tally: Tally, rng: random.Random) -> None:
    while tally.ordered < tally.wanted:
        order = _order(tally.wanted - tally.ordered, rng)
        tally.ordered += order.events
        while (found := await _read(session, order, rng)) is None:
            tally.refused += 1
            await asyncio.sleep(_RETRY_SECONDS)
        tally.add(order, found)


def _order(left: int, rng: random.Random) -> Order:
    manner = rng.choices(list(_MANNERS), [share for share, _ in _MANNERS.values()])[0]
    return Order(
        min(rng.randint(*_MANNERS[manner][1]), left),
        rng.choice(CUTS),
        rng.getrandbits(32),
        manner,
    )


async def _read(session: aiohttp.ClientSession, order: Order, rng: random.Random) -> Arrived | None:
    """One stream, as much as comes of it; None where the gate refused it before it began, with 503."""
    found = Arrived()
    content = msgspec.json.encode(order).decode()
    document = {
        "model": "mock",
        "stream": True,
        "messages": [{"role": "user", "content": content}],
    }
    slow = order.manner == "read slowly"
    size = 4096 if slow else 65536
    try:
        async with session.post("/v1/chat/completions", json=document, read_bufsize=size) as answer:
            if answer.status == 503:
                sys.stdout.write(f"{await answer.text()}\n")
                return None
            async for data in answer.content.iter_any():
                found.feed(data)
                if slow:
                    await asyncio.sleep(rng.random() * 0.01)
    except aiohttp.ClientError as error:
        sys.stdout.write(f"{order}: {type(error).__name__}\n")
    return found


async def _tell(tally: Tally) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(_TOLD_EVERY_SECONDS)
        sys.stdout.write(f"{time.monotonic() - began:6.0f} s  {tally.events:,} events, {len(tally.faults)} faults\n")
        sys.stdout.flush()


@asynccontextmanager
async def _engine() -> AsyncIterator[int]:
    """An engine that streams what the prompt orders; its port."""
    app = web.Application(client_max_size=1024 * 1024)
    app.router.add_post("/v1/chat/completions", _stream)
    app.router.add_get("/{page:.*}", _page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class _Message(msgspec.Struct):
    content: str


class _Question(msgspec.Struct):
    messages: list[_Message]


async def _page(_: web.Request) -> web.Response:
    """The gate asks whether the engine is there."""
    return web.json_response({"object": "list", "data": []})


async def _stream(request: web.Request) -> web.StreamResponse:
    question = msgspec.json.decode(await request.read(), type=_Question)
    order = msgspec.json.decode(question.messages[0].content, type=Order)
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    answer.enable_chunked_encoding()
    await answer.prepare(request)
    for number, payload in enumerate(chunks(order.events, order.cut, random.Random(order.seed))):
        await answer.write(payload)
        if order.manner == "paced by the engine":
            await asyncio.sleep(_PACE_SECONDS)  # the gate reads one chunk at a time
        elif number % _TURN_CHUNKS == 0:
            await asyncio.sleep(0)  # the other streams, and the gate's question whether the engine lives
    await answer.write_eof()
    return answer


async def run(events: int, workers: int) -> Tally:
    async with open_stage() as stage:
        return await sequence(stage, events, workers)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make sequence ARGS=…", description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000, help="how many, at least (10000000)")
    parser.add_argument("--workers", type=int, default=1, help="of the gate (1)")
    arguments = parser.parse_args()
    tally = asyncio.run(run(arguments.events, arguments.workers))
    sys.stdout.write(f"{tally.verdict()}\n")
    sys.exit(1 if tally.faults else 0)


if __name__ == "__main__":
    main()
