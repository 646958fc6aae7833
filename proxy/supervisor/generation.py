"""The workers of one configuration: they begin together, and end together when another configuration has taken over."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

import structlog

from observability.counted import State
from observability.open_requests import Losses
from observability.totals import Totals
from proxy.channel import WorkerState
from proxy.listening.loads import load_page
from proxy.plan import Plan
from proxy.supervisor.gathering import Gathering
from proxy.supervisor.worker import Outfit, Worker

# How often every worker is asked, so that one that hangs is found though nobody looks at the admin listener.
LOOK_SECONDS: Final = 10.0
# Somebody looks at a page and waits for what a worker says.
ASK_SECONDS: Final = 2.0
# Beyond the drain limit: cut streams write their error event, telemetry flushes.
EXIT_SECONDS: Final = 8.0

_log = structlog.get_logger("saltgate.server")


class Generation:
    """See the module. It takes no connections until `listen`. Raises OSError where there are no descriptors left."""

    def __init__(
        self, plan: Plan, listening: socket.socket, totals: Totals, gathering: Gathering, losses: Losses
    ) -> None:
        self.plan = plan
        count = plan.workers or os.cpu_count() or 1
        self._page = load_page(count)
        outfit = Outfit(plan.packed, listening, self._page, totals, gathering, losses.tell)
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

    async def tell(self, *, counts: bool) -> list[WorkerState | None]:
        """What each worker says of itself. With `counts`, what it has counted is in the totals then."""
        return list(await asyncio.gather(*(worker.state(counts=counts) for worker in self._workers)))

    async def ask(self, question: bytes) -> bytes | None:
        """The first answer that a worker has; None where none has one."""
        for worker in self._workers:
            answer = await worker.ask(question, ASK_SECONDS)
            if answer is not None:
                return answer
        return None

    async def ask_all(self, question: bytes) -> list[bytes | None]:
        """Every worker's answer."""
        return list(await asyncio.gather(*(worker.ask(question, ASK_SECONDS) for worker in self._workers)))

    async def waits_for(self) -> frozenset[str]:
        """What stands between it and serving; "workers" where one does not answer."""
        states = await self.tell(counts=False)
        missing = {reason for state in states if state is not None for reason in state.waits_for}
        return frozenset(missing | ({"workers"} if None in states else set()))

    def states(self) -> list[State]:
        """What its workers last told of how things are."""
        return [state for worker in self._workers for state in worker.states]

    def processes(self) -> list[tuple[int, int]]:
        """Number and process id of its workers that run."""
        ids = ((number, worker.process_id) for number, worker in enumerate(self._workers))
        return [(number, process_id) for number, process_id in ids if process_id is not None]

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.tell(counts=True)
