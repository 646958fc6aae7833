"""A time to look at something, set anew with each request and hardly ever reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """One connection's. To set it costs no timer of the loop's where one is set that does not ring too late: when that
    rings, it is seen whether it was too early.
    """

    __slots__ = ("_due", "_ring", "_timer", "_timer_due", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Kept, because to ask for it is a call into the kernel until Python 3.12 (Modules/_asynciomodule.c, getpid).
        self.loop = loop
        self._due = 0.0
        self._ring: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def set(self, due: float, ring: Callable[[], None]) -> None:
        """Call `ring` once at `due`, in seconds of the loop's clock, and nothing that was set before."""
        self._due, self._ring = due, ring
        if self._timer is None:
            self._start(due)
        elif self._timer_due > due:
            self._timer.cancel()
            self._start(due)

    def clear(self) -> None:
        """Nothing is to be called."""
        self._ring = None

    def stop(self) -> None:
        """Nothing is to be called any more."""
        self._ring = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, due: float) -> None:
        self._timer, self._timer_due = self.loop.call_at(due, self._look), due

    def _look(self) -> None:
        self._timer = None
        ring = self._ring
        if ring is None:
            return
        if self._due > self._timer_due:
            self._start(self._due)
        else:
            self._ring = None
            ring()
