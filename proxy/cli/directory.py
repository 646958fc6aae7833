"""`saltgate directory`: who is a member of what."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from config.settings import Settings
from proxy.cli.configuration import add_configuration, configured
from proxy.directory.changes import (
    Change,
    ChangeRefused,
    block,
    first_import,
    grant,
    revoke,
    unblock,
)
from proxy.directory.connect import open_store, removal_policy
from proxy.directory.model import (
    Directory,
    DirectoryFaults,
    Fault,
    Member,
    Workspace,
    directory_from_toml,
    directory_to_toml,
    parse_member,
)
from proxy.directory.snapshot import NOTHING_READ, Reading, Snapshot, read
from proxy.directory.store import Store, StoreUnavailable
from proxy.isolation.unit import (
    CollectionUnit,
    DeploymentUnit,
    ProjectUnit,
    TeamUnit,
    Unit,
    WorkspaceUnit,
    is_name,
)

_IN_FORCE: Final = "In force on every worker within a second."


class WrongUsage(Exception):  # noqa: N818 - not an error of the program
    """What was written on the command line cannot be meant. The message is the remedy."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    importing = _action(actions, "import", "make the directory exactly what FILE says, in one step")
    importing.add_argument("file", type=Path, metavar="FILE", help="a directory file (TOML)")
    _action(actions, "export", "write the directory file to standard output")
    showing = _action(actions, "show", "list units with members, epoch and key, and who is blocked")
    showing.add_argument("--json", action="store_true", help="for programs")
    for name, summary in (("grant", "make a member of a project"), ("revoke", "end a membership of a project")):
        membership = _action(actions, name, summary)
        membership.add_argument("project", metavar="WORKSPACE/PROJECT")
        membership.add_argument("member", metavar="MEMBER", help="user:SUBJECT or group:NAME")
    for name, summary in (("block", "refuse a person or group everywhere"), ("unblock", "no longer refuse")):
        blocking = _action(actions, name, summary)
        blocking.add_argument("member", metavar="MEMBER", help="user:SUBJECT or group:NAME")
        blocking.add_argument("--issuer", metavar="ISSUER", help="whose member it is, where there are several issuers")


def run(arguments: argparse.Namespace) -> int:
    settings = configured(arguments)
    if settings is None:
        return 2
    try:
        return asyncio.run(_run(arguments, settings))
    except DirectoryFaults as faults:
        _tell_faults(faults.faults)
    except WrongUsage as error:
        _tell(str(error))
    except (ChangeRefused, StoreUnavailable) as error:
        _tell(str(error))
        return 1
    return 2


@dataclass(frozen=True, slots=True)
class UnitRow:
    """What `show` tells of one unit. `epoch` and `key` are None where there is no salt ring."""

    unit: Unit
    epoch: int | None
    key: str | None
    policy: str | None = None
    issuer: str | None = None
    team: str | None = None
    members: tuple[Member, ...] | None = None
    projects: tuple[str, ...] | None = None


def unit_rows(snapshot: Snapshot, *, default_unit: str, now: float) -> Iterator[UnitRow]:
    """Every unit that the directory names, the workspaces in order, with its key at `now` (Unix seconds).

    `default_unit` is the deployment's policy.
    """
    yield _row(snapshot, DeploymentUnit(), now, policy=default_unit)
    for _, workspace in sorted(snapshot.directory.workspaces.items()):
        yield from _workspace_rows(snapshot, workspace, default_unit, now)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:]
    )
    add_configuration(parser)
    return parser


async def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    try:
        store = open_store(settings.directory, removal_policy(settings.isolation))
    except ValueError as error:
        raise WrongUsage(str(error)) from error
    try:
        match arguments.action:
            case "import":
                return await _import(store, settings, arguments.file)
            case "export":
                return await _export(store)
            case "show":
                return await _show(store, settings, as_json=arguments.json)
            case "grant" | "revoke" as action:
                return await _change_membership(store, settings, action, arguments.project, arguments.member)
            case action:
                return await _change_block(store, settings, action, arguments.member, arguments.issuer)
    finally:
        await store.close()


async def _import(store: Store, settings: Settings, file: Path) -> int:
    directory = _directory_file(file)
    first_key, removal = settings.isolation.keys[0].id, removal_policy(settings.isolation)
    change = await store.change(first_import(directory, first_key, removal))
    for workspace in _of_unknown_issuers(directory, settings):
        _tell(f"warning: nobody can use workspace {workspace.name}: {workspace.issuer} is not among [[issuers]]")
    if change.ring is not None:
        _say(
            f"Made the salt ring {change.ring.id}: "
            f"first key {change.ring.first_key}, base epoch {change.ring.base_epoch}."
        )
    _say(_summary(change))
    return 0


async def _export(store: Store) -> int:
    reading = await _read(store)
    if reading.faults:
        _tell_faults(reading.faults)
        _tell("nothing is exported: importing what is left would delete the rest; mend these records first")
        return 1
    sys.stdout.write(directory_to_toml(reading.snapshot.directory))
    return 0


async def _show(store: Store, settings: Settings, *, as_json: bool) -> int:
    records = await store.read()
    ring = None if records.ring is None else records.ring.settled(records.now)
    reading = read(replace(records, ring=ring), NOTHING_READ)
    rows = list(unit_rows(reading.snapshot, default_unit=settings.isolation.unit, now=records.now))
    _tell_faults(reading.faults)
    sys.stdout.write(_as_json(reading, rows) if as_json else _as_text(reading.snapshot, rows))
    return 0


async def _change_membership(
    store: Store, settings: Settings, action: str, written_project: str, written_member: str
) -> int:
    workspace, project = _project(written_project)
    member = _member(written_member)
    removal = removal_policy(settings.isolation)
    deed = grant(workspace, project, member) if action == "grant" else revoke(workspace, project, member, removal)
    change = await store.change(deed)
    where = f"{workspace}/{project}"
    if action == "grant":
        _say(f"{member} is a member of {where}{'' if change.is_empty else f'. {_IN_FORCE}'}")
        return 0
    _say(f"{member} is no longer named in {where}.{_raised(change)} {_IN_FORCE}")
    _tell_uncounted(change)
    remaining = (await _read(store)).snapshot.directory.workspaces.get(workspace)
    if remaining is not None and remaining.admits(member, project):
        _tell(f"warning: {member} is still a member of {where} through team {remaining.projects[project].team}")
    return 0


async def _change_block(store: Store, settings: Settings, action: str, written: str, issuer: str | None) -> int:
    member = _member(written)
    whose = named_issuer(settings, issuer)
    deed = block(whose, member, removal_policy(settings.isolation)) if action == "block" else unblock(whose, member)
    change = await store.change(deed)
    state = "blocked" if action == "block" else "no longer blocked"
    _say(f"{member} of {whose} is {state}{'' if change.is_empty else f'.{_raised(change)} {_IN_FORCE}'}")
    _tell_uncounted(change)
    return 0


async def _read(store: Store) -> Reading:
    return read(await store.read(), NOTHING_READ)


def _directory_file(file: Path) -> Directory:
    try:
        return directory_from_toml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{file} cannot be read: {error}") from error


def _project(written: str) -> tuple[str, str]:
    workspace, _, project = written.partition("/")
    if not is_name(workspace) or not is_name(project):
        raise WrongUsage(f"{json.dumps(written)} is no project; write WORKSPACE/PROJECT, for example acme/apollo")
    return workspace, project


def _member(written: str) -> Member:
    try:
        return parse_member(written)
    except ValueError as error:
        raise WrongUsage(str(error)) from error


def named_issuer(settings: Settings, named: str | None) -> str:
    known = [issuer.issuer for issuer in settings.issuers]
    if named is None and len(known) == 1:
        return known[0]
    if named not in known:
        raise WrongUsage(f"name the issuer with --issuer, one of: {', '.join(known)}")
    return named


def _of_unknown_issuers(directory: Directory, settings: Settings) -> Iterator[Workspace]:
    known = {issuer.issuer for issuer in settings.issuers}
    return (workspace for workspace in directory.workspaces.values() if workspace.issuer not in known)


def _summary(change: Change) -> str:
    if not change.workspaces:
        return "The directory was already what the file says."
    gone = sum(document is None for document in change.workspaces.values())
    return f"Workspaces written: {len(change.workspaces) - gone}, deleted: {gone}.{_raised(change)} {_IN_FORCE}"


def _raised(change: Change) -> str:
    return f" Raised what is gone or was left: {', '.join(map(str, change.raises))}." if change.raises else ""


def _tell_uncounted(change: Change) -> None:
    for unit in change.uncounted:
        _tell(f"warning: {unit} is not raised, for its record cannot be read; `saltgate keys list` names it")


def _workspace_rows(snapshot: Snapshot, workspace: Workspace, default_unit: str, now: float) -> Iterator[UnitRow]:
    policy = workspace.unit.value if workspace.unit is not None else default_unit
    yield _row(snapshot, WorkspaceUnit(workspace.name), now, policy=policy, issuer=workspace.issuer)
    for name, project in sorted(workspace.projects.items()):
        yield _row(
            snapshot,
            ProjectUnit(workspace.name, name),
            now,
            policy=project.unit.value if project.unit is not None else policy,
            team=project.team,
            members=project.members,
        )
    for name, team in sorted(workspace.teams.items()):
        yield _row(snapshot, TeamUnit(workspace.name, name), now, members=team.members)
    for name, collection in sorted(workspace.collections.items()):
        yield _row(snapshot, CollectionUnit(workspace.name, name), now, projects=collection.projects)


def _row(
    snapshot: Snapshot,
    unit: Unit,
    now: float,
    *,
    policy: str | None = None,
    issuer: str | None = None,
    team: str | None = None,
    members: tuple[Member, ...] | None = None,
    projects: tuple[str, ...] | None = None,
) -> UnitRow:
    ring = snapshot.ring
    epoch, key = (None, None) if ring is None else (ring.epoch(unit), ring.key_id(unit, now))
    return UnitRow(unit, epoch, key, policy, issuer, team, members, projects)


def _as_json(reading: Reading, rows: Iterable[UnitRow]) -> str:
    snapshot = reading.snapshot
    ring = snapshot.ring
    document = {
        "generation": snapshot.generation,
        "ring": ring and {"id": ring.id, "first_key": ring.first_key, "base_epoch": ring.base_epoch},
        "units": [_row_json(row) for row in rows],
        "blocks": [{"issuer": issuer, "member": member} for issuer, member in _blocks(snapshot)],
        "faults": [{"key": fault.key, "message": fault.message} for fault in reading.faults],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _row_json(row: UnitRow) -> dict[str, object]:
    optional = {
        "policy": row.policy,
        "issuer": row.issuer,
        "team": row.team,
        "members": row.members,
        "projects": row.projects,
    }
    present = {name: value for name, value in optional.items() if value is not None}
    return {"unit": str(row.unit), "epoch": row.epoch, "key": row.key, **present}


def _as_text(snapshot: Snapshot, rows: Iterable[UnitRow]) -> str:
    ring = snapshot.ring
    told = f"salt ring {ring.id}" if ring is not None else "no salt ring: `saltgate directory import` makes it"
    units = [("UNIT", "POLICY", "EPOCH", "KEY", "WHO")]
    units += [(str(r.unit), r.policy or "", _cell(r.epoch), _cell(r.key), _who(r)) for r in rows]
    blocked = [("BLOCKED", "ISSUER")]
    blocked += [(member, issuer) for issuer, member in _blocks(snapshot)]
    tables = [table(units)] + ([table(blocked)] if len(blocked) > 1 else [])
    return f"generation {snapshot.generation}, {told}\n\n" + "\n".join(tables)


def _cell(value: object | None) -> str:
    return "-" if value is None else str(value)


def _who(row: UnitRow) -> str:
    if row.projects is not None:
        return "projects " + ", ".join(row.projects) if row.projects else "no projects"
    named = [*(row.members or ()), *([f"team {row.team}"] if row.team else [])]
    return row.issuer or ", ".join(named)


def table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _blocks(snapshot: Snapshot) -> list[tuple[str, Member]]:
    return sorted((issuer, member) for issuer, members in snapshot.blocks.items() for member in members)


def _tell_faults(faults: Iterable[Fault]) -> None:
    for fault in faults:
        _tell(f"{fault.key}: {fault.message}" if fault.key else fault.message)


def _tell(message: str) -> None:
    sys.stderr.write(f"saltgate: {message}\n")


def _say(message: str) -> None:
    sys.stdout.write(f"{message}\n")
