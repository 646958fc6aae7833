"""What the supervisor itself counts: reloads of the configuration, and workers that died."""

from __future__ import annotations

from collections.abc import Callable

from observability import families
from observability.counted import State


class Reloads:
    """The configuration that saltgate was started with counts as read at the time of the start. `wall_clock` is Unix
    seconds.
    """

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._last_succeeded = True
        self._read_at = wall_clock()

    def succeeded(self) -> None:
        """Another configuration has taken over."""
        self._last_succeeded, self._read_at = True, self._wall_clock()

    def failed(self) -> None:
        """A reload changed nothing."""
        self._last_succeeded = False

    def states(self, deaths: int) -> list[State]:
        """`deaths` is how many workers have ended without being told to, so far."""
        rows = (
            (families.RELOAD_SUCCEEDED, float(self._last_succeeded)),
            (families.CONFIGURATION_READ, self._read_at),
            (families.WORKER_DEATHS, float(deaths)),
        )
        return [State(family.name, (), value) for family, value in rows]
