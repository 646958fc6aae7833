"""What `saltgate keys list` tells: the ring, each key and who uses it, each unit with a record of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.cli.directory_show import table
from proxy.directory.changes import latest_epoch, recorded_units
from proxy.directory.model import Fault
from proxy.directory.records import Records
from proxy.directory.rotation import utc
from proxy.isolation.ring import Ring, record_name, unit_fields
from proxy.isolation.unit import Unit, UserUnit, unit_of


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key id. `first` is the configuration's first, `current` the ring's, `coming` where a plan leads;
    `own_units` counts the units whose own record names it.
    """

    id: str
    configured: bool
    first: bool
    current: bool
    coming: bool
    own_units: int

    @property
    def in_use(self) -> bool:
        return self.current or self.coming or self.own_units > 0


@dataclass(frozen=True, slots=True)
class UnitRow:
    """One unit with a record of its own. `raises` are its own; `own_key` says whether its own record names `key`."""

    unit: Unit
    raises: int
    epoch: int
    key: str
    own_key: bool


@dataclass(frozen=True, slots=True)
class KeyListing:
    """All of it, as of `now` (Unix seconds). Without a ring there are no units."""

    now: float
    generation: int
    ring: Ring | None
    keys: tuple[KeyRow, ...]
    units: tuple[UnitRow, ...]
    faults: tuple[Fault, ...]


def key_listing(records: Records, configured: Sequence[str]) -> KeyListing:
    """The listing of the records under a configuration with these key ids. It holds no secret."""
    ring = None if records.ring is None else records.ring.settled(records.now)
    keys = tuple(_key_rows(ring, configured))
    return KeyListing(
        now=records.now,
        generation=records.generation,
        ring=ring,
        keys=keys,
        units=() if ring is None else tuple(_unit_rows(ring, records.now)),
        faults=(*records.faults, *_ring_faults(records, ring), *_key_faults(keys)),
    )


def named(unit: Unit) -> str:
    """The unit on one line of a terminal, a user's issuer with it: a subject may hold anything."""
    text = f"{unit} of {unit.issuer}" if isinstance(unit, UserUnit) else str(unit)
    return text if text.isprintable() else ascii(text)


def as_json(listing: KeyListing) -> str:
    document = {
        "generation": listing.generation,
        "ring": listing.ring and _ring_json(listing.ring, listing.now),
        "keys": [
            {
                "id": row.id,
                "configured": row.configured,
                "first": row.first,
                "current": row.current,
                "coming": row.coming,
                "own_units": row.own_units,
            }
            for row in listing.keys
        ],
        "units": [_unit_json(row) for row in listing.units],
        "faults": [{"key": fault.key, "message": fault.message} for fault in listing.faults],
    }
    return json.dumps(document, indent=2) + "\n"


def as_text(listing: KeyListing) -> str:
    ring = listing.ring
    tables = [_told_ring(ring, listing.now)]
    tables.append(table([("KEY", "USED BY", "CONFIGURED"), *((r.id, _use(r), _configured(r)) for r in listing.keys)]))
    if listing.units:
        rows = [
            (named(r.unit), str(r.raises), str(r.epoch), f"{r.key}{' (own)' if r.own_key else ''}")
            for r in listing.units
        ]
        tables.append(table([("UNIT", "RAISES", "EPOCH", "KEY"), *rows]))
    return "\n".join(tables)


def _key_rows(ring: Ring | None, configured: Sequence[str]) -> Iterator[KeyRow]:
    current = None if ring is None else ring.first_key
    coming = None if ring is None or ring.plan is None else ring.plan.next_key
    own = Counter(() if ring is None else ring.keys.values())
    for key_id in dict.fromkeys((*configured, *filter(None, (current, coming)), *sorted(own))):
        yield KeyRow(
            key_id,
            configured=key_id in configured,
            first=key_id == configured[0],
            current=key_id == current,
            coming=key_id == coming,
            own_units=own[key_id],
        )


def _unit_rows(ring: Ring, now: float) -> Iterator[UnitRow]:
    for unit in sorted(set(recorded_units((*ring.raises, *ring.keys))), key=named):
        name = record_name(unit)
        yield UnitRow(unit, ring.raises.get(name, 0), ring.epoch(unit), ring.key_id(unit, now), name in ring.keys)


def _ring_faults(records: Records, ring: Ring | None) -> Iterator[Fault]:
    if records.ring_is_missing:
        yield Fault("ring", "is missing; `saltgate directory import FILE -c …` or `saltgate keys new -c …` makes it")
    if ring is None:
        return
    for name in sorted({*ring.raises, *ring.keys}):
        if not _is_unit(name):
            yield Fault("raises" if name in ring.raises else "unit_keys", f"{name!r} is the record of no unit")
    ahead = latest_epoch(ring) - records.now
    if ahead > 1:
        yield Fault(
            "raises",
            f"an epoch is {ahead:.0f} s ahead of this machine's clock. Set the clock; if it is right, another hand "
            "raised too often, and should everything be lost before then, an old salt could come back",
        )


def _is_unit(name: str) -> bool:
    try:
        unit_of(unit_fields(name))
    except ValueError:
        return False
    return True


def _key_faults(keys: Sequence[KeyRow]) -> Iterator[Fault]:
    for row in keys:
        if row.in_use and not row.configured:
            yield Fault(
                "isolation.keys", f"lacks {row.id}, which is in use: who uses it is refused until it is there again"
            )


def _told_ring(ring: Ring | None, now: float) -> str:
    if ring is None:
        return "no salt ring that can be read\n"
    told = f"salt ring {ring.id}, key {ring.first_key}, base epoch {ring.base_epoch}\n"
    if ring.plan is not None:
        plan = ring.plan
        told += (
            f"moving to key {plan.next_key} from {utc(plan.start)} until {utc(plan.end)}: {plan.progress(now):.0%}\n"
        )
    if ring.past_keys:
        told += f"left for good: {', '.join(ring.past_keys)}\n"
    return told


def _use(row: KeyRow) -> str:
    uses = [
        *(["the ring"] if row.current else []),
        *(["the ring's plan"] if row.coming else []),
        *([f"{row.own_units} with it as own key"] if row.own_units else []),
    ]
    return ", ".join(uses) or "nobody"


def _configured(row: KeyRow) -> str:
    if row.first:
        return "first" if row.in_use else "first; `saltgate keys rotate` moves to it"
    if row.configured:
        return "yes" if row.in_use else "yes; may be removed"
    return "MISSING"


def _ring_json(ring: Ring, now: float) -> dict[str, object]:
    plan = ring.plan
    return {
        "id": ring.id,
        "base_epoch": ring.base_epoch,
        "first_key": ring.first_key,
        "past_keys": ring.past_keys,
        "plan": plan
        and {
            "next_key": plan.next_key,
            "start": plan.start,
            "seconds": plan.seconds,
            "end": plan.end,
            "progress": round(plan.progress(now), 4),
        },
    }


def _unit_json(row: UnitRow) -> dict[str, object]:
    issuer = {"issuer": row.unit.issuer} if isinstance(row.unit, UserUnit) else {}
    own = {"raises": row.raises, "epoch": row.epoch, "key": row.key, "own_key": row.own_key}
    return {"unit": str(row.unit), **issuer, **own}
