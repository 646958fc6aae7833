"""Salts that were made a moment ago: making one takes four HMACs, and a customer asks many times a second."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from proxy.isolation.ring import KeyRing, Ring
from proxy.isolation.salt import Salt
from proxy.isolation.unit import Unit
from proxy.kept import Kept

CAPACITY: Final = 128 * 1024
"""Of units: one takes 600 bytes, so all of them 80 MB, in a deployment that has so many."""


@dataclass(frozen=True, slots=True)
class _Salt:
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
        self._kept: Kept[Unit, _Salt] = Kept(CAPACITY)

    def salt(self, unit: Unit, ring: Ring | None, now: float) -> Salt:
        """The unit's salt under the ring's records at `now` (Unix seconds). Raises SaltUnavailable, never guesses."""
        if ring is not self._ring:
            self._ring = ring
            self._kept.forget()
        kept = self._kept.find(unit)
        if kept is not None and kept.since <= now < kept.until:
            return kept.salt
        salt = self.keys.salt(unit, ring, now)
        if ring is not None:
            self._kept.keep(unit, _Salt(salt, *_times(unit, ring, now)))
        return salt


def _times(unit: Unit, ring: Ring, now: float) -> tuple[float, float]:
    """From when and until when the unit uses the key that it uses now."""
    if ring.plan is None or ring.own_key(unit) is not None:
        return -math.inf, math.inf
    moment = ring.moment(unit, ring.plan)
    return (moment, math.inf) if now >= moment else (-math.inf, moment)
