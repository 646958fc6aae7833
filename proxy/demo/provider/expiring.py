"""A map that forgets: by time, and by size. Everything the provider remembers is in one of these."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ExpiringMap(Generic[K, V]):
    """At most `limit` entries; a full map forgets the entry that was put first.

    What is forgotten is refused (an unknown code, session or grant), so forgetting early is inconvenient, never unsafe.
    Times are Unix seconds.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: K, value: V, *, expires_at: float, now: float) -> None:
        """Remember `value` until `expires_at`, in place of what the key had."""
        self._entries.pop(key, None)
        self._forget(now)
        self._entries[key] = (value, expires_at)

    def get(self, key: K, *, now: float) -> V | None:
        entry = self._entries.get(key)
        return entry[0] if entry is not None and now < entry[1] else None

    def pop(self, key: K, *, now: float) -> V | None:
        """What the key had; it is gone afterwards."""
        value = self.get(key, now=now)
        self._entries.pop(key, None)
        return value

    def keys(self) -> tuple[K, ...]:
        return tuple(self._entries)

    def _forget(self, now: float) -> None:
        while self._entries:
            oldest, (_, expires_at) = next(iter(self._entries.items()))
            if now < expires_at and len(self._entries) < self._limit:
                return
            del self._entries[oldest]
