"""The directory as frozen values: read from a table (TOML or JSON) with all its faults at once, and written back.

A workspace has one form everywhere: the table `[workspaces.NAME]` of the directory file, in TOML there and in JSON in
Redis and in the state folder. Whoever holds a `Workspace` or a `Directory` holds one without faults.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NewType

import msgspec
import tomli_w

from proxy.isolation.unit import Level, is_name

Member = NewType("Member", str)
"""A person or a group of one issuer, spelled `user:SUBJECT` or `group:NAME`."""

_PRINTABLE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,255}")
_ISSUER: Final = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,2048}")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_POLICIES: Final = {unit.value: unit for unit in Level if unit is not Level.DEPLOYMENT}


class Fault(NamedTuple):
    """One thing wrong: the dotted key as the directory file would spell it, and what to do."""

    key: str
    message: str


class DirectoryFaults(ValueError):  # noqa: N818 - it carries several, and is named for them
    """The table is no directory. `faults` holds everything that is wrong, in the order of the table."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{key}: {message}" for key, message in self.faults))


@dataclass(frozen=True, slots=True)
class Team:
    name: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Collection:
    name: str
    projects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Project:
    """`models` is None where every base model is allowed; `unit` is None where the workspace's holds."""

    name: str
    members: tuple[Member, ...] = ()
    team: str | None = None
    unit: Level | None = None
    models: tuple[str, ...] | None = None
    model_units: Mapping[str, Level] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workspace:
    """One workspace with everything in it. Every reference inside it (team, collection) exists."""

    name: str
    issuer: str
    projects: Mapping[str, Project] = field(default_factory=dict)
    teams: Mapping[str, Team] = field(default_factory=dict)
    collections: Mapping[str, Collection] = field(default_factory=dict)
    unit: Level | None = None
    show_reuse: bool | None = None
    # From a member to his projects, sorted, the teams' counted in: a request never scans the projects.
    _projects_of: Mapping[Member, tuple[str, ...]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_projects_of", _projects_by_member(self.projects.values(), self.teams))

    @property
    def members(self) -> Iterable[Member]:
        """Everybody who has a project here."""
        return self._projects_of.keys()

    def projects_of(self, member: Member) -> tuple[str, ...]:
        """The names of the member's projects, sorted, whether he is named there or in their team."""
        return self._projects_of.get(member, ())

    def admits(self, member: Member, project: str) -> bool:
        names = self.projects_of(member)
        at = bisect_left(names, project)
        return at < len(names) and names[at] == project


@dataclass(frozen=True, slots=True)
class Directory:
    """All workspaces, by name. Made by `Directory.of`, and from an earlier one by `changed`."""

    workspaces: Mapping[str, Workspace]
    # From (issuer, member) to the names of the workspaces where he has a project, sorted.
    _workspaces_of: Mapping[tuple[str, Member], tuple[str, ...]] = field(compare=False, repr=False)

    @classmethod
    def of(cls, workspaces: Iterable[Workspace]) -> Directory:
        return cls({}, {}).changed({workspace.name: workspace for workspace in workspaces})

    def workspaces_of(self, issuer: str, member: Member) -> tuple[str, ...]:
        return self._workspaces_of.get((issuer, member), ())

    def changed(self, changes: Mapping[str, Workspace | None]) -> Directory:
        """A directory with these workspaces put in or, where None, taken out. The cost is that of the changed ones."""
        come: dict[tuple[str, Member], set[str]] = {}
        gone: dict[tuple[str, Member], set[str]] = {}
        workspaces = dict(self.workspaces)
        for name, workspace in changes.items():
            _enter(gone, workspaces.pop(name, None))
            _enter(come, workspace)
            if workspace is not None:
                workspaces[name] = workspace
        index = dict(self._workspaces_of)
        for key in come.keys() | gone.keys():
            names = set(index.pop(key, ())) - gone.get(key, set()) | come.get(key, set())
            if names:
                index[key] = tuple(sorted(names))
        return Directory(workspaces, index)


def user(subject: str) -> Member:
    return Member(f"user:{subject}")


def group(name: str) -> Member:
    return Member(f"group:{name}")


def parse_member(text: str) -> Member:
    """The member that an operator wrote. Raises ValueError with the rule."""
    kind, _, name = text.partition(":")
    # No token names a person with characters that do not show: claims.py.
    shows = kind != "user" or name.isascii() or all(unicodedata.category(character) != "Cf" for character in name)
    if kind not in ("user", "group") or not shows or _PRINTABLE.fullmatch(name) is None:
        raise ValueError(
            f"{json.dumps(text)} is no member; write user:SUBJECT or group:NAME, 1 to 255 characters that show"
        )
    return Member(text)


def is_issuer(text: str) -> bool:
    """Whether `text` can be an issuer identifier at all. Which issuers are trusted is the configuration's matter."""
    return _ISSUER.fullmatch(text) is not None


def parse_directory(table: Mapping[str, object]) -> Directory:
    """The directory that a directory file's table holds. Raises DirectoryFaults."""
    faults: list[Fault] = []
    _refuse_unknown(table, ("workspaces",), (), faults)
    if "workspaces" not in table:
        faults.append(Fault("workspaces", "is missing; write an empty [workspaces] if there shall be none"))
    tables = _named_tables(table.get("workspaces", {}), ("workspaces",), faults)
    workspaces = [_workspace(name, value, ("workspaces", name), faults) for name, value in tables.items()]
    if faults:
        raise DirectoryFaults(faults)
    return Directory.of(workspaces)


def parse_workspace(name: str, table: object) -> Workspace:
    """One workspace from its table. Raises DirectoryFaults."""
    faults: list[Fault] = []
    key = ("workspaces", name)
    _check_name(name, key, faults)
    workspace = _workspace(name, _table(table, key, faults), key, faults)
    if faults:
        raise DirectoryFaults(faults)
    return workspace


def directory_from_toml(text: str) -> Directory:
    """The directory of a directory file. Raises DirectoryFaults, also where the text is no TOML."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # too many digits are no TOMLDecodeError
        raise DirectoryFaults([Fault("", f"is no TOML: {error}")]) from error
    return parse_directory(table)


def directory_to_toml(directory: Directory) -> str:
    """The directory file: the same directory always gives the same text, and reads back as the same directory."""
    names = sorted(directory.workspaces)
    return tomli_w.dumps({"workspaces": {name: workspace_table(directory.workspaces[name]) for name in names}})


def workspace_from_json(name: str, document: bytes) -> Workspace:
    """A workspace from its record. Raises DirectoryFaults, also where the bytes are no JSON."""
    try:
        table: object = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DirectoryFaults([Fault(_dotted(("workspaces", name)), f"is no JSON: {error}")]) from error
    return parse_workspace(name, table)


def workspace_to_json(workspace: Workspace) -> bytes:
    """The workspace's record: the same workspace always gives the same bytes."""
    return msgspec.json.encode(workspace_table(workspace))


def workspace_table(workspace: Workspace) -> dict[str, object]:
    """The table `[workspaces.NAME]`. What is not set is left out."""
    parts = {
        "projects": {name: _project_table(workspace.projects[name]) for name in sorted(workspace.projects)},
        "teams": {name: {"members": list(workspace.teams[name].members)} for name in sorted(workspace.teams)},
        "collections": {
            name: {"projects": list(workspace.collections[name].projects)} for name in sorted(workspace.collections)
        },
    }
    own = {
        "issuer": workspace.issuer,
        "unit": None if workspace.unit is None else workspace.unit.value,
        "show_reuse": workspace.show_reuse,
    }
    return {key: value for key, value in own.items() if value is not None} | {k: v for k, v in parts.items() if v}


def _project_table(project: Project) -> dict[str, object]:
    own: dict[str, object | None] = {
        "members": list(project.members) or None,
        "team": project.team,
        "unit": None if project.unit is None else project.unit.value,
        "models": None if project.models is None else list(project.models),
        "model_units": {model: unit.value for model, unit in sorted(project.model_units.items())} or None,
    }
    return {key: value for key, value in own.items() if value is not None}


def _projects_by_member(projects: Iterable[Project], teams: Mapping[str, Team]) -> dict[Member, tuple[str, ...]]:
    names: dict[Member, set[str]] = {}
    for project in projects:
        team_members = teams[project.team].members if project.team is not None else ()
        for member in (*project.members, *team_members):
            names.setdefault(member, set()).add(project.name)
    return {member: tuple(sorted(found)) for member, found in names.items()}


def _enter(index: dict[tuple[str, Member], set[str]], workspace: Workspace | None) -> None:
    if workspace is not None:
        for member in workspace.members:
            index.setdefault((workspace.issuer, member), set()).add(workspace.name)


# Reading. Each reader notes its faults and goes on with what is well, so that one run shows them all.

_Key = tuple[str, ...]


def _workspace(name: str, table: Mapping[str, object], key: _Key, faults: list[Fault]) -> Workspace:
    _refuse_unknown(table, ("issuer", "unit", "show_reuse", "projects", "teams", "collections"), key, faults)
    team_tables = _named_tables(table.get("teams", {}), (*key, "teams"), faults)
    project_tables = _named_tables(table.get("projects", {}), (*key, "projects"), faults)
    collection_tables = _named_tables(table.get("collections", {}), (*key, "collections"), faults)
    return Workspace(
        name=name,
        issuer=_issuer(table.get("issuer"), (*key, "issuer"), faults),
        unit=_unit(table.get("unit"), (*key, "unit"), faults),
        show_reuse=_flag(table.get("show_reuse"), (*key, "show_reuse"), faults),
        teams={n: _team(n, t, (*key, "teams", n), faults) for n, t in team_tables.items()},
        projects={
            n: _project(n, t, team_tables.keys(), (*key, "projects", n), faults) for n, t in project_tables.items()
        },
        collections={
            n: _collection(n, t, project_tables.keys(), (*key, "collections", n), faults)
            for n, t in collection_tables.items()
        },
    )


def _project(name: str, table: Mapping[str, object], teams: Iterable[str], key: _Key, faults: list[Fault]) -> Project:
    _refuse_unknown(table, ("members", "team", "unit", "models", "model_units"), key, faults)
    return Project(
        name=name,
        members=_members(table.get("members", []), (*key, "members"), faults),
        team=_team_name(table.get("team"), teams, (*key, "team"), faults),
        unit=_unit(table.get("unit"), (*key, "unit"), faults),
        models=_models(table["models"], (*key, "models"), faults) if "models" in table else None,
        model_units=_model_units(table.get("model_units", {}), (*key, "model_units"), faults),
    )


def _team(name: str, table: Mapping[str, object], key: _Key, faults: list[Fault]) -> Team:
    _refuse_unknown(table, ("members",), key, faults)
    return Team(name, _members(table.get("members", []), (*key, "members"), faults))


def _collection(
    name: str, table: Mapping[str, object], projects: Iterable[str], key: _Key, faults: list[Fault]
) -> Collection:
    _refuse_unknown(table, ("projects",), key, faults)
    listed = _strings(table.get("projects", []), (*key, "projects"), faults)
    faults += [
        Fault(_dotted((*key, "projects")), f"{json.dumps(missing)} is no project of this workspace")
        for missing in listed
        if missing not in projects
    ]
    return Collection(name, listed)


def _team_name(value: object, teams: Iterable[str], key: _Key, faults: list[Fault]) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in teams:
        faults.append(Fault(_dotted(key), f"{json.dumps(value, default=str)} is no team of this workspace"))
        return None
    return value


def _members(value: object, key: _Key, faults: list[Fault]) -> tuple[Member, ...]:
    members = []
    for text in _strings(value, key, faults):
        try:
            members.append(parse_member(text))
        except ValueError as error:
            faults.append(Fault(_dotted(key), str(error)))
    return tuple(members)


def _models(value: object, key: _Key, faults: list[Fault]) -> tuple[str, ...]:
    models = _strings(value, key, faults)
    faults += [_no_model(model, key) for model in models if _PRINTABLE.fullmatch(model) is None]
    return models


def _model_units(value: object, key: _Key, faults: list[Fault]) -> dict[str, Level]:
    units: dict[str, Level] = {}
    for model, text in _table(value, key, faults).items():
        if _PRINTABLE.fullmatch(model) is None:
            faults.append(_no_model(model, key))
        unit = _unit(text, (*key, model), faults)
        if unit is not None:
            units[model] = unit
    return units


def _no_model(model: str, key: _Key) -> Fault:
    return Fault(_dotted(key), f"{json.dumps(model)} is no model's name; 1 to 255 characters, no control characters")


def _issuer(value: object, key: _Key, faults: list[Fault]) -> str:
    if isinstance(value, str) and is_issuer(value):
        return value
    faults.append(
        Fault(_dotted(key), "is required: the issuer whose users and groups are members here, as its tokens spell it")
    )
    return ""


def _unit(value: object, key: _Key, faults: list[Fault]) -> Level | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in _POLICIES:
        faults.append(Fault(_dotted(key), f"must be one of {', '.join(_POLICIES)}"))
        return None
    return _POLICIES[value]


def _flag(value: object, key: _Key, faults: list[Fault]) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    faults.append(Fault(_dotted(key), "must be true or false"))
    return None


def _strings(value: object, key: _Key, faults: list[Fault]) -> tuple[str, ...]:
    """The list's texts, each once, in their order."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        faults.append(Fault(_dotted(key), "must be a list of strings"))
        return ()
    return tuple(dict.fromkeys(value))


def _named_tables(value: object, key: _Key, faults: list[Fault]) -> dict[str, Mapping[str, object]]:
    tables = _table(value, key, faults)
    for name in tables:
        _check_name(name, (*key, name), faults)
    return {name: _table(table, (*key, name), faults) for name, table in tables.items()}


def _table(value: object, key: _Key, faults: list[Fault]) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    faults.append(Fault(_dotted(key), "must be a table"))
    return {}


def _check_name(name: str, key: _Key, faults: list[Fault]) -> None:
    if not is_name(name):
        faults.append(Fault(_dotted(key), "is no name; names are [a-z0-9][a-z0-9._-]{0,62}"))


def _refuse_unknown(table: Mapping[str, object], known: tuple[str, ...], key: _Key, faults: list[Fault]) -> None:
    faults += [
        Fault(_dotted((*key, name)), f"is not known here; known are {', '.join(known)}")
        for name in table
        if name not in known
    ]


def _dotted(key: _Key) -> str:
    return ".".join(part if _BARE_KEY.fullmatch(part) else json.dumps(part) for part in key)
