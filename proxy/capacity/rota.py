"""The order of those who wait: workspaces take turns, inside a workspace its projects, inside a project first come is
first. Pure.

What waits is bounded. When it is full, the newest of the heaviest project of the heaviest workspace makes room for a
lighter one's: whoever sends more than its turns are worth pushes out nobody but itself (longest queue drop: McKenney,
"Stochastic Fairness Queueing", 1990).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
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
        # Kept up, since whoever is refused where it is full costs a look at all of them.
        self._of_workspace: Counter[str] = Counter()
        self._of_projects: defaultdict[str, Counter[str]] = defaultdict(Counter)

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
        self._of_workspace[newcomer.workspace] += newcomer.load
        self._of_projects[newcomer.workspace][newcomer.project] += newcomer.load
        self._load += newcomer.load
        self._count += 1
        return leaving

    def leave(self, guest: T) -> None:
        """It waits no more. It must be waiting."""
        projects = self._workspaces[guest.workspace]
        guests = projects[guest.project]
        del guests[guest]
        self._of_workspace[guest.workspace] -= guest.load
        self._of_projects[guest.workspace][guest.project] -= guest.load
        self._load -= guest.load
        self._count -= 1
        if not guests:
            del projects[guest.project], self._of_projects[guest.workspace][guest.project]
        if not projects:
            del self._workspaces[guest.workspace], self._of_workspace[guest.workspace]
            del self._of_projects[guest.workspace]

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
        workspaces = self._of_workspace.copy()
        workspaces[newcomer.workspace] += newcomer.load
        own = self._of_projects.get(newcomer.workspace, Counter[str]()).copy()
        own[newcomer.project] += newcomer.load
        projects = {newcomer.workspace: own}
        newest: dict[tuple[str, str], Iterator[T]] = {}
        leaving: list[T] = []
        while over > 0:
            # Of equals the newcomer's: nobody leaves for one who is no lighter.
            workspace = _heaviest(workspaces, newcomer.workspace)
            if workspace not in projects:
                projects[workspace] = self._of_projects[workspace].copy()
            project = _heaviest(projects[workspace], newcomer.project if workspace == newcomer.workspace else None)
            if workspace == newcomer.workspace and project == newcomer.project:
                return None
            heaviest = newest.setdefault((workspace, project), reversed(self._workspaces[workspace][project]))
            guest = next(heaviest)
            leaving.append(guest)
            workspaces[workspace] -= guest.load
            projects[workspace][project] -= guest.load
            over -= guest.load
        return leaving


def _heaviest(loads: Mapping[str, int], of_equals: str | None) -> str:
    most = max(loads.values())
    if of_equals is not None and loads.get(of_equals) == most:
        return of_equals
    return next(name for name, load in loads.items() if load == most)
