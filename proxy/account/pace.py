"""How often one person may ask something of saltgate itself."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from proxy.refusals import RateLimited

PER_MINUTE: Final = 30
_WINDOW_SECONDS: Final = 60.0
_CAPACITY: Final = 10_000


class Pace:
    """At most `per_minute` times in a minute, each person by himself. `clock` is monotonic seconds."""

    def __init__(self, *, clock: Callable[[], float], per_minute: int = PER_MINUTE, capacity: int = _CAPACITY) -> None:
        self._clock = clock
        self._per_minute = per_minute
        self._capacity = capacity
        self._counts: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()

    def take(self, who: Hashable) -> None:
        """Raises RateLimited where it is too often."""
        now = self._clock()
        count, ends = self._counts.pop(who, (0, now))
        if now >= ends:
            count, ends = 0, now + _WINDOW_SECONDS
        self._counts[who] = min(count + 1, self._per_minute + 1), ends
        while len(self._counts) > self._capacity:
            self._counts.popitem(last=False)
        if count >= self._per_minute:
            raise RateLimited(
                f"You asked more than {self._per_minute} times in a minute. Wait a little.",
                retry_after=max(1, math.ceil(ends - now)),
            )
