"""The history kept in the Redis of the directory, by the hands of a worker: in the background, and never waited for.

What is closed is written every few seconds, and what other gates wrote is read. While Redis or the workers are away,
what could not be written is written later, for as long as this process knows it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol, TypeVar

import msgspec
import structlog

from observability.history.history import History
from observability.history.kept import MINUTE_SECONDS, KeptSlot, Others, slots_of, slots_until
from observability.history.timeline import LEVELS
from proxy.questions import Done, Keep, Recall, Recalled

EVERY_SECONDS: Final = 10.0
START_SECONDS: Final = 0.5
# What is asked of a worker at a time, so that none is busy with it for long.
MOST_SLOTS: Final = 32

_log = structlog.get_logger("saltgate.history")


_Answer = TypeVar("_Answer")


class Workers(Protocol):
    @property
    def is_draining(self) -> bool: ...

    async def ask(self, question: bytes) -> bytes | None: ...


class Keeping:
    """`clock` is Unix seconds."""

    def __init__(self, history: History, workers: Workers, *, clock: Callable[[], float]) -> None:
        self.others = Others(history.bounds)
        self._history = history
        self._workers = workers
        self._clock = clock
        self._gate = secrets.token_hex(8)
        self._next_minute = int(history.since) // MINUTE_SECONDS
        self._unwritten: deque[bytes] = deque(maxlen=history.outbox.maxlen)
        self._to_read: list[tuple[int, int]] = []
        self._read_until = 0
        self._last_request = ""
        self._works = True

    async def follow(self, *, every: float = EVERY_SECONDS) -> None:
        """Endless. That no worker answers is no trouble while they start, and is then asked again soon, and none while
        they end.
        """
        started = False
        while True:
            why = await self.keep() or await self.recall()
            started = started or why != _NO_WORKER
            if started and not (why == _NO_WORKER and self._workers.is_draining):
                self._tell(why)
            await asyncio.sleep(every if started else START_SECONDS)

    async def keep(self) -> str:
        """Write what is closed and was not written yet; why it could not be, or nothing."""
        this_minute = int(self._clock()) // MINUTE_SECONDS
        self._next_minute = max(self._next_minute, this_minute - LEVELS[1].kept)
        minutes = range(self._next_minute, this_minute)
        why = await self._keep(slots_of(self._history.timelines(), minutes)) if minutes or self._history.outbox else ""
        if not why:
            self._next_minute = this_minute
        return why

    def last(self) -> Keep:
        """All that is left to write at the end, the minute that is not over among it."""
        minutes = range(self._next_minute, int(self._clock()) // MINUTE_SECONDS + 1)
        return self._asked(slots_of(self._history.timelines(), minutes))

    async def recall(self) -> str:
        """Read what others have written; why it could not be, or nothing."""
        self._plan_reading()
        more = True
        while self._to_read or more:
            question = Recall(self._gate, tuple(self._to_read[:MOST_SLOTS]), self._last_request)
            told = await self._ask(question, Recalled)
            if told is None or told.why:
                return _NO_WORKER if told is None else told.why
            self._take(told)
            del self._to_read[:MOST_SLOTS]
            more, self._last_request = told.last != self._last_request, told.last
        self.others.trim(self._clock())
        return ""

    def _plan_reading(self) -> None:
        """At first everything, then what may have been written since: a slot that is not over is read again."""
        now = self._clock()
        waiting = set(self._to_read)
        since = self._read_until - 2 * MINUTE_SECONDS
        self._to_read += [one for one in slots_until(now) if one not in waiting and (one[1] + 1) * one[0] > since]
        self._read_until = int(now)

    def _take(self, told: Recalled) -> None:
        for gate, seconds, slot, data in told.slots:
            try:
                self.others.take(gate, KeptSlot(seconds, slot, data))
            except ValueError:
                continue  # another version wrote it
        for request in told.requests:
            try:
                self.others.take_request(request)
            except ValueError:
                continue

    async def _keep(self, slots: Sequence[KeptSlot]) -> str:
        for some in _batches(slots):
            done = await self._ask(self._asked(some), Done)
            if done is None or done.why:
                return _NO_WORKER if done is None else done.why
            self._unwritten.clear()
        return ""

    def _asked(self, slots: Iterable[KeptSlot]) -> Keep:
        outbox = self._history.outbox
        while outbox:
            self._unwritten.append(msgspec.msgpack.encode(outbox.popleft()))
        rows = tuple((kept.seconds, kept.slot, kept.data) for kept in slots)
        return Keep(self._gate, rows, tuple(self._unwritten), self._history.bounds.recent)

    async def _ask(self, question: Keep | Recall, kind: type[_Answer]) -> _Answer | None:
        answer = await self._workers.ask(msgspec.msgpack.encode(question))
        if answer is None:
            return None
        try:
            return msgspec.msgpack.decode(answer, type=kind)
        except ValueError:
            return None

    def _tell(self, why: str) -> None:
        """One line when it stops working, and one when it works again."""
        if bool(why) == self._works:
            self._works = not why
            if why:
                _log.warning("history.not_kept", why=why)
            else:
                _log.info("history.kept_again")


_NO_WORKER: Final = "no worker answers"


def _batches(slots: Sequence[KeptSlot]) -> Iterator[Sequence[KeptSlot]]:
    """At least one, for what else there is to write."""
    rest = iter(slots)
    yield tuple(islice(rest, MOST_SLOTS))
    while some := tuple(islice(rest, MOST_SLOTS)):
        yield some
