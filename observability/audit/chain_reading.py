"""One chain as it is in its files: each line's MAC and number, how it begins, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Literal

from observability.audit.chain import NOTHING, BadLine, ChainKey, Head, Sealed, is_genuine, read_line
from observability.audit.facts import Facts, Finding, Findings, as_kind, lost
from observability.audit.files import LONGEST_LINE_BYTES, Segment, is_written
from observability.audit.gap import AUDIT_GAP
from observability.audit.segments import (
    CHAIN_CLOSED,
    CHAIN_OPENED,
    SEGMENT_OPENED,
    SEGMENT_SEALED,
    SegmentOpened,
    SegmentSealed,
)


class ChainReading:
    """One chain, read as far as it is. `wanted` are MACs that somebody looks for; those that were found go out."""

    def __init__(
        self, name: str, keys: Mapping[str, ChainKey], facts: Facts, findings: Findings, wanted: set[str]
    ) -> None:
        self._name = name
        self._keys = keys
        self._facts = facts
        self._findings = findings
        self._wanted = wanted
        self.records = 0
        self._seq = 0
        self._mac = NOTHING
        self._segment: Segment | None = None
        self._offset = 0
        self._line_number = 0
        self._torn = 0
        self._ended_by: str | None = None  # the event of a line that ends its segment
        self._lines_here = 0
        self._first: tuple[Segment, SegmentOpened, int] | None = None  # where it begins, if not at its beginning
        self._ranges: list[tuple[int, Segment]] = []  # the first line of each segment
        self._unknown_keys: set[str] = set()
        self._before_torn = 0
        self._before_end: str | None = None
        self._is_first_line = self._is_beginning = True

    @property
    def head(self) -> Head:
        return Head(self._name, self._seq, self._mac.hex())

    @property
    def segments(self) -> int:
        return len(self._ranges)

    def read(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            if self._segment is None or segment.number > self._segment.number:
                self._begin(segment)
            if self._segment is not None and segment.number == self._segment.number:
                self._read_on(segment)

    def ends(self) -> list[Finding]:
        """The faults of its beginning and its end. Of a chain under a key that is unknown, nothing can be said."""
        if self._unknown_keys:
            return []
        return [*self._beginning(), *self._end()]

    def notes(self) -> Iterator[Finding]:
        recovered = self._facts.recovered.get(self._name)
        if recovered is not None:
            cut = f", within a line of {recovered.torn_bytes} bytes" if recovered.torn_bytes else ""
            yield self._last(
                "note",
                f"its process was killed{cut}; {recovered.requests} of its requests have their line in the chain of "
                f"another one"
                + ("" if recovered.journal == "found" else f" (journal {recovered.journal}: there may have been more)"),
            )
        elif self._ended_by != CHAIN_CLOSED and self._is_written():
            yield self._last("note", "is being written to")
        if self._first is not None and self._is_told_removed(*self._first):
            yield Finding("note", "what is before it was removed by retention", self._first[0].path.name)

    def _beginning(self) -> Iterator[Finding]:
        if self._first is not None and not self._is_told_removed(*self._first):
            name = self._first[0].path.name
            yield Finding("fault", "what is before it is missing, and retention did not remove it", name)

    def _is_told_removed(self, segment: Segment, opened: SegmentOpened, seq: int) -> bool:
        """Whether a line of retention names what was before the segment."""
        for removed in self._facts.removed.get(self._name, ()):
            head = removed.head
            if removed.segment == segment.number - 1 and head.seq == seq - 1 and head.mac == opened.mac_before:
                return True
            if removed.segment == segment.number:
                return True  # told, and about to be removed
        return False

    def _end(self) -> Iterator[Finding]:
        recovered, seen = self._facts.recovered.get(self._name), self._facts.seen.get(self._name)
        if seen is not None and seen.seq > self._seq:
            yield self._last("fault", f"lines are missing at its end: it ends at {self._seq}, {seen_by_another(seen)}")
        elif seen is not None and not self._has(seen):
            yield self._last("fault", f"is another one than the chain that was there: {seen_by_another(seen)}")
        elif recovered is not None and self._ended_by != CHAIN_CLOSED:
            expected = recovered.head or Head(self._name, 0, NOTHING.hex())
            if (expected.seq, expected.mac) != (self._seq, self._mac.hex()) or self._torn != recovered.torn_bytes:
                yield self._last("fault", "ends otherwise than it was found when its process had been killed")
        elif self._ended_by == CHAIN_CLOSED:
            if self._torn:
                yield self._last("fault", "something stands behind its end")
        elif not self._is_written():
            yield self._last(
                "fault",
                "ends without having been closed, and no chain tells of a kill: its end may be missing. If saltgate "
                "was killed, its next start tells of it",
            )

    def _last(self, level: Literal["fault", "note"], message: str) -> Finding:
        name = self._name if self._segment is None else self._segment.path.name
        return Finding(level, message, name, self._line_number or None)

    def _is_written(self) -> bool:
        try:
            return self._segment is not None and is_written(self._segment.path)
        except FileNotFoundError:
            return False

    def _has(self, head: Head, *, where_missing: bool = True) -> bool:
        """Whether its line of that number has that MAC. That one is missing within the chain is told already."""
        if head.seq == self._seq:
            return head.mac == self._mac.hex()
        inside = [segment for first, segment in self._ranges if first <= head.seq]
        if not inside:
            return where_missing  # before what retention left
        with inside[-1].path.open("rb") as file:
            for written in _lines(file):
                try:
                    one = read_line(written)
                except BadLine:
                    continue
                if one.line.seq == head.seq:
                    return one.mac.hex() == head.mac
        return where_missing

    def _begin(self, segment: Segment) -> None:
        """The next file of the chain."""
        before, self._segment = self._segment, segment
        self._before_torn, self._before_end = self._torn, self._ended_by
        self._offset = self._line_number = self._torn = self._lines_here = 0
        self._ended_by = None
        if before is not None and segment.number != before.number + 1:
            self._fault(f"segment {before.number + 1} of chain {self._name} is missing")
        self._is_first_line, self._is_beginning = True, before is None

    def _read_on(self, segment: Segment) -> None:
        with segment.path.open("rb") as file:
            file.seek(self._offset)
            self._torn = 0
            for written in _lines(file):
                if not written.endswith(b"\n"):
                    self._torn = len(written)
                    return
                self._offset += len(written)
                self._line_number += 1
                self._lines_here += 1
                self._take(segment, written)

    def _take(self, segment: Segment, written: bytes) -> None:
        try:
            one = read_line(written)
        except BadLine as error:
            self._fault(f"is no genuine line: {error}")
            return
        self.records += 1
        if one.line.chain != self._name:
            self._fault(f"is a line of chain {one.line.chain}")
            return
        if self._is_first_line:
            self._is_first_line = False
            self._take_first(segment, one, written)
            return
        if self._ended_by is not None:
            self._fault("stands behind the end of its segment")
        if one.line.seq != self._seq + 1:
            self._out_of_order(one)
        else:
            self._judge(one, self._mac, written, "was changed, or is not what was written here")
        self._seq, self._mac = one.line.seq, one.mac

    def _judge(self, one: Sealed, before: bytes, written: bytes, otherwise: str) -> None:
        """Learn from a genuine line; of the others, all of one unknown key are one fault."""
        if is_genuine(one, before, self._keys):
            self._learn(one, written)
        elif one.line.key in self._keys:
            self._fault(otherwise)
        elif one.line.key not in self._unknown_keys:
            self._unknown_keys.add(one.line.key)
            self._fault(f"is sealed with key {one.line.key}, which is not under [[audit.keys]]")

    def _out_of_order(self, one: Sealed) -> None:
        found, expected = one.line.seq, self._seq + 1
        if found > expected:
            between = f"line {expected} is" if found == expected + 1 else f"lines {expected} to {found - 1} are"
            self._fault(f"before it {between} missing")
        else:
            self._fault(f"has number {found} where {expected} was to come")

    def _take_first(self, segment: Segment, one: Sealed, written: bytes) -> None:
        self._ranges.append((one.line.seq, segment))
        opened = None
        if one.line.event in (CHAIN_OPENED, SEGMENT_OPENED):
            opened = as_kind(written, SegmentOpened)
        if opened is None or opened.segment != segment.number:
            self._fault("is not the first line of this segment")
            self._seq, self._mac = one.line.seq, one.mac
            return
        before, expected = self._mac, self._seq + 1
        if segment.number > 1 and self._is_beginning:
            before, expected = _mac(opened), one.line.seq
            self._first = (segment, opened, one.line.seq)
        elif segment.number > 1 and opened.before != "sealed":
            before, expected = self._after_failure(opened, one)
        elif segment.number > 1 and (self._before_torn or self._before_end != SEGMENT_SEALED):
            self._fault("the segment before it does not end as it was sealed")
        if one.line.seq != expected:
            self._out_of_order(one)
        else:
            self._judge(one, before, written, "does not follow the segment before it, or was changed")
        self._seq, self._mac = one.line.seq, one.mac

    def _after_failure(self, opened: SegmentOpened, one: Sealed) -> tuple[bytes, int]:
        """Behind a write that failed there may be lines that are here once more; that is no fault of anybody. What was
        on disk before it must be there: no seal tells how many lines those were.
        """
        before = _mac(opened)
        if opened.before == "damaged":
            self._fault("saltgate found the segment before it changed while it wrote to it")
        else:
            self._note("the segment before it ends with a write that failed")
            if not self._has(Head(self._name, one.line.seq - 1, before.hex()), where_missing=False):
                self._fault("does not follow the segment before it, whose last lines may be missing")
        return before, one.line.seq

    def _learn(self, one: Sealed, written: bytes) -> None:
        """What a genuine line says that concerns other lines."""
        event = one.line.event
        self._facts.learn(event, written)
        if self._wanted:
            self._wanted.discard(one.mac.hex())
        if event in (SEGMENT_SEALED, CHAIN_CLOSED):
            self._ended_by = event
            sealed = as_kind(written, SegmentSealed)
            if sealed is None or sealed.lines != self._lines_here:
                self._fault("its segment has not as many lines as were written")
        elif event == AUDIT_GAP and (message := lost(written)) is not None:
            self._note(message)

    def _fault(self, message: str) -> None:
        self._findings.fault(message, self._file, self._line_number or None)

    def _note(self, message: str) -> None:
        self._findings.note(message, self._file, self._line_number or None)

    @property
    def _file(self) -> str:
        return self._name if self._segment is None else self._segment.path.name


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """In pieces of a bounded length: one that is longer than any line of ours ends without a newline."""
    while written := file.readline(LONGEST_LINE_BYTES):
        yield written


def _mac(opened: SegmentOpened) -> bytes:
    try:
        return bytes.fromhex(opened.mac_before or "")
    except ValueError:
        return NOTHING


def seen_by_another(head: Head) -> str:
    return f"another chain has seen its line {head.seq}"
