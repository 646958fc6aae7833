"""What `saltgate keys rotate` changes: the ring's key, one unit's key, one unit's epoch.

Whatever is done here in whatever order, no unit gets a salt that it had before: the ring never goes back to a key that
it has left, and a unit whose own key changes is raised in the same step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from proxy.directory.changes import Change, ChangeRefused, Deed
from proxy.directory.model import DirectoryFaults, Workspace, workspace_from_json
from proxy.directory.records import Records
from proxy.isolation.ring import Plan, Ring, record_name
from proxy.isolation.unit import (
    CollectionUnit,
    DeploymentUnit,
    ProjectUnit,
    TeamUnit,
    Unit,
    UserUnit,
    WorkspaceUnit,
)


def rotate_ring(key_id: str, *, over: float) -> Deed:
    """Move every unit without a key of its own to `key_id`, each at its own moment within `over` seconds.

    With `over` zero all go at once, also those that another plan has moved before. Otherwise a running plan is not
    replaced: its units would have to be asked where they stand. Raises ChangeRefused, also for a key that the ring had
    before, because its salts would come back.
    """

    def decide(records: Records) -> Change:
        ring = ring_of(records)
        if key_id == ring.first_key:
            raise ChangeRefused(_is_present(ring))
        if key_id in ring.past_keys:
            raise ChangeRefused(
                f"the ring has left key {key_id} before, and its salts must not come back; "
                "write a new key with `saltgate keys new --out FILE` and give it a new id"
            )
        if over <= 0:
            return Change(turned=ring.turned_to(key_id))
        if ring.plan is not None:
            raise ChangeRefused(
                f"the ring is on its way to key {ring.plan.next_key} until {utc(ring.plan.end)}; "
                "wait for that, or end it at once with --over 0s"
            )
        plan = Plan(key_id, start=math.floor(records.now), seconds=math.ceil(over))
        return Change(turned=replace(ring, plan=plan))

    return decide


def raise_unit(unit: Unit) -> Deed:
    """Give the unit, and all under it, a new salt. Raises ChangeRefused for a unit that is not known."""

    def decide(records: Records) -> Change:
        _check_unit(records, unit)
        return Change(raises=(unit,))

    return decide


def pin_unit(unit: Unit, key_id: str | None) -> Deed:
    """Let the unit, and what inherits from it, use `key_id` whatever the ring does; None lets it follow again.

    Raises the unit as well, unless it and everything under it uses that key already. Raises ChangeRefused.
    """

    def decide(records: Records) -> Change:
        ring = ring_of(records)
        _check_unit(records, unit)
        own = ring.keys.get(record_name(unit))
        if own == key_id:
            return Change() if key_id is not None else _refuse_unpinned(unit)
        others = {name: other for name, other in ring.keys.items() if name != record_name(unit)}
        after = _steady_key(replace(ring, keys=others), unit) if key_id is None else key_id
        stays = after is not None and _steady_key(ring, unit) == after
        return Change(raises=() if stays else (unit,), unit_key=(unit, key_id))

    return decide


def ring_of(records: Records) -> Ring:
    """The ring as of now, a plan that is over folded in. Raises ChangeRefused where there is none to be read."""
    if records.ring is not None:
        return records.ring.settled(records.now)
    if records.ring_is_missing:
        raise ChangeRefused("there is no salt ring; `saltgate directory import FILE` or `saltgate keys new` makes it")
    raise ChangeRefused("the salt ring cannot be read; `saltgate keys list` names what is to be mended")


def utc(seconds: float) -> str:
    """A moment for people."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a plan of thousands of years
        return f"Unix time {seconds:.0f}"


def _is_present(ring: Ring) -> str:
    if ring.plan is None:
        return (
            f"key {ring.first_key} is the ring's key already; put a new key first under [[isolation.keys]], "
            "or name another with --key"
        )
    return (
        f"key {ring.first_key} is the one that the ring is leaving for {ring.plan.next_key}, and units that have gone "
        "must not come back; to leave both at once, name a new key with --key and --over 0s"
    )


def _check_unit(records: Records, unit: Unit) -> None:
    """Refuses a unit that nobody knows, and one whose raises cannot be counted up."""
    ring = ring_of(records)
    if record_name(unit) in records.damaged:
        raise ChangeRefused(f"the record of {unit} in `raises` cannot be read; `saltgate keys list` names it")
    if isinstance(unit, UserUnit):
        _check_issuer(records, unit)
    if not _is_known(records, ring, unit):
        raise ChangeRefused(
            f"there is no {unit}; `saltgate directory show` lists the units, `saltgate keys list` those that are gone"
        )


def _check_issuer(records: Records, unit: UserUnit) -> None:
    workspace = _workspace(records, unit.workspace)
    if workspace is not None and workspace.issuer != unit.issuer:
        raise ChangeRefused(f"the people of workspace {unit.workspace} are those of {workspace.issuer}; name that one")


def _is_known(records: Records, ring: Ring, unit: Unit) -> bool:
    """Whether the directory has the unit, or had it: then it left a record. Of users any subject is known."""
    if record_name(unit) in ring.raises or record_name(unit) in ring.keys:
        return True
    if isinstance(unit, DeploymentUnit):
        return True
    if isinstance(unit, UserUnit):
        return _is_known(records, ring, ProjectUnit(unit.workspace, unit.project))
    if isinstance(unit, WorkspaceUnit):
        return unit.workspace in records.workspaces
    workspace = _workspace(records, unit.workspace)
    return workspace is not None and unit in _units(workspace)


def _units(workspace: Workspace) -> Iterator[Unit]:
    yield from (ProjectUnit(workspace.name, name) for name in workspace.projects)
    yield from (TeamUnit(workspace.name, name) for name in workspace.teams)
    yield from (CollectionUnit(workspace.name, name) for name in workspace.collections)


def _workspace(records: Records, name: str) -> Workspace | None:
    document = records.workspaces.get(name)
    try:
        return None if document is None else workspace_from_json(name, document)
    except DirectoryFaults:
        return None


def _refuse_unpinned(unit: Unit) -> Change:
    raise ChangeRefused(f"{unit} has no key of its own; `saltgate keys list` lists those that have")


def _steady_key(ring: Ring, unit: Unit) -> str | None:
    """The one key that the unit and all that inherits from it uses; None where a plan is moving them."""
    own = ring.own_key(unit)
    return own if own is not None or ring.plan is not None else ring.first_key
