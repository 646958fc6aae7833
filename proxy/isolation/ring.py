"""Epochs and keys: which salt a unit has now (contract section 7).

The ring is a record of its own beside the directory. It knows when it was made (the base epoch), how often each unit
was raised, and which units use another key than the ring's first. It never goes back, also not when everything was
lost and imported anew: the new ring's base epoch is later than any epoch of the old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.isolation.salt import Salt, SaltKey, salt_for, salt_within
from proxy.isolation.unit import Unit, above, fields
from proxy.refusals import SaltUnavailable


def record_name(unit: Unit) -> str:
    """The unit's name in the ring's records: its fields, length-prefixed, so that no two units share one."""
    return "".join(f"{len(part)}:{part}" for part in fields(unit))


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring's records. `raises` counts per unit (tombstones counted in), `keys` names a unit's own key id."""

    id: str
    first_key: str
    base_epoch: int
    raises: Mapping[str, int]
    keys: Mapping[str, str]

    def epoch(self, unit: Unit) -> int:
        return self.base_epoch + sum(self.raises.get(record_name(u), 0) for u in (unit, *above(unit)))

    def key_id(self, unit: Unit) -> str:
        for candidate in (unit, *above(unit)):
            own = self.keys.get(record_name(candidate))
            if own is not None:
                return own
        return self.first_key


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The configured keys, by id. The ring says which of them a unit uses; the secrets stay here."""

    keys: Mapping[str, SaltKey]

    def salt(self, unit: Unit, ring: Ring | None) -> Salt:
        """The unit's salt under the ring's records. Raises SaltUnavailable rather than guess."""
        if ring is None:
            raise SaltUnavailable(
                "saltgate has no salt ring. `saltgate keys new` or `saltgate directory import` makes it.",
                reason="ring_missing",
            )
        key = self.keys.get(ring.key_id(unit))
        if key is None:
            raise SaltUnavailable(
                "saltgate lacks the salt key of this scope. The operator adds it under [[isolation.keys]].",
                reason="key_missing",
            )
        return salt_for(unit, epoch=ring.epoch(unit), key=key)

    def within(self, salt: Salt, other: str) -> Salt:
        """What another saltgate keeps apart by `other`, inside the unit of this salt, which this ring made."""
        return salt_within(salt, other, self.keys[salt.key_id])
