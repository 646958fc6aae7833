"""Which scope a request acts under: what the caller named, or his only membership (contract section 5). Pure.

Whoever is not let in gets the same bytes whether the workspace, project or collection does not exist, is another's, or
could not even be a name: nobody can ask this gate who its customers are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice
from typing import Final, NamedTuple

from proxy.directory.model import Member, Project, Workspace, group, user
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.identity.reasons import Reason, invalid_token
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
_SIGN_IN_FOR_GROUPS: Final = (
    "A personal access token knows the groups of a recent sign-in only, and there is none: sign in again with "
    "`saltgate login`, or at /account of this gateway."
)
_NAME_BOTH: Final = (
    "Your token does not list all your groups, so nothing is chosen for you: "
    f"name workspace and project with {_HOW_TO_NAME}."
)


class Named(NamedTuple):
    """What the request itself names, as sent: headers or path. None where it names nothing."""

    workspace: str | None = None
    project: str | None = None
    collection: str | None = None
    narrower: Level | None = None


@dataclass(frozen=True, slots=True)
class OwnProject:
    """A project that a caller may act for, and the border that holds for its models without an exception."""

    workspace: str
    project: str
    unit: Level


def select_scope(
    snapshot: Snapshot, identity: Identity, named: Named, *, default_unit: Level, default_show_reuse: bool
) -> Scope:
    """The scope of one request. The defaults are the deployment's policy (`[isolation]`).

    Raises InvalidToken for a sign-in that was ended, Blocked, NotAMember, ScopeRequired, InvalidRequest, and
    SaltUnavailable where there is no ring: then Redis is new or was lost, and its emptiness says nothing about the
    caller.
    """
    members = _admitted(snapshot, identity)
    if named.collection is not None and named.narrower is not None:
        raise InvalidRequest("X-Saltgate-Collection and X-Saltgate-Unit exclude each other; send one of them.")
    workspace, project_name = _select_project(snapshot, identity, members, named)
    _check_collection(identity, workspace, project_name, named.collection)
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


def admit(snapshot: Snapshot, identity: Identity) -> tuple[Member, ...]:
    """As whom the directory may know the identity. Raises InvalidToken where what it rests on is over, and Blocked."""
    if snapshot.endings.has_ended(identity):
        raise invalid_token(Reason.ENDED if identity.token_id is None else Reason.PERSONAL_ENDED)
    members = _members_of(identity)
    _refuse_blocked(snapshot, identity, members)
    return members


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
    directory = snapshot.directory
    for name in _merged(directory.workspaces_of(identity.issuer, member) for member in members):
        for project in _projects_in(directory.workspaces[name], members):
            if _is_for(identity, name, project):
                yield name, project


def check_member(snapshot: Snapshot, identity: Identity, workspace: str, project: str) -> None:
    """Raises NotAMember where the identity may not act for the project, be it because there is none."""
    if not (is_name(workspace) and is_name(project)):
        raise _not_a_member(identity, "invalid_name")
    _named_project(snapshot, identity, _members_of(identity), workspace, project)


def _is_for(identity: Identity, workspace: str, project: str) -> bool:
    """Whether the credential is for that project at all."""
    return identity.projects is None or (workspace, project) in identity.projects


def own_projects(snapshot: Snapshot, identity: Identity, default_unit: Level) -> Iterator[OwnProject]:
    """What the caller may act for, in order, each project once. Raises InvalidToken, Blocked and SaltUnavailable as
    `select_scope` does, before the first.
    """
    _admitted(snapshot, identity)
    return _with_units(snapshot, memberships(snapshot, identity), default_unit)


def _with_units(snapshot: Snapshot, pairs: Iterable[tuple[str, str]], default_unit: Level) -> Iterator[OwnProject]:
    for name, project in pairs:
        workspace = snapshot.directory.workspaces[name]
        unit, _ = policy_of(workspace, workspace.projects[project], default_unit)
        yield OwnProject(name, project, unit)


def _admitted(snapshot: Snapshot, identity: Identity) -> tuple[Member, ...]:
    """`admit`, where there is a directory that can be told from an emptied one. Raises SaltUnavailable besides."""
    members = admit(snapshot, identity)
    if snapshot.ring is None:
        raise SaltUnavailable(
            "saltgate has no salt ring that it can read. The operator makes it with `saltgate directory import`.",
            reason="ring_missing",
        )
    return members


def _members_of(identity: Identity) -> tuple[Member, ...]:
    return (user(identity.subject), *map(group, identity.groups))


def _refuse_blocked(snapshot: Snapshot, identity: Identity, members: Iterable[Member]) -> None:
    blocked = snapshot.blocks.get(identity.issuer)
    if not blocked:
        return
    if not blocked.isdisjoint(members):
        raise Blocked(_BLOCKED)
    # Whoever could hide his groups behind an overage would also hide that one of them is blocked.
    if not identity.groups_complete and any(member.startswith("group:") for member in blocked):
        raise Blocked(_about_groups(identity, _BLOCKED), reason="groups_incomplete_and_groups_blocked")


def _select_project(
    snapshot: Snapshot, identity: Identity, members: tuple[Member, ...], named: Named
) -> tuple[Workspace, str]:
    if not all(name is None or is_name(name) for name in (named.workspace, named.project, named.collection)):
        raise _not_a_member(identity, "invalid_name")
    if named.workspace is not None and named.project is not None:
        return _named_project(snapshot, identity, members, named.workspace, named.project)
    if not identity.groups_complete:
        raise ScopeRequired(_about_groups(identity, _NAME_BOTH), reason="groups_incomplete")
    if named.workspace is not None:
        candidates = _memberships_in(snapshot, identity, members, named.workspace)
    elif named.project is not None:
        candidates = _memberships_named(snapshot, identity, members, named.project)
    else:
        candidates = memberships(snapshot, identity)
    return _only(snapshot, identity, candidates)


def _named_project(
    snapshot: Snapshot, identity: Identity, members: Iterable[Member], workspace_name: str, project: str
) -> tuple[Workspace, str]:
    workspace = _own_workspace(snapshot, identity, workspace_name)
    admitted = workspace is not None and any(workspace.admits(member, project) for member in members)
    if workspace is None or not admitted or not _is_for(identity, workspace_name, project):
        raise _not_a_member(identity, "not_a_member" if identity.groups_complete else "groups_incomplete")
    return workspace, project


def _own_workspace(snapshot: Snapshot, identity: Identity, name: str) -> Workspace | None:
    """The workspace, if the identity's issuer is the one whose people it names."""
    workspace = snapshot.directory.workspaces.get(name)
    return workspace if workspace is not None and workspace.issuer == identity.issuer else None


def _memberships_in(
    snapshot: Snapshot, identity: Identity, members: tuple[Member, ...], workspace_name: str
) -> Iterator[tuple[str, str]]:
    workspace = _own_workspace(snapshot, identity, workspace_name)
    if workspace is not None:
        for project in _projects_in(workspace, members):
            if _is_for(identity, workspace_name, project):
                yield workspace_name, project


def _memberships_named(
    snapshot: Snapshot, identity: Identity, members: tuple[Member, ...], project: str
) -> Iterator[tuple[str, str]]:
    directory = snapshot.directory
    for name in _merged(directory.workspaces_of(identity.issuer, member) for member in members):
        if _is_for(identity, name, project) and any(directory.workspaces[name].admits(m, project) for m in members):
            yield name, project


def _only(snapshot: Snapshot, identity: Identity, candidates: Iterator[tuple[str, str]]) -> tuple[Workspace, str]:
    found = list(islice(candidates, LISTED_AT_MOST + 1))
    if not found:
        raise _not_a_member(identity, "no_membership")
    if len(found) > 1:
        raise ScopeRequired(_choice(found))
    workspace_name, project = found[0]
    return snapshot.directory.workspaces[workspace_name], project


def _choice(found: list[tuple[str, str]]) -> str:
    listed = ", ".join(f"{workspace}/{project}" for workspace, project in found[:LISTED_AT_MOST])
    more = ", and more" if len(found) > LISTED_AT_MOST else ""
    return f"You are a member of several projects: {listed}{more}. Name one with {_HOW_TO_NAME}."


def _check_collection(identity: Identity, workspace: Workspace, project: str, name: str | None) -> None:
    if name is None:
        return
    collection = workspace.collections.get(name)
    if collection is None or project not in collection.projects:
        raise _not_a_member(identity, "collection_not_listed")


def _projects_in(workspace: Workspace, members: Iterable[Member]) -> Iterator[str]:
    return _merged(workspace.projects_of(member) for member in members)


def _merged(sorted_names: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """All names in order, each once, and no further than they are asked for: who has thousands costs no more than who
    has twenty."""
    return (name for name, _ in groupby(merge(*(names for names in sorted_names if names))))


def _not_a_member(identity: Identity, reason: str) -> Refusal:
    """What it says depends on who asks alone, never on what he asks for."""
    return NotAMember(_about_groups(identity, _NOT_A_MEMBER), reason=reason)


def _about_groups(identity: Identity, message: str) -> str:
    """The message, and what to do where it may be due to groups that a personal access token does not know."""
    unknown = identity.token_id is not None and not identity.groups_complete
    return f"{message} {_SIGN_IN_FOR_GROUPS}" if unknown else message
