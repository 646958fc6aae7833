"""One request that waits for a place at its engine: until its turn, or until it is known that it will have none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.capacity.places import Capacity, Place, Places
from proxy.refusals import Refusal
from proxy.relay.downstream import ClientGone, Downstream, NothingToWrite

STANDINGS_A_TURN: Final = 200


class Waiting(NothingToWrite):
    """A waiter for `Places`, and the downstream's Listener meanwhile. `end` has what came of it; None: its client left.

    `standing` says why its caller may not have it any more, as in `proxy.relay.relay`.
    """

    __slots__ = ("_places", "_waits", "end", "load", "project", "standing", "workspace")

    def __init__(
        self, places: Places, *, workspace: str, project: str, size: int, standing: Callable[[], Refusal | None]
    ) -> None:
        """`size` is what is kept of it meanwhile, in bytes."""
        self.workspace = workspace
        self.project = project
        self.load = places.limits.load(size)
        self.standing = standing
        self.end: asyncio.Future[Place | Refusal | None] = asyncio.get_running_loop().create_future()
        self._places = places
        self._waits = False

    async def place(self, downstream: Downstream) -> Place:
        """Its place, when its turn has come.

        Raises EngineBusy where it may not wait, or has waited too long, ClientGone where the client leaves before, and
        what `standing` says.
        """
        if downstream.gone:
            raise ClientGone
        self._places.join(self)
        self._waits = True
        downstream.listener = self
        timer = asyncio.get_running_loop().call_later(self._places.limits.wait_seconds, self._waited_too_long)
        try:
            end = await self.end
        except asyncio.CancelledError:
            self._forsake()
            raise
        finally:
            timer.cancel()
            downstream.listener = None
        if end is None:
            raise ClientGone
        if isinstance(end, Refusal):
            raise end
        return end

    # What the places tell (Waiter).

    def granted(self, place: Place) -> None:
        if self.end.cancelled():
            place.give_back()
        self._over(place)

    def refused(self, refusal: Refusal) -> None:
        self._over(refusal)

    def judge(self) -> None:
        if (refusal := self.standing()) is not None:
            self._leave(refusal)

    # What the downstream tells (Listener).

    def client_gone(self) -> None:
        self._leave(None)

    def _waited_too_long(self) -> None:
        message = f"The engine had no room for this request within {self._places.limits.wait_seconds:g} s. "
        self._leave(self._places.busy(message + "Try again in a moment.", reason="waited_too_long"))

    def _leave(self, end: Refusal | None) -> None:
        if self._waits:
            self._places.leave(self)
            self._over(end)

    def _over(self, end: Place | Refusal | None) -> None:
        self._waits = False
        if not self.end.done():
            self.end.set_result(end)

    def _forsake(self) -> None:
        """Cancelled: nobody takes the place any more, which may have been granted in this very moment."""
        self._leave(None)
        if not self.end.cancelled() and isinstance(place := self.end.result(), Place):
            place.give_back()


async def end_revoked(capacity: Capacity) -> None:
    """Whoever waits and may have it no more waits no more. Other work gets its turn in between."""
    for number, waiter in enumerate(capacity.waiters, start=1):
        waiter.judge()
        if number % STANDINGS_A_TURN == 0:
            await asyncio.sleep(0)
