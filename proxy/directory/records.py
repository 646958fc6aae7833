"""The records that a store keeps, one moment's worth, in the form that Redis and the state folder share.

`redis-layout.md` describes them. A record that cannot be read is a fault and costs only what it names: one workspace
where the name says which, the whole ring where it does not, because an epoch is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from proxy.directory.endings import Endings, parse_endings
from proxy.directory.model import Fault, Member, is_issuer, parse_member
from proxy.isolation.ring import Plan, Ring, record_name, unit_fields
from proxy.isolation.unit import unit_of

_KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_COUNT: Final = re.compile(r"[0-9]{1,18}")
_RING_FORMS: Final = {
    "id": re.compile(r"(?s:.+)"),
    "first_key": _KEY_ID,
    "base_epoch": _COUNT,
    "past_keys": re.compile(r"(?:[A-Za-z0-9_-]{1,32}(?: (?!$)|$))*"),
}
_PLAN_FIELDS: Final = frozenset(("next_key", "plan_start", "plan_seconds"))
_RING_FIELDS: Final = _PLAN_FIELDS | _RING_FORMS.keys()


@dataclass(frozen=True, slots=True)
class RawRecords:
    """The seven records as bytes. Missing ones are empty."""

    generation: bytes
    workspaces: Mapping[bytes, bytes]
    blocks: Iterable[bytes]
    ring: Mapping[bytes, bytes]
    raises: Mapping[bytes, bytes]
    unit_keys: Mapping[bytes, bytes]
    endings: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Records:
    """What was read. `stamp` differs whenever the records may differ.

    `unsafe` names the workspaces whose epoch or key cannot be read: no request may run in them. `ring` is None where
    there is none (`ring_is_missing`) and where it cannot be read: only a missing one may be made. `raises` are those
    that could be read, also without a ring; `damaged` names the records among them that could not, so that none is
    counted up from a guess. `now` is when they were read, in Unix seconds.
    """

    stamp: bytes
    generation: int
    workspaces: Mapping[str, bytes]
    blocks: Mapping[str, frozenset[Member]]
    ring: Ring | None
    ring_is_missing: bool
    unsafe: frozenset[str]
    faults: tuple[Fault, ...]
    raises: Mapping[str, int]
    damaged: frozenset[str]
    endings: Endings
    now: float


def parse_records(raw: RawRecords, *, stamp: bytes, now: float, faults: Iterable[Fault] = ()) -> Records:
    """The records as values. Never raises: what cannot be read is among the faults. `faults` are known before."""
    found = list(faults)
    workspaces = dict(_texts(raw.workspaces, "workspaces", found))
    raises = _unit_records(raw.raises, "raises", _COUNT, found)
    keys = _unit_records(raw.unit_keys, "unit_keys", _KEY_ID, found)
    counts = {unit: int(count) for unit, count in raises.well.items()}
    ring = _ring(raw.ring, counts, keys.well, found)
    endings = _endings(raw.endings, found)
    unsafe = raises.unsafe | keys.unsafe
    reaches_all = raises.reaches_all or keys.reaches_all
    return Records(
        stamp=stamp,
        generation=_generation(raw.generation, found),
        workspaces=workspaces,
        blocks=_blocks(raw.blocks, found),
        ring=None if reaches_all else ring,
        ring_is_missing=not raw.ring,
        unsafe=unsafe,
        raises=counts,
        damaged=raises.damaged,
        endings=endings,
        faults=tuple(found),
        now=now,
    )


def _endings(raw: Mapping[bytes, bytes], faults: list[Fault]) -> Endings:
    texts = ((name.decode("utf-8", "replace"), value.decode("ascii", "replace")) for name, value in raw.items())
    endings, faulty = parse_endings(texts)
    faults += [Fault("endings", "a record cannot be read; delete it when what it ended is over") for _ in faulty]
    return endings


def block_record(issuer: str, member: Member) -> str:
    """The record of one block: an issuer has no spaces, so the first one ends it."""
    return f"{issuer} {member}"


def ring_record(ring: Ring) -> dict[str, str | int]:
    """The fields of the ring's record, without those that say nothing."""
    record: dict[str, str | int] = {"id": ring.id, "first_key": ring.first_key, "base_epoch": ring.base_epoch}
    if ring.past_keys:
        record["past_keys"] = " ".join(ring.past_keys)
    if ring.plan is not None:
        plan = ring.plan
        record |= {"next_key": plan.next_key, "plan_start": plan.start, "plan_seconds": plan.seconds}
    return record


def _generation(text: bytes, faults: list[Fault]) -> int:
    if _COUNT.fullmatch(text.decode("ascii", "replace")):
        return int(text)
    if text:
        faults.append(Fault("generation", "is no count; write it with INCR only"))
    return 0


def _blocks(records: Iterable[bytes], faults: list[Fault]) -> dict[str, frozenset[Member]]:
    blocks: dict[str, set[Member]] = {}
    for record in records:
        try:
            issuer, member = _parse_block(record.decode())
            blocks.setdefault(issuer, set()).add(member)
        except ValueError as error:
            faults.append(Fault("blocks", f"{record!r} blocks nobody: {error}"))
    return {issuer: frozenset(members) for issuer, members in blocks.items()}


def _parse_block(record: str) -> tuple[str, Member]:
    issuer, _, member = record.partition(" ")
    if not is_issuer(issuer):
        raise ValueError("it does not begin with an issuer")
    return issuer, parse_member(member)


def _ring(
    raw: Mapping[bytes, bytes], raises: Mapping[str, int], keys: Mapping[str, str], faults: list[Fault]
) -> Ring | None:
    """The ring, or None where it is missing or its record is not one that this version knows as a whole."""
    if not raw:
        return None
    record = {name.decode("ascii", "replace"): value.decode("ascii", "replace") for name, value in raw.items()}
    unknown = record.keys() - _RING_FIELDS
    if unknown:
        # Whoever wrote it means something by it, perhaps another salt: it is not for this version to leave it out.
        faults.append(
            Fault("ring", f"has fields that this saltgate does not know: {', '.join(map(repr, sorted(unknown)))}")
        )
        return None
    plan = _plan(record, faults)
    malformed = [name for name, form in _RING_FORMS.items() if not form.fullmatch(record.get(name, ""))]
    if malformed:
        faults.append(Fault("ring", f"needs {', '.join(malformed)} in the form of redis-layout.md"))
    if malformed or (plan is None and not _PLAN_FIELDS.isdisjoint(record)):
        return None
    return Ring(
        id=record["id"],
        first_key=record["first_key"],
        base_epoch=int(record["base_epoch"]),
        raises=raises,
        keys=keys,
        plan=plan,
        past_keys=tuple(record.get("past_keys", "").split()),
    )


def _plan(record: Mapping[str, str], faults: list[Fault]) -> Plan | None:
    """The plan; None where there is none, and with a fault where it is not whole."""
    if _PLAN_FIELDS.isdisjoint(record):
        return None
    next_key, start, seconds = (record.get(name, "") for name in ("next_key", "plan_start", "plan_seconds"))
    well = _KEY_ID.fullmatch(next_key) and _COUNT.fullmatch(start) and _COUNT.fullmatch(seconds)
    if not well or int(seconds) == 0 or next_key == record.get("first_key"):
        faults.append(Fault("ring", "its plan needs another next_key, plan_start and plan_seconds"))
        return None
    return Plan(next_key, int(start), int(seconds))


@dataclass(frozen=True, slots=True)
class _UnitRecords:
    """The well-formed records, and what the others cost: their workspace, or all where that cannot be told."""

    well: Mapping[str, str]
    damaged: frozenset[str]
    unsafe: frozenset[str]
    reaches_all: bool


def _unit_records(records: Mapping[bytes, bytes], key: str, form: re.Pattern[str], faults: list[Fault]) -> _UnitRecords:
    well: dict[str, str] = {}
    damaged: set[str] = set()
    unsafe: set[str] = set()
    reaches_all = False
    for name, value in records.items():
        text = value.decode("ascii", "replace")
        fields = _fields_or_none(name)
        if fields is not None and _names_a_unit(name, fields) and form.fullmatch(text):
            well[name.decode()] = text
            continue
        faults.append(Fault(key, f"{name!r} cannot be read; its unit has no salt until it is mended"))
        damaged.add(name.decode("utf-8", "replace"))
        if fields is None or len(fields) == 1:
            reaches_all = True
        else:
            unsafe.add(fields[1])
    return _UnitRecords(well, frozenset(damaged), frozenset(unsafe), reaches_all)


def _names_a_unit(name: bytes, fields: tuple[str, ...]) -> bool:
    """Whether some unit's record has this very name: one that only looks like it would raise nobody."""
    try:
        return record_name(unit_of(fields)).encode() == name
    except ValueError:
        return False


def _fields_or_none(name: bytes) -> tuple[str, ...] | None:
    try:
        return unit_fields(name.decode()) or None
    except ValueError:
        return None


def _texts(records: Mapping[bytes, bytes], key: str, faults: list[Fault]) -> Iterable[tuple[str, bytes]]:
    for name, document in records.items():
        try:
            yield name.decode(), document
        except UnicodeDecodeError:
            faults.append(Fault(key, f"{name!r} is no name"))
