"""What the gate calls: an observer of each request, the guard before its engine, and the acts of people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
import structlog

from observability.audit.acts import Told, Unaccountable, named, told_twice
from observability.audit.chain import ChainKey
from observability.audit.entries import Act, content
from observability.audit.files import chain_name
from observability.audit.journal import NoSlot
from observability.audit.segments import Chain, Export, Origin
from observability.audit.subjects import Names, Subjects
from observability.audit.writer import Said, Writer, Writing
from observability.record import Record

OnFailure = Literal["refuse", "continue"]

ACT_SECONDS: Final = 10.0
"""No act waits longer for its line."""
CLOSE_SECONDS: Final = 5.0

_log = structlog.get_logger("saltgate.audit")


@dataclass(frozen=True, slots=True)
class AuditState:
    """For metrics and readiness: whether lines are written, and how many were, wait, failed to be, and are lost."""

    up: bool
    written: int
    waiting: int
    failures: int
    lost: int


class Audit:
    """The audit of one process. `noise` gives random bytes."""

    def __init__(
        self,
        directory: Path,
        key: ChainKey,
        origin: Origin,
        writing: Writing,
        *,
        subjects: Subjects,
        on_failure: OnFailure,
        wall_ns: Callable[[], int],
        noise: Callable[[int], bytes],
        first: Callable[[], list[bytes]] = list,
        export: Export | None = None,
    ) -> None:
        self._names = Names(key, subjects)
        self._refuses = on_failure == "refuse"
        self._noise = noise
        self._wall_ns = wall_ns
        name = chain_name(origin.role, wall_ns() / 1e9, noise(6))
        chain = Chain(directory, name, key, origin, wall_ns=wall_ns, export=export)
        self._writer = Writer(chain, self._names, writing, wall_ns=wall_ns, first=first)

    def start(self) -> None:
        """Lines are written from now on."""
        self._writer.start()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Blocks until what waits is written and the chain is closed, or for `timeout` seconds."""
        self._writer.close(timeout)

    @property
    def chain(self) -> str:
        return self._writer.chain.name

    @property
    def ready(self) -> bool:
        """Whether requests may be let in."""
        return not self._refuses or self._writer.failing is None

    def state(self) -> AuditState:
        writer = self._writer
        return AuditState(
            up=writer.failing is None and not writer.is_stalled,
            written=writer.written,
            waiting=writer.waiting,
            failures=writer.failures,
            lost=writer.gap.lost,
        )

    def check(self) -> None:
        """Raises Unaccountable where nothing may be granted now."""
        writer = self._writer
        if self._refuses and (writer.failing is not None or writer.is_stalled):
            raise Unaccountable(writer.failing or "a write does not come back")

    def enter(self, record: Record) -> None:
        """The request is about to go up: whatever happens from now on, it will have a line. Raises Unaccountable."""
        writer = self._writer
        if writer.failing is None and not writer.is_stalled and writer.journal is not None:
            try:
                record.journal_slot = writer.journal.take(record, self._names)
            except NoSlot:
                if self._refuses:
                    raise Unaccountable("too many requests wait for their line") from None
        else:
            self.check()

    def finished(self, record: Record) -> None:
        """Takes the record to be written."""
        slot = record.journal_slot
        if slot is None:
            self._writer.put_if_room(record)
            return
        journal = self._writer.journal
        assert journal is not None
        journal.ended(slot, record)
        self._writer.put(record)

    def acting(self, act: Act) -> AbstractAsyncContextManager[Told]:
        """As `Acts.acting`. Where the policy is to go on, an act that cannot be told is done, and the log says so."""
        return told_twice(named(act, self._names), self._noise(6).hex(), self._before, self._after)

    def tell(self, act: Act) -> None:
        """Of what was done already, and would be whatever became of its line: rights that somebody gave back."""
        done = msgspec.structs.replace(named(act, self._names), act=self._noise(6).hex(), state="done")
        self._writer.put_if_room(Said(self._line(done)))

    async def _before(self, act: Act) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[OSError | None] = loop.create_future()

        def settled(error: OSError | None) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_settle, done, error)

        why = self._writer.failing
        if why is None:
            self._writer.put(Said(self._line(act), settled))
            try:
                async with asyncio.timeout(ACT_SECONDS):
                    error = await done
            except TimeoutError:
                why = "a write does not come back"
            else:
                why = None if error is None else (error.strerror or str(error))
        if why is None:
            return
        if self._refuses:
            raise Unaccountable(why)
        self._writer.gap.add()
        _log.error("audit.act_untold", act=act.event, why=why)

    def _after(self, act: Act) -> None:
        self._writer.put(Said(self._line(act)))

    def _line(self, act: Act) -> bytes:
        return content(act, self._wall_ns())


def _settle(done: asyncio.Future[OSError | None], error: OSError | None) -> None:
    if not done.done():
        done.set_result(error)
