"""Work for a client before there is an exchange: it ends when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from proxy.relay.downstream import ClientGone, Downstream, NothingToWrite

T = TypeVar("T")


async def unless_gone(downstream: Downstream, work: Coroutine[None, None, T]) -> T:
    """The work's result. Raises ClientGone where the client leaves before; by then the work is cancelled and over."""
    if downstream.gone:
        work.close()
        raise ClientGone
    task = asyncio.get_running_loop().create_task(work)
    waiting = _Waiting(task)
    downstream.listener = waiting
    try:
        return await task
    except asyncio.CancelledError:
        if waiting.gone:
            raise ClientGone from None
        raise
    finally:
        downstream.listener = None


class _Waiting(NothingToWrite):
    """The downstream's Listener meanwhile."""

    def __init__(self, task: asyncio.Task[T]) -> None:
        self._task = task
        self.gone = False

    def client_gone(self) -> None:
        self.gone = True
        self._task.cancel()
