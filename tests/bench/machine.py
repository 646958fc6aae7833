"""What the kernel tells of processes: CPU time, time spent waiting for a core, memory, descriptors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The gateway alone on the one; engine, load generator, Redis and whoever measures on the other.
GATEWAY_CORE: Final = 0
OTHER_CORE: Final = 1


class TooFewCores(Exception):  # noqa: N818 - what the person at the terminal reads
    """There are not two cores to keep apart what is measured and what measures."""


def keep_to_other_core() -> None:
    """Pins this process and whatever it starts. Raises TooFewCores."""
    if not {GATEWAY_CORE, OTHER_CORE} <= os.sched_getaffinity(0):
        raise TooFewCores(f"the benchmark needs the cores {GATEWAY_CORE} and {OTHER_CORE}")
    os.sched_setaffinity(0, {OTHER_CORE})


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU time of some processes so far, and how long their threads were ready and had no core, in nanoseconds."""

    cpu: int
    waited: int

    def since(self, before: Spent) -> Spent:
        return Spent(self.cpu - before.cpu, self.waited - before.waited)


def spent(processes: Iterable[int]) -> Spent:
    """Of all threads (/proc/PID/task/*/schedstat, the kernel's Documentation/scheduler/sched-stats.rst)."""
    words = [_schedstat(thread) for process in processes for thread in Path(f"/proc/{process}/task").iterdir()]
    return Spent(sum(int(word[0]) for word in words), sum(int(word[1]) for word in words))


def _schedstat(thread: Path) -> list[str]:
    return (thread / "schedstat").read_text().split()


def resident_bytes(processes: Iterable[int]) -> int:
    """Physical memory of the processes (VmRSS)."""
    return sum(_status_kilobytes(process, "VmRSS:") for process in processes) * 1024


def _status_kilobytes(process: int, name: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def open_descriptors(process: int) -> int:
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())


def family(process: int) -> tuple[int, ...]:
    """The process and all its descendants."""
    return tuple(_family(process))


def children(process: int) -> tuple[int, ...]:
    """Of all its threads: a child belongs to the thread that started it."""
    listed = Path(f"/proc/{process}/task").glob("*/children")
    return tuple(int(child) for thread in listed for child in thread.read_text().split())


def _family(process: int) -> Iterator[int]:
    yield process
    for child in children(process):
        yield from _family(child)


def connections_of(process: int, port: int) -> int:
    """Established connections that the process accepted on this local port (proc_pid_fd(5), proc_net(5))."""
    held = _socket_inodes(process)
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[9] in held for row in rows if row[3] == _ESTABLISHED and row[1].endswith(f":{port:04X}"))


_ESTABLISHED: Final = "01"


def _socket_inodes(process: int) -> set[str]:
    inodes = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            kind, _, inode = str(descriptor.readlink()).partition(":[")
            if kind == "socket":
                inodes.add(inode.removesuffix("]"))
    return inodes
