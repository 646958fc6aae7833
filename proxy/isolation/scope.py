"""Which border one request has: the administrator's policy, narrowed by the caller if he wants (contract section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from proxy.isolation.unit import (
    CollectionUnit,
    DeploymentUnit,
    Level,
    ProjectUnit,
    TeamUnit,
    Unit,
    UserUnit,
    WorkspaceUnit,
)
from proxy.refusals import UnitTooWide

# From the widest to the narrowest. A collection lies beside this line: it joins some projects of one workspace.
WIDTH: Final = (Level.DEPLOYMENT, Level.WORKSPACE, Level.TEAM, Level.PROJECT, Level.USER)


@dataclass(frozen=True, slots=True)
class Scope:
    """Under which workspace and project (and collection) one request acts, for whom, and what the policy says of it.

    Only `proxy.directory.membership.select_scope` makes one: whoever holds a Scope has been found a member.
    `policy` is the project's, else the workspace's, else the deployment's unit; `model_units` are the project's
    exceptions per model; `models` is None where every base model is allowed; `narrower` is what the caller asked for.
    """

    issuer: str
    subject: str
    workspace: str
    project: str
    team: str | None
    collection: str | None
    policy: Level
    model_units: Mapping[str, Level]
    models: frozenset[str] | None
    narrower: Level | None
    show_reuse: bool

    def unit(self, model: str, content: Level | None = None) -> Unit:
        """The border of one request for `model`. Raises UnitTooWide where the caller asked for a wider one.

        `content` is the border that a rule gives this request for what is in it; it only ever narrows.
        """
        policy = self.model_units.get(model, self.policy)
        if self.collection is not None:
            return self._collection_unit(policy, self.collection, content)
        if policy is Level.COLLECTION:
            policy = Level.PROJECT
        if self.narrower is not None:
            policy = _narrowed(policy, self.narrower)
        return self._unit_at(policy if content is None else narrowest((policy, content)))

    def _collection_unit(self, policy: Level, collection: str, content: Level | None) -> Unit:
        if policy is Level.USER:
            raise UnitTooWide(
                "Your administrator keeps each person apart here, so no collection is shared. Leave out "
                "X-Saltgate-Collection."
            )
        match content:
            case None | Level.DEPLOYMENT | Level.WORKSPACE | Level.COLLECTION:
                return CollectionUnit(self.workspace, collection)
            case Level.USER:
                return self._unit_at(Level.USER)
            case Level.PROJECT | Level.TEAM:
                # A team and a collection may overlap; the project is what lies in both.
                return self._unit_at(Level.PROJECT)

    def _unit_at(self, policy: Level) -> Unit:
        match policy:
            case Level.DEPLOYMENT:
                return DeploymentUnit()
            case Level.WORKSPACE:
                return WorkspaceUnit(self.workspace)
            case Level.TEAM if self.team is not None:
                return TeamUnit(self.workspace, self.team)
            case Level.USER:
                return UserUnit(self.workspace, self.project, self.issuer, self.subject)
            case _:
                return ProjectUnit(self.workspace, self.project)


def narrowest(levels: Iterable[Level]) -> Level:
    """The narrowest of some levels of WIDTH, at least one."""
    return max(levels, key=WIDTH.index)


def _narrowed(policy: Level, asked: Level) -> Level:
    if asked not in WIDTH or WIDTH.index(asked) < WIDTH.index(policy):
        raise UnitTooWide(f"The border here is {policy.value}; X-Saltgate-Unit may only name a narrower one.")
    return asked
