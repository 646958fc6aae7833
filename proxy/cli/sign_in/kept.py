"""The file with a person's tokens for one gate: nobody else can read it, and it is whole at every moment.

    STATE/sign-ins/      0700   all files are opened by their name in this folder, never by a path
        GATE.json        0600   replaced whole (RFC 6749 section 10.4: refresh tokens are kept confidential)
        GATE.lock        0600   who refreshes holds it
        last             0600   the gate that was signed in at last

It imports little: `saltgate token` runs before each of somebody's requests.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Final

from proxy.cli.sign_in import SignInFailed

MAXIMUM_BYTES: Final = 256 * 1024
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSignIn:
    """What signing in at `gate` brought, and what it takes to refresh it. Times are Unix seconds of this machine.

    `lifetime` is how long the access token was good for when it came. Without `refresh_token` it ends with it.
    """

    gate: str
    issuer: str
    client_id: str
    resource: str | None
    subject: str | None
    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at: float
    lifetime: float

    def is_fresh(self, now: float, min_validity: float) -> bool:
        """Whether the access token is good for `min_validity` seconds more; or for half of its own life, where that is
        shorter: else each caller would refresh anew.
        """
        return now + min(min_validity, self.lifetime / 2) < self.expires_at


class SignIns:
    """The sign-ins kept in `state`, of the person who runs this process.

    Every method raises SignInFailed where the folder or a file in it is not his alone, and where the disk says no.
    """

    def __init__(self, state: Path) -> None:
        self.folder = state / "sign-ins"

    def last_gate(self) -> str | None:
        """The gate that was signed in at last."""
        with self._opened() as folder:
            content = None if folder is None else _read(self.folder, folder, "last")
        return None if content is None else content.decode("utf-8", "replace").strip()

    def find(self, gate: str) -> KeptSignIn | None:
        with self._opened() as folder:
            content = None if folder is None else _read(self.folder, folder, _name(gate, "json"))
        if content is None:
            return None
        kept = _parsed(content)
        if kept is None or kept.gate != gate:
            path = self.folder / _name(gate, "json")
            raise SignInFailed(f"{path} is damaged; remove it, and run: saltgate login --gate {gate}")
        return kept

    def elsewhere(self, gate: str) -> tuple[KeptSignIn, ...]:
        """The sign-ins at other gates. What is damaged is left out: it serves nobody."""
        with self._opened() as folder:
            names = [] if folder is None else _documents(folder)
            contents = [] if folder is None else [_read(self.folder, folder, name) for name in names]
        found = [_parsed(content) for content in contents if content is not None]
        return tuple(kept for kept in found if kept is not None and kept.gate != gate)

    def keep(self, kept: KeptSignIn, *, as_last: bool) -> None:
        """In place of what was kept for this gate, in one step."""
        document = json.dumps({"format": _FORMAT, **asdict(kept)}).encode()
        with self._made() as folder:
            _replace(folder, _name(kept.gate, "json"), document)
            if as_last:
                _replace(folder, "last", kept.gate.encode())

    def forget(self, gate: str) -> None:
        """Nothing is kept for this gate any more."""
        with self._opened() as folder:
            if folder is not None:
                _remove(folder, _name(gate, "json"))

    @contextmanager
    def refreshing(self, gate: str) -> Iterator[bool]:
        """False where another process has the lock at this moment. The lock ends with the context or the process."""
        with self._made() as folder:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(_name(gate, "lock"), flags, 0o600, dir_fd=folder)
        try:
            yield _locked(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        """A descriptor of the folder; None where it does not exist."""
        with _told(self.folder):
            try:
                folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                folder = None
            try:
                if folder is not None:
                    _refuse_others(self.folder, self.folder.lstat())
                    _refuse_others(self.folder, os.fstat(folder))
                yield folder
            finally:
                if folder is not None:
                    os.close(folder)

    @contextmanager
    def _made(self) -> Iterator[int]:
        with _told(self.folder):
            self.folder.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.parent.mkdir(mode=0o700, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
        with self._opened() as folder:
            if folder is None:
                raise SignInFailed(f"{self.folder} vanished; try again")
            yield folder


def _name(gate: str, suffix: str) -> str:
    """A file name for a gate: readable, and by the digest never that of another gate."""
    readable = re.sub(r"[^a-z0-9.-]+", "_", gate.partition("://")[2])[:60]
    return f"{readable}-{sha256(gate.encode()).hexdigest()[:12]}.{suffix}"


def _documents(folder: int) -> list[str]:
    # By the descriptor: the path could lead elsewhere by now.
    return sorted(name for name in os.listdir(folder) if name.endswith(".json"))


def _read(path: Path, folder: int, name: str) -> bytes | None:
    """The file's content; None where there is none. A link is not followed, a pipe not waited for."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAXIMUM_BYTES:
            raise SignInFailed(f"{path / name} is no file of saltgate's; remove it")
        _refuse_others(path / name, status)
        return file.read(MAXIMUM_BYTES)


def _replace(folder: int, name: str, content: bytes) -> None:
    """On disk before the name points to it: whoever reads sees the old file whole, or the new one."""
    beside = f".{secrets.token_hex(8)}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _remove(folder, beside)
        raise
    os.fsync(folder)


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _refuse_others(path: Path, status: os.stat_result) -> None:
    """Like ssh: what others can read or write is not used. The mode of a link says nothing."""
    if status.st_uid != os.geteuid():
        raise SignInFailed(f"{path} belongs to another user, and is not used; remove it, or sign in as its owner")
    if not stat.S_ISLNK(status.st_mode) and stat.S_IMODE(status.st_mode) & 0o077:
        raise SignInFailed(f"{path} is open to others; make it yours alone with: chmod go-rwx {path}")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SignInFailed(f"{path}: {error.strerror or type(error).__name__}") from error


def _parsed(content: bytes) -> KeptSignIn | None:
    try:
        members = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict) or members.pop("format", None) != _FORMAT:
        return None
    if set(members) != {each.name for each in fields(KeptSignIn)} or not _is_sound(members):
        return None
    return KeptSignIn(**members)


_TEXTS: Final = ("gate", "issuer", "client_id", "access_token")
_TEXTS_OR_NONE: Final = ("resource", "subject", "refresh_token")
_NUMBERS: Final = ("expires_at", "lifetime")


def _is_sound(members: dict[str, object]) -> bool:
    return (
        all(isinstance(members[name], str) for name in _TEXTS)
        and all(members[name] is None or isinstance(members[name], str) for name in _TEXTS_OR_NONE)
        and all(type(members[name]) in (int, float) for name in _NUMBERS)
    )
