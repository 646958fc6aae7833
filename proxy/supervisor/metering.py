"""The metrics of all workers: what each counted is added up here, and how each is, put together for whoever looks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from observability import families
from observability.counted import State, handed_over
from observability.exposition import States, merged
from observability.naming import Naming, Pseudonyms, plain
from observability.processes import Processes
from observability.totals import Bounds, Totals
from proxy.plan import MetricsPlan
from proxy.supervisor.generation import Generation


@dataclass(frozen=True, slots=True)
class Running:
    """The generations of workers that there are now."""

    serving: Generation
    retiring: Sequence[Generation] = ()
    starting: Generation | None = None

    def by_state(self) -> dict[str, list[Generation]]:
        starting = [] if self.starting is None else [self.starting]
        return {"serving": [self.serving], "retiring": [*self.retiring], "starting": starting}

    def all(self) -> list[Generation]:
        return [generation for generations in self.by_state().values() for generation in generations]


class Metering:
    """`totals` is what workers' counts are to be added to. `wall_clock` is Unix seconds."""

    def __init__(self, plan: MetricsPlan, *, wall_clock: Callable[[], float]) -> None:
        self.totals = Totals(_bounds(plan), monotonic=time.monotonic, wall_clock=wall_clock, naming=_naming(plan))
        self._processes = Processes(self.totals)

    def follow(self, plan: MetricsPlan) -> None:
        """Another configuration has taken over."""
        self.totals.bounds = _bounds(plan)
        self.totals.rename(_naming(plan))

    async def states(self, running: Running, more: Iterable[State]) -> States:
        """How things are, `more` among them; what was counted until now is in the totals then."""
        await asyncio.gather(*(generation.tell(counts=True) for generation in running.all()))
        return merged((*_of_workers(running), *self._own(running), *more), self.totals)

    def _own(self, running: Running) -> Iterator[State]:
        yield from self.totals.states()
        processes = [(SUPERVISOR, os.getpid())]
        for name, generations in running.by_state().items():
            ids = [process_id for generation in generations for process_id in generation.processes()]
            yield State(families.WORKERS.name, (name,), len(ids))
            processes += [(f"worker-{number}", process_id) for number, process_id in ids]
        yield from self._processes.look(processes)


SUPERVISOR: Final = "supervisor"


def _of_workers(running: Running) -> Iterator[State]:
    """How new workers see things counts when they are ready; what they have counted counts at once."""
    yield from running.serving.states()
    for generation in running.retiring:
        yield from handed_over(generation.states())


def _bounds(plan: MetricsPlan) -> Bounds:
    return Bounds(plan.most_scopes, plan.most_models, plan.idle_seconds)


def _naming(plan: MetricsPlan) -> Naming:
    return plain if plan.pseudonym_key is None else Pseudonyms(plan.pseudonym_key)
