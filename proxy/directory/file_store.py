"""The directory without Redis, for one machine: a directory file that people edit, and a folder for the rest.

The folder's `directory.json` holds the same records as Redis does, the workspaces among them. Whoever first sees that
the file changed brings the records up to it under a lock, as an import would: what vanished from the file is raised. A
file that cannot be read or has faults changes nothing; the records serve on as they were.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from proxy.directory.changes import Change, ChangeRefused, Deed, bring_up_to, pause_before
from proxy.directory.endings import record_name as ending_record
from proxy.directory.endings import record_value
from proxy.directory.model import Directory, DirectoryFaults, Fault, directory_from_toml, directory_to_toml
from proxy.directory.records import RawRecords, Records, block_record, parse_records, ring_record
from proxy.directory.removal import RemovalPolicy
from proxy.directory.snapshot import NOTHING_READ, read
from proxy.directory.state_file import RingRecord, State, StateFile, Version, in_thread, replace_file, version_of
from proxy.directory.store import unix_now
from proxy.isolation.ring import record_name


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
        self._state = StateFile(folder)
        self._met: Version | None = (
            None  # the version that the records were last brought up to; None before the first look
        )
        self._seen: Version | None = None  # the version at the last look
        self._faults: tuple[Fault, ...] = ()

    @asynccontextmanager
    async def hearing(self) -> AsyncIterator[_NoHearing]:
        yield _NoHearing()

    async def stamp(self) -> bytes:
        return await in_thread(self._stamp)

    async def read(self) -> Records:
        return await in_thread(self._read)

    async def change(self, deed: Deed) -> Change:
        return await in_thread(lambda: self._change(deed))

    async def close(self) -> None:
        """There is nothing to close: no file stays open."""

    def _stamp(self) -> bytes:
        self._follow_file()
        return repr((self._state.version(), self._faults)).encode()

    def _read(self) -> Records:
        stamp = self._stamp()  # before the reading: if the state changes between, it is read once more
        return _records(self._state.load(), stamp, self._faults, now=self._clock())

    def _change(self, deed: Deed) -> Change:
        with self._state.locked():
            self._take_over_file()
            state = self._state.load()
            records = _records(state, b"", (), now=self._clock())
            change = deed(records)
            if change.whole is None and change.workspaces and self._faults:
                raise ChangeRefused(f"{self._file} has faults; mend them first: {DirectoryFaults(self._faults)}")
            time.sleep(pause_before(change, records))
            self._write_file(change, state)
            if not change.is_empty:
                self._state.save(_applied(state, change))
            return change

    def _follow_file(self) -> None:
        """Takes over a changed file once it has been the same for two looks: an editor may be in the middle of it."""
        now = version_of(self._file)
        settled = now == self._seen or self._met is None
        self._seen = now
        if now != self._met and settled:
            with self._state.locked():
                self._take_over_file()

    def _take_over_file(self) -> None:
        """Brings the records up to the file, under the lock."""
        version = version_of(self._file)
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
        state = self._state.load()
        records = _records(state, b"", (), now=self._clock())
        try:
            change = bring_up_to(directory, self._removal)(records)
        except ChangeRefused as error:
            return (Fault(str(self._file), f"is not taken over: {error}"),)
        if not change.is_empty:
            time.sleep(pause_before(change, records))
            self._state.save(_applied(state, change))
        return ()

    def _write_file(self, change: Change, state: State) -> None:
        """Writes the directory file, which rewrites it as a whole. One that already says it keeps its comments."""
        if change.whole is None and not change.workspaces:
            return
        directory = change.whole or _directory(_applied(state, change))
        if not self._faults and directory == _directory(state) and self._file.exists():
            return
        replace_file(self._file, directory_to_toml(directory).encode(), mode=None)
        self._met = self._seen = version_of(self._file)
        self._faults = ()


class _NoHearing:
    """A folder tells nothing by itself."""

    async def heard(self, within: float) -> bool:
        await asyncio.sleep(within)
        return False


def _records(state: State, stamp: bytes, faults: tuple[Fault, ...], *, now: float = 0.0) -> Records:
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


def _directory(state: State) -> Directory:
    return read(_records(state, b"", ()), NOTHING_READ).snapshot.directory


def _applied(state: State, change: Change) -> State:
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
    # A token that is over has no record any more: only so it stays over when the ending is forgotten.
    gone = {ending.name for ending in change.endings if ending.of == "token"}
    ring = change.ring or change.turned
    blocks = set(state.blocks) - ({block_record(*change.unblock)} if change.unblock else set())
    return State(
        generation=state.generation + 1,
        workspaces=workspaces,
        blocks=tuple(sorted(blocks | ({block_record(*change.block)} if change.block else set()))),
        ring=state.ring if ring is None else msgspec.convert(ring_record(ring), RingRecord),
        raises=raises,
        unit_keys=unit_keys,
        endings=endings,
        tokens={name: record for name, record in state.tokens.items() if name not in gone},
        tokens_used={name: used for name, used in state.tokens_used.items() if name not in gone},
        logins=state.logins,
    )
