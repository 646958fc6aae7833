"""`saltgate keys`: the secrets that salts are made with, and the ring that says which unit uses which."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import structs

from config.settings import Settings
from config.values import seconds
from observability.audit.acts import Acts, Unaccountable
from observability.audit.entries import Act
from proxy.cli.acts import changed, unit_name
from proxy.cli.command_audit import command_audit
from proxy.cli.configuration import add_configuration, configured
from proxy.cli.directory import WrongUsage, named_issuer
from proxy.cli.key_listing import as_json, as_text, key_listing, named
from proxy.directory.changes import Change, ChangeRefused, Deed, make_first_ring, recorded_units
from proxy.directory.connect import open_store, removal_policy
from proxy.directory.model import parse_member
from proxy.directory.records import Records
from proxy.directory.rotation import pin_unit, raise_unit, rotate_ring, utc
from proxy.directory.store import Store, StoreUnavailable
from proxy.isolation.ring import Ring, record_name
from proxy.isolation.unit import ProjectUnit, Unit, UserUnit, WorkspaceUnit, parse_unit

_OVER: Final = "24h"
_IN_FORCE: Final = "In force on every worker within a second."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    new = _action(
        actions,
        "new",
        "write a new secret for [[isolation.keys]]; with -c make the salt ring, where there is none, and a secret only "
        "with --out",
    )
    new.add_argument(
        "--out", type=Path, metavar="FILE", help="write it there, for its owner alone, not to standard output"
    )
    add_configuration(new, required=False)
    listing = _action(actions, "list", "the salt ring, the keys and who uses them, units with raises or an own key")
    listing.add_argument("--json", action="store_true", help="for programs")
    add_configuration(listing)
    rotating = _action(
        actions, "rotate", "move all units to a new key little by little, or give one unit a new salt or key"
    )
    rotating.add_argument(
        "--over",
        metavar="DURATION",
        help=f"how long the move takes, {_OVER} by default; 0s: all at once (a leaked key)",
    )
    rotating.add_argument("--key", metavar="ID", help="the key to move to; without it the configuration's first")
    rotating.add_argument("--unit", metavar="UNIT", help="only this unit and what is in it: raise its epoch, at once")
    rotating.add_argument(
        "--unpin", action="store_true", help="with --unit: no key of its own any more; it follows the ring again"
    )
    rotating.add_argument("--issuer", metavar="ISSUER", help="with a user's unit, where there are several issuers")
    add_configuration(rotating)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "new":
        # The secret comes first: a first configuration names the very file that this command is about to write. One
        # that went to standard output could not be in a configuration that is read now.
        makes_secret = arguments.out is not None or arguments.configuration is None
        status = _new_secret(arguments.out) if makes_secret else 0
        if status != 0 or arguments.configuration is None:
            return status
    settings = configured(arguments)
    if settings is None:
        return 2
    try:
        return asyncio.run(_run(arguments, settings))
    except WrongUsage as error:
        _tell(str(error))
        return 2
    except (ChangeRefused, StoreUnavailable, Unaccountable) as error:
        _tell(str(error))
        return 1


def new_secret() -> str:
    """43 characters of base64url, 256 bits."""
    return secrets.token_urlsafe(32)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:]
    )
    return parser


def _new_secret(file: Path | None) -> int:
    try:
        _write_secret(file)
    except FileExistsError:
        _tell(f"{file} exists, and a key is never overwritten: salts made with it may be in use. Name a new file")
        return 1
    except OSError as error:
        _tell(f"the secret cannot be written: {error}")
        return 2
    return 0


def _write_secret(file: Path | None) -> None:
    """Raises FileExistsError, and OSError where it cannot be written."""
    line = new_secret() + "\n"
    if file is None:
        sys.stdout.write(line)
        return
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(line)
        stream.flush()
        os.fsync(stream.fileno())


async def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    try:
        store = open_store(settings.directory, removal_policy(settings.isolation))
    except ValueError as error:
        raise WrongUsage(str(error)) from error
    try:
        with command_audit(settings, ("keys", arguments.action)) as acts:
            return await _acted(store, acts, settings, arguments)
    finally:
        await store.close()


async def _acted(store: Store, acts: Acts, settings: Settings, arguments: argparse.Namespace) -> int:
    match arguments.action:
        case "new":
            first_key = settings.isolation.keys[0].id
            return await _make_ring(store, acts, first_key, wrote_secret=arguments.out is not None)
        case "list":
            return await _list(store, settings, json=arguments.json)
        case _ if arguments.unit is not None:
            return await _rotate_unit(store, acts, settings, arguments)
        case _:
            return await _rotate_ring(store, acts, settings, arguments)


async def _make_ring(store: Store, acts: Acts, first_key: str, *, wrote_secret: bool) -> int:
    async with acts.acting(Act(event="keys.ring_made", key_id=first_key)):
        change = await store.change(make_first_ring(first_key))
    if not wrote_secret:
        _tell("no secret was made, for the configuration has its keys; for another one name a new file with --out")
    if change.ring is not None:
        _tell(
            f"made the salt ring {change.ring.id}: "
            f"first key {change.ring.first_key}, base epoch {change.ring.base_epoch}"
        )
    return 0


async def _list(store: Store, settings: Settings, *, json: bool) -> int:
    listing = key_listing(await store.read(), [key.id for key in settings.isolation.keys])
    for fault in listing.faults:
        _tell(f"{fault.key}: {fault.message}" if fault.key else fault.message)
    sys.stdout.write(as_json(listing) if json else as_text(listing))
    return 0 if listing.ring is not None else 1


async def _rotate_ring(store: Store, acts: Acts, settings: Settings, arguments: argparse.Namespace) -> int:
    if arguments.unpin or arguments.issuer is not None:
        raise WrongUsage("--unpin and --issuer go with --unit only")
    key_id = _configured_key(settings, arguments.key)
    over = _over(arguments.over)
    async with acts.acting(Act(event="keys.rotated", key_id=key_id, over_seconds=over)):
        change = await store.change(rotate_ring(key_id, over=over))
    records = await store.read()
    if change.turned is not None:
        _say(_told_rotation(change.turned, key_id))
    for line in _warnings(records, key_id):
        _tell(f"warning: {line}")
    return 0


async def _rotate_unit(store: Store, acts: Acts, settings: Settings, arguments: argparse.Namespace) -> int:
    if arguments.over is not None:
        raise WrongUsage("--over is for the whole ring; a unit gets its new salt at once")
    if arguments.unpin and arguments.key is not None:
        raise WrongUsage("--unpin and --key are opposites; write one of them")
    unit = _unit(settings, arguments.unit, arguments.issuer)
    deed: Deed = raise_unit(unit)
    key_id = None if arguments.key is None else _configured_key(settings, arguments.key)
    if key_id is not None:
        deed = pin_unit(unit, key_id)
    elif arguments.unpin:
        deed = pin_unit(unit, None)
    async with acts.acting(_act_on_unit(unit, key_id)) as told:
        change = await store.change(deed)
        told.tell(**changed(change))
    _say(_told_unit(unit, change))
    return 0


def _act_on_unit(unit: Unit, key_id: str | None) -> Act:
    if isinstance(unit, UserUnit):
        whose = Act(event="keys.rotated", unit=unit_name(unit), key_id=key_id)
        return structs.replace(whose, issuer=unit.issuer, subject=unit.subject)
    return Act(event="keys.rotated", unit=unit_name(unit), key_id=key_id)


def _configured_key(settings: Settings, named_key: str | None) -> str:
    configured_ids = [key.id for key in settings.isolation.keys]
    if named_key is None:
        return configured_ids[0]
    if named_key not in configured_ids:
        raise WrongUsage(
            f"key {named_key!r} is not in this configuration; add it under [[isolation.keys]] of every saltgate and "
            f"restart them first. There are: {', '.join(configured_ids)}"
        )
    return named_key


def _over(written: str | None) -> float:
    try:
        return seconds(written or _OVER)
    except ValueError as error:
        raise WrongUsage(f"--over: {error}") from error


def _unit(settings: Settings, written: str, issuer: str | None) -> Unit:
    is_user = written.startswith("user:")
    if issuer is not None and not is_user:
        raise WrongUsage("--issuer goes with a user's unit only")
    try:
        unit = parse_unit(written, issuer=named_issuer(settings, issuer) if is_user else "")
        if isinstance(unit, UserUnit):
            parse_member(f"user:{unit.subject}")
    except ValueError as error:
        raise WrongUsage(str(error)) from error
    return unit


def _told_rotation(ring: Ring, key_id: str) -> str:
    if ring.plan is None:
        return f"Every unit without a key of its own uses key {key_id}. {_IN_FORCE}"
    return (
        f"Every unit without a key of its own moves from key {ring.first_key} to key {key_id}, each at its own moment, "
        f"the last by {utc(ring.plan.end)}. Until then keep both under [[isolation.keys]] of every saltgate."
    )


def _told_unit(unit: Unit, change: Change) -> str:
    if change.is_empty:
        return f"{named(unit)} uses that key by its own record already."
    told = f"{named(unit)} has a new salt{_UNDER.get(type(unit), '')}." if change.raises else ""
    if change.unit_key is not None:
        key_id = change.unit_key[1]
        own = (
            f"{named(unit)} follows the ring again." if key_id is None else f"{named(unit)} is pinned to key {key_id}."
        )
        told = f"{own} {told}" if told else f"{own} No salt changes."
    if str(unit) == "deployment" and change.raises:
        told += " That is the unit that all share; workspaces and what is in them are not under it."
    return f"{told} {_IN_FORCE}"


# Which units lie under which (contract section 7). Teams, collections and people have none under them.
_UNDER: Final[Mapping[type[Unit], str]] = {
    WorkspaceUnit: ", and so has every unit in it",
    ProjectUnit: ", and so has each person's own unit in it",
}


def _warnings(records: Records, key_id: str) -> Iterator[str]:
    """What the administrator of a rotation should know: who does not move, and what every gate needs."""
    yield f"a saltgate whose configuration lacks key {key_id} refuses with 503 salt_unavailable who uses it"
    ring = records.ring
    pinned = {} if ring is None else ring.keys
    for unit in recorded_units(pinned):
        own = pinned[record_name(unit)]
        if own != key_id:
            yield (
                f"{named(unit)} stays on its own key {own}; to move it, `saltgate keys rotate --unit` it with --key or "
                "--unpin"
            )


def _tell(message: str) -> None:
    sys.stderr.write(f"saltgate: {message}\n")


def _say(message: str) -> None:
    sys.stdout.write(f"{message}\n")
