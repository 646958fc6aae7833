"""One worker's gate: what it tells of itself, and how it takes its leave."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from observability.counted import Counted
from observability.history.told import Ended
from observability.metrics import Metrics
from proxy.assurance.engines import Engines
from proxy.channel import WorkerState
from proxy.directory.redis_history import RedisHistory
from proxy.directory.view import DirectoryView
from proxy.entrance import Entrance
from proxy.gateway import Gateway
from proxy.inquiries import Inquiries
from proxy.questions import Done, HowIsIt, Keep, Question, Recall, Recalled, ReplicaStatus, Status
from proxy.reception import Reception
from proxy.relay.crowd import REASONS
from proxy.relay.front import Front

# After the drain limit, cut streams still need a turn of the loop to write their error event.
CUT_SECONDS: Final = 2.0
LOOK_AT_CONNECTIONS_SECONDS: Final = 0.02

_NOT_KEPT: Final = "[history] redis is not set here"


@dataclass(frozen=True, slots=True)
class Gate:
    """One worker's gate: `front` makes the protocol of each client connection."""

    front: Front
    entrance: Entrance
    gateway: Gateway
    reception: Reception
    view: DirectoryView
    engines: Engines
    inquiries: Inquiries
    kept: RedisHistory | None
    _metrics: Metrics
    _ended: Ended

    @property
    def metrics(self) -> Metrics:
        """The worker's numbers, with all in them that has happened until now."""
        self.entrance.recorder.tell()
        return self._metrics

    @property
    def ended(self) -> Ended:
        """The requests that have ended until now and are not told yet."""
        self.entrance.recorder.tell()
        return self._ended

    def waits_for(self) -> tuple[str, ...]:
        """The parts that are not known good. Nothing to wait for means ready."""
        parts = {
            "issuers": self.reception.issuers.ready,
            "directory": self.view.ready,
            "keys": not self.lacking_keys(),
            "engines": self.engines.ready,
            "audit": self.gateway.accounting.ready,
        }
        return tuple(name for name, ready in parts.items() if not ready)

    def lacking_keys(self) -> tuple[str, ...]:
        """The ids of salt keys that the directory's ring uses and the configuration lacks."""
        ring = self.view.current().ring if self.view.ready else None
        return () if ring is None else self.gateway.salts.keys.lacking(ring, self.gateway.wall_clock())

    def state(self) -> WorkerState:
        return WorkerState(self.waits_for(), self.gateway.relay.open_exchanges)

    def counted(self) -> Iterator[Counted]:
        """What the metrics tell: see `Metrics.told`."""
        metrics = self.metrics
        for places in self.gateway.entries.capacity:
            metrics.engine_load(places.engine, taken=places.taken, limit=places.limit, waiting=places.waiting)
        audit = self.gateway.accounting.state()
        if audit is not None:
            metrics.audit(**dataclasses.asdict(audit))
        crowd = self.front.crowd
        metrics.connections(crowd.open, limit=crowd.most, closed={one: crowd.closed[one] for one in REASONS})
        return metrics.told()

    async def answer(self, question: bytes) -> bytes:
        """To one of the supervisor's questions, encoded; nothing to a question of another version."""
        try:
            asked = msgspec.msgpack.decode(question, type=Question)
        except ValueError:
            return b""
        match asked:
            case HowIsIt():
                return msgspec.msgpack.encode(self._status())
            case Keep():
                kept = Done(_NOT_KEPT) if self.kept is None else await self.kept.keep(asked, now=time.time())
                return msgspec.msgpack.encode(kept)
            case Recall():
                recalled = Recalled(why=_NOT_KEPT) if self.kept is None else await self.kept.recall(asked)
                return msgspec.msgpack.encode(recalled)
            case _:
                return msgspec.msgpack.encode(await self.inquiries.judged(asked))

    def _status(self) -> Status:
        replicas = tuple(
            ReplicaStatus(
                engine.name,
                str(replica.pool.address),
                replica.reachable,
                {one.operation.value: replica.finding(one.operation).verdict.value for one in engine.profile.salted},
            )
            for engine in self.engines.engines
            for replica in engine.replicas
        )
        return Status(self.waits_for(), sum(places.waiting for places in self.gateway.entries.capacity), replicas)

    async def retire(self, seconds: float, ended: asyncio.Event) -> None:
        """Others have taken over: serve the connections that are open until each has had its next answer and is closed
        with it, for `seconds` at most, or until `ended`.

        A connection that waits for a request is left open, since its client may be sending one just now.
        """
        self.entrance.retiring = True
        deadline = time.monotonic() + seconds
        while not self.front.is_empty and time.monotonic() < deadline and not ended.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), LOOK_AT_CONNECTIONS_SECONDS)

    async def drain(self, seconds: float) -> None:
        """Take no request any more; let the open ones finish for `seconds`, then end them honestly."""
        self.entrance.draining = True
        self.entrance.pace.end()
        self.entrance.page_pace.end()
        self.front.close_idle()
        await self._until_quiet(seconds)
        self.gateway.relay.cut_all()
        await self._until_quiet(CUT_SECONDS)
        await self.front.shutdown(timeout=CUT_SECONDS)

    async def _until_quiet(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.front.busy and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_AT_CONNECTIONS_SECONDS)
            self.front.close_idle()
