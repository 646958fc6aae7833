"""Which line of the policy drew a border, and who shares a cache inside it: what an operator is told of each decision.

The rules themselves are in `scope.py`; it makes every `Border`, so what is told is what was decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from proxy.isolation.ring import TimedSalt
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


class Line(Enum):
    """The lines of the policy, the nearest first; the first that says anything decides (contract section 5)."""

    MODEL = "model"
    PROJECT = "project"
    WORKSPACE = "workspace"
    DEPLOYMENT = "deployment"


class Cause(Enum):
    """Why the border is another one than the policy's line says."""

    COLLECTION = "collection"
    NO_COLLECTION = "no_collection"
    NO_TEAM = "no_team"
    CALLER = "caller"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class Turn:
    """One step from the policy's line to the border that holds."""

    cause: Cause
    to: Level


@dataclass(frozen=True, slots=True)
class Border:
    """How far reuse may go, and why: `line` says `policy`, and each turn made another level of it."""

    policy: Level
    line: Line
    turns: tuple[Turn, ...] = ()

    @property
    def level(self) -> Level:
        """The border that holds."""
        return self.turns[-1].to if self.turns else self.policy

    @property
    def causes(self) -> tuple[str, ...]:
        """Why it is another one than the policy says, in the order of the turns."""
        return tuple(turn.cause.value for turn in self.turns) if self.turns else ()

    def turned(self, cause: Cause, to: Level) -> Border:
        return replace(self, turns=(*self.turns, Turn(cause, to)))


@dataclass(frozen=True, slots=True)
class Decision:
    """The unit of one request, and the border that it was taken from; for which model, and for what content.

    One is made for many requests, so what each of them tells of it is made with it: the unit and the line as they are
    spelled, and the causes.
    """

    unit: Unit
    border: Border
    model: str | None = field(default=None, repr=False, compare=False)
    content: Level | None = field(default=None, repr=False, compare=False)
    unit_name: str = field(init=False, repr=False, compare=False)
    line_name: str = field(init=False, repr=False, compare=False)
    causes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    salt: TimedSalt | None = field(default=None, init=False, repr=False, compare=False)
    """The unit's, as it was made for the last of them (`proxy.isolation.remembered`)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit_name", str(self.unit))
        object.__setattr__(self, "line_name", self.border.line.value)
        object.__setattr__(self, "causes", self.border.causes)

    def remember(self, salt: TimedSalt) -> None:
        """For the next request: it is no part of what was decided."""
        object.__setattr__(self, "salt", salt)


def because(border: Border, *, workspace: str, project: str, model: str | None) -> str:
    """Why the border is where it is, in words."""
    line = _LINES[border.line].format(
        workspace=workspace, project=project, model=model or "that was named", unit=border.policy.value
    )
    return ", but ".join((line, *(_CAUSES[turn.cause].format(unit=turn.to.value) for turn in border.turns)))


_LINES: Final = {
    Line.MODEL: 'project {workspace}/{project} has model_units with "{unit}" for model {model}',
    Line.PROJECT: 'project {workspace}/{project} has unit = "{unit}"',
    Line.WORKSPACE: 'workspace {workspace} has unit = "{unit}"',
    Line.DEPLOYMENT: 'the configuration has [isolation] unit = "{unit}"',
}
_CAUSES: Final = {
    Cause.COLLECTION: "the request names a collection, which has a cache of its own",
    Cause.NO_COLLECTION: "the request names no collection, so it is the {unit}",
    Cause.NO_TEAM: "the project has no team, so it is the {unit}",
    Cause.CALLER: "the caller asks for the {unit}",
    Cause.RULE: "a rule found what only the {unit} may share",
}

_MAY_NOT_ENTER: Final = "also people of projects that they may not enter"


def who_shares(unit: Unit) -> str:
    """Whose requests find one another's prompts in this unit's cache, in words."""
    match unit:
        case DeploymentUnit():
            return f"everybody whom this deployment serves, of every workspace, {_MAY_NOT_ENTER}"
        case WorkspaceUnit(workspace):
            return f"everybody in workspace {workspace}, {_MAY_NOT_ENTER}"
        case TeamUnit(workspace, team):
            return f"everybody in the projects of team {workspace}/{team}, {_MAY_NOT_ENTER}"
        case ProjectUnit(workspace, project):
            return f"everybody in project {workspace}/{project}"
        case CollectionUnit(workspace, collection):
            return (
                f"everybody in the projects that collection {workspace}/{collection} lists, "
                "in what they ask about it; they may not enter one another's projects"
            )
        case UserUnit(workspace, project):
            return f"only this person in this project ({workspace}/{project})"


def each_alone(workspace: str, project: str) -> str:
    """The same for a project whose border is the user, where nobody is named."""
    return f"nobody: each person in project {workspace}/{project} has a cache of their own"


def listed(names: Sequence[str], *, at_most: int) -> str:
    """The names for people, the rest counted."""
    shown = ", ".join(names[:at_most])
    return shown if len(names) <= at_most else f"{shown} and {len(names) - at_most} more"
