"""Has a gate that worked for a while given everything back? Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

# Memory that an allocator keeps is no leak; what grows on and on is more than that.
_MORE_MEMORY: Final = 0.10
_MORE_BYTES: Final = 8 * 1024 * 1024
# A connection or two to Redis or an engine come and go by themselves.
_MORE_DESCRIPTORS: Final = 3
_MORE_TASKS: Final = 2

_SAMPLE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{.*\})? (?P<value>\S+)(?: .*)?")
# Gauges of what is under way.
# A histogram of waits counts those that are over.
_UNDER_WAY: Final = re.compile(r"saltgate_(?!\w*_seconds)\w*(active|waiting|queue|outstanding|in_flight)\w*")


@dataclass(frozen=True, slots=True)
class WorkerRest:
    """A worker at rest: resident bytes, open descriptors, asyncio tasks."""

    memory: int
    descriptors: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Rest:
    """A gate at rest: its workers by process id, its gauges of what is under way, its engines' running requests."""

    workers: Mapping[int, WorkerRest]
    under_way: Mapping[str, float]
    engines_active: int


def faults_of_rest(start: Rest, end: Rest) -> Iterator[str]:
    """What is not back where it was."""
    if start.workers.keys() != end.workers.keys():
        yield f"the workers are others: {sorted(start.workers)} became {sorted(end.workers)}"
    for process in start.workers.keys() & end.workers.keys():
        yield from _faults_of_worker(process, start.workers[process], end.workers[process])
    for name, value in end.under_way.items():
        if value:
            yield f"{name} is {value:g} at rest"
    if end.engines_active:
        yield f"{end.engines_active} requests still run at the engines"


def _faults_of_worker(process: int, start: WorkerRest, end: WorkerRest) -> Iterator[str]:
    if end.memory > start.memory * (1 + _MORE_MEMORY) + _MORE_BYTES:
        yield f"memory of worker {process}: {start.memory / 1e6:.1f} MB became {end.memory / 1e6:.1f} MB"
    if end.descriptors > start.descriptors + _MORE_DESCRIPTORS:
        yield f"descriptors of worker {process}: {start.descriptors} became {end.descriptors}"
    if end.tasks > start.tasks + _MORE_TASKS:
        yield f"tasks of worker {process}: {start.tasks} became {end.tasks}"


def under_way(exposition: str) -> dict[str, float]:
    """The sums of the gauges of what is under way, from a page of metrics in the text format of Prometheus."""
    sums: dict[str, float] = {}
    for line in exposition.splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample is not None and _UNDER_WAY.fullmatch(sample["name"]):
            sums[sample["name"]] = sums.get(sample["name"], 0.0) + float(sample["value"])
    return sums


def faults_of_log(lines: Iterable[str], announced: frozenset[str] = frozenset()) -> Iterator[str]:
    """The lines that no gate should write, but for events that were announced."""
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            yield line  # a traceback, or a word of the interpreter
            continue
        serious = entry.get("level") in {"error", "critical"} or "Traceback" in line
        if serious and entry.get("event") not in announced:
            yield line
