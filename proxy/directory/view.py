"""Each worker's own live view of the directory: answered from memory, kept true by push and by asking.

A hearing tells changes at once; but a half-open connection hears nothing, and nothing heard must not pass for nothing
changed. So the stamp is asked for as well, often enough that a change is in force within a second (contract section 4).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import structlog

from proxy.directory.model import Fault
from proxy.directory.snapshot import NOTHING_READ, Reading, Snapshot, read
from proxy.directory.store import Store, StoreUnavailable
from proxy.refusals import DirectoryUnavailable

CONFIRM_SECONDS: Final = 0.4
AWAY_SECONDS: Final = 1.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0

_log = structlog.get_logger("saltgate.directory")


class DirectoryView:
    """The directory as last confirmed. `open_view` makes one and keeps it true. `reads` is how often it was read whole,
    `failures` how often it could not be asked.

    All ages are on `clock`, monotonic seconds. A confirmation counts from before the question was asked.
    """

    def __init__(self, store: Store, *, max_stale: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._max_stale = max_stale
        self._clock = clock
        self._reading: Reading = NOTHING_READ
        self._stamp: bytes | None = None
        self._confirmed: float | None = None
        self._failing = False
        self._next = asyncio.Event()
        self.reads = 0
        self.failures = 0

    def current(self) -> Snapshot:
        """What the directory says. The same object as long as it says the same.

        Raises DirectoryUnavailable where it was never read, or not confirmed for longer than `max_stale`.
        """
        confirmed = self._confirmed
        if confirmed is None or self._clock() - confirmed > self._max_stale:
            raise DirectoryUnavailable(
                "saltgate cannot reach its directory, so it does not know what you may use. Try again soon.",
                reason="directory_never_read" if confirmed is None else "directory_stale",
            )
        return self._reading.snapshot

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The records that the snapshot had to leave out."""
        return self._reading.faults

    @property
    def confirmed_age(self) -> float | None:
        """Seconds since the view was last known to be true; None before the first reading."""
        return None if self._confirmed is None else self._clock() - self._confirmed

    @property
    def away(self) -> bool:
        """Whether the directory counts as away: known memberships serve, but a change may be late."""
        age = self.confirmed_age
        return age is None or age > AWAY_SECONDS

    @property
    def ready(self) -> bool:
        """Whether requests can be served at all: there is a reading, it is not too old, and there is a salt ring."""
        age = self.confirmed_age
        return age is not None and age <= self._max_stale and self._reading.snapshot.ring is not None

    async def changed(self) -> None:
        """Waits until the next snapshot is in force. The first reading counts."""
        await self._next.wait()

    async def next_after(self, snapshot: Snapshot | None) -> Snapshot:
        """The snapshot in force, as soon as there is one that is not this."""
        while self._confirmed is None or self._reading.snapshot is snapshot:
            await self._next.wait()
        return self._reading.snapshot

    async def follow(self) -> None:
        """Keeps the view true until cancelled. Whatever happens to the store, it begins again within a second."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            confirmed = self._confirmed
            try:
                await self._follow_once()
            except StoreUnavailable as error:
                self.failures += 1
                self._tell_away(error)
            except Exception:
                _log.exception("directory_view_failed")
                raise
            pause = _FIRST_PAUSE_SECONDS if self._confirmed != confirmed else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause)

    async def _follow_once(self) -> None:
        """One hearing. It begins with a full reading, because any number of changes may have been missed before."""
        async with self._store.hearing() as hearing:
            self._stamp = None
            told = True
            while True:
                missed = await self.confirm() and not told
                if missed:
                    return
                told = await hearing.heard(CONFIRM_SECONDS)

    async def confirm(self) -> bool:
        """Ask the store once: whether there was a change, which is then in force. Raises StoreUnavailable."""
        asked = self._clock()
        changed = await self._store.stamp() != self._stamp
        if changed:
            asked = self._clock()
            records = await self._store.read()
            # In a thread: a large directory takes a while to parse, and running streams must not feel it.
            reading = await asyncio.to_thread(read, records, self._reading)
            self._stamp = records.stamp
            self._put_in_force(reading)
            self.reads += 1
        self._confirmed = asked
        if self._failing:
            self._failing = False
            _log.info("directory_back")
        return changed

    def _tell_away(self, error: StoreUnavailable) -> None:
        """Once per outage: an outage lasts longer than anybody reads the same line."""
        if not self._failing:
            self._failing = True
            _log.warning("directory_away", cause=str(error))

    def _put_in_force(self, reading: Reading) -> None:
        previous, self._reading = self._reading, reading
        for fault in set(reading.faults) - set(previous.faults):
            # Without the fault's message, which may name people: `saltgate directory show` tells it.
            _log.error("directory_record_left_out", record=fault.key or "directory file")
        if reading.snapshot.ring is None and (previous.snapshot.ring is not None or previous is NOTHING_READ):
            _log.error("salt_ring_missing", remedy="saltgate directory import")
        if self._confirmed is None or reading.snapshot is not previous.snapshot:
            self._next.set()
            self._next = asyncio.Event()


@asynccontextmanager
async def open_view(
    store: Store, *, max_stale: float, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[DirectoryView]:
    """A view that is kept true as long as the context is open. At first it knows nothing: see `DirectoryView.ready`.

    The store stays the caller's. Where following fails for another reason than an unavailable store, leaving raises it.
    """
    view = DirectoryView(store, max_stale=max_stale, clock=clock)
    following = asyncio.create_task(view.follow(), name="directory view")  # noqa: TID251 - ended below, by this owner
    try:
        yield view
    finally:
        following.cancel()
        try:
            await following
        except asyncio.CancelledError:
            if not following.cancelled():
                raise
