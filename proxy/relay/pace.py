"""How fast those are answered whom nobody knows: at once while they are few, and each in his turn when they are many.

Such an answer costs the gate far more than the check of a token does: it reads a head, writes an answer, a line, a
span. Whoever sends bad tokens as fast as they are answered, or asks for what everybody may read, would take this time
from callers with good ones. So his answers wait, and with each whatever comes behind it on its connection; nobody
else's do.
"""

from __future__ import annotations

import asyncio
from typing import Final

RATE: Final = 200.0
"""Such answers a second that one worker gives."""
HEAD_BYTES: Final = 2048
"""A request counts once more for each so many bytes of its head."""
BURST_SECONDS: Final = 1.0
"""So much of `RATE` may come at once, and waits for nothing."""
LONGEST_SECONDS: Final = 5.0
"""No answer waits longer: among those who are refused is also somebody whose token has just expired."""
WAITING_AT_MOST: Final = 1000


class Turns:
    """Who is answered when: a leaky bucket, as the time at which all so far will have been served."""

    def __init__(self) -> None:
        self._served_at = 0.0

    def wait(self, now: float, head_bytes: int) -> float:
        """The seconds that the answer to a head of this size waits from `now`, of a clock that never jumps.

        Its turn is taken with that: to be asked once for each answer.
        """
        turn = (1 + head_bytes // HEAD_BYTES) / RATE
        latest = now + BURST_SECONDS + LONGEST_SECONDS
        self._served_at = min(max(self._served_at, now) + turn, latest)
        return min(max(self._served_at - now - BURST_SECONDS, 0.0), LONGEST_SECONDS)  # a sum of floats may be over it


class Pace:
    """The answers of one worker to those whom nobody knows. `waiting` counts those whose turn has not come."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._ended = asyncio.Event()
        self.waiting = 0

    async def turn(self, head_bytes: int = 0) -> bool:
        """Returns when the answer's turn has come; at once, and False, where too many wait already.

        What they hold in memory must have an end, so their connections shall have one, too.
        """
        seconds = self._turns.wait(asyncio.get_running_loop().time(), head_bytes)
        if seconds == 0.0:
            return True
        if self.waiting >= WAITING_AT_MOST:
            return False
        self.waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            pass
        finally:
            self.waiting -= 1
        return True

    def end(self) -> None:
        """Nobody waits any more: the worker is about to end."""
        self._ended.set()
