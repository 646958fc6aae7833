"""How late a worker's event loop comes to what is due: every stream of the worker waits as long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

PERIOD_SECONDS: Final = 0.1
HALF_WINDOW_SECONDS: Final = 30.0


class Latest:
    """The largest value of the last 30 to 60 seconds: whoever looks once in 30 seconds misses none."""

    def __init__(self) -> None:
        self._since = 0.0
        self._before = 0.0
        self._now = 0.0

    def observed(self, value: float, now: float) -> float:
        """The largest, with this one. `now` are seconds that never fall."""
        if now - self._since >= HALF_WINDOW_SECONDS:
            self._before = self._now if now - self._since < 2 * HALF_WINDOW_SECONDS else 0.0
            self._since, self._now = now, 0.0
        self._now = max(self._now, value)
        return max(self._now, self._before)


async def follow_lag(
    tell: Callable[[float, float], None], *, clock: Callable[[], float] = time.monotonic, period: float = PERIOD_SECONDS
) -> None:
    """Tells, once a period and endlessly, how late the loop came, and the latest of about a minute, both in seconds.

    A timer of the loop may be a millisecond late by itself.
    """
    latest = Latest()
    while True:
        due = clock() + period
        await asyncio.sleep(period)
        now = clock()
        lag = max(now - due, 0.0)
        tell(lag, latest.observed(lag, now))
