"""Epochs and keys: which salt a unit has now (contract section 7).

The ring is a record of its own beside the directory. It knows when it was made (the base epoch), how often each unit
was raised, which units use another key than the ring's, and whether its units are on their way to another key. It never
goes back, also not when everything was lost and imported anew: the new ring's base epoch is later than any epoch of the
old one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from proxy.isolation.salt import Salt, SaltKey, length_prefixed, salt_for, salt_within
from proxy.isolation.unit import Unit, above, fields
from proxy.refusals import SaltUnavailable

_LENGTH: Final = re.compile(r"([0-9]{1,4}):")


def record_name(unit: Unit) -> str:
    """The unit's name in the ring's records: its fields, length-prefixed, so that no two units share one."""
    return "".join(f"{len(part)}:{part}" for part in fields(unit))


def unit_fields(record: str) -> tuple[str, ...]:
    """The fields of a unit by the name of its record, as `record_name` makes it. Raises ValueError."""
    parts: list[str] = []
    at = 0
    while at < len(record):
        length = _LENGTH.match(record, at)
        if length is None or length.end() + int(length[1]) > len(record):
            raise ValueError(f"{record!r} is no unit's record name")
        at = length.end() + int(length[1])
        parts.append(record[length.end() : at])
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """The way of all units to `next_key`: each goes at its own moment inside `seconds` from `start` (Unix seconds)."""

    next_key: str
    start: int
    seconds: int

    @property
    def end(self) -> int:
        """When the last unit has gone, in Unix seconds."""
        return self.start + self.seconds

    def progress(self, now: float) -> float:
        """The share of the units that have gone, 0 to 1, by the time that has passed."""
        return min(1.0, max(0.0, (now - self.start) / self.seconds))


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring's records. `raises` counts per unit (tombstones counted in), `keys` names a unit's own key id.

    `past_keys` are those that the ring has left: none of them comes back, for its salts would.
    """

    id: str
    first_key: str
    base_epoch: int
    raises: Mapping[str, int]
    keys: Mapping[str, str]
    plan: Plan | None = None
    past_keys: tuple[str, ...] = ()

    def epoch(self, unit: Unit) -> int:
        return self.base_epoch + sum(self.raises.get(record_name(u), 0) for u in (unit, *above(unit)))

    def own_key(self, unit: Unit) -> str | None:
        """The key that the unit's own record names, else that of the nearest unit above which has one."""
        for candidate in (unit, *above(unit)):
            own = self.keys.get(record_name(candidate))
            if own is not None:
                return own
        return None

    def key_id(self, unit: Unit, now: float) -> str:
        """The key that the unit uses at `now` (Unix seconds)."""
        own = self.own_key(unit)
        if own is not None:
            return own
        if self.plan is not None and now >= self.moment(unit, self.plan):
            return self.plan.next_key
        return self.first_key

    def moment(self, unit: Unit, plan: Plan) -> float:
        """When the unit goes to the plan's key, in Unix seconds: the same on every machine, and spread evenly."""
        digest = sha256(length_prefixed("sg1-move", self.id, plan.next_key, *fields(unit))).digest()
        # 48 bits are exact in a float, and so is their quotient: no unit's moment is past the plan's end.
        return plan.start + plan.seconds * (int.from_bytes(digest[:6], "big") / 2**48)

    def settled(self, now: float) -> Ring:
        """The ring in its simplest words: a plan whose time is over reads as if its key had been the first."""
        if self.plan is None or now < self.plan.end:
            return self
        return self.turned_to(self.plan.next_key)

    def turned_to(self, key_id: str) -> Ring:
        """The ring with `key_id` as its key from now on, and no plan."""
        left = [self.first_key, *([self.plan.next_key] if self.plan is not None else [])]
        past = dict.fromkeys((*self.past_keys, *left))
        past.pop(key_id, None)
        return replace(self, first_key=key_id, plan=None, past_keys=tuple(past))


@dataclass(frozen=True, slots=True)
class TimedSalt:
    """A unit's salt and the times, in Unix seconds, between which the ring gives it."""

    salt: Salt
    ring: Ring
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The configured keys, by id. The ring says which of them a unit uses; the secrets stay here."""

    keys: Mapping[str, SaltKey]

    def lacking(self, ring: Ring, now: float) -> tuple[str, ...]:
        """The ids of the ring's own keys, those that units use or will use by its plan, which are not configured."""
        settled = ring.settled(now)
        used = (settled.first_key, *([settled.plan.next_key] if settled.plan is not None else []))
        return tuple(key_id for key_id in used if key_id not in self.keys)

    def salt(self, unit: Unit, ring: Ring | None, now: float) -> Salt:
        """The unit's salt under the ring's records at `now` (Unix seconds). Raises SaltUnavailable, never guesses."""
        if ring is None:
            raise SaltUnavailable(
                "saltgate has no salt ring. The operator makes it with `saltgate directory import FILE -c …`.",
                reason="ring_missing",
            )
        key = self.keys.get(ring.key_id(unit, now))
        if key is None:
            raise SaltUnavailable(
                "saltgate lacks the salt key of this scope. The operator adds it under [[isolation.keys]].",
                reason="key_missing",
            )
        return salt_for(unit, epoch=ring.epoch(unit), key=key)

    def within(self, salt: Salt, other: str) -> Salt:
        """What another saltgate keeps apart by `other`, inside the unit of this salt, which this ring made."""
        return salt_within(salt, other, self.keys[salt.key_id])
