"""The audit of a command: what it is about to do is on disk before it does it, in a chain of its own."""

from __future__ import annotations

import os
import pwd
import secrets
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from config.settings import Settings
from observability.audit.acts import Acts, NoActs, Told, Unaccountable, named, told_twice
from observability.audit.entries import Act, content
from observability.audit.files import chain_name, make_directory, mark_ended
from observability.audit.gap import Gap
from observability.audit.lost import leave, left
from observability.audit.segments import Chain, Origin
from observability.audit.start import first_key, keys_of
from observability.audit.subjects import Names


@contextmanager
def command_audit(settings: Settings, command: Sequence[str]) -> Iterator[Acts]:
    """Where the acts of a command are told, for as long as it runs. Where there is no audit, that is nowhere."""
    if settings.audit.directory is None:
        yield NoActs()
        return
    audit = CommandAudit(settings, settings.audit.directory, " ".join(command))
    try:
        yield audit
    finally:
        audit.close()


class CommandAudit:
    """Its chain begins with the first act: a command that only looks leaves none."""

    def __init__(self, settings: Settings, directory: Path, command: str) -> None:
        key = first_key(settings.audit)
        now = time.time_ns()
        name = chain_name("command", now / 1e9, secrets.token_bytes(6))
        self._why = ""
        self._names = Names(key, settings.audit.subjects)
        self._refuses = settings.audit.on_failure == "refuse"
        self._directory = directory
        self._places = (settings.audit.journal or directory, directory)
        self._journal_keys = tuple(one.journals for one in keys_of(settings.audit).values())
        origin = Origin(
            role="command",
            host=socket.gethostname(),
            instance=str(os.getpid()),
            version=version("saltgate"),
            command=command,
            account=_account(),
        )
        self._gap = Gap(time.time_ns)
        self._chain = Chain(directory, name, key, origin, wall_ns=time.time_ns)

    def acting(self, act: Act) -> AbstractAsyncContextManager[Told]:
        return told_twice(named(act, self._names), secrets.token_hex(6), self._before, self._after)

    def close(self) -> None:
        if self._gap.is_open:
            self._tell_gap()
        if not self._chain.head.seq:
            return
        with suppress(OSError):
            self._tell_left()
        with suppress(OSError):  # whoever opens an audit here next says how it ended
            self._chain.close()
            mark_ended(self._directory, self._chain.name)

    async def _before(self, act: Act) -> None:
        try:
            make_directory(self._directory)
            self._write(act)
        except OSError as error:
            why = f"the audit in {self._directory} cannot be written ({error.strerror or error})"
            if self._refuses:
                raise Unaccountable(f"{why}, so nothing was changed") from error
            self._gap.add()
            self._why = why
            _warn(f"{why}: this is done, and the audit does not say that it was begun")

    def _after(self, act: Act) -> None:
        try:
            self._write(act)
        except OSError as error:
            why = f"the audit in {self._directory} cannot be written ({error.strerror or error})"
            if self._gap.is_open:
                _warn(f"{why}: this ended as {act.state}, and the audit says nothing of it")
            else:
                _warn(f"{why}: it says that this was begun, and not that it ended as {act.state}")
            self._gap.add()
            self._why = why

    def _tell_gap(self) -> None:
        """In this chain, or where the next one finds it."""
        try:
            self._write()
        except OSError:
            gap = self._gap.line(self._why)
            if gap is None or not leave(self._places, self._journal_keys[0], self._chain.name, gap):
                _warn("nothing that is written later will tell of this gap: keep these messages")

    def _tell_left(self) -> None:
        """What commands before this one lost. Raises OSError."""
        for lost in left(self._places, self._journal_keys):
            self._chain.append([content(lost.gap, time.time_ns())])
            lost.settle()

    def _write(self, *told: Act) -> None:
        """Behind what was lost before. Raises OSError."""
        now, gap = time.time_ns(), self._gap.line(self._why)
        lines = [*told] if gap is None else [gap, *told]
        self._chain.append([content(line, now) for line in lines])
        if gap is not None:
            self._gap.told(gap)


def _account() -> str:
    """Who runs the command, as the kernel knows."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _warn(message: str) -> None:
    sys.stderr.write(f"saltgate: warning: {message}\n")
