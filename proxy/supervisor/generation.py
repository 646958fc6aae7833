"""The workers of one configuration: they begin together, and end together when another configuration has taken over."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

import structlog

from observability.exposition import Snapshot, merge
from proxy.channel import WorkerState
from proxy.listening.loads import load_page
from proxy.plan import Plan
from proxy.supervisor.worker import Outfit, Worker

# How often every worker is asked, so that one that hangs is found though nobody looks at the admin listener.
LOOK_SECONDS: Final = 10.0
# Beyond the drain limit: cut streams write their error event, telemetry flushes.
EXIT_SECONDS: Final = 8.0

_log = structlog.get_logger("saltgate.server")


class Generation:
    """See the module. It takes no connections until `listen`. Raises OSError where there are no descriptors left."""

    def __init__(self, plan: Plan, listening: socket.socket) -> None:
        self.plan = plan
        count = plan.workers or os.cpu_count() or 1
        self._page = load_page(count)
        outfit = Outfit(plan.packed, listening, self._page)
        self._workers = [Worker(outfit, number) for number in range(count)]
        self._ending = asyncio.Event()

    @property
    def size(self) -> int:
        return len(self._workers)

    @property
    def deaths(self) -> int:
        """How many worker processes have ended without being told to."""
        return sum(worker.deaths for worker in self._workers)

    async def run(self) -> None:
        """Returns when every worker has ended after `retire`, `stop` or `kill`, or was killed for taking too long."""
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(worker.keep_running()) for worker in self._workers]
                looking = tasks.create_task(self._look())
                await self._ending.wait()
                _, still = await asyncio.wait(running, timeout=self.plan.drain_seconds + EXIT_SECONDS)
                if still:
                    _log.error("server.killing", workers=len(still))
                self.kill()
                looking.cancel()
        finally:
            self._page.close()

    def listen(self) -> None:
        for worker in self._workers:
            worker.listen()

    def retire(self) -> None:
        """Others have taken over: each worker ends with its last open connection, or at the drain limit."""
        self._ending.set()
        for worker in self._workers:
            worker.retire()

    def stop(self) -> None:
        """Ask every worker to drain and end; asked again, they cut what is still open."""
        self._ending.set()
        for worker in self._workers:
            worker.stop()

    def kill(self) -> None:
        self._ending.set()
        for worker in self._workers:
            worker.kill()

    async def states(self) -> list[WorkerState | None]:
        return list(await asyncio.gather(*(worker.state() for worker in self._workers)))

    async def waits_for(self) -> frozenset[str]:
        """What stands between it and serving; "workers" where one does not answer."""
        states = await self.states()
        missing = {reason for state in states if state is not None for reason in state.waits_for}
        return frozenset(missing | ({"workers"} if None in states else set()))

    def told(self) -> Snapshot:
        """The metrics that its workers last told, with what ended ones counted."""
        return merge(snapshot for worker in self._workers for snapshot in (worker.retired, worker.latest))

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.states()
