"""A connection to an engine that is never given up: as long as it holds, the process at its other end is the same.

What is proven is proven of a process, and an address tells nothing of which one listens there. A process that ends
closes its connections before another can listen in its place, so the end of this one is the first sign. A name may
have several addresses, or lead to another one tomorrow: so nothing is sent but to the address of the leash, and where
the name leads elsewhere the leash is let go, and what is there is proven anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from proxy.relay.exchange import WholeAnswer
from proxy.relay.leg import Leg, Question
from proxy.relay.pool import Pool
from proxy.relay.question import EngineUnreachable, ask_on, connected


class Leash:
    """The leg's Home. `broken` is set, and `on_break` called, at the moment the connection ends."""

    def __init__(self, pool: Pool, on_break: Callable[[], None]) -> None:
        self.pool = pool
        self.broken = asyncio.Event()
        self._on_break = on_break
        self._leg: Leg | None = None
        self._looked = 0.0

    async def attach(self) -> None:
        """Connect. From then on the pool connects to the same address only. Raises EngineUnreachable."""
        self._leg = await connected(self.pool, self)
        self.pool.keep_to(self._leg)
        self._looked = asyncio.get_running_loop().time()

    async def ask(self, question: Question, *, seconds: float) -> WholeAnswer:
        """The engine's whole answer. Raises EngineUnreachable, and then the leash is broken or about to be."""
        if self._leg is None or not self._leg.usable:
            raise EngineUnreachable(f"{self.pool.address}: the connection was closed")
        return await ask_on(self._leg, self.pool, question, seconds=seconds)

    async def leads_elsewhere(self) -> bool:
        """Whether the engine's name was looked up again, as often as connections grow too old, and leads elsewhere."""
        now = asyncio.get_running_loop().time()
        if now - self._looked < self.pool.age_seconds:
            return False
        self._looked = now
        return await self.pool.has_moved()

    def let_go(self) -> None:
        if self._leg is not None:
            self._leg.abort()

    def back(self, leg: Leg) -> None:
        """After each answer: it is kept."""

    def lost(self, leg: Leg) -> None:  # noqa: ARG002 - there is but one
        if not self.broken.is_set():
            self.broken.set()
            self._on_break()


@asynccontextmanager
async def leash(pool: Pool, on_break: Callable[[], None]) -> AsyncIterator[Leash]:
    """A leash on the engine behind `pool`, let go at the end. Raises EngineUnreachable."""
    held = Leash(pool, on_break)
    await held.attach()
    try:
        yield held
    finally:
        held.let_go()
