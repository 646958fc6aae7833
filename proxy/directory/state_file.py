"""The state folder's one file, `directory.json`: read as a whole, written as a whole by one process at a time."""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from proxy.directory.store import StoreUnavailable

_LOCK_ATTEMPTS: Final = 100
_LOCK_PAUSE_SECONDS: Final = 0.05

T = TypeVar("T")


class RingRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    first_key: str
    base_epoch: int
    past_keys: str | None = None
    next_key: str | None = None
    plan_start: int | None = None
    plan_seconds: int | None = None


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The records of `redis-layout.md`, each under its key's last part."""

    generation: int = 0
    workspaces: dict[str, msgspec.Raw] = {}
    blocks: tuple[str, ...] = ()
    ring: RingRecord | None = None
    raises: dict[str, int] = {}
    unit_keys: dict[str, str] = {}
    endings: dict[str, str] = {}
    tokens: dict[str, msgspec.Raw] = {}
    tokens_used: dict[str, int] = {}
    logins: dict[str, msgspec.Raw] = {}


class Version(NamedTuple):
    """What tells one version of a file from another without reading it."""

    inode: int
    modified_ns: int
    size: int


_MISSING: Final = Version(0, 0, 0)


class StateFile:
    """`folder` is made where it is missing. Raises StoreUnavailable, and OSError, which `in_thread` translates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "directory.json"

    def version(self) -> Version:
        return version_of(self._file)

    def load(self) -> State:
        """The state; empty where there was never one."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=State)
        except FileNotFoundError:
            return State()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreUnavailable(f"{self._file} is damaged: {error}; put back a copy of it") from error

    def save(self, state: State) -> None:
        """Only under the lock, and only what was loaded under it."""
        replace_file(self._file, msgspec.json.encode(state), mode=0o600)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The right to write, for this process and thread alone. Raises StoreUnavailable after a few seconds."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take(lock, self.folder)
            yield
        finally:
            os.close(lock)


async def in_thread(do: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(do)
    except OSError as error:
        raise StoreUnavailable(
            f"the directory's files cannot be used: {error}; look at [directory].file and .state"
        ) from error


def _take(lock: int, folder: Path) -> None:
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            return
    raise StoreUnavailable(f"another process keeps {folder} locked; try again")


def version_of(file: Path) -> Version:
    try:
        status = file.stat()
    except FileNotFoundError:
        return _MISSING
    return Version(status.st_ino, status.st_mtime_ns, status.st_size)


def replace_file(file: Path, content: bytes, *, mode: int | None) -> None:
    """All or nothing, also when the power goes: a reader sees the old file or the new. Without a `mode` it is kept."""
    if mode is None:
        mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
