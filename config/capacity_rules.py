"""What must hold of `[capacity]` and `[engines.capacity]`: each worker has a part of every limit. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from config.faults import Fault
from config.settings import Capacity, Engine

LONGEST_WAIT: Final = 600.0
# More than any machine has cores; each is a process with a page of memory that all the others read.
MOST_WORKERS: Final = 1024


def faults_of_capacity(workers: int, capacity: Capacity | None, engines: Mapping[int, Engine]) -> Iterator[Fault]:
    """Every fault of the limits. `workers` as it is written: with 0, nobody knows here how many they are."""
    if workers > MOST_WORKERS:
        yield Fault("workers", f"write {MOST_WORKERS} at most, or 0 for one per core; each is a process")
    limits = {} if capacity is None else _limits_of_all(capacity)
    limits |= {f"engines.{number}.capacity.requests": engine.capacity.requests for number, engine in engines.items()}
    for key, limit in limits.items():
        if limit < workers:
            yield Fault(
                key, f"is less than `workers` ({workers}), of which each needs one; write more, or fewer workers"
            )
    for number, engine in engines.items():
        if engine.capacity.wait > LONGEST_WAIT:
            yield Fault(f"engines.{number}.capacity.wait", 'write "10m" at most: no client waits longer')


def _limits_of_all(capacity: Capacity) -> dict[str, int]:
    written = {
        "capacity.requests": capacity.requests,
        "capacity.connections": capacity.connections,
        "capacity.connections_per_address": capacity.connections_per_address,
    }
    return {key: limit for key, limit in written.items() if limit is not None}
