"""Which borders the directory draws: for each project where it runs and why, for each unit whose requests meet there.

Built on the rules that requests go through (`isolation.scope`, `membership.policy_of`), so it cannot say anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from proxy.directory.membership import policy_of
from proxy.directory.model import Directory, Project, Workspace
from proxy.isolation.scope import WIDTH, border_of, model_policy, shared_unit
from proxy.isolation.sharing import Border
from proxy.isolation.unit import Level, Unit
from proxy.refusals import UnitTooWide


def project_border(workspace: Workspace, project: Project, default_unit: Level, *, model: str | None = None) -> Border:
    """Where the border of a request runs that names nothing but the project. None is any model without an exception."""
    policy, line = model_policy(*policy_of(workspace, project, default_unit), project.model_units, model)
    return border_of(policy, line, team=project.team, collection=None, narrower=None)


def project_unit(workspace: Workspace, project: Project, border: Border) -> Unit | None:
    """The unit of that border; None where each person has one of their own."""
    if border.level is Level.USER:
        return None
    return shared_unit(border.level, workspace.name, project.name, team=project.team, collection=None)


def projects_by_unit(
    directory: Directory, default_unit: Level, *, model: str | None = None
) -> Mapping[Unit, tuple[tuple[str, str], ...]]:
    """For each unit, the (workspace, project) whose requests may run in it, in order; a user's own units left out.

    They may by the policy, by naming a collection, or by asking for a narrower border than the policy's. `model` is the
    model that they ask; None stands for any.
    """
    found: dict[Unit, list[tuple[str, str]]] = {}
    for name, workspace in sorted(directory.workspaces.items()):
        collections = _collections_of(workspace)
        for project_name, project in sorted(workspace.projects.items()):
            models = (model,) if model is not None else (None, *project.model_units)
            for unit in _reachable(workspace, project, default_unit, models, collections.get(project_name, ())):
                found.setdefault(unit, []).append((name, project_name))
    return {unit: tuple(projects) for unit, projects in found.items()}


def _collections_of(workspace: Workspace) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, collection in workspace.collections.items():
        for project in collection.projects:
            found.setdefault(project, []).append(name)
    return found


def _reachable(
    workspace: Workspace,
    project: Project,
    default_unit: Level,
    models: Iterable[str | None],
    collections: Iterable[str],
) -> set[Unit]:
    """Everything that a request for the project can name is tried."""
    named: list[tuple[str | None, Level | None]] = [(None, None), *((None, level) for level in WIDTH)]
    named += [(collection, None) for collection in collections]
    return {unit for model in models for unit in _units(workspace, project, default_unit, model, named)}


def _units(
    workspace: Workspace,
    project: Project,
    default_unit: Level,
    model: str | None,
    named: Iterable[tuple[str | None, Level | None]],
) -> Iterator[Unit]:
    policy, line = model_policy(*policy_of(workspace, project, default_unit), project.model_units, model)
    for collection, narrower in named:
        try:
            border = border_of(policy, line, team=project.team, collection=collection, narrower=narrower)
        except UnitTooWide:
            continue
        if border.level is not Level.USER:
            yield shared_unit(border.level, workspace.name, project.name, team=project.team, collection=collection)
