"""The places at the engines: how many requests are there at once, who waits for one, and who gets the next. Pure.

There is room, or somebody waits, never both: a place that is given back goes to the next in turn at the same moment,
and nobody who comes later is before him.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from msgspec import Struct

from proxy.capacity.rota import Guest, Rota
from proxy.capacity.shares import Share
from proxy.refusals import EngineBusy, Refusal

# What a client is told: SDKs of OpenAI and Anthropic heed a Retry-After of up to a minute.
SHORTEST_RETRY_SECONDS: Final = 1
LONGEST_RETRY_SECONDS: Final = 60
# How long a turn counts: after so many seconds a third as much.
_MEMORY_SECONDS: Final = 60.0


class Waiter(Guest, Protocol):
    """Who waits for a place. `granted` or `refused` is called once; then it waits no more already."""

    def granted(self, place: Place) -> None: ...

    def refused(self, refusal: Refusal) -> None: ...

    def judge(self) -> None:
        """Leave, where its caller may not have it any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one engine, for this worker. `requests` at once at each of its replicas; what may wait, in number and bytes;
    and how long, in seconds.
    """

    requests: int
    waiting: int
    waiting_bytes: int
    wait_seconds: float
    share: Share

    @property
    def bound(self) -> int:
        """The load that may wait. In such parts of bytes that all bytes, and as many requests as may wait, are just so
        much: with that one bound both are kept.
        """
        return self.waiting_bytes * max(self.waiting, 1)

    def load(self, size: int) -> int:
        """What a waiting request of so many bytes takes of `bound`."""
        return max(size * self.waiting, self.waiting_bytes) if self.waiting else self.bound + 1


class Place(Struct, eq=False):
    """The right to have one request at the engine, until it is given back."""

    _places: Places
    _held: bool = True

    @property
    def engine(self) -> str:
        return self._places.engine

    def give_back(self) -> None:
        """The request is over. Said twice, it counts once."""
        if self._held:
            self._held = False
            self._places.freed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.give_back()


class Turns:
    """How fast turns come while there is no room: their number, and the seconds in which they came. Both fade, and are
    not the mean of the seconds between two turns: an engine computes in batches, so turns come many at once, and such a
    mean would say after each batch that the next one is there at once.
    """

    def __init__(self) -> None:
        self._turns = 0.0
        self._seconds = 0.0
        self._last = 0.0

    def began(self, now: float) -> None:
        """There is no room from now on, where there was."""
        self._last = now

    def came(self, now: float) -> None:
        turns, self._seconds = self._until(now)
        self._turns, self._last = turns + 1.0, now

    def seconds_until(self, turns: int, now: float) -> float:
        """When the last of so many turns will have come, as far as one can know; a turn that is late counts as such."""
        came, seconds = self._until(now)
        return turns * seconds / max(came, 1.0)

    def _until(self, now: float) -> tuple[float, float]:
        left = math.exp((self._last - now) / _MEMORY_SECONDS)
        return self._turns * left, self._seconds * left + _MEMORY_SECONDS * (1.0 - left)


class Places:
    """Those at one engine. `taken` are in use; `limit` follows the replicas that may be used."""

    def __init__(self, engine: str, limits: Limits, whole: Capacity) -> None:
        self.engine = engine
        self.limits = limits
        self.taken = 0
        self.limit = limits.share.of(limits.requests)
        self._whole = whole
        self._turns = Turns()
        self._rota: Rota[Waiter] = Rota(limits.bound)

    @property
    def waiting(self) -> int:
        """How many wait for a place here."""
        return len(self._rota)

    @property
    def waiters(self) -> tuple[Waiter, ...]:
        return tuple(self._rota)

    @property
    def has_room(self) -> bool:
        return self.taken < self.limit

    def place(self) -> Place | None:
        """A place, where there is room now; then nobody waits for it."""
        whole = self._whole
        if self.taken >= self.limit or whole.taken >= whole.limit:
            return None
        self.taken += 1
        whole.taken += 1
        if (self.taken >= self.limit or whole.taken >= whole.limit) and not self.waiting:
            self._turns.began(whole.clock())
        return Place(self)

    def join(self, waiter: Waiter) -> None:
        """Wait for a place where `place` has none. Whoever has to leave for it is refused. Raises EngineBusy where it
        may not wait.
        """
        if not self.waiting and self.has_room:  # it is not this engine that is full
            self._turns.began(self._whole.clock())
        leaving = self._rota.join(waiter)
        if leaving is None:
            raise self._queue_full()
        self._whole.wanted(self)
        for other in leaving:
            other.refused(self._queue_full())

    def leave(self, waiter: Waiter) -> None:
        """It waits no more."""
        self._rota.leave(waiter)
        if not self.waiting:
            self._whole.unwanted(self)

    def busy(self, message: str, *, reason: str) -> EngineBusy:
        """What those are told who get no place, with an honest guess when there will be one."""
        seconds = math.ceil(self._turns.seconds_until(self.waiting + 1, self._whole.clock()))
        retry_after = min(max(seconds, SHORTEST_RETRY_SECONDS), LONGEST_RETRY_SECONDS)
        return EngineBusy(message, reason=reason, retry_after=retry_after)

    def usable(self, replicas: int) -> None:
        """So many replicas may be used now. With none, one request at a time finds out when that is over."""
        self.limit = self.limits.share.of(self.limits.requests * max(replicas, 1))
        self._whole.grant()

    def freed(self) -> None:
        """A place was given back: where it was the lack of one that others were told of, a turn came."""
        whole = self._whole
        if (self.taken >= self.limit or whole.taken >= whole.limit) and not self.waiting:
            self._turns.came(whole.clock())
        self.taken -= 1
        whole.taken -= 1
        whole.grant()

    def grant_next(self) -> None:
        """The next in turn gets a place. There must be room, and somebody who waits."""
        waiter = self._rota.next()
        self._turns.came(self._whole.clock())
        if not self.waiting:
            self._whole.unwanted(self)
        place = self.place()
        assert place is not None
        waiter.granted(place)

    def _queue_full(self) -> EngineBusy:
        return self.busy(
            "The engine has as many requests as it may have, and no more may wait for it. Try again in a moment.",
            reason="queue_full",
        )


class Capacity:
    """The places at all engines of one worker. `limit` is of all of them together."""

    def __init__(self, limit: int, engines: dict[str, Limits], *, clock: Callable[[], float]) -> None:
        """`clock` gives seconds and never jumps."""
        self.limit = limit
        self.taken = 0
        self.clock = clock
        self._places = {name: Places(name, limits, self) for name, limits in engines.items()}
        # The engines at which somebody waits, in the order of turns.
        self._wanted: OrderedDict[str, Places] = OrderedDict()
        self._is_granting = False

    def __iter__(self) -> Iterator[Places]:
        return iter(self._places.values())

    def at(self, engine: str) -> Places:
        return self._places[engine]

    @property
    def waiters(self) -> tuple[Waiter, ...]:
        """All who wait now."""
        return tuple(waiter for places in self._places.values() for waiter in places.waiters)

    def wanted(self, places: Places) -> None:
        self._wanted.setdefault(places.engine, places)

    def unwanted(self, places: Places) -> None:
        self._wanted.pop(places.engine, None)

    def grant(self) -> None:
        """Give away whatever room there is, engine by engine in turn.

        Who gets a place may give it back at once, since nobody takes it any more. Thousands may, so that is no call
        within the call: the loop finds the room.
        """
        if not self._wanted or self._is_granting:
            return
        self._is_granting = True
        try:
            while (places := self._next()) is not None:
                self._wanted.move_to_end(places.engine)
                places.grant_next()
        finally:
            self._is_granting = False

    def _next(self) -> Places | None:
        """The engine whose turn it is; None where there is no room, or nobody waits for it."""
        if self.taken >= self.limit:
            return None
        return next((places for places in self._wanted.values() if places.has_room), None)
