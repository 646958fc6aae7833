"""One chain on disk: lines go to its newest segment in groups, each synced, and count only then.

Where a group cannot be written nothing of it counts: the file is cut back to what did, and where not even that can be
done, the chain goes on in a new segment, whose first line says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

import msgspec

from observability.audit.chain import NOTHING, ChainKey, Head, sealed
from observability.audit.entries import content
from observability.audit.files import new_file, segment_path
from observability.audit.housekeeping import Witness

Before = Literal["sealed", "damaged", "torn"]
"""How the segment before ended: in order, changed by somebody under our hands, or in a failed write."""


class SegmentOpened(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """The first line of each segment. `mac_before` is that of the chain's last line, `heads` where others are."""

    event: str
    segment: int
    mac_before: str | None = None
    before: Before | None = None
    role: str | None = None
    host: str | None = None
    instance: str | None = None
    version: str | None = None
    command: str | None = None
    account: str | None = None
    heads: tuple[Head, ...] = ()


class SegmentSealed(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """The last line of each segment: how many lines it has with this one, and the number of its first. At the end of a
    chain `heads` are where others are.
    """

    event: str
    segment: int
    first_seq: int
    lines: int
    heads: tuple[Head, ...] = ()


CHAIN_OPENED: Final = "chain.opened"
SEGMENT_OPENED: Final = "segment.opened"
SEGMENT_SEALED: Final = "segment.sealed"
CHAIN_CLOSED: Final = "chain.closed"


@dataclass(frozen=True, slots=True)
class Origin:
    """Who writes a chain."""

    role: str
    host: str
    instance: str
    version: str
    command: str | None = None
    account: str | None = None


class Export(Protocol):
    """Who else takes lines once they are on disk, and may lose them. It neither waits nor raises."""

    def __call__(self, lines: list[bytes]) -> None: ...


class Damaged(OSError):  # noqa: N818 - what was found
    """The file that is being written to was changed or removed by somebody else."""


class Chain:
    """See the module. For one thread. `witness` knows what the chain has told of the others."""

    def __init__(
        self,
        directory: Path,
        name: str,
        key: ChainKey,
        origin: Origin,
        *,
        wall_ns: Callable[[], int],
        export: Export | None = None,
    ) -> None:
        self.directory = directory
        self.name = name
        self._key = key
        self._origin = origin
        self._wall_ns = wall_ns
        self.witness = Witness(directory, name)
        self._export = export
        self._descriptor: int | None = None
        self._left: int | None = None
        self._before: Before = "sealed"
        self._segment = 0
        self._seq = 0
        self._mac = NOTHING
        self._first_seq = 1
        self.size = 0
        self.began_ns = 0

    @property
    def head(self) -> Head:
        """Where it is, on disk."""
        return Head(self.name, self._seq, self._mac.hex())

    @property
    def path(self) -> Path:
        return segment_path(self.directory, self.name, self._segment)

    def append(self, contents: Sequence[bytes]) -> None:
        """Each a line, all of them on disk. Raises OSError: then none of them is."""
        descriptor = self._begun() if self._descriptor is None else self._descriptor
        self._write(descriptor, contents)

    def seal(self) -> None:
        """End the segment; what comes next begins another. Raises OSError: then it is as it was."""
        self._end(SEGMENT_SEALED)

    def close(self) -> None:
        """End the chain. Raises OSError."""
        if self._descriptor is None:
            self._begun()
        self._end(CHAIN_CLOSED)
        self._let_go()

    def _leave(self) -> None:
        """Write no more to the file. Its lock is kept until the chain has another one or is closed: meanwhile nobody is
        to take it for dead.
        """
        if self._descriptor is not None:
            self._let_go()
            self._left, self._descriptor = self._descriptor, None

    def _let_go(self) -> None:
        """Of the file before this one."""
        if self._left is not None:
            with suppress(OSError):
                os.close(self._left)
            self._left = None

    def check(self) -> None:
        """Raises Damaged where the segment is not what was written to it, or has another name; OSError."""
        if self._descriptor is None:
            return
        is_ours = False
        with suppress(FileNotFoundError):
            is_ours = os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        if not is_ours:
            self._is_damaged()
        self._check_size(self._descriptor)

    def _begun(self) -> int:
        """A new segment with its first line."""
        number = self._segment + 1
        path = segment_path(self.directory, self.name, number)
        heads = self.witness.heads()
        descriptor = new_file(path)
        opened = SegmentOpened(
            event=CHAIN_OPENED if number == 1 else SEGMENT_OPENED,
            segment=number,
            mac_before=None if number == 1 else self._mac.hex(),
            before=None if number == 1 else self._before,
            role=self._origin.role,
            host=self._origin.host,
            instance=self._origin.instance,
            version=self._origin.version,
            command=self._origin.command,
            account=self._origin.account,
            heads=heads,
        )
        was = (self._segment, self.size, self._first_seq, self.began_ns)
        self._segment, self.size, self._first_seq, self.began_ns = number, 0, self._seq + 1, self._wall_ns()
        try:
            self._put(descriptor, [content(opened, self.began_ns)])
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                path.unlink()
            self._segment, self.size, self._first_seq, self.began_ns = was
            raise
        self.witness.told(heads)
        self._descriptor, self._before = descriptor, "sealed"
        self._let_go()
        return descriptor

    def _end(self, event: str) -> None:
        if self._descriptor is None:
            return
        # Those of a chain that ends in its first minute have perhaps been told by nobody yet.
        heads = self.witness.heads() if event == CHAIN_CLOSED else ()
        ending = SegmentSealed(
            event=event,
            segment=self._segment,
            first_seq=self._first_seq,
            lines=self._seq + 2 - self._first_seq,
            heads=heads,
        )
        self._write(self._descriptor, [content(ending, self._wall_ns())])
        self.witness.told(heads)
        self._leave()

    def _write(self, descriptor: int, contents: Sequence[bytes]) -> None:
        self._check_size(descriptor)
        try:
            self._put(descriptor, contents)
        except OSError:
            self._cut_back(descriptor)
            raise

    def _put(self, descriptor: int, contents: Sequence[bytes]) -> None:
        seq, mac = self._seq, self._mac
        lines = []
        for one in contents:
            seq += 1
            line, mac = sealed(self._key, mac, self.name, seq, one)
            lines.append(line)
        data = b"".join(lines)
        _write_all(descriptor, data, self.size)
        os.fdatasync(descriptor)
        self._seq, self._mac, self.size = seq, mac, self.size + len(data)
        if self._export is not None:
            self._export(lines)

    def _cut_back(self, descriptor: int) -> None:
        try:
            os.ftruncate(descriptor, self.size)
            os.fdatasync(descriptor)
        except OSError:
            self._before = "torn"
            self._leave()

    def _check_size(self, descriptor: int) -> None:
        state = os.fstat(descriptor)
        if state.st_size != self.size or not state.st_nlink:
            self._is_damaged()

    def _is_damaged(self) -> None:
        path = self.path
        self._before = "damaged"
        self._leave()
        raise Damaged(f"{path} was changed or removed by somebody else while it was written to")


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written
