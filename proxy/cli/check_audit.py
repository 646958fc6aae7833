"""Can the audit be written from here, and will there be room for it?"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from config.settings import Audit
from observability.audit.files import listed, make_directory, new_file
from proxy.cli.lines import Level, Line

LITTLE_ROOM_BYTES: Final = 1024**3


async def audit_lines(audit: Audit) -> AsyncIterator[Line]:
    """Its directories, tried by a file that is taken away again; none where there is no audit."""
    if audit.directory is not None:
        for line in await asyncio.to_thread(lambda: list(_lines(audit, audit.directory or Path()))):
            yield line


def _lines(audit: Audit, directory: Path) -> Iterator[Line]:
    part = f"audit {directory}"
    for place in dict.fromkeys((directory, audit.journal or directory)):
        try:
            make_directory(place)
            _try(place)
        except OSError as error:
            yield Line(Level.FAULT, part, "", f"{place} cannot be written: {error.strerror or error}. {_remedy(audit)}")
            return
    room = shutil.disk_usage(directory).free
    if room < LITTLE_ROOM_BYTES:
        yield Line(Level.WARNING, part, "", f"there is room for {room // 1024**2} MiB only. {_remedy(audit)}")
    else:
        yield Line(Level.OK, part, "", f"it can be written, and there is room for {room // 1024**3} GiB")
    for name in listed(directory).strangers:
        yield Line(Level.NOTE, part, name, "is nothing of an audit")


def _try(place: Path) -> None:
    """Raises OSError where no file can be made and locked there."""
    trial = place / f"trial-{secrets.token_hex(4)}"
    descriptor = new_file(trial)
    try:
        os.write(descriptor, b"\0" * 4096)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            trial.unlink()


def _remedy(audit: Audit) -> str:
    if audit.on_failure == "refuse":
        return (
            "While it cannot be written nothing is served: give it room and rights, as the user that saltgate runs as"
        )
    return "While it cannot be written records are lost: give it room and rights, as the user that saltgate runs as"
