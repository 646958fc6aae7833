"""Generations of workers, one after the other, and what signals mean to them.

A reload (SIGHUP) reads the configuration whole before anything changes. Its workers start beside the old ones, which
serve on until the new ones are ready; only then the new ones take connections and the old ones end with those that they
have. Whatever goes wrong before that changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import structlog

from observability import families
from observability.exposition import States, exposition
from observability.history.history import Bounds, History
from observability.open_requests import Losses
from observability.recorder import Observer
from observability.reloads import Reloads
from proxy.plan import Plan
from proxy.supervisor.gathering import Gathering
from proxy.supervisor.generation import Generation
from proxy.supervisor.metering import Metering, Running
from proxy.supervisor.otlp import Exports
from proxy.supervisor.reload import CannotReload, check_fixed

# From the start of new workers until all are ready: imports, the issuers' keys, the directory, the engines' proof.
READY_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.1

_log = structlog.get_logger("saltgate.server")


class Supervisor:
    """See the module. `read_anew` gives the plan of what the configuration says now; `wall_clock` is Unix seconds.
    `told` are told of requests that end with their worker.
    """

    def __init__(
        self,
        plan: Plan,
        listening: socket.socket,
        read_anew: Callable[[], Awaitable[Plan]],
        *,
        wall_clock: Callable[[], float],
        told: Sequence[Observer] = (),
        ready_seconds: float = READY_SECONDS,
    ) -> None:
        self._listening = listening
        self._read_anew = read_anew
        self._ready_seconds = ready_seconds
        self._metering = Metering(plan.metrics, wall_clock=wall_clock)
        self._exports = Exports(self._metering.totals, self._states, wall_clock=wall_clock)
        self._exports.follow(plan.metrics.otlp)
        history = History(Bounds(scopes=plan.scopes, recent=plan.recent, kept=plan.kept), since=wall_clock())
        self.gathering = Gathering(history, wall_clock)
        self._losses = Losses(
            (*told, self.gathering), self._metering.totals, monotonic_ns=time.monotonic_ns, wall_ns=time.time_ns
        )
        self._current = Generation(plan, listening, self._metering.totals, self.gathering, self._losses)
        self._retired: set[Generation] = set()  # they have handed over, and some of their connections are open
        self._coming: Generation | None = None
        self._deaths = 0
        self._reloads = Reloads(wall_clock)
        self._stop = asyncio.Event()
        self._asked = asyncio.Event()

    @property
    def metrics_token(self) -> bytes | None:
        return self._current.plan.metrics_token

    @property
    def admin_origin(self) -> str | None:
        return self._current.plan.admin_origin

    @property
    def plan(self) -> Plan:
        """What is in force now."""
        return self._current.plan

    @property
    def is_draining(self) -> bool:
        return self._stop.is_set()

    @property
    def size(self) -> int:
        return self._current.size

    async def waits_for(self) -> list[str]:
        """What stands between saltgate and serving; nothing when every worker is ready."""
        if self._stop.is_set():
            return ["draining"]
        return sorted(await self._current.waits_for())

    async def ask(self, question: bytes) -> bytes | None:
        """What a worker answers to a question (`proxy.questions`); None where none can."""
        return await self._current.ask(question)

    async def ask_all(self, question: bytes) -> list[bytes | None]:
        """What each worker that takes connections answers."""
        return await self._current.ask_all(question)

    def violations(self) -> dict[str, int]:
        """How often each isolation check failed since the start, as the workers last told: 10 s ago at most."""
        counted = self._metering.totals.counted(families.ISOLATION_VIOLATIONS)
        return {labels[0]: int(times) for labels, times in counted.items()}

    async def metrics(self, *, open_metrics: bool) -> Iterator[str]:
        """The page for a scraper, in pieces: what all workers ever counted, and how they are."""
        return exposition(self._metering.totals, await self._states(), open_metrics=open_metrics)

    def signalled(self) -> None:
        """The first signal begins the drain, each further one cuts what is still open."""
        if self._stop.is_set():
            for generation in self._generations():
                generation.stop()
        self._stop.set()

    def reload(self) -> None:
        """Read the configuration anew. Asked while new workers are not ready yet, it begins once more."""
        if not self._stop.is_set():
            self._asked.set()

    async def run(self) -> None:
        """Keep the workers running until signalled, then until they have drained, or are killed for taking too long."""
        async with self._exports.running(), asyncio.TaskGroup() as tasks:
            self._current.listen()
            tasks.create_task(self._run(self._current))
            reloading = tasks.create_task(self._follow_reloads(tasks))
            await self._stop.wait()
            reloading.cancel()
            # With the workers' copies closed too, new connections are refused, not left waiting.
            self._listening.close()
            _log.info("server.draining")
            for generation in self._generations():
                generation.stop()

    async def _states(self) -> States:
        running = Running(self._current, tuple(self._retired), self._coming)
        deaths = self._deaths + sum(generation.deaths for generation in running.all())
        return await self._metering.states(running, self._reloads.states(deaths))

    def _generations(self) -> list[Generation]:
        coming = [] if self._coming is None else [self._coming]
        return [self._current, *self._retired, *coming]

    async def _run(self, generation: Generation) -> None:
        try:
            await generation.run()
        finally:
            self._retired.discard(generation)
            if generation is self._coming:
                self._coming = None
            self._deaths += generation.deaths

    async def _follow_reloads(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            _log.info("server.reloading")
            try:
                await self._reload(tasks)
            except CannotReload as refused:
                self._reloads.failed()
                for setting, why in refused.faults:
                    _log.error("server.reload_refused", setting=setting, why=why)
            else:
                self._reloads.succeeded()
                _log.info("server.reloaded", workers=self._current.size)

    async def _reload(self, tasks: asyncio.TaskGroup) -> None:
        plan = await self._read_anew()
        check_fixed(self._current.plan, plan)
        try:
            coming = self._coming = Generation(
                plan, self._listening, self._metering.totals, self.gathering, self._losses
            )
        except OSError as error:
            raise CannotReload(("workers", f"cannot be started: {error.strerror}")) from error
        running = tasks.create_task(self._run(coming))
        try:
            await self._until_ready(coming)
        except BaseException:
            coming.kill()
            await asyncio.wait((running,))
            raise
        before, self._current, self._coming = self._current, coming, None
        self._retired.add(before)
        self._metering.follow(plan.metrics)
        self._exports.follow(plan.metrics.otlp)
        coming.listen()
        before.retire()

    async def _until_ready(self, coming: Generation) -> None:
        """Until the new workers lack nothing that the old ones have. Raises CannotReload where that takes too long."""
        missing: frozenset[str] = frozenset({"workers"})
        try:
            async with asyncio.timeout(self._ready_seconds):
                while missing and ("workers" in missing or not missing <= await self._current.waits_for()):
                    await asyncio.sleep(LOOK_SECONDS)
                    if coming.deaths:
                        raise CannotReload(("workers", "a new one died before it was ready; its lines say why"))
                    if self._asked.is_set():
                        raise CannotReload(("workers", "were not ready yet when the next reload was asked for"))
                    missing = await coming.waits_for()
        except TimeoutError as error:
            names = ", ".join(sorted(missing))
            raise CannotReload(("workers", f"not ready within {self._ready_seconds:.0f} s: {names}")) from error
