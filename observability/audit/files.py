"""The directory of an audit: which chains are in it, in which files, and who still writes to them.

    CHAIN.NNNNNN.jsonl    the segments of a chain, from 000001
    CHAIN.journal         what its process has running now, where `[audit] journal` names no other directory
    CHAIN.ended           nobody writes to it any more, and the chain of another one says how it ended where it did not
    CHAIN.….lost          what its command could not write, see `lost`
    lock                  held by who takes files away, so that nobody reads a directory that changes under him

Who writes to a chain holds an exclusive lock (flock) on its newest segment; it ends with the process, whatever ends it.
The name of a chain begins with the time of its start, so that files sort by it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import gmtime, strftime
from typing import Final

from observability.audit.chain import Sealed, is_chain_name, read_line

FILE_MODE: Final = 0o640
"""An auditor reads by the group of the files."""
DIRECTORY_MODE: Final = 0o750
LONGEST_LINE_BYTES: Final = 1024 * 1024

_SEGMENT: Final = re.compile(r"(?P<chain>[^.]+)\.(?P<number>[0-9]{6,9})\.jsonl")
JOURNAL_SUFFIX: Final = ".journal"
ENDED_SUFFIX: Final = ".ended"
LOST_SUFFIX: Final = ".lost"
_TIME: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"
LOST_NAME: Final = re.compile(
    rf"(?P<told>(?P<chain>[^.]+)\.(?P<lost>[1-9][0-9]{{0,8}})\.(?P<first>{_TIME})\.(?P<last>{_TIME}))"
    r"\.(?P<mac>[0-9a-f]{32})\.lost"
)
LOCK: Final = "lock"


class NoLocks(OSError):  # noqa: N818 - what an operator reads
    """The file system of the directory has no locks that hold."""


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """One file of a chain."""

    chain: str
    number: int
    path: Path


def chain_name(role: str, wall_seconds: float, noise: bytes) -> str:
    """`role` is `worker` or `command`; `noise` are six random bytes."""
    return f"{strftime('%Y%m%dT%H%M%SZ', gmtime(wall_seconds))}-{role}-{noise.hex()}"


def segment_path(directory: Path, chain: str, number: int) -> Path:
    return directory / f"{chain}.{number:06d}.jsonl"


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in a directory: the segments of each chain in their order, which chains have ended, and what is not of an
    audit.
    """

    chains: dict[str, list[Segment]]
    ended: frozenset[str]
    strangers: tuple[str, ...]


def listed(directory: Path) -> Listing:
    """The chains in the order of their starts. Raises OSError."""
    chains: dict[str, list[Segment]] = {}
    ended, strangers = set(), []
    with os.scandir(directory) as found:
        names = sorted((entry.name, entry.is_file(follow_symlinks=False) or _leads_to_file(entry)) for entry in found)
    for name, is_file in names:
        chain, _, rest = name.partition(".")
        if name == LOCK or name.startswith("."):
            continue
        segment = _segment(directory, chain, name) if is_file else None
        # What is no file, a pipe for example, would let whoever opens it wait for ever.
        if not is_file or not is_chain_name(chain):
            strangers.append(_text(name))
        elif segment is not None:
            chains.setdefault(chain, []).append(segment)
        elif f".{rest}" == ENDED_SUFFIX:
            ended.add(chain)
        elif f".{rest}" != JOURNAL_SUFFIX and LOST_NAME.fullmatch(name) is None:
            strangers.append(_text(name))
    for segments in chains.values():
        segments.sort()
    return Listing(chains, frozenset(ended), tuple(strangers))


def _text(name: str) -> str:
    """A name of whatever bytes, in characters that UTF-8 can say."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _leads_to_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


def _segment(directory: Path, chain: str, name: str) -> Segment | None:
    """The one of that name: of each number there is one, so that no line can stand in two files."""
    match = _SEGMENT.fullmatch(name)
    if match is None:
        return None
    segment = Segment(chain, int(match["number"]), directory / name)
    return segment if segment.path == segment_path(directory, chain, segment.number) else None


def mark_ended(directory: Path, chain: str) -> None:
    """Raises OSError."""
    os.close(os.open(directory / f"{chain}{ENDED_SUFFIX}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def make_directory(directory: Path) -> None:
    """Raises OSError."""
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)


def new_file(path: Path) -> int:
    """A descriptor of a new file, locked for this process before it has its name: nobody takes it for a dead one's.

    Raises OSError; NoLocks where locks do not hold.
    """
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    unnamed = path.with_name(f".{path.name}")
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(path)
        _check_locks(path)
        sync_directory(path.parent)
    except BaseException:
        os.close(descriptor)
        for name in (unnamed, path):
            with suppress(OSError):
                name.unlink()
        raise
    return descriptor


def _check_locks(path: Path) -> None:
    """Raises NoLocks where the lock on a file that this process holds is none."""
    if not is_written(path):
        raise NoLocks(f"the file system of {path.parent} has no locks that hold; choose another directory")


def sync_directory(directory: Path) -> None:
    """So that a new name in it outlives a power failure. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_written(path: Path) -> bool:
    """Whether a process still holds the file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return not _locked(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Whether this process could take the file for itself; it keeps it so long. Raises OSError."""
    # For writing, because a network file system gives no exclusive lock on what is only read.
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield _locked(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


@contextmanager
def alone(directory: Path) -> Iterator[bool]:
    """Whether this process alone may take files away from the directory meanwhile. Raises OSError."""
    lock = directory / LOCK
    os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
    with held(lock) as is_held:
        yield is_held


@contextmanager
def undisturbed(directory: Path) -> Iterator[None]:
    """Nobody takes a file away meanwhile; waits for who does. Raises OSError."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def tail(path: Path) -> tuple[Sealed | None, int]:
    """The last whole line of a file, None where it has none, and how many bytes of another line follow it.

    Nothing of it is verified. Raises OSError, BadLine.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        data = b""
        while True:
            more = min(max(len(data), 4096), size - len(data))
            begin = size - len(data) - more
            file.seek(begin)
            data = file.read(more) + data
            whole, newline, torn = data.rpartition(b"\n")
            if (newline and b"\n" in whole) or begin == 0 or len(data) > LONGEST_LINE_BYTES:
                break
    if not newline:  # nothing but the beginning of a line
        return None, len(torn)
    return read_line(whole.rpartition(b"\n")[2] + b"\n"), len(torn)


def last_line(found: list[Segment]) -> tuple[Sealed | None, int]:
    """The last line of a chain, and how many torn bytes follow. Raises OSError, BadLine."""
    torn = 0
    for segment in reversed(found):
        last, more = tail(segment.path)
        torn += more
        if last is not None:
            return last, torn
    return None, torn


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
