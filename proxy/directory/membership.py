"""Which scope a request acts under: what the caller named, or his only membership (contract section 5). Pure.

Whoever is not let in gets the same bytes whether the workspace, project or collection does not exist, is another's, or
could not even be a name: nobody can ask this gate who its customers are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice
from typing import Final

from proxy.directory.model import Member, Project, Workspace, group, user
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.isolation.scope import Scope
from proxy.isolation.sharing import Line
from proxy.isolation.unit import Level, is_name
from proxy.refusals import Blocked, InvalidRequest, NotAMember, Refusal, SaltUnavailable, ScopeRequired

LISTED_AT_MOST: Final = 20

_HOW_TO_NAME: Final = (
    "the headers OpenAI-Organization (workspace) and OpenAI-Project, or the base URL /w/WORKSPACE/p/PROJECT/v1"
)
_NOT_A_MEMBER: Final = (
    "You are not a member of this workspace, project or collection, or there is none of that name. "
    f"Name one of yours with {_HOW_TO_NAME}; your administrator grants memberships."
)
_BLOCKED: Final = "Your administrator has blocked you here. Ask your administrator."
_NAME_BOTH: Final = (
    "Your token does not list all your groups, so nothing is chosen for you: "
    f"name workspace and project with {_HOW_TO_NAME}."
)


@dataclass(frozen=True, slots=True)
class Named:
    """What the request itself names, as sent: headers or path. None where it names nothing."""

    workspace: str | None = None
    project: str | None = None
    collection: str | None = None
    narrower: Level | None = None


def select_scope(
    snapshot: Snapshot, identity: Identity, named: Named, *, default_unit: Level, default_show_reuse: bool
) -> Scope:
    """The scope of one request. The defaults are the deployment's policy (`[isolation]`).

    Raises Blocked, NotAMember, ScopeRequired, InvalidRequest, and SaltUnavailable where there is no ring: then Redis
    is new or was lost, and its emptiness says nothing about the caller.
    """
    members = _members_of(identity)
    _refuse_blocked(snapshot, identity, members)
    if snapshot.ring is None:
        raise SaltUnavailable(
            "saltgate has no salt ring that it can read. The operator makes it with `saltgate directory import`.",
            reason="ring_missing",
        )
    if named.collection is not None and named.narrower is not None:
        raise InvalidRequest("X-Saltgate-Collection and X-Saltgate-Unit exclude each other; send one of them.")
    workspace, project_name = _select_project(snapshot, identity, members, named)
    _check_collection(workspace, project_name, named.collection)
    project = workspace.projects[project_name]
    policy, line = policy_of(workspace, project, default_unit)
    return Scope(
        issuer=identity.issuer,
        subject=identity.subject,
        workspace=workspace.name,
        project=project.name,
        team=project.team,
        collection=named.collection,
        policy=policy,
        line=line,
        model_units=project.model_units,
        models=None if project.models is None else frozenset(project.models),
        narrower=named.narrower,
        show_reuse=default_show_reuse if workspace.show_reuse is None else workspace.show_reuse,
    )


def policy_of(workspace: Workspace, project: Project, default_unit: Level) -> tuple[Level, Line]:
    """The unit that holds for the project's models without an exception, and which line of the policy says so."""
    if project.unit is not None:
        return project.unit, Line.PROJECT
    if workspace.unit is not None:
        return workspace.unit, Line.WORKSPACE
    return default_unit, Line.DEPLOYMENT


def memberships(snapshot: Snapshot, identity: Identity) -> Iterator[tuple[str, str]]:
    """All (workspace, project) that the identity may act for, in order, each once. Blocks are not looked at."""
    members = _members_of(identity)
    for workspace in _own_workspaces(snapshot, identity, members):
        for project in _projects_in(workspace, members):
            yield workspace.name, project


def _members_of(identity: Identity) -> tuple[Member, ...]:
    return (user(identity.subject), *map(group, identity.groups))


def _refuse_blocked(snapshot: Snapshot, identity: Identity, members: Iterable[Member]) -> None:
    if identity.actor is not None:
        _refuse_blocked(snapshot, identity.actor, _members_of(identity.actor))
    blocked = snapshot.blocks.get(identity.issuer)
    if not blocked:
        return
    if not blocked.isdisjoint(members):
        raise Blocked(_BLOCKED)
    # Whoever could hide his groups behind an overage would also hide that one of them is blocked.
    if not identity.groups_complete and any(member.startswith("group:") for member in blocked):
        raise Blocked(_BLOCKED, reason="groups_incomplete_and_groups_blocked")


def _select_project(
    snapshot: Snapshot, identity: Identity, members: tuple[Member, ...], named: Named
) -> tuple[Workspace, str]:
    if not all(name is None or is_name(name) for name in (named.workspace, named.project, named.collection)):
        raise _not_a_member("invalid_name")
    if named.workspace is not None and named.project is not None:
        return _named_project(snapshot, identity, members, named.workspace, named.project)
    if not identity.groups_complete:
        raise ScopeRequired(_NAME_BOTH, reason="groups_incomplete")
    if named.workspace is not None:
        candidates = _memberships_in(snapshot, identity, members, named.workspace)
    elif named.project is not None:
        candidates = _memberships_named(snapshot, identity, members, named.project)
    else:
        candidates = memberships(snapshot, identity)
    return _only(snapshot, candidates)


def _named_project(
    snapshot: Snapshot, identity: Identity, members: Iterable[Member], workspace_name: str, project: str
) -> tuple[Workspace, str]:
    workspace = _own_workspace(snapshot, identity, workspace_name)
    if workspace is None or not any(workspace.admits(member, project) for member in members):
        raise _not_a_member("not_a_member" if identity.groups_complete else "groups_incomplete")
    return workspace, project


def _own_workspace(snapshot: Snapshot, identity: Identity, name: str) -> Workspace | None:
    """The workspace, if it is open to the identity and names people of the identity's issuer."""
    workspace = snapshot.directory.workspaces.get(name)
    if workspace is None or workspace.issuer != identity.issuer or not _is_open_to(identity, name):
        return None
    return workspace


def _own_workspaces(snapshot: Snapshot, identity: Identity, members: Iterable[Member]) -> Iterator[Workspace]:
    """Those in which one of the members has a project, in order, each once."""
    directory = snapshot.directory
    for name in _merged(directory.workspaces_of(identity.issuer, member) for member in members):
        if _is_open_to(identity, name):
            yield directory.workspaces[name]


def _is_open_to(identity: Identity, workspace: str) -> bool:
    """Whether the identity may act there at all, whatever the directory says: a front's people only in its own."""
    return identity.workspaces is None or workspace in identity.workspaces


def _memberships_in(
    snapshot: Snapshot, identity: Identity, members: tuple[Member, ...], workspace_name: str
) -> Iterator[tuple[str, str]]:
    workspace = _own_workspace(snapshot, identity, workspace_name)
    if workspace is not None:
        for project in _projects_in(workspace, members):
            yield workspace_name, project


def _memberships_named(
    snapshot: Snapshot, identity: Identity, members: tuple[Member, ...], project: str
) -> Iterator[tuple[str, str]]:
    for workspace in _own_workspaces(snapshot, identity, members):
        if any(workspace.admits(member, project) for member in members):
            yield workspace.name, project


def _only(snapshot: Snapshot, candidates: Iterator[tuple[str, str]]) -> tuple[Workspace, str]:
    found = list(islice(candidates, LISTED_AT_MOST + 1))
    if not found:
        raise _not_a_member("no_membership")
    if len(found) > 1:
        raise ScopeRequired(_choice(found))
    workspace_name, project = found[0]
    return snapshot.directory.workspaces[workspace_name], project


def _choice(found: list[tuple[str, str]]) -> str:
    listed = ", ".join(f"{workspace}/{project}" for workspace, project in found[:LISTED_AT_MOST])
    more = ", and more" if len(found) > LISTED_AT_MOST else ""
    return f"You are a member of several projects: {listed}{more}. Name one with {_HOW_TO_NAME}."


def _check_collection(workspace: Workspace, project: str, name: str | None) -> None:
    if name is None:
        return
    collection = workspace.collections.get(name)
    if collection is None or project not in collection.projects:
        raise _not_a_member("collection_not_listed")


def _projects_in(workspace: Workspace, members: Iterable[Member]) -> Iterator[str]:
    return _merged(workspace.projects_of(member) for member in members)


def _merged(sorted_names: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """All names in order, each once, and no further than they are asked for: who has thousands costs no more than who
    has twenty."""
    return (name for name, _ in groupby(merge(*(names for names in sorted_names if names))))


def _not_a_member(reason: str) -> Refusal:
    return NotAMember(_NOT_A_MEMBER, reason=reason)
