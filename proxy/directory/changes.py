"""What an administrator's deed changes, decided on the records before anything is written.

A store applies a `Change` in one step, or not at all. A deed that cannot be done raises ChangeRefused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from proxy.directory.endings import LONGEST_SECONDS, Ending, folded, over
from proxy.directory.endings import record_name as ending_record
from proxy.directory.model import (
    Directory,
    DirectoryFaults,
    Member,
    Project,
    Workspace,
    workspace_from_json,
    workspace_to_json,
)
from proxy.directory.records import Records
from proxy.directory.removal import RemovalPolicy, left_deployment, left_units, outermost, without
from proxy.isolation.ring import Ring, record_name, unit_fields
from proxy.isolation.unit import CollectionUnit, ProjectUnit, TeamUnit, Unit, WorkspaceUnit, is_name, unit_of

LONGEST_PAUSE_SECONDS: Final = 3.0
_CLOCK_STEP_SECONDS: Final = 0.01  # sleeping goes by another clock than the one that is waited for


class ChangeRefused(Exception):  # noqa: N818 - not an error of the program: an answer
    """The deed cannot be done. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Change:
    """What to write. `workspaces` holds the new record of a workspace, None where it goes; `raises` are counted up.

    `whole` is the new directory where the deed replaces all of it; `ring` is there only where none was, `turned` is the
    ring with another key or plan. `unit_key` is a unit and its own key from now on, None for none. `uncounted` should
    have been raised and cannot be, because their record of raises is damaged; their workspace is out of service.
    `forgotten` names the records of endings that nobody needs any more.
    """

    workspaces: Mapping[str, bytes | None] = field(default_factory=dict)
    raises: tuple[Unit, ...] = ()
    uncounted: tuple[Unit, ...] = ()
    ring: Ring | None = None
    turned: Ring | None = None
    unit_key: tuple[Unit, str | None] | None = None
    block: tuple[str, Member] | None = None
    unblock: tuple[str, Member] | None = None
    endings: tuple[Ending, ...] = ()
    forgotten: tuple[str, ...] = ()
    whole: Directory | None = None

    @property
    def is_empty(self) -> bool:
        records = (self.workspaces, self.raises, self.ring, self.turned, self.unit_key, self.block, self.unblock)
        return not any((*records, self.endings))


Deed = Callable[[Records], Change]
"""A decision on the records. It may be taken several times before one is written, so it has no effect of its own."""


def fresh_ring(first_key: str, *, now: float) -> Ring:
    """A ring that there never was: a random id, and `now` (Unix seconds) as base epoch, later than any epoch before."""
    return Ring(id=secrets.token_hex(8), first_key=first_key, base_epoch=int(now), raises={}, keys={})


def pause_before(change: Change, records: Records) -> float:
    """Seconds to wait before the change may be written: until the second of its latest epoch is over.

    So every epoch in use is earlier than the clock, and a ring that is made after a loss, whose base epoch is the clock
    at which it was found missing, begins later than all of them: also within one second of the old one's making, and
    whatever was raised. A deed raises an epoch by one at most, so it waits a second at most. More than that means that
    the clock was put back or another hand wrote; then nothing waits, for a raise is worth more now than after a loss.
    """
    ring = change.ring or records.ring
    if ring is None or not (change.ring or change.raises):
        return 0.0
    raises = dict(records.raises)
    for unit in change.raises:
        raises[record_name(unit)] = raises.get(record_name(unit), 0) + 1
    pause = latest_epoch(replace(ring, raises=raises), after=int(records.now) - 1) + 1 - records.now
    return pause + _CLOCK_STEP_SECONDS if 0 < pause <= LONGEST_PAUSE_SECONDS else 0.0


def latest_epoch(ring: Ring, *, after: int = 0) -> int:
    """The highest epoch of any unit, or `after` where it is no later than that."""
    if ring.base_epoch + sum(ring.raises.values()) <= after:
        return after
    return max((ring.base_epoch, *(ring.epoch(unit) for unit in recorded_units(ring.raises))))


def recorded_units(records: Iterable[str]) -> Iterator[Unit]:
    """The units that have a record of these names. A name of no unit has no salt, so it is left out."""
    for name in records:
        try:
            yield unit_of(unit_fields(name))
        except ValueError:
            continue


def import_directory(directory: Directory, new_ring: Ring, removal: RemovalPolicy | None = None) -> Deed:
    """Make the records hold exactly this directory; `new_ring` is written where there is no ring yet."""
    decide_workspaces = bring_up_to(directory, removal)
    return lambda records: replace(decide_workspaces(records), ring=_ring_if_missing(records, new_ring))


def first_import(directory: Directory, first_key: str, removal: RemovalPolicy | None) -> Deed:
    """`import_directory` with a ring that begins at the moment at which none was found."""
    return lambda records: import_directory(directory, fresh_ring(first_key, now=records.now), removal)(records)


def bring_up_to(directory: Directory, removal: RemovalPolicy | None = None) -> Deed:
    """Make the workspaces exactly those of this directory, and no ring.

    Units that vanish are raised, so that none ever comes back with an old salt (contract section 7); with `removal`
    also those that somebody leaves.
    """

    def decide(records: Records) -> Change:
        documents = {name: workspace_to_json(workspace) for name, workspace in directory.workspaces.items()}
        changes: dict[str, bytes | None] = dict.fromkeys(records.workspaces.keys() - documents.keys())
        changes |= {name: new for name, new in documents.items() if records.workspaces.get(name) != new}
        before = {name: records.workspaces[name] for name in sorted(changes) if name in records.workspaces}
        raised = [
            unit for name, old in before.items() for unit in vanished_units(name, old, directory.workspaces.get(name))
        ]
        if removal is not None:
            raised += _left(records, directory.workspaces, removal)
        if raised and any(fault.key == "raises" for fault in records.faults):
            raise ChangeRefused(
                "units vanish, but records of raises cannot be read; `saltgate directory show` names them"
            )
        return Change(changes, outermost(raised), whole=directory)

    return decide


def make_ring(new_ring: Ring) -> Deed:
    """Make the ring, where there is none."""
    return lambda records: Change(ring=_ring_if_missing(records, new_ring))


def make_first_ring(first_key: str) -> Deed:
    """`make_ring` with a ring that begins at the moment at which none was found."""
    return lambda records: make_ring(fresh_ring(first_key, now=records.now))(records)


def end(*endings: Ending) -> Deed:
    """Make these over, on every worker within a second. What nobody needs to know any more is forgotten.

    An ending that is known never moves back: who was ended twice, and is told of it in the wrong order, stays ended.
    """

    def decide(records: Records) -> Change:
        if any(ending.until > records.now + LONGEST_SECONDS for ending in endings):
            raise ChangeRefused("an ending is kept for a year at most")
        known = records.endings.records
        new = tuple(ending for ending in (_no_earlier(ending, known) for ending in endings) if ending is not None)
        if not new:
            return Change()
        expired = over(records.endings, records.now)
        left = {name: ending for name, ending in known.items() if name not in set(expired)}
        left |= {ending_record(ending.of, ending.issuer, ending.name): ending for ending in new}
        wide, gone = folded(left.values())
        kept = tuple(each for each in new if ending_record(each.of, each.issuer, each.name) not in set(gone))
        return Change(
            endings=(*kept, *(ending for ending in (_no_earlier(each, known) for each in wide) if ending is not None)),
            forgotten=(*expired, *gone),
        )

    return decide


def _no_earlier(ending: Ending, known: Mapping[str, Ending]) -> Ending | None:
    """What is to be written of it; None where that is known already."""
    before = known.get(ending_record(ending.of, ending.issuer, ending.name))
    if before is None:
        return ending
    later = replace(ending, at=max(ending.at, before.at), until=max(ending.until, before.until))
    return None if later == before else later


def grant(workspace_name: str, project_name: str, member: Member) -> Deed:
    """Make `member` a member of the project itself. An empty change where he is one."""

    def decide(records: Records) -> Change:
        workspace, project = _find(records, workspace_name, project_name)
        if member in project.members:
            return Change()
        return _project_change(workspace, replace(project, members=(*project.members, member)))[0]

    return decide


def revoke(workspace_name: str, project_name: str, member: Member, removal: RemovalPolicy | None = None) -> Deed:
    """End the membership that the project itself names. Teams are not touched. `removal` raises what is left."""

    def decide(records: Records) -> Change:
        workspace, project = _find(records, workspace_name, project_name)
        if member not in project.members:
            raise ChangeRefused(_why_not_revoked(workspace, project, member))
        rest = tuple(other for other in project.members if other != member)
        change, changed = _project_change(workspace, replace(project, members=rest))
        after = {**_workspaces(records), workspace.name: changed}
        return _raising(change, records, () if removal is None else _left(records, after, removal))

    return decide


def block(issuer: str, member: Member, removal: RemovalPolicy | None = None) -> Deed:
    """Refuse the member everywhere. An empty change where he is refused already.

    `removal` raises what the member shared, as if every workspace of the issuer no longer named him.
    """

    def decide(records: Records) -> Change:
        if member in records.blocks.get(issuer, ()):
            return Change()
        after = {
            name: without(workspace, member) if workspace.issuer == issuer else workspace
            for name, workspace in _workspaces(records).items()
        }
        return _raising(
            Change(block=(issuer, member)), records, () if removal is None else _left(records, after, removal)
        )

    return decide


def unblock(issuer: str, member: Member) -> Deed:
    """No longer refuse the member."""

    def decide(records: Records) -> Change:
        if member not in records.blocks.get(issuer, ()):
            raise ChangeRefused(f"{member} of {issuer} is not blocked; `saltgate directory show` lists who is")
        return Change(unblock=(issuer, member))

    return decide


def vanished_units(name: str, old: bytes, new: Workspace | None) -> Iterable[Unit]:
    """The units of the old record that the new one lacks, without those that lie under another one of them.

    A workspace that goes to another issuer counts as vanished: its names now mean other people. So does one whose old
    record cannot be read: what was in it is not known.
    """
    if not is_name(name):
        return ()
    try:
        before = workspace_from_json(name, old)
    except DirectoryFaults:
        return (WorkspaceUnit(name),)
    if new is None or new.issuer != before.issuer:
        return (WorkspaceUnit(name),)
    return (
        *(TeamUnit(name, team) for team in sorted(before.teams.keys() - new.teams.keys())),
        *(ProjectUnit(name, project) for project in sorted(before.projects.keys() - new.projects.keys())),
        *(CollectionUnit(name, item) for item in sorted(before.collections.keys() - new.collections.keys())),
    )


def _ring_if_missing(records: Records, new_ring: Ring) -> Ring | None:
    return new_ring if records.ring_is_missing else None


def _find(records: Records, workspace_name: str, project_name: str) -> tuple[Workspace, Project]:
    document = records.workspaces.get(workspace_name)
    if document is None:
        raise ChangeRefused(f"there is no workspace {workspace_name}; `saltgate directory show` lists them")
    try:
        workspace = workspace_from_json(workspace_name, document)
    except DirectoryFaults as error:
        raise ChangeRefused(
            f"the record of workspace {workspace_name} is malformed ({error}); import it anew"
        ) from error
    project = workspace.projects.get(project_name)
    if project is None:
        raise ChangeRefused(
            f"there is no project {workspace_name}/{project_name}; `saltgate directory show` lists them"
        )
    return workspace, project


def _project_change(workspace: Workspace, project: Project) -> tuple[Change, Workspace]:
    changed = replace(workspace, projects={**workspace.projects, project.name: project})
    return Change({workspace.name: workspace_to_json(changed)}), changed


def _workspaces(records: Records) -> dict[str, Workspace]:
    """Those that can be read. Of the others nothing is known, and nobody is served."""
    found: dict[str, Workspace] = {}
    for name, document in records.workspaces.items():
        with suppress(DirectoryFaults):
            found[name] = workspace_from_json(name, document)
    return found


def _left(records: Records, after: Mapping[str, Workspace], removal: RemovalPolicy) -> list[Unit]:
    """The units that somebody leaves, of the workspaces that stay: those that go are raised as a whole anyway."""
    before = _workspaces(records)
    left = [
        unit
        for name, workspace in sorted(before.items())
        if name in after and after[name] != workspace
        for unit in left_units(workspace, after[name], removal)
    ]
    return [*left, *left_deployment(before, after, removal)]


def _raising(change: Change, records: Records, units: Iterable[Unit]) -> Change:
    """The change with these units raised, as far as they can be: a removal does not wait for a damaged count."""
    raised = outermost(units)
    countable = tuple(unit for unit in raised if record_name(unit) not in records.damaged)
    return replace(change, raises=countable, uncounted=tuple(unit for unit in raised if unit not in countable))


def _why_not_revoked(workspace: Workspace, project: Project, member: Member) -> str:
    where = f"{workspace.name}/{project.name}"
    if workspace.admits(member, project.name):
        return f"{member} is a member of {where} through team {project.team}; edit the team and import the directory"
    return f"{member} is no member of {where}"
