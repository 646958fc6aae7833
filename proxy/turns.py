"""Whose turn it is where there are fewer places than there are who want one: no owner fills them all."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque


class Turns:
    """So many `places`, of which one owner has at most `of_one` at a time; who waits gets one in turn, owner by owner.

    For one event loop. Waiting ends with cancellation, and costs nothing then.
    """

    def __init__(self, places: int, of_one: int) -> None:
        self._free = places
        self._of_one = of_one
        self._taken: Counter[str] = Counter()
        # In the order of turns; an owner is in it only while somebody waits for it.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def take(self, owner: str) -> None:
        """A place for the owner, to be given back with `give_back`; waits for one."""
        if self._may_have(owner):
            self._grant(owner)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # It was granted in the same moment.
                self.give_back(owner)
            else:
                self._forget(owner, turn)
            raise

    def give_back(self, owner: str) -> None:
        """The owner's place is free again."""
        self._free += 1
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]
        self._next_turn()

    def _next_turn(self) -> None:
        owner = next(filter(self._may_have, self._waiting), None)
        if owner is None:
            return
        turn = self._waiting[owner].popleft()
        if self._waiting[owner]:
            self._waiting.move_to_end(owner)
        else:
            del self._waiting[owner]
        self._grant(owner)
        turn.set_result(None)

    def _may_have(self, owner: str) -> bool:
        return self._free > 0 and self._taken[owner] < self._of_one

    def _grant(self, owner: str) -> None:
        self._free -= 1
        self._taken[owner] += 1

    def _forget(self, owner: str, turn: asyncio.Future[None]) -> None:
        self._waiting[owner].remove(turn)
        if not self._waiting[owner]:
            del self._waiting[owner]
