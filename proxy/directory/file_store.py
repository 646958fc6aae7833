"""The directory without Redis, for one machine: a directory file that people edit, and a folder for the rest.

The folder's `directory.json` holds the same records as Redis does, the workspaces among them. Whoever first sees that
the file changed brings the records up to it under a lock, as an import would: what vanished from the file is raised. A
file that cannot be read or has faults changes nothing; the records serve on as they were.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from proxy.directory.changes import Change, ChangeRefused, Deed, bring_up_to, pause_before
from proxy.directory.endings import record_name as ending_record
from proxy.directory.endings import record_value
from proxy.directory.model import Directory, DirectoryFaults, Fault, directory_from_toml, directory_to_toml
from proxy.directory.records import RawRecords, Records, block_record, parse_records, ring_record
from proxy.directory.removal import RemovalPolicy
from proxy.directory.snapshot import NOTHING_READ, read
from proxy.directory.store import StoreUnavailable, unix_now
from proxy.isolation.ring import record_name

_LOCK_ATTEMPTS: Final = 100
_LOCK_PAUSE_SECONDS: Final = 0.05

T = TypeVar("T")


class _RingRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    first_key: str
    base_epoch: int
    past_keys: str | None = None
    next_key: str | None = None
    plan_start: int | None = None
    plan_seconds: int | None = None


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`directory.json`: the records of `redis-layout.md`, each under its key's last part."""

    generation: int = 0
    workspaces: dict[str, msgspec.Raw] = {}
    blocks: tuple[str, ...] = ()
    ring: _RingRecord | None = None
    raises: dict[str, int] = {}
    unit_keys: dict[str, str] = {}
    endings: dict[str, str] = {}


class _Version(NamedTuple):
    """What tells one version of a file from another without reading it."""

    inode: int
    modified_ns: int
    size: int


_MISSING: Final = _Version(0, 0, 0)


class FileStore:
    """`file` is the directory file; `folder` is made where it is missing. Many may read, one at a time writes."""

    def __init__(
        self,
        file: Path,
        folder: Path,
        *,
        removal: RemovalPolicy | None = None,
        clock: Callable[[], float] = unix_now,
    ) -> None:
        """`removal` is for members whom people take out of the file; `clock` is Unix seconds."""
        self._removal = removal
        self._clock = clock
        self._file = file
        self._folder = folder
        self._state_file = folder / "directory.json"
        self._met: _Version | None = (
            None  # the version that the records were last brought up to; None before the first look
        )
        self._seen: _Version | None = None  # the version at the last look
        self._faults: tuple[Fault, ...] = ()

    @asynccontextmanager
    async def hearing(self) -> AsyncIterator[_NoHearing]:
        yield _NoHearing()

    async def stamp(self) -> bytes:
        return await _in_thread(self._stamp)

    async def read(self) -> Records:
        return await _in_thread(self._read)

    async def change(self, deed: Deed) -> Change:
        return await _in_thread(lambda: self._change(deed))

    async def close(self) -> None:
        """There is nothing to close: no file stays open."""

    def _stamp(self) -> bytes:
        self._follow_file()
        return repr((_version(self._state_file), self._faults)).encode()

    def _read(self) -> Records:
        stamp = self._stamp()  # before the reading: if the state changes between, it is read once more
        return _records(self._load(), stamp, self._faults, now=self._clock())

    def _change(self, deed: Deed) -> Change:
        with _locked(self._folder):
            self._take_over_file()
            state = self._load()
            records = _records(state, b"", (), now=self._clock())
            change = deed(records)
            if change.whole is None and change.workspaces and self._faults:
                raise ChangeRefused(f"{self._file} has faults; mend them first: {DirectoryFaults(self._faults)}")
            time.sleep(pause_before(change, records))
            self._write_file(change, state)
            if not change.is_empty:
                self._save(_applied(state, change))
            return change

    def _follow_file(self) -> None:
        """Takes over a changed file once it has been the same for two looks: an editor may be in the middle of it."""
        now = _version(self._file)
        settled = now == self._seen or self._met is None
        self._seen = now
        if now != self._met and settled:
            with _locked(self._folder):
                self._take_over_file()

    def _take_over_file(self) -> None:
        """Brings the records up to the file, under the lock."""
        version = _version(self._file)
        if version == self._met:
            return
        try:
            directory = directory_from_toml(self._file.read_text(encoding="utf-8"))
        except DirectoryFaults as error:
            self._faults = tuple(self._in_file(fault) for fault in error.faults)
        except (OSError, UnicodeDecodeError) as error:
            self._faults = (Fault(str(self._file), f"cannot be read: {error}"),)
        else:
            self._faults = self._bring_up_to(directory)
            if self._faults:
                return  # not met: it is tried again, for the records may be mended without touching the file
        self._met = self._seen = version

    def _in_file(self, fault: Fault) -> Fault:
        return Fault(f"{self._file}: {fault.key}" if fault.key else str(self._file), fault.message)

    def _bring_up_to(self, directory: Directory) -> tuple[Fault, ...]:
        """Makes the records say what the file says, or gives why not."""
        state = self._load()
        records = _records(state, b"", (), now=self._clock())
        try:
            change = bring_up_to(directory, self._removal)(records)
        except ChangeRefused as error:
            return (Fault(str(self._file), f"is not taken over: {error}"),)
        if not change.is_empty:
            time.sleep(pause_before(change, records))
            self._save(_applied(state, change))
        return ()

    def _write_file(self, change: Change, state: _State) -> None:
        """Writes the directory file, which rewrites it as a whole. One that already says it keeps its comments."""
        if change.whole is None and not change.workspaces:
            return
        directory = change.whole or _directory(_applied(state, change))
        if not self._faults and directory == _directory(state) and self._file.exists():
            return
        _replace_file(self._file, directory_to_toml(directory).encode(), mode=None)
        self._met = self._seen = _version(self._file)
        self._faults = ()

    def _load(self) -> _State:
        try:
            return msgspec.json.decode(self._state_file.read_bytes(), type=_State)
        except FileNotFoundError:
            return _State()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreUnavailable(f"{self._state_file} is damaged: {error}; put back a copy of it") from error

    def _save(self, state: _State) -> None:
        _replace_file(self._state_file, msgspec.json.encode(state), mode=0o600)


class _NoHearing:
    """A folder tells nothing by itself."""

    async def heard(self, within: float) -> bool:
        await asyncio.sleep(within)
        return False


async def _in_thread(do: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(do)
    except OSError as error:
        raise StoreUnavailable(
            f"the directory's files cannot be used: {error}; look at [directory].file and .state"
        ) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The right to write, for this process and thread alone. Raises StoreUnavailable after a few seconds."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(lock, folder)
        yield
    finally:
        os.close(lock)


def _take(lock: int, folder: Path) -> None:
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            return
    raise StoreUnavailable(f"another process keeps {folder} locked; try again")


def _version(file: Path) -> _Version:
    try:
        status = file.stat()
    except FileNotFoundError:
        return _MISSING
    return _Version(status.st_ino, status.st_mtime_ns, status.st_size)


def _replace_file(file: Path, content: bytes, *, mode: int | None) -> None:
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


def _records(state: _State, stamp: bytes, faults: tuple[Fault, ...], *, now: float = 0.0) -> Records:
    raw = RawRecords(
        generation=str(state.generation).encode(),
        workspaces={name.encode(): bytes(document) for name, document in state.workspaces.items()},
        blocks=[record.encode() for record in state.blocks],
        ring={} if state.ring is None else _bytes_of(msgspec.structs.asdict(state.ring)),
        raises=_bytes_of(state.raises),
        unit_keys=_bytes_of(state.unit_keys),
        endings=_bytes_of(state.endings),
    )
    return parse_records(raw, stamp=stamp, now=now, faults=faults)


def _bytes_of(record: Mapping[str, object]) -> dict[bytes, bytes]:
    return {name.encode(): str(value).encode() for name, value in record.items() if value is not None}


def _directory(state: _State) -> Directory:
    return read(_records(state, b"", ()), NOTHING_READ).snapshot.directory


def _applied(state: _State, change: Change) -> _State:
    workspaces = dict(state.workspaces)
    for name, document in change.workspaces.items():
        workspaces.pop(name, None)
        if document is not None:
            workspaces[name] = msgspec.Raw(document)
    raises = dict(state.raises)
    for unit in change.raises:
        raises[record_name(unit)] = raises.get(record_name(unit), 0) + 1
    unit_keys = dict(state.unit_keys)
    if change.unit_key is not None:
        unit, key_id = change.unit_key
        unit_keys.pop(record_name(unit), None)
        if key_id is not None:
            unit_keys[record_name(unit)] = key_id
    endings = {name: value for name, value in state.endings.items() if name not in change.forgotten}
    for ending in change.endings:
        endings[ending_record(ending.of, ending.issuer, ending.name)] = record_value(ending)
    ring = change.ring or change.turned
    blocks = set(state.blocks) - ({block_record(*change.unblock)} if change.unblock else set())
    return _State(
        generation=state.generation + 1,
        workspaces=workspaces,
        blocks=tuple(sorted(blocks | ({block_record(*change.block)} if change.block else set()))),
        ring=state.ring if ring is None else msgspec.convert(ring_record(ring), _RingRecord),
        raises=raises,
        unit_keys=unit_keys,
        endings=endings,
    )
