"""What an administrator's deed changes, decided on the records before anything is written.

A store applies a `Change` in one step, or not at all. A deed that cannot be done raises ChangeRefused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

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
from proxy.isolation.ring import Ring
from proxy.isolation.unit import CollectionUnit, ProjectUnit, TeamUnit, Unit, WorkspaceUnit, is_name


class ChangeRefused(Exception):  # noqa: N818 - not an error of the program: an answer
    """The deed cannot be done. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Change:
    """What to write. `workspaces` holds the new record of a workspace, None where it goes; `raises` are counted up.

    `whole` is the new directory where the deed replaces all of it; `ring` is there only where none was.
    """

    workspaces: Mapping[str, bytes | None] = field(default_factory=dict)
    raises: tuple[Unit, ...] = ()
    ring: Ring | None = None
    block: tuple[str, Member] | None = None
    unblock: tuple[str, Member] | None = None
    whole: Directory | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.workspaces or self.raises or self.ring or self.block or self.unblock)


Deed = Callable[[Records], Change]
"""A decision on the records. It may be taken several times before one is written, so it has no effect of its own."""


def fresh_ring(first_key: str, *, now: float) -> Ring:
    """A ring that there never was: a random id, and `now` (Unix seconds) as base epoch, later than any epoch before."""
    return Ring(id=secrets.token_hex(8), first_key=first_key, base_epoch=int(now), raises={}, keys={})


def import_directory(directory: Directory, new_ring: Ring) -> Deed:
    """Make the records hold exactly this directory; `new_ring` is written where there is no ring yet."""
    decide_workspaces = bring_up_to(directory)
    return lambda records: replace(decide_workspaces(records), ring=_ring_if_missing(records, new_ring))


def bring_up_to(directory: Directory) -> Deed:
    """Make the workspaces exactly those of this directory, and no ring.

    Units that vanish are raised, so that none ever comes back with an old salt (contract section 7).
    """

    def decide(records: Records) -> Change:
        documents = {name: workspace_to_json(workspace) for name, workspace in directory.workspaces.items()}
        changes: dict[str, bytes | None] = dict.fromkeys(records.workspaces.keys() - documents.keys())
        changes |= {name: new for name, new in documents.items() if records.workspaces.get(name) != new}
        vanished = [
            unit
            for name in sorted(changes)
            if name in records.workspaces
            for unit in vanished_units(name, records.workspaces[name], directory.workspaces.get(name))
        ]
        if vanished and any(fault.key == "raises" for fault in records.faults):
            raise ChangeRefused(
                "units vanish, but records of raises cannot be read; `saltgate directory show` names them"
            )
        return Change(changes, tuple(vanished), whole=directory)

    return decide


def make_ring(new_ring: Ring) -> Deed:
    """Make the ring, where there is none."""
    return lambda records: Change(ring=_ring_if_missing(records, new_ring))


def grant(workspace_name: str, project_name: str, member: Member) -> Deed:
    """Make `member` a member of the project itself. An empty change where he is one."""

    def decide(records: Records) -> Change:
        workspace, project = _find(records, workspace_name, project_name)
        if member in project.members:
            return Change()
        return _project_change(workspace, replace(project, members=(*project.members, member)))

    return decide


def revoke(workspace_name: str, project_name: str, member: Member) -> Deed:
    """End the membership that the project itself names. Teams are not touched."""

    def decide(records: Records) -> Change:
        workspace, project = _find(records, workspace_name, project_name)
        if member not in project.members:
            raise ChangeRefused(_why_not_revoked(workspace, project, member))
        rest = tuple(other for other in project.members if other != member)
        return _project_change(workspace, replace(project, members=rest))

    return decide


def block(issuer: str, member: Member) -> Deed:
    """Refuse the member everywhere. An empty change where he is refused already."""
    return lambda records: Change() if member in records.blocks.get(issuer, ()) else Change(block=(issuer, member))


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


def _project_change(workspace: Workspace, project: Project) -> Change:
    changed = replace(workspace, projects={**workspace.projects, project.name: project})
    return Change({workspace.name: workspace_to_json(changed)})


def _why_not_revoked(workspace: Workspace, project: Project, member: Member) -> str:
    where = f"{workspace.name}/{project.name}"
    if workspace.admits(member, project.name):
        return f"{member} is a member of {where} through team {project.team}; edit the team and import the directory"
    return f"{member} is no member of {where}"
