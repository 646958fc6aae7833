"""What was found a moment ago: the newest so many values, forgotten at once and freed little by little.

To free a hundred thousand values takes a worker's loop tens of milliseconds, and each change of the directory would do
it. What is forgotten is found no more from that moment; its memory goes with the values that are kept after it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

FREED_AT_A_TIME: Final = 4
"""More than one, so that what is forgotten is gone before as much was kept again."""


class Kept(Generic[K, V]):
    """At most `capacity` values by their keys; whoever is over it loses the one that was kept first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: OrderedDict[K, V] = OrderedDict()
        self._forgotten: list[OrderedDict[K, V]] = []

    def __len__(self) -> int:
        return len(self._values)

    @property
    def held(self) -> int:
        """How many values are in memory, forgotten ones among them."""
        return len(self._values) + sum(map(len, self._forgotten))

    def find(self, key: K) -> V | None:
        return self._values.get(key)

    def keep(self, key: K, value: V) -> V | None:
        """The value that had to go for it, if one had: that of the same key, or the one that was kept first."""
        replaced = self._values.pop(key, None)
        self._values[key] = value
        self._free_some()
        return self._values.popitem(last=False)[1] if len(self._values) > self._capacity else replaced

    def forget(self) -> None:
        """Nothing is found any more."""
        if self._values:
            self._forgotten.append(self._values)
            self._values = OrderedDict()

    def _free_some(self) -> None:
        for _ in range(FREED_AT_A_TIME if self._forgotten else 0):
            if not self._forgotten[-1]:
                self._forgotten.pop()
                return
            self._forgotten[-1].popitem()
