"""What saltgate's processes use, read from /proc by the supervisor: no worker stops for it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from observability import families
from observability.counted import State
from observability.totals import Totals


class Usage(NamedTuple):
    """Of one process. CPU seconds are since its start, which is Unix seconds."""

    cpu_seconds: float
    resident_bytes: int
    open_descriptors: int
    most_descriptors: int
    started: float


class Processes:
    """CPU time goes into the totals: what a process used that has ended stays."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._cpu: dict[int, float] = {}

    def look(self, processes: Sequence[tuple[str, int]]) -> list[State]:
        """How the processes are now: their names and ids. One that has ended meanwhile is left out."""
        states: list[State] = []
        for name, process_id in processes:
            usage = usage_of(process_id)
            if usage is None:
                continue
            self._totals.count(families.PROCESS_CPU, name, times=usage.cpu_seconds - self._cpu.get(process_id, 0.0))
            self._cpu[process_id] = usage.cpu_seconds
            states += _states(name, usage)
        self._cpu = {one: self._cpu[one] for _, one in processes if one in self._cpu}
        return states


def _states(name: str, usage: Usage) -> list[State]:
    return [
        State(families.PROCESS_RESIDENT.name, (name,), usage.resident_bytes),
        State(families.PROCESS_OPEN_FDS.name, (name,), usage.open_descriptors),
        State(families.PROCESS_MAX_FDS.name, (name,), usage.most_descriptors),
        State(families.PROCESS_START.name, (name,), usage.started),
    ]


def usage_of(process_id: int) -> Usage | None:
    """None where it has ended, or where there is no such /proc."""
    folder = Path(f"/proc/{process_id}")
    try:
        # After the name in parentheses, which may hold anything; proc_pid_stat(5) counts from 1.
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
        limits = (folder / "limits").read_text()
        descriptors = sum(1 for _ in (folder / "fd").iterdir())
    except OSError:
        return None
    most = _MAX_OPEN_FILES.search(limits)
    return Usage(
        cpu_seconds=(int(stat[11]) + int(stat[12])) / _TICKS,
        resident_bytes=int(stat[21]) * _PAGE_BYTES,
        open_descriptors=descriptors,
        most_descriptors=0 if most is None else int(most[1]),
        started=_booted() + int(stat[19]) / _TICKS,
    )


def _booted() -> float:
    found = _BOOT_TIME.search(Path("/proc/stat").read_text())
    return 0.0 if found is None else float(found[1])


_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MAX_OPEN_FILES: Final = re.compile(r"^Max open files\s+(\d+)", re.MULTILINE)
_BOOT_TIME: Final = re.compile(r"^btime (\d+)", re.MULTILINE)
