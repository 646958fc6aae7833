"""What the pages show, made of the history and of what workers tell when they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final, Protocol

import msgspec

from observability.history.alarms import Alarms
from observability.history.answers import Alarm, EngineReplica, Gate
from observability.history.figures import Around, Past, found, overview_in_steps, scope_view, window_of
from observability.history.kept import Others
from proxy.questions import HowIsIt, ReplicaStatus, Status
from proxy.supervisor.gathering import Gathering

# An overview serves everybody for so long, and for ten times as long as it took: at most a tenth of this process's time
# goes to it, however many look.
OVERVIEW_SECONDS: Final = 1.0
OVERVIEW_REST: Final = 10.0
WATCH_SECONDS: Final = 10.0
_VERSION: Final = version("saltgate")
_WORST_FIRST: Final = ("failed", "unknown", "no cache", "proven")


class Workers(Protocol):
    """All workers."""

    @property
    def size(self) -> int: ...

    @property
    def gathering(self) -> Gathering: ...

    @property
    def is_draining(self) -> bool: ...

    async def ask_all(self, question: bytes) -> list[bytes | None]: ...

    def violations(self) -> Mapping[str, int]: ...


@dataclass(slots=True)
class _Made:
    body: bytes = b""
    until: float = 0.0
    making: asyncio.Lock = field(default_factory=asyncio.Lock)


class Shown:
    """`clock` is Unix seconds, `monotonic` seconds that never go back. `others` is what other gates have kept, where
    the history is kept.
    """

    def __init__(
        self,
        workers: Workers,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        others: Others | None = None,
    ) -> None:
        self._workers = workers
        self._others = others
        self._clock = clock
        self._monotonic = monotonic
        self._alarms = Alarms()
        self._overviews: dict[str, _Made] = {}

    async def watch(self) -> None:
        """Note when alarms come. Endless."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._alarms.look(self._workers.violations(), self._clock())
            await self._statuses()

    async def overview(self, window: str) -> bytes:
        """As JSON: an object, not empty."""
        made = self._overviews.setdefault(window, _Made())
        async with made.making:
            if self._monotonic() >= made.until:
                statuses = await self._statuses()
                began = self._monotonic()
                made.body = await self._overview(window, statuses)
                ended = self._monotonic()
                made.until = ended + max(OVERVIEW_SECONDS, OVERVIEW_REST * (ended - began))
            return made.body

    def now(self) -> float:
        return self._clock()

    def alarms(self) -> tuple[Alarm, ...]:
        """As of now, or of a few seconds ago."""
        self._alarms.look(self._workers.violations(), self._clock())
        return self._alarms.told()

    def scope(self, window: str, workspace: str, project: str) -> bytes | None:
        """As JSON; None where nothing is known of it."""
        gathering = self._workers.gathering
        asked = window_of(window, self._clock())
        view = scope_view(self._histories(), asked, workspace, project, gathering.open_streams())
        return None if view is None else msgspec.json.encode(view)

    def request(self, request_id: str) -> bytes | None:
        """As JSON; None where it is not known, or not any more."""
        request = found(self._histories(), request_id)
        return None if request is None else msgspec.json.encode(request)

    async def _overview(self, window: str, statuses: list[Status | None]) -> bytes:
        gathering = self._workers.gathering
        open_streams = gathering.open_streams()
        waits_for = sorted(self._waits_for(statuses))
        gate = Gate(
            version=_VERSION,
            workers=self._workers.size,
            ready=not waits_for,
            waits_for=waits_for,
            open_streams=open_streams.total(),
            waiting=sum(status.waiting for status in statuses if status is not None),
            kept_in="memory" if self._others is None else "redis",
            untold=gathering.untold,
        )
        around = Around(gate, self.alarms(), _replicas(statuses), open_streams)
        steps = overview_in_steps(self._histories(), window_of(window, self._clock()), around)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return msgspec.json.encode(end.value)
            await asyncio.sleep(0)  # what workers tell, and who asks for metrics, gets its turn

    def _histories(self) -> tuple[Past, ...]:
        own = self._workers.gathering.history
        return (own,) if self._others is None else (own, self._others)

    async def _statuses(self) -> list[Status | None]:
        """Of each worker; None of one that did not tell."""
        answers = await self._workers.ask_all(msgspec.msgpack.encode(HowIsIt()))
        statuses = [_status(answer) for answer in answers]
        self._alarms.proofs(_failed(statuses), self._clock())
        return statuses

    def _waits_for(self, statuses: Iterable[Status | None]) -> set[str]:
        if self._workers.is_draining:
            return {"draining"}
        return {name for status in statuses for name in (("workers",) if status is None else status.waits_for)}


def _status(answer: bytes | None) -> Status | None:
    """None also of a worker of another version that is not understood."""
    if answer is None:
        return None
    try:
        return msgspec.msgpack.decode(answer, type=Status)
    except ValueError:
        return None


def _failed(statuses: Iterable[Status | None]) -> set[str]:
    return {
        f"{replica.engine} {replica.replica} {endpoint}"
        for status in statuses
        if status is not None
        for replica in status.replicas
        for endpoint, state in replica.proofs.items()
        if state == "failed"
    }


def _replicas(statuses: Iterable[Status | None]) -> tuple[EngineReplica, ...]:
    """Each replica as the worst worker sees it."""
    seen: dict[tuple[str, str], list[ReplicaStatus]] = {}
    for status in statuses:
        for replica in () if status is None else status.replicas:
            seen.setdefault((replica.engine, replica.replica), []).append(replica)
    return tuple(
        EngineReplica(
            engine=engine,
            replica=name,
            up=all(one.up for one in views),
            proofs={
                endpoint: _worst(one.proofs.get(endpoint, "unknown") for one in views) for endpoint in views[0].proofs
            },
        )
        for (engine, name), views in seen.items()
    )


def _worst(states: Iterable[str]) -> str:
    found = set(states)
    return next((state for state in _WORST_FIRST if state in found), "unknown")
