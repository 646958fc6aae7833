"""The order of those who wait: workspaces take turns, inside a workspace its projects, inside a project first come is
first. Pure.

What waits is bounded. When it is full, the newest of the heaviest project of the heaviest workspace makes room for a
lighter one's: whoever sends more than its turns are worth pushes out nobody but itself (longest queue drop: McKenney,
"Stochastic Fairness Queueing", 1990).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Guest(Protocol):
    """Who waits. `load` is what it takes of the bound, in its unit; it never changes meanwhile."""

    @property
    def workspace(self) -> str: ...

    @property
    def project(self) -> str: ...

    @property
    def load(self) -> int: ...


T = TypeVar("T", bound=Guest)


class Rota(Generic[T]):
    """See the module. `bound` is the most load that may wait."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._load = 0
        self._count = 0
        # In the order of turns at each level; nothing in it is empty.
        self._workspaces: OrderedDict[str, OrderedDict[str, OrderedDict[T, None]]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return (guest for projects in self._workspaces.values() for guests in projects.values() for guest in guests)

    @property
    def load(self) -> int:
        return self._load

    def join(self, newcomer: T) -> list[T] | None:
        """Let it wait. Returns those who had to leave for it; None where it may not wait itself."""
        leaving = self._making_room_for(newcomer)
        if leaving is None:
            return None
        for guest in leaving:
            self.leave(guest)
        projects = self._workspaces.setdefault(newcomer.workspace, OrderedDict())
        projects.setdefault(newcomer.project, OrderedDict())[newcomer] = None
        self._load += newcomer.load
        self._count += 1
        return leaving

    def leave(self, guest: T) -> None:
        """It waits no more. It must be waiting."""
        projects = self._workspaces[guest.workspace]
        guests = projects[guest.project]
        del guests[guest]
        self._load -= guest.load
        self._count -= 1
        if not guests:
            del projects[guest.project]
        if not projects:
            del self._workspaces[guest.workspace]

    def next(self) -> T:
        """Whose turn it is; it waits no more. Somebody must be waiting."""
        workspace, projects = next(iter(self._workspaces.items()))
        project, guests = next(iter(projects.items()))
        guest = next(iter(guests))
        projects.move_to_end(project)
        self._workspaces.move_to_end(workspace)
        self.leave(guest)
        return guest

    def _making_room_for(self, newcomer: T) -> list[T] | None:
        """As if it had joined already: the newest of the heaviest leave until all fit, unless it is itself the one."""
        over = self._load + newcomer.load - self._bound
        if over <= 0:
            return []
        loads = {
            workspace: {project: sum(guest.load for guest in guests) for project, guests in projects.items()}
            for workspace, projects in self._workspaces.items()
        }
        own = loads.setdefault(newcomer.workspace, {})
        own[newcomer.project] = own.get(newcomer.project, 0) + newcomer.load
        newest: dict[tuple[str, str], Iterator[T]] = {}
        leaving: list[T] = []
        while over > 0:
            # Of equals the newcomer's: nobody leaves for one who is no lighter.
            workspace = max(loads, key=lambda name: (sum(loads[name].values()), name == newcomer.workspace))
            projects = loads[workspace]
            at_home = workspace == newcomer.workspace
            project = max(projects, key=lambda name: (projects[name], at_home and name == newcomer.project))
            if at_home and project == newcomer.project:
                return None
            heaviest = newest.setdefault((workspace, project), reversed(self._workspaces[workspace][project]))
            guest = next(heaviest)
            leaving.append(guest)
            projects[project] -= guest.load
            over -= guest.load
        return leaving
