"""`saltgate directory`: who is a member of what."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from config.faults import printable
from config.settings import Settings
from observability.audit.acts import Acts, Unaccountable
from observability.audit.entries import Act
from proxy.cli.acts import act_on_member, changed
from proxy.cli.command_audit import command_audit
from proxy.cli.configuration import add_configuration, configured
from proxy.cli.directory_show import show, shown_as_json, shown_as_text
from proxy.configured import key_ring, policy
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
from proxy.directory.snapshot import NOTHING_READ, Reading, read
from proxy.directory.store import Store, StoreUnavailable
from proxy.isolation.unit import (
    is_name,
)

_COMMENT: Final = re.compile(r"(?:^|\s)#", re.MULTILINE)
_WRITES: Final = "; a file of [directory].file is written anew, without its comments"
_IN_FORCE: Final = "In force on every worker within a second."


class WrongUsage(Exception):  # noqa: N818 - not an error of the program
    """What was written on the command line cannot be meant. The message is the remedy."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    importing = _action(actions, "import", f"make the directory exactly what FILE says, in one step{_WRITES}")
    importing.add_argument("file", type=Path, metavar="FILE", help="a directory file (TOML)")
    _action(actions, "export", "write the directory file to standard output")
    showing = _action(actions, "show", "list units with members, border, who shares, epoch and key; and who is blocked")
    showing.add_argument("--json", action="store_true", help="for programs")
    for name, summary in (("grant", "make a member of a project"), ("revoke", "end a membership of a project")):
        membership = _action(actions, name, summary + _WRITES)
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
    except (ChangeRefused, StoreUnavailable, Unaccountable) as error:
        _tell(str(error))
        return 1
    return 2


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
    before = _text_of(settings.directory.file)
    try:
        with command_audit(settings, ("directory", arguments.action)) as acts:
            return await _acted(store, acts, arguments, settings)
    finally:
        await store.close()
        _tell_lost_comments(settings.directory.file, before)


async def _acted(store: Store, acts: Acts, arguments: argparse.Namespace, settings: Settings) -> int:
    match arguments.action:
        case "import":
            return await _import(store, acts, settings, arguments.file)
        case "export":
            return await _export(store)
        case "show":
            return await _show(store, settings, as_json=arguments.json)
        case "grant" | "revoke" as action:
            return await _change_membership(store, acts, settings, action, arguments.project, arguments.member)
        case action:
            return await _change_block(store, acts, settings, action, arguments.member, arguments.issuer)


def _text_of(file: Path | None) -> str | None:
    """What stands in the directory file of [directory].file, as far as it can be read."""
    try:
        return None if file is None else file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _tell_lost_comments(file: Path | None, before: str | None) -> None:
    """A change writes the whole file anew (`FileStore`): what people wrote beside the memberships is gone."""
    if before is not None and _COMMENT.search(before) and _text_of(file) not in (None, before):
        _tell(
            f"warning: {file} was written anew, and its comments are gone. To keep comments, edit the file instead of "
            "using this command: saltgate takes it over by itself"
        )


async def _import(store: Store, acts: Acts, settings: Settings, file: Path) -> int:
    directory = _directory_file(file)
    first_key, removal = settings.isolation.keys[0].id, removal_policy(settings.isolation)
    async with acts.acting(Act(event="directory.imported")) as told:
        change = await store.change(first_import(directory, first_key, removal))
        told.tell(**changed(change))
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
    _tell_faults(reading.faults)
    shown = show(reading, key_ring(settings), default_unit=policy(settings).unit, now=records.now)
    sys.stdout.write(shown_as_json(shown) if as_json else shown_as_text(shown))
    return 0


async def _change_membership(
    store: Store, acts: Acts, settings: Settings, action: str, written_project: str, written_member: str
) -> int:
    workspace, project = _project(written_project)
    member = _member(written_member)
    removal = removal_policy(settings.isolation)
    deed = grant(workspace, project, member) if action == "grant" else revoke(workspace, project, member, removal)
    event = "directory.granted" if action == "grant" else "directory.revoked"
    known = (await _read(store)).snapshot.directory.workspaces.get(workspace)
    whose = None if known is None else known.issuer
    async with acts.acting(act_on_member(event, whose, member, workspace=workspace, project=project)) as told:
        change = await store.change(deed)
        told.tell(**changed(change))
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


async def _change_block(
    store: Store, acts: Acts, settings: Settings, action: str, written: str, issuer: str | None
) -> int:
    member = _member(written)
    whose = named_issuer(settings, issuer)
    deed = block(whose, member, removal_policy(settings.isolation)) if action == "block" else unblock(whose, member)
    async with acts.acting(act_on_member(f"directory.{action}ed", whose, member)) as told:
        change = await store.change(deed)
        told.tell(**changed(change))
    state = "blocked" if action == "block" else "no longer blocked"
    _say(f"{member} of {whose} is {state}{'' if change.is_empty else f'.{_raised(change)} {_IN_FORCE}'}")
    _tell_uncounted(change)
    return 0


async def _read(store: Store) -> Reading:
    return read(await store.read(), NOTHING_READ)


def _directory_file(file: Path) -> Directory:
    try:
        return directory_from_toml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongUsage(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WrongUsage(f"{file} cannot be read: byte {error.start} is not UTF-8; save it as UTF-8") from error
    except DirectoryFaults as error:
        raise DirectoryFaults(
            [Fault(f"{file}: {fault.key}" if fault.key else str(file), fault.message) for fault in error.faults]
        ) from error


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


def _tell_faults(faults: Iterable[Fault]) -> None:
    for fault in faults:
        _tell(f"{fault.key}: {fault.message}" if fault.key else fault.message)


def _tell(message: str) -> None:
    sys.stderr.write(f"saltgate: {printable(message)}\n")


def _say(message: str) -> None:
    sys.stdout.write(f"{message}\n")
