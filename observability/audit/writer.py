"""The thread that writes: what has gathered goes to disk in one group, then counts; what cannot be written waits.

While a disk is full or gone, the lines of requests that were let in wait in bounded memory, each with its slot of the
journal. Of the others some thousand wait, too; more are counted, and a line tells how many and when, as soon as lines
can be written again. The loop is never waited for and never waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

import msgspec
import structlog

from observability.audit.entries import content, request_entry
from observability.audit.files import JOURNAL_SUFFIX, alone, make_directory, mark_ended
from observability.audit.gap import AuditGap, Gap
from observability.audit.housekeeping import CHAIN_WITNESS, ChainWitness, outlived
from observability.audit.journal import Journal
from observability.audit.lost import left
from observability.audit.recovery import GROUP_LINES, Journals, remains
from observability.audit.segments import Chain, Damaged
from observability.audit.subjects import Names
from observability.record import Record

STALLED_SECONDS: Final = 10.0
"""A write that takes longer counts as one that fails."""
CLOSING_RETRY_SECONDS: Final = 0.1
HOUSE_SECONDS: Final = 60.0
RETENTION_SECONDS: Final = 3600.0
COMPLAIN_SECONDS: Final = 60.0

_log = structlog.get_logger("saltgate.audit")


@dataclass(frozen=True, slots=True)
class Writing:
    """How lines become files: `journals` is where journals are, with so many slots, the first of whose keys seals;
    `most_waiting` lines without a slot wait at most; times are seconds. What is idle looks every `idle_seconds` whether
    its files are still its own.
    """

    journals: Journals
    slots: int
    gather_seconds: float
    segment_bytes: int
    segment_seconds: float
    retention_seconds: float
    most_waiting: int = 4096
    retry_seconds: float = 1.0
    idle_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Said:
    """A line that is no request's. `settled` is called in the thread once it is on disk, or with why it never will be:
    without it, it waits for better times like all the others.
    """

    line: bytes
    settled: Callable[[OSError | None], None] | None = None


Item = Record | Said

AUDIT_RESUMED: Final = "audit.resumed"


class AuditResumed(msgspec.Struct, frozen=True, kw_only=True):
    """Lines can be written again, after so many failures since the start."""

    event: str
    why: str
    failures: int


class Writer:
    """See the module. `failing` says why lines are not written now; None where they are."""

    def __init__(
        self,
        chain: Chain,
        names: Names,
        writing: Writing,
        *,
        wall_ns: Callable[[], int],
        first: Callable[[], list[bytes]] = list,
    ) -> None:
        """`first` gives the lines behind the chain's first one; it is called in the thread."""
        self.chain = chain
        self.journal: Journal | None = None
        self.failing: str | None = "not open yet"
        self.failures = 0
        self.written = 0
        self.gap = Gap(wall_ns)
        self._names = names
        self._writing = writing
        self._wall_ns = wall_ns
        self._first = first
        self._house = House(self, writing, wall_ns)
        self._queue: deque[Item] = deque()
        self._group: list[Item] = []
        self._some = Event()
        self._told = False
        self._closing = Event()
        self._abandoned = False
        self._since: float | None = None
        self._complain_at = 0.0
        self._retry_seconds = writing.retry_seconds
        self._thread = Thread(target=self._run, name="saltgate-audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._queue) + len(self._group)

    @property
    def is_stalled(self) -> bool:
        """Whether a write has not come back for long."""
        since = self._since
        return since is not None and time.monotonic() - since > STALLED_SECONDS

    def put(self, item: Item) -> None:
        """Takes it to be written. From any thread."""
        self._queue.append(item)
        if not self._told:
            self._told = True
            self._some.set()

    def put_if_room(self, item: Item) -> None:
        """The same; where too many wait, it is lost and counted."""
        if len(self._queue) < self._writing.most_waiting:
            self.put(item)
        else:
            self.gap.add()

    def close(self, timeout: float) -> None:
        """Writes what waits and closes the chain, for at most `timeout` seconds. What has a slot stays in the journal:
        whoever opens an audit there next writes it.
        """
        self._closing.set()
        self._some.set()
        self._thread.join(timeout)
        self._abandoned = True
        if self.waiting or self.gap.is_open:
            _log.error("audit.unwritten", chain=self.chain.name, waiting=self.waiting, lost=self.gap.lost)

    def say(self, lines: list[bytes]) -> None:
        """Lines of the chain's own, on disk when it returns. For the thread. Raises OSError."""
        self._since = time.monotonic()
        try:
            self.chain.append(lines)
        finally:
            self._since = None
        self.written += len(lines)

    def _run(self) -> None:
        try:
            while not self._abandoned:
                is_done = self._cycle()
                if self._closing.is_set() and is_done and not self.waiting and self._end():
                    return
                self._rest()
        finally:
            self.failing = self.failing or "it has ended"

    def _rest(self) -> None:
        """Until there is something to write, and more may have gathered; or until it is time to try again."""
        if self.failing is not None:
            if self._closing.wait(self._retry_seconds):
                time.sleep(CLOSING_RETRY_SECONDS)
        elif self._some.wait(self._writing.idle_seconds):
            self._closing.wait(self._writing.gather_seconds)

    def _cycle(self) -> bool:
        """Whether all that was there is on disk."""
        self._some.clear()
        self._told = False
        try:
            self._make_journal()
            self.chain.check()
            while self.failing is not None or self._queue or self._group or self.gap.is_open:
                self._write_group()
            self._house.keep()
        except OSError as error:
            self._failed(error)
            return False
        return True

    def _make_journal(self) -> None:
        if self.failing is not None:
            make_directory(self.chain.directory)
        if self.journal is None:
            journals, chain = self._writing.journals, self.chain.name
            make_directory(journals.directory)
            path = journals.directory / f"{chain}{JOURNAL_SUFFIX}"
            self.journal = Journal(path, self._writing.slots, key=journals.keys[0], chain=chain)

    def _write_group(self) -> None:
        while self._queue and len(self._group) < GROUP_LINES:
            self._group.append(self._queue.popleft())
        lines = [
            item.line if isinstance(item, Said) else content(request_entry(item, self._names)) for item in self._group
        ]
        gap = self.gap.line(self.failing or "more at once than can be written")
        if gap is not None:
            lines.insert(0, content(gap, self._wall_ns()))
        if not self.chain.head.seq:
            lines[:0] = self._first()
        elif self.failing is not None:
            resumed = AuditResumed(event=AUDIT_RESUMED, why=self.failing, failures=self.failures)
            lines.insert(0, content(resumed, self._wall_ns()))
        self.say(lines)
        self._settle(gap)

    def _settle(self, gap: AuditGap | None) -> None:
        """The group is on disk."""
        if gap is not None:
            self.gap.told(gap)
        group, self._group = self._group, []
        for item in group:
            if isinstance(item, Said):
                if item.settled is not None:
                    item.settled(None)
            elif item.journal_slot is not None and self.journal is not None:
                self.journal.give_back(item.journal_slot)
        if self._complain_at:
            _log.warning("audit.resumed", chain=self.chain.name, lost=self.gap.lost)
        self.failing, self._complain_at = None, 0.0

    def _failed(self, error: OSError) -> None:
        self.failures += 1
        self.failing = error.strerror or str(error)
        # What somebody has changed is left at once for another file.
        self._retry_seconds = 0.0 if isinstance(error, Damaged) else self._writing.retry_seconds
        self._group = [item for item in self._group if not _is_given_up(item, error)]
        for _ in range(len(self._queue)):  # what comes meanwhile stays behind these
            item = self._queue.popleft()
            if not _is_given_up(item, error):
                self._group.append(item)
            if len(self._group) >= GROUP_LINES:
                break
        now = time.monotonic()
        if now >= self._complain_at:
            self._complain_at = now + COMPLAIN_SECONDS
            _log.error(
                "audit.failing",
                directory=str(self.chain.directory),
                why=self.failing,
                waiting=self.waiting,
                lost=self.gap.lost,
            )

    def _end(self) -> bool:
        try:
            self.chain.close()
            mark_ended(self.chain.directory, self.chain.name)
        except OSError as error:
            self._failed(error)
            return False
        tell_head(self.chain, "audit.sealed")
        if self.journal is not None:
            self.journal.close()
        return True


def tell_head(chain: Chain, event: str) -> None:
    """Where the chain is, into the log: whoever keeps that line elsewhere can prove that nothing was cut off."""
    head = chain.head
    _log.info(event, chain=head.chain, seq=head.seq, mac=head.mac)


def _is_given_up(item: Item, error: OSError) -> bool:
    """Whoever waits for his line is told that it will not be there, so it is not written either."""
    if isinstance(item, Said) and item.settled is not None:
        item.settled(error)
        return True
    return False


class House:
    """What a chain has to do beside its lines, now and then."""

    def __init__(self, writer: Writer, writing: Writing, wall_ns: Callable[[], int]) -> None:
        self._writer = writer
        self._chain = writer.chain
        self._writing = writing
        self._wall_ns = wall_ns
        self._at = self._retention_at = 0.0
        self._told_seq = 0

    def keep(self) -> None:
        """Raises OSError where lines cannot be written."""
        age = (self._wall_ns() - self._chain.began_ns) / 1e9
        if self._chain.size >= self._writing.segment_bytes or age >= self._writing.segment_seconds:
            self._chain.seal()
            tell_head(self._chain, "audit.sealed")
            self._writer.say([])
        now = time.monotonic()
        if now >= self._at:
            self._at = now + HOUSE_SECONDS
            self._recover()
            self._see_others()
            self._tell()
        if now >= self._retention_at:
            self._retention_at = now + RETENTION_SECONDS
            self._remove()

    def _recover(self) -> None:
        chain, journals = self._chain, self._writing.journals
        for found in remains(chain.directory, journals, chain.name, self._wall_ns):
            for at in range(0, len(found.lines), GROUP_LINES):
                self._writer.say(found.lines[at : at + GROUP_LINES])
            found.settle()
            if found.lines:
                _log.warning("audit.recovered", chain=found.chain, requests=found.requests)
        for lost in left((journals.directory, chain.directory), journals.keys):
            self._writer.say([content(lost.gap, self._wall_ns())])
            lost.settle()

    def _see_others(self) -> None:
        witness = self._chain.witness
        heads = witness.heads()
        if heads:
            self._writer.say([content(ChainWitness(event=CHAIN_WITNESS, heads=heads), self._wall_ns())])
            witness.told(heads)

    def _tell(self) -> None:
        if self._chain.head.seq != self._told_seq:
            tell_head(self._chain, "audit.head")
            self._told_seq = self._chain.head.seq

    def _remove(self) -> None:
        chain = self._chain
        with alone(chain.directory) as is_alone:
            if not is_alone:
                return
            now = self._wall_ns() / 1e9
            for removed, remove in outlived(chain.directory, chain.name, self._writing.retention_seconds, now):
                self._writer.say([content(removed, self._wall_ns())])
                remove()
