"""Salts that were made a moment ago: making one takes four HMACs, and a customer asks many times a second."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from proxy.isolation.ring import KeyRing, Ring
from proxy.isolation.salt import Salt
from proxy.isolation.unit import Unit

CAPACITY: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Kept:
    """A salt and the times between which the ring gives it, in Unix seconds."""

    salt: Salt
    since: float
    until: float


class RememberedSalts:
    """What `KeyRing.salt` gives, and remembers it. Holds nothing of a ring that is not in force any more.

    A unit that a plan moves to another key has each key's salt in its own time only, also where the clock is put back.
    """

    def __init__(self, keys: KeyRing) -> None:
        self.keys = keys
        self._ring: Ring | None = None
        self._kept: dict[Unit, _Kept] = {}

    def salt(self, unit: Unit, ring: Ring | None, now: float) -> Salt:
        """The unit's salt under the ring's records at `now` (Unix seconds). Raises SaltUnavailable, never guesses."""
        if ring is not self._ring:
            self._ring, self._kept = ring, {}
        kept = self._kept.get(unit)
        if kept is not None and kept.since <= now < kept.until:
            return kept.salt
        salt = self.keys.salt(unit, ring, now)
        if len(self._kept) >= CAPACITY:
            self._kept.clear()
        if ring is not None:
            self._kept[unit] = _Kept(salt, *_times(unit, ring, now))
        return salt


def _times(unit: Unit, ring: Ring, now: float) -> tuple[float, float]:
    """From when and until when the unit uses the key that it uses now."""
    if ring.plan is None or ring.own_key(unit) is not None:
        return -math.inf, math.inf
    moment = ring.moment(unit, ring.plan)
    return (moment, math.inf) if now >= moment else (-math.inf, moment)
