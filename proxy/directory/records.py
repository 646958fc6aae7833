"""The records that a store keeps, one moment's worth, in the form that Redis and the state folder share.

`redis-layout.md` describes them. A record that cannot be read is a fault and costs only what it names: one workspace
where the name says which, the whole ring where it does not, because an epoch is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from proxy.directory.model import Fault, Member, is_issuer, parse_member
from proxy.isolation.ring import Ring

_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_COUNT = re.compile(r"[0-9]{1,18}")
_LENGTH = re.compile(r"([0-9]{1,4}):")


@dataclass(frozen=True, slots=True)
class RawRecords:
    """The six records as bytes. Missing ones are empty."""

    generation: bytes
    workspaces: Mapping[bytes, bytes]
    blocks: Iterable[bytes]
    ring: Mapping[bytes, bytes]
    raises: Mapping[bytes, bytes]
    unit_keys: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Records:
    """What was read. `stamp` differs whenever the records may differ.

    `unsafe` names the workspaces whose epoch or key cannot be read: no request may run in them. `ring` is None where
    there is none (`ring_is_missing`) and where it cannot be read: only a missing one may be made.
    """

    stamp: bytes
    generation: int
    workspaces: Mapping[str, bytes]
    blocks: Mapping[str, frozenset[Member]]
    ring: Ring | None
    ring_is_missing: bool
    unsafe: frozenset[str]
    faults: tuple[Fault, ...]


def parse_records(raw: RawRecords, *, stamp: bytes, faults: Iterable[Fault] = ()) -> Records:
    """The records as values. Never raises: what cannot be read is among the faults. `faults` are known before."""
    found = list(faults)
    unsafe: set[str] = set()
    workspaces = dict(_texts(raw.workspaces, "workspaces", found))
    ring = _ring(raw, unsafe, found)
    return Records(
        stamp=stamp,
        generation=_generation(raw.generation, found),
        workspaces=workspaces,
        blocks=_blocks(raw.blocks, found),
        ring=ring,
        ring_is_missing=not raw.ring,
        unsafe=frozenset(unsafe),
        faults=tuple(found),
    )


def block_record(issuer: str, member: Member) -> str:
    """The record of one block: an issuer has no spaces, so the first one ends it."""
    return f"{issuer} {member}"


def unit_fields(record: str) -> tuple[str, ...]:
    """The fields of a unit by the name of its record, as `isolation.ring.record_name` makes it. Raises ValueError."""
    parts: list[str] = []
    at = 0
    while at < len(record):
        length = _LENGTH.match(record, at)
        if length is None or length.end() + int(length[1]) > len(record):
            raise ValueError(f"{record!r} is no unit's record name")
        at = length.end() + int(length[1])
        parts.append(record[length.end() : at])
    return tuple(parts)


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


def _ring(raw: RawRecords, unsafe: set[str], faults: list[Fault]) -> Ring | None:
    """The ring, or None where it is missing or where not even the workspace of a malformed record can be told."""
    raises = _unit_records(raw.raises, "raises", _COUNT, unsafe, faults)
    keys = _unit_records(raw.unit_keys, "unit_keys", _KEY_ID, unsafe, faults)
    if not raw.ring:
        return None
    ring_id = raw.ring.get(b"id", b"").decode("ascii", "replace")
    first_key = raw.ring.get(b"first_key", b"").decode("ascii", "replace")
    base_epoch = raw.ring.get(b"base_epoch", b"").decode("ascii", "replace")
    if not ring_id or not _KEY_ID.fullmatch(first_key) or not _COUNT.fullmatch(base_epoch):
        faults.append(Fault("ring", "needs id, first_key and base_epoch"))
        return None
    if raises is None or keys is None:
        return None
    return Ring(ring_id, first_key, int(base_epoch), {unit: int(count) for unit, count in raises.items()}, keys)


def _unit_records(
    records: Mapping[bytes, bytes], key: str, form: re.Pattern[str], unsafe: set[str], faults: list[Fault]
) -> dict[str, str] | None:
    """The well-formed records. A malformed one makes its workspace unsafe; None where it reaches every workspace."""
    well: dict[str, str] = {}
    reaches_all = False
    for name, value in records.items():
        text = value.decode("ascii", "replace")
        fields = _fields_or_none(name)
        if fields is not None and form.fullmatch(text):
            well[name.decode()] = text
            continue
        faults.append(Fault(key, f"{name!r} cannot be read; its unit has no salt until it is mended"))
        if fields is None or len(fields) == 1:
            reaches_all = True
        else:
            unsafe.add(fields[1])
    return None if reaches_all else well


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
