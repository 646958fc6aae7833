"""A gate under steady load while its ring goes to another key."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from config.secret import Secret
from config.settings import Isolation, IsolationKey
from proxy.demo.simulator import EngineShape, Pace, Received, Simulator
from proxy.directory.connect import open_store, removal_policy
from proxy.directory.rotation import rotate_ring
from proxy.isolation.ring import Ring
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit, Unit, UserUnit
from tests.parts.gate_bed import KEY, GateBed, gate_bed
from tests.parts.redis_server import RedisServer
from tests.proxy.rotation.run import Arrival, Call, Caller, Run

OLD: Final = IsolationKey(id="k1", secret=KEY)
NEW: Final = IsolationKey(id="k2", secret=Secret(b"another secret of 32 bytes or so", "test"))
PEOPLE: Final = ("u-alice-0001", "u-bob-0002")
_BLOCK: Final = 16
_WARM: Final = 2  # answers to each caller before anything is recorded
_PATIENCE_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Two people in each project ask in a closed loop: each reads an answer to its end, pauses, and asks again.

    Every question begins with the same `prefix_tokens` of instructions, whoever asks, so that what crosses a border is
    reused and seen. Every fourth project keeps its people apart. The load is recorded from `before` seconds before the
    rotation to `after` seconds past its end.
    """

    projects: int
    prefix_tokens: int
    pause: float
    before: float
    after: float
    pace: Pace
    answer_tokens: int = 4


async def rotation(load: Load, folder: Path, redis: RedisServer, *, over: float) -> Run:
    """Order a rotation to a new key under this load, and wait for its end."""
    shape = EngineShape(pace=load.pace, answer_tokens=load.answer_tokens, capacity_blocks=2**17, block_size=_BLOCK)
    async with Simulator(shape, remembered=1_000_000) as engine, _bed(load, folder, redis, engine.url) as bed:
        crowd = _Crowd(bed, load)
        began = await crowd.ask_through(over)
        ring = await _ring(bed)
        units = {caller.unit for caller in crowd.callers}
        arrivals = [_arrival(received) for received in engine.requests]
        return Run(
            calls=tuple(crowd.calls),
            arrivals=tuple(arrival for arrival in arrivals if isinstance(arrival, Arrival)),
            foreign=tuple(arrival for arrival in arrivals if not isinstance(arrival, Arrival)),
            right={unit: (_salt(unit, ring, OLD), _salt(unit, ring, NEW)) for unit in units},
            moments={unit: began if ring.plan is None else ring.moment(unit, ring.plan) for unit in units},
            prefix_tokens=load.prefix_tokens // _BLOCK * _BLOCK,
            began=began,
            over=over,
        )


class _Crowd:
    """All callers, and what they have asked so far."""

    def __init__(self, bed: GateBed, load: Load) -> None:
        self._bed = bed
        self._load = load
        self._instructions = "".join(f" {number:03x}" for number in range(load.prefix_tokens))  # a token each
        self._stopped = False
        self.callers = tuple(_callers(load, bed.mint.issuer))
        self.calls: list[Call] = []
        self._sent = 0

    async def ask_through(self, over: float) -> float:
        """Ask before, during and after a rotation over `over` seconds; gives the time at which it was ordered."""
        async with asyncio.TaskGroup() as group:
            for caller in self.callers:
                group.create_task(self._ask_on(caller))
            await self._until_warm()
            await asyncio.sleep(self._load.before)
            began = time.time()
            await self._bed.change(rotate_ring(NEW.id, over=over))
            await asyncio.sleep(over + self._load.after)
            self._stopped = True
        return began

    async def _until_warm(self) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while len(self.calls) < _WARM * len(self.callers):
                await asyncio.sleep(0.05)

    async def _ask_on(self, caller: Caller) -> None:
        drawn = random.Random(f"{caller.project} {caller.subject}")
        headers = self._bed.headers(caller.subject, caller.project) | {"Content-Type": "application/json"}
        while not self._stopped:
            self.calls.append(await self._ask(caller, headers))
            await asyncio.sleep(self._load.pause * drawn.uniform(0.5, 1.5))

    async def _ask(self, caller: Caller, headers: Mapping[str, str]) -> Call:
        self._sent += 1
        number, sent = self._sent, time.time()
        url = f"{self._bed.url}/v1/chat/completions"
        try:
            async with self._bed.session.post(url, data=self._question(number), headers=headers) as answer:
                first_token, fault = await _read(answer)
        except aiohttp.ClientError as error:
            first_token, fault = None, repr(error)
        return Call(number, caller, sent, first_token, fault)

    def _question(self, number: int) -> bytes:
        messages = [
            {"role": "system", "content": self._instructions},
            {"role": "user", "content": f"{_QUESTION}{number}"},
        ]
        return json.dumps({"model": "tiny", "messages": messages, "stream": True}).encode()


async def _read(answer: aiohttp.ClientResponse) -> tuple[float | None, str | None]:
    """When the first token came, and what is wrong with the answer."""
    if answer.status != 200:
        return None, f"{answer.status}: {await answer.text()}"
    first_token, last = None, b""
    async for line in answer.content:
        if line.strip():
            last = line.strip()
            if first_token is None and _has_token(last):
                first_token = time.time()
    if first_token is None or last != b"data: [DONE]":
        return first_token, f"the stream ended with {last!r}"
    return first_token, None


def _has_token(line: bytes) -> bool:
    if not line.startswith(b"data: {"):
        return False
    event = json.loads(line.removeprefix(b"data: "))
    return any(choice["delta"].get("content") for choice in event.get("choices", ()))


_QUESTION: Final = "Question "


def _arrival(received: Received) -> Arrival | str | None:
    """A caller's request; of any other its salt alone."""
    messages = json.loads(received.body).get("messages", [])
    asked = messages[-1]["content"] if messages else ""
    if not isinstance(asked, str) or not asked.startswith(_QUESTION):
        return received.salt
    number = int(asked.removeprefix(_QUESTION))
    return Arrival(number, received.salt, received.prompt_tokens or 0, received.reused or 0)


def _callers(load: Load, issuer: str) -> Iterator[Caller]:
    for number in range(load.projects):
        project = f"p{number:03}"
        for subject in PEOPLE:
            apart = _keeps_people_apart(number)
            unit = UserUnit("acme", project, issuer, subject) if apart else ProjectUnit("acme", project)
            yield Caller(project, subject, unit)


def _keeps_people_apart(number: int) -> bool:
    return number % 4 == 3


@asynccontextmanager
async def _bed(load: Load, folder: Path, redis: RedisServer, engine: str) -> AsyncIterator[GateBed]:
    members = json.dumps([f"user:{subject}" for subject in PEOPLE])
    document = '[workspaces.acme]\nissuer = "{issuer}"\n'
    for number in range(load.projects):
        document += f"[workspaces.acme.projects.p{number:03}]\nmembers = {members}\n"
        document += 'unit = "user"\n' if _keeps_people_apart(number) else ""
    both = Isolation(keys=(OLD, NEW))
    async with gate_bed(redis.settings(), [engine], folder, document=document, isolation=both) as bed:
        yield bed


async def _ring(bed: GateBed) -> Ring:
    store = open_store(bed.settings.directory, removal_policy(bed.settings.isolation))
    try:
        ring = (await store.read()).ring
    finally:
        await store.close()
    assert ring is not None
    return ring


def _salt(unit: Unit, ring: Ring, key: IsolationKey) -> str:
    return salt_for(unit, epoch=ring.epoch(unit), key=SaltKey(key.id, key.secret.value)).value
