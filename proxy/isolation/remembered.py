"""Salts that were made a moment ago: making one takes four HMACs, and a customer asks many times a second."""

from __future__ import annotations

import math
from typing import Final

from proxy.isolation.ring import KeyRing, Ring, TimedSalt
from proxy.isolation.salt import Salt
from proxy.isolation.sharing import Decision
from proxy.isolation.unit import Unit
from proxy.kept import Kept

CAPACITY: Final = 128 * 1024
"""Of units: one takes 600 bytes, so all of them 80 MB, in a deployment that has so many."""


class RememberedSalts:
    """What `KeyRing.salt` gives, and remembers it. Holds nothing of a ring that is not in force any more.

    A unit that a plan moves to another key has each key's salt in its own time only, also where the clock is put back.
    The salt of a unit is one object, whoever asks: it is kept by units, and beside each decision that was asked for.
    """

    def __init__(self, keys: KeyRing) -> None:
        self.keys = keys
        self._ring: Ring | None = None
        self._kept: Kept[Unit, TimedSalt] = Kept(CAPACITY)

    def salt(self, decision: Decision, ring: Ring | None, now: float) -> Salt:
        """The salt of the decision's unit under the ring's records at `now` (Unix seconds). Raises SaltUnavailable,
        never guesses.
        """
        known = decision.salt
        if known is not None and known.ring is ring and known.since <= now < known.until:
            return known.salt
        if ring is not self._ring:
            self._ring = ring
            self._kept.forget()
        if ring is None:
            return self.keys.salt(decision.unit, ring, now)
        timed = self._timed(decision.unit, ring, now)
        decision.remember(timed)
        return timed.salt

    def _timed(self, unit: Unit, ring: Ring, now: float) -> TimedSalt:
        kept = self._kept.find(unit)
        if kept is not None and kept.since <= now < kept.until:
            return kept
        timed = TimedSalt(self.keys.salt(unit, ring, now), ring, *_times(unit, ring, now))
        self._kept.keep(unit, timed)
        return timed


def _times(unit: Unit, ring: Ring, now: float) -> tuple[float, float]:
    """From when and until when the unit uses the key that it uses now."""
    if ring.plan is None or ring.own_key(unit) is not None:
        return _EVER, math.inf
    moment = ring.moment(unit, ring.plan)
    return (moment, math.inf) if now >= moment else (_EVER, moment)


_EVER: Final = -math.inf
