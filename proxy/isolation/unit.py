"""The border inside which prefix-cache reuse is allowed (contract section 1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def is_name(text: str) -> bool:
    """Whether `text` may name a workspace, project, team or collection (contract section 1)."""
    return NAME.fullmatch(text) is not None


class Level(Enum):
    """The kinds of unit, as the configuration spells them."""

    DEPLOYMENT = "deployment"
    WORKSPACE = "workspace"
    TEAM = "team"
    PROJECT = "project"
    COLLECTION = "collection"
    USER = "user"


@dataclass(frozen=True, slots=True)
class DeploymentUnit:
    """Everybody whom this deployment serves."""

    def __str__(self) -> str:
        return "deployment"


@dataclass(frozen=True, slots=True)
class WorkspaceUnit:
    workspace: str

    def __str__(self) -> str:
        return f"workspace:{self.workspace}"


@dataclass(frozen=True, slots=True)
class TeamUnit:
    workspace: str
    team: str

    def __str__(self) -> str:
        return f"team:{self.workspace}/{self.team}"


@dataclass(frozen=True, slots=True)
class ProjectUnit:
    workspace: str
    project: str

    def __str__(self) -> str:
        return f"project:{self.workspace}/{self.project}"


@dataclass(frozen=True, slots=True)
class CollectionUnit:
    workspace: str
    collection: str

    def __str__(self) -> str:
        return f"collection:{self.workspace}/{self.collection}"


@dataclass(frozen=True, slots=True)
class UserUnit:
    """One person in one project. The issuer is part of it: two issuers may use one subject for two people."""

    workspace: str
    project: str
    issuer: str
    subject: str

    def __str__(self) -> str:
        return f"user:{self.workspace}/{self.project}/{self.subject}"


@dataclass(frozen=True, slots=True)
class ProbeUnit:
    """A unit that no caller can have: the engine proof's own. A probe never touches a cache that somebody uses."""

    nonce: str

    def __str__(self) -> str:
        return f"probe:{self.nonce}"


Unit = DeploymentUnit | WorkspaceUnit | TeamUnit | ProjectUnit | CollectionUnit | UserUnit


def level(unit: Unit) -> Level:
    match unit:
        case DeploymentUnit():
            return Level.DEPLOYMENT
        case WorkspaceUnit():
            return Level.WORKSPACE
        case TeamUnit():
            return Level.TEAM
        case ProjectUnit():
            return Level.PROJECT
        case CollectionUnit():
            return Level.COLLECTION
        case UserUnit():
            return Level.USER


def fields(unit: Unit | ProbeUnit) -> tuple[str, ...]:
    """The unit's part of the salt's message, its kind first (contract section 7)."""
    match unit:
        case DeploymentUnit():
            return ("deployment",)
        case WorkspaceUnit(workspace):
            return ("workspace", workspace)
        case TeamUnit(workspace, team):
            return ("team", workspace, team)
        case ProjectUnit(workspace, project):
            return ("project", workspace, project)
        case CollectionUnit(workspace, collection):
            return ("collection", workspace, collection)
        case UserUnit(workspace, project, issuer, subject):
            return ("user", workspace, project, issuer, subject)
        case ProbeUnit(nonce):
            return ("probe", nonce)


def unit_of(parts: Sequence[str]) -> Unit:
    """The unit whose `fields` these are. Raises ValueError where there is none."""
    match parts:
        case ("deployment",):
            return DeploymentUnit()
        case ("workspace", workspace):
            return WorkspaceUnit(_name(workspace))
        case ("team", workspace, team):
            return TeamUnit(_name(workspace), _name(team))
        case ("project", workspace, project):
            return ProjectUnit(_name(workspace), _name(project))
        case ("collection", workspace, collection):
            return CollectionUnit(_name(workspace), _name(collection))
        case ("user", workspace, project, issuer, subject):
            return UserUnit(_name(workspace), _name(project), issuer, subject)
        case _:
            raise ValueError(f"{tuple(parts)!r} are no unit's fields")


def above(unit: Unit) -> tuple[Unit, ...]:
    """The units whose raises and keys reach this one, nearest first (contract section 7)."""
    match unit:
        case DeploymentUnit() | WorkspaceUnit():
            return ()
        case TeamUnit(workspace, _) | ProjectUnit(workspace, _) | CollectionUnit(workspace, _):
            return (WorkspaceUnit(workspace),)
        case UserUnit(workspace, project, _, _):
            return (ProjectUnit(workspace, project), WorkspaceUnit(workspace))


def parse_unit(text: str, *, issuer: str) -> Unit:
    """The unit that an operator wrote, as contract section 1 spells it.

    A user's issuer is not part of the spelling, so it is passed. Raises ValueError with what is wrong.
    """
    kind, _, rest = text.partition(":")
    if kind == "user":
        workspace, project, subject = _split(text, rest, 3)
        return UserUnit(_name(workspace), _name(project), issuer, subject)
    names = [_name(part) for part in _split(text, rest, _PARTS.get(kind, -1))]
    match kind:
        case "deployment":
            return DeploymentUnit()
        case "workspace":
            return WorkspaceUnit(*names)
        case "team":
            return TeamUnit(*names)
        case "project":
            return ProjectUnit(*names)
        case _:
            return CollectionUnit(*names)


_PARTS: Final = {"deployment": 0, "workspace": 1, "team": 2, "project": 2, "collection": 2}


def _split(text: str, rest: str, count: int) -> list[str]:
    parts = rest.split("/", max(count - 1, 0)) if rest else []
    if len(parts) != count or not all(parts):
        raise ValueError(
            f"{text!r} is no unit; write deployment, workspace:W, team:W/T, project:W/P, collection:W/C or "
            "user:W/P/SUBJECT"
        )
    return parts


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"{text!r} is no name; names are [a-z0-9][a-z0-9._-]{{0,62}}")
    return text
