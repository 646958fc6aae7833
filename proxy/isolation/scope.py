"""Which border one request has: the administrator's policy, narrowed by the caller if he wants (contract section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Final

from proxy.isolation.sharing import Border, Cause, Decision, Line
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
    `policy` is the project's, else the workspace's, else the deployment's unit, and `line` says which of them;
    `model_units` are the project's exceptions per model; `models` is None where every base model is allowed; `narrower`
    is what the caller asked for.
    """

    issuer: str
    subject: str
    workspace: str
    project: str
    team: str | None
    collection: str | None
    policy: Level
    line: Line
    model_units: Mapping[str, Level]
    models: frozenset[str] | None
    narrower: Level | None
    show_reuse: bool
    _last: Decision | None = field(default=None, init=False, repr=False, compare=False)
    _others: dict[tuple[str | None, Level | None], Decision] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def unit(self, model: str, content: Level | None = None) -> Unit:
        """The border of one request for `model`. Raises UnitTooWide where the caller asked for a wider one.

        `content` is the border that a rule gives this request for what is in it; it only ever narrows.
        """
        return self.decision(model, content).unit

    def decision(self, model: str | None, content: Level | None = None) -> Decision:
        """The same with what it rests on; None stands for every model without an exception. Raises UnitTooWide.

        Nothing but this scope and the two arguments decides, so what was found once is kept: to be asked for models
        that are served.
        """
        last = self._last
        if last is not None and last.model == model and last.content is content:
            return last
        return self._other(model, content)

    def _other(self, model: str | None, content: Level | None) -> Decision:
        """Not the one that was asked for last. That stands alone, since most scopes ask for one model only: of a
        hundred thousand scopes every object that a request has to look at comes from memory, not from a cache.
        """
        if self._last is not None:
            self._others[self._last.model, self._last.content] = self._last
        decision = self._others.get((model, content)) or self._decided(model, content)
        object.__setattr__(self, "_last", decision)
        return decision

    def _decided(self, model: str | None, content: Level | None) -> Decision:
        policy, line = model_policy(self.policy, self.line, self.model_units, model)
        border = border_of(
            policy, line, team=self.team, collection=self.collection, narrower=self.narrower, content=content
        )
        # One text for all scopes that ask for the model.
        return Decision(self._unit_at(border.level), border, None if model is None else intern(model), content)

    def _unit_at(self, level: Level) -> Unit:
        if level is Level.USER:
            return UserUnit(self.workspace, self.project, self.issuer, self.subject)
        return shared_unit(level, self.workspace, self.project, team=self.team, collection=self.collection)


def model_policy(policy: Level, line: Line, model_units: Mapping[str, Level], model: str | None) -> tuple[Level, Line]:
    """What the policy says for one model: its own exception, else what holds for all."""
    own = model_units.get(model) if model is not None else None
    return (policy, line) if own is None else (own, Line.MODEL)


def border_of(
    policy: Level,
    line: Line,
    *,
    team: str | None,
    collection: str | None,
    narrower: Level | None,
    content: Level | None = None,
) -> Border:
    """The border that follows from the policy, from what the request names and from what is in it: `content` is the
    level that a rule gives it. Raises UnitTooWide.
    """
    border = Border(policy, line)
    if collection is not None:
        if policy is Level.USER:
            raise UnitTooWide(
                "Your administrator keeps each person apart here, so no collection is shared. Leave out "
                "X-Saltgate-Collection."
            )
        return _within_collection(border.turned(Cause.COLLECTION, Level.COLLECTION), content)
    if policy is Level.COLLECTION:
        border = border.turned(Cause.NO_COLLECTION, Level.PROJECT)
    if narrower is not None:
        border = _narrowed(border, narrower)
    if content is not None and narrowest((border.level, content)) is not border.level:
        border = border.turned(Cause.RULE, content)
    if border.level is Level.TEAM and team is None:
        border = border.turned(Cause.NO_TEAM, Level.PROJECT)
    return border


def _within_collection(border: Border, content: Level | None) -> Border:
    match content:
        case Level.USER:
            return border.turned(Cause.RULE, Level.USER)
        case Level.PROJECT | Level.TEAM:
            # A team and a collection may overlap; the project is what lies in both.
            return border.turned(Cause.RULE, Level.PROJECT)
        case _:
            return border


def narrowest(levels: Iterable[Level]) -> Level:
    """The narrowest of some levels of WIDTH, at least one."""
    return max(levels, key=WIDTH.index)


def _narrowed(border: Border, asked: Level) -> Border:
    if asked not in WIDTH or WIDTH.index(asked) < WIDTH.index(border.level):
        raise UnitTooWide(f"The border here is {border.level.value}; X-Saltgate-Unit may only name a narrower one.")
    return border if asked is border.level else border.turned(Cause.CALLER, asked)


def shared_unit(level: Level, workspace: str, project: str, *, team: str | None, collection: str | None) -> Unit:
    """The unit that a border of `border_of` names for a project. A user's own names a person: it is none of these."""
    match level:
        case Level.DEPLOYMENT:
            return DeploymentUnit()
        case Level.WORKSPACE:
            return WorkspaceUnit(workspace)
        case Level.TEAM if team is not None:
            return TeamUnit(workspace, team)
        case Level.COLLECTION if collection is not None:
            return CollectionUnit(workspace, collection)
        case Level.PROJECT:
            return ProjectUnit(workspace, project)
        case _:
            raise ValueError(f"{level.value} names no shared unit of {workspace}/{project}")
