"""What saltgate asks an engine on its own account: constants, and probes that it stamped itself."""

from __future__ import annotations

import asyncio
from typing import Final

from proxy.engines.stamp import StampedRequest
from proxy.relay.exchange import WholeAnswer
from proxy.relay.leg import Ending, Home, Leg, Question
from proxy.relay.pool import Pool

MAXIMUM_ANSWER_BYTES: Final = 32 * 1024 * 1024


class EngineUnreachable(Exception):  # noqa: N818 - a finding about an engine, not an error of the program
    """The engine gave no whole answer."""


class _Collector:
    """A Sink that keeps the answer."""

    def __init__(self) -> None:
        self.done: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self.status = 0
        self.content_type = b""
        self.pieces: list[bytes] = []
        self._size = 0

    def head(self, status: int, content_type: bytes) -> None:
        self.status, self.content_type = status, content_type

    def body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= MAXIMUM_ANSWER_BYTES:
            self.pieces.append(data)
        elif not self.done.done():
            self.done.set_result(Ending.BROKEN)

    def end(self, ending: Ending) -> None:
        if not self.done.done():
            self.done.set_result(ending)


async def ask(pool: Pool, what: Question | StampedRequest, *, seconds: float) -> WholeAnswer:
    """The engine's whole answer, on a connection of its own. Raises EngineUnreachable with the reason."""
    return await ask_on(await connected(pool), pool, what, seconds=seconds)


async def connected(pool: Pool, home: Home | None = None) -> Leg:
    """A new connection, at home in the pool unless said otherwise. Raises EngineUnreachable with the reason."""
    try:
        return await pool.new_leg(home)
    except (OSError, TimeoutError) as error:
        raise EngineUnreachable(f"{pool.address}: {str(error) or 'no connection in time'}") from error


async def ask_on(leg: Leg, pool: Pool, what: Question | StampedRequest, *, seconds: float) -> WholeAnswer:
    """The same on a connection that is there already. It is given up where no whole answer comes."""
    collector = _Collector()
    leg.send(what, headers=pool.headers, sink=collector)
    try:
        async with asyncio.timeout(seconds):
            ending = await collector.done
    except TimeoutError as error:
        raise EngineUnreachable(f"{pool.address}: no answer within {seconds:g} s") from error
    finally:
        if not collector.done.done() or collector.done.result() is Ending.BROKEN:
            leg.abort()
    if ending is not Ending.COMPLETE:
        why = ending.value if leg.loss is None else f"{ending.value}: {leg.loss}"
        raise EngineUnreachable(f"{pool.address}: the connection broke ({why})")
    return WholeAnswer(collector.status, collector.content_type, b"".join(collector.pieces))
