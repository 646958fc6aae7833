"""`saltgate keys`: the secrets that salts are made with, and the ring that says which unit uses which."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path

from proxy.cli.configuration import add_configuration, configured
from proxy.directory.changes import Change, fresh_ring, make_ring
from proxy.directory.connect import open_store
from proxy.directory.store import Store, StoreUnavailable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    summary = "write a new secret for [[isolation.keys]]; with -c also make the salt ring, where there is none"
    new = actions.add_parser("new", help=summary, description=summary[0].upper() + summary[1:])
    new.add_argument(
        "--out", type=Path, metavar="FILE", help="write it there, for its owner alone, not to standard output"
    )
    add_configuration(new, required=False)


def run(arguments: argparse.Namespace) -> int:
    # The secret comes first: a first configuration names the very file that this command is about to write.
    try:
        _write_secret(arguments.out)
    except FileExistsError:
        _tell(
            f"{arguments.out} exists, and a key is never overwritten: salts made with it may be in use. Name a new file"
        )
        return 1
    except OSError as error:
        _tell(f"the secret cannot be written: {error}")
        return 2
    return 0 if arguments.configuration is None else _make_ring(arguments)


def new_secret() -> str:
    """43 characters of base64url, 256 bits."""
    return secrets.token_urlsafe(32)


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


def _make_ring(arguments: argparse.Namespace) -> int:
    settings = configured(arguments)
    if settings is None:
        return 2
    try:
        store = open_store(settings.directory)
    except ValueError as error:
        _tell(str(error))
        return 2
    try:
        change = asyncio.run(_change(store, settings.isolation.keys[0].id))
    except StoreUnavailable as error:
        _tell(str(error))
        return 1
    if change.ring is not None:
        _tell(
            f"made the salt ring {change.ring.id}: "
            f"first key {change.ring.first_key}, base epoch {change.ring.base_epoch}"
        )
    return 0


async def _change(store: Store, first_key: str) -> Change:
    try:
        return await store.change(make_ring(fresh_ring(first_key, now=datetime.now(UTC).timestamp())))
    finally:
        await store.close()


def _tell(message: str) -> None:
    sys.stderr.write(f"saltgate: {message}\n")
