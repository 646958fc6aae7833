"""Which units somebody leaves when the directory changes: those whose epoch rises where the policy says so.

Pure. A unit is left by whom the directory names no longer as one who shares it, be it a member or a whole project.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from proxy.directory.model import Member, Project, Workspace
from proxy.isolation.unit import (
    CollectionUnit,
    DeploymentUnit,
    Level,
    ProjectUnit,
    TeamUnit,
    Unit,
    WorkspaceUnit,
    above,
)

_WHOLE_WORKSPACE: Final = frozenset((Level.WORKSPACE, Level.DEPLOYMENT))


@dataclass(frozen=True, slots=True)
class RemovalPolicy:
    """That a removal raises what is left. `default_unit` is the border where the directory names none."""

    default_unit: Level

    def borders(self, workspace: Workspace, project: Project) -> frozenset[Level]:
        """The widest borders of the project's requests, before a caller narrows them."""
        own = project.unit or workspace.unit or self.default_unit
        return frozenset((own, *project.model_units.values()))


def left_units(before: Workspace, after: Workspace, policy: RemovalPolicy) -> tuple[Unit, ...]:
    """The units of the workspace that some member or project shares before and not after."""
    sharing = _sharers(after)
    left: list[Unit] = [unit for unit, sharers in _sharers(before).items() if sharers - sharing.get(unit, frozenset())]
    wide = _within(before, _WHOLE_WORKSPACE, policy) | _within(after, _WHOLE_WORKSPACE, policy)
    # A border that is not in use is not raised: it would cost every project below it its cache.
    if _people(before, wide) - _people(after, wide):
        left.append(WorkspaceUnit(before.name))
    return tuple(left)


def left_deployment(
    before: Mapping[str, Workspace], after: Mapping[str, Workspace], policy: RemovalPolicy
) -> tuple[Unit, ...]:
    """The deployment's unit, where somebody shares it before and not after."""
    if policy.default_unit is not Level.DEPLOYMENT:  # a directory cannot name it
        return ()
    left = _deployment_people(before, policy) - _deployment_people(after, policy)
    return (DeploymentUnit(),) if left else ()


def without(workspace: Workspace, member: Member) -> Workspace:
    """The workspace as if it did not name the member."""

    def rest(members: Iterable[Member]) -> tuple[Member, ...]:
        return tuple(other for other in members if other != member)

    projects = {name: replace(project, members=rest(project.members)) for name, project in workspace.projects.items()}
    teams = {name: replace(team, members=rest(team.members)) for name, team in workspace.teams.items()}
    return replace(workspace, projects=projects, teams=teams)


def outermost(units: Iterable[Unit]) -> tuple[Unit, ...]:
    """The units in order, each once, without those that lie under another one: its raise reaches them."""
    once = dict.fromkeys(units)
    return tuple(unit for unit in once if not any(higher in once for higher in above(unit)))


def _sharers(workspace: Workspace) -> dict[Unit, frozenset[str]]:
    """Who shares each project, team and collection: members, and for the latter two also `project:NAME`."""
    units: dict[Unit, frozenset[str]] = {}
    for name in workspace.projects:
        units[ProjectUnit(workspace.name, name)] = _people(workspace, (name,))
    for name, team in workspace.teams.items():
        projects = [project.name for project in workspace.projects.values() if project.team == name]
        units[TeamUnit(workspace.name, name)] = _people(workspace, projects) | _named(projects) | {*team.members}
    for name, collection in workspace.collections.items():
        listed = collection.projects
        units[CollectionUnit(workspace.name, name)] = _people(workspace, listed) | _named(listed)
    return units


def _named(projects: Iterable[str]) -> frozenset[str]:
    return frozenset(f"project:{name}" for name in projects)


def _people(workspace: Workspace, projects: Iterable[str]) -> frozenset[str]:
    """Everybody who may act for one of the projects, as far as they exist."""
    people: set[str] = set()
    for project in (workspace.projects[name] for name in projects if name in workspace.projects):
        people.update(project.members)
        if project.team is not None:
            people.update(workspace.teams[project.team].members)
    return frozenset(people)


def _within(workspace: Workspace, borders: frozenset[Level], policy: RemovalPolicy) -> frozenset[str]:
    """The projects that have one of the borders."""
    projects = workspace.projects.values()
    return frozenset(project.name for project in projects if policy.borders(workspace, project) & borders)


def _deployment_people(workspaces: Mapping[str, Workspace], policy: RemovalPolicy) -> frozenset[tuple[str, str]]:
    return frozenset(
        (workspace.issuer, member)
        for workspace in workspaces.values()
        for member in _people(workspace, _within(workspace, frozenset((Level.DEPLOYMENT,)), policy))
    )
