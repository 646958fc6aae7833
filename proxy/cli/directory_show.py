"""What `saltgate directory show` tells: every unit with its members, its border, who shares it, its epoch and key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from config.faults import printable
from proxy.cli.explanation_shown import border_document
from proxy.directory.borders import project_border, project_unit, projects_by_unit
from proxy.directory.model import Member, Project, Workspace
from proxy.directory.snapshot import Reading, Snapshot
from proxy.isolation.ring import KeyRing
from proxy.isolation.salt import Salt
from proxy.isolation.sharing import Border, because, each_alone, listed, who_shares
from proxy.isolation.unit import CollectionUnit, DeploymentUnit, Level, ProjectUnit, TeamUnit, Unit, WorkspaceUnit
from proxy.refusals import SaltUnavailable

_LISTED_AT_MOST: Final = 20
_NOBODY: Final = "nobody: no request has this border"


@dataclass(frozen=True, slots=True)
class ProjectBorder:
    """Where a project's border runs: for `model`, or where that is None for every model without one of its own.

    `unit` is None where each person has a unit of their own; `projects` are those whose requests may meet there.
    """

    model: str | None
    border: Border
    unit: Unit | None
    projects: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class UnitRow:
    """What is told of one unit. `epoch` and `key` are None where there is no salt ring, `salt` where there is none."""

    unit: Unit
    epoch: int | None
    key: str | None
    salt: Salt | None
    sharing: tuple[tuple[str, str], ...]
    policy: Level | None = None
    issuer: str | None = None
    team: str | None = None
    members: tuple[Member, ...] | None = None
    projects: tuple[str, ...] | None = None
    borders: tuple[ProjectBorder, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    reading: Reading
    rows: tuple[UnitRow, ...]


def show(reading: Reading, keys: KeyRing, *, default_unit: Level, now: float) -> Shown:
    """Every unit that the directory names, the workspaces in order, with its key at `now` (Unix seconds).

    `default_unit` is the deployment's policy.
    """
    return Shown(reading, tuple(_Rows(reading.snapshot, keys, default_unit, now).all()))


class _Rows:
    """The rows of one snapshot: what every row needs is worked out once."""

    def __init__(self, snapshot: Snapshot, keys: KeyRing, default_unit: Level, now: float) -> None:
        self._snapshot = snapshot
        self._keys = keys
        self._default_unit = default_unit
        self._now = now
        self._by_unit = projects_by_unit(snapshot.directory, default_unit)
        models = {m for w in snapshot.directory.workspaces.values() for p in w.projects.values() for m in p.model_units}
        self._by_model = {m: projects_by_unit(snapshot.directory, default_unit, model=m) for m in models}

    def all(self) -> Iterator[UnitRow]:
        yield self._row(DeploymentUnit(), policy=self._default_unit)
        for _, workspace in sorted(self._snapshot.directory.workspaces.items()):
            yield from self._of(workspace)

    def _of(self, workspace: Workspace) -> Iterator[UnitRow]:
        yield self._row(
            WorkspaceUnit(workspace.name), policy=workspace.unit or self._default_unit, issuer=workspace.issuer
        )
        for name, project in sorted(workspace.projects.items()):
            borders = tuple(self._borders(workspace, project))
            yield self._row(
                ProjectUnit(workspace.name, name),
                policy=borders[0].border.policy,
                team=project.team,
                members=project.members,
                borders=borders,
            )
        for name, team in sorted(workspace.teams.items()):
            yield self._row(TeamUnit(workspace.name, name), members=team.members)
        for name, collection in sorted(workspace.collections.items()):
            yield self._row(CollectionUnit(workspace.name, name), projects=collection.projects)

    def _borders(self, workspace: Workspace, project: Project) -> Iterator[ProjectBorder]:
        for model in (None, *sorted(project.model_units)):
            border = project_border(workspace, project, self._default_unit, model=model)
            unit = project_unit(workspace, project, border)
            by_unit = self._by_unit if model is None else self._by_model[model]
            projects = ((workspace.name, project.name),) if unit is None else by_unit.get(unit, ())
            yield ProjectBorder(model, border, unit, projects)

    def _row(
        self,
        unit: Unit,
        *,
        policy: Level | None = None,
        issuer: str | None = None,
        team: str | None = None,
        members: tuple[Member, ...] | None = None,
        projects: tuple[str, ...] | None = None,
        borders: tuple[ProjectBorder, ...] = (),
    ) -> UnitRow:
        ring = self._snapshot.ring
        return UnitRow(
            unit,
            epoch=None if ring is None else ring.epoch(unit),
            key=None if ring is None else ring.key_id(unit, self._now),
            salt=self._salt(unit),
            sharing=self._by_unit.get(unit, ()),
            policy=policy,
            issuer=issuer,
            team=team,
            members=members,
            projects=projects,
            borders=borders,
        )

    def _salt(self, unit: Unit) -> Salt | None:
        try:
            return self._keys.salt(unit, self._snapshot.ring, self._now)
        except SaltUnavailable:
            return None


def shown_as_json(shown: Shown) -> str:
    snapshot = shown.reading.snapshot
    ring = snapshot.ring
    document = {
        "generation": snapshot.generation,
        "ring": ring and {"id": ring.id, "first_key": ring.first_key, "base_epoch": ring.base_epoch},
        "units": [_row_document(row) for row in shown.rows],
        "blocks": [{"issuer": issuer, "member": member} for issuer, member in _blocks(snapshot)],
        "faults": [{"key": fault.key, "message": fault.message} for fault in shown.reading.faults],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _row_document(row: UnitRow) -> Mapping[str, object]:
    optional = {
        "policy": row.policy and row.policy.value,
        "issuer": row.issuer,
        "team": row.team,
        "members": row.members,
        "projects": row.projects,
        "borders": [_border_document(row.unit, border) for border in row.borders] or None,
    }
    return {
        "unit": str(row.unit),
        "epoch": row.epoch,
        "key": row.key,
        "fingerprint": row.salt and row.salt.fingerprint,
        "shared_by": _shared_by(row),
        "shared_with": _names(row.sharing),
    } | {name: value for name, value in optional.items() if value is not None}


def _border_document(project: Unit, found: ProjectBorder) -> Mapping[str, object]:
    workspace, name = _project_of(project)
    return {
        "model": found.model,
        "unit": None if found.unit is None else str(found.unit),
        **border_document(found.border, workspace=workspace, project=name, model=found.model),
        "shared_by": _border_shared_by(workspace, name, found),
        "shared_with": _names(found.projects),
    }


def shown_as_text(shown: Shown) -> str:
    snapshot = shown.reading.snapshot
    ring = snapshot.ring
    told = (
        f"salt ring {ring.id}" if ring is not None else "no salt ring: `saltgate directory import FILE -c …` makes it"
    )
    units = [("UNIT", "POLICY", "EPOCH", "KEY", "FINGERPRINT", "WHO")]
    units += [
        (
            str(row.unit),
            _cell(row.policy and row.policy.value, ""),
            _cell(row.epoch),
            _cell(row.key),
            _cell(row.salt and row.salt.fingerprint),
            _who(row),
        )
        for row in shown.rows
    ]
    blocked = [("BLOCKED", "ISSUER")]
    blocked += [(member, issuer) for issuer, member in _blocks(snapshot)]
    parts = [table(units), "".join(_borders_told(shown.rows))]
    parts += [table(blocked)] if len(blocked) > 1 else []
    text = f"generation {snapshot.generation}, {told}\n\n" + "\n".join(part for part in parts if part)
    return "\n".join(map(printable, text.split("\n")))


def _borders_told(rows: Sequence[UnitRow]) -> Iterator[str]:
    """Where each project's border runs, and who shares the caches of teams and collections."""
    for row in rows:
        yield from (_border_told(row.unit, found) for found in row.borders)
        if isinstance(row.unit, TeamUnit | CollectionUnit):
            yield f"{row.unit}\n  shared by  {_shared_by(row)}{_projects_told(row.sharing)}\n"


def _border_told(project: Unit, found: ProjectBorder) -> str:
    workspace, name = _project_of(project)
    shared_by = _border_shared_by(workspace, name, found)
    others = "" if found.unit in (None, project) else _projects_told(found.projects)
    return (
        f"{workspace}/{name}{'' if found.model is None else f' with model {found.model}'}\n"
        f"  border     {found.unit or 'user: each person alone'}\n"
        f"  because    {because(found.border, workspace=workspace, project=name, model=found.model)}\n"
        f"  shared by  {shared_by}{others}\n"
    )


def _projects_told(projects: Sequence[tuple[str, str]]) -> str:
    return f" ({listed(_names(projects), at_most=_LISTED_AT_MOST)})" if projects else ""


def _shared_by(row: UnitRow) -> str:
    return who_shares(row.unit) if row.sharing else _NOBODY


def _border_shared_by(workspace: str, project: str, found: ProjectBorder) -> str:
    return each_alone(workspace, project) if found.unit is None else who_shares(found.unit)


def _project_of(unit: Unit) -> tuple[str, str]:
    assert isinstance(unit, ProjectUnit)
    return unit.workspace, unit.project


def _names(projects: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{workspace}/{project}" for workspace, project in projects]


def _cell(value: object | None, absent: str = "-") -> str:
    return absent if value is None else str(value)


def _who(row: UnitRow) -> str:
    if row.projects is not None:
        return "projects " + ", ".join(row.projects) if row.projects else "no projects"
    named = [*(row.members or ()), *([f"team {row.team}"] if row.team else [])]
    return row.issuer or ", ".join(named)


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """The rows with their columns under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _blocks(snapshot: Snapshot) -> list[tuple[str, Member]]:
    return sorted((issuer, member) for issuer, members in snapshot.blocks.items() for member in members)
