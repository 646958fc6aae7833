"""What genuine lines say of chains, and what is found wrong, while a directory is read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeVar

import msgspec

from observability.audit.chain import Head
from observability.audit.gap import AUDIT_GAP, AuditGap
from observability.audit.housekeeping import CHAIN_WITNESS, RETENTION_REMOVED, ChainWitness, RetentionRemoved
from observability.audit.recovery import CHAIN_RECOVERED, ChainRecovered
from observability.audit.segments import CHAIN_CLOSED, CHAIN_OPENED, SEGMENT_OPENED, SegmentOpened, SegmentSealed

S = TypeVar("S", bound=msgspec.Struct)

MOST_FINDINGS: Final = 1000


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """`fault`: what is there is not what was written. `note`: what an auditor should know. `line` counts from 1."""

    level: Literal["fault", "note"]
    message: str
    file: str | None = None
    line: int | None = None


class Findings:
    """What was found, up to a bound; what is over it is counted."""

    def __init__(self) -> None:
        self.faults: list[Finding] = []
        self.notes: list[Finding] = []
        self.more = 0

    def fault(self, message: str, file: str | None = None, line: int | None = None) -> None:
        self._add(self.faults, Finding("fault", message, file, line))

    def note(self, message: str, file: str | None = None, line: int | None = None) -> None:
        self._add(self.notes, Finding("note", message, file, line))

    def _add(self, found: list[Finding], finding: Finding) -> None:
        if len(found) < MOST_FINDINGS:
            found.append(finding)
        else:
            self.more += finding.level == "fault"


class Facts:
    """The last word of each kind that a chain has of another one: none of it grows but with the number of chains."""

    def __init__(self) -> None:
        self.seen: dict[str, Head] = {}
        self.recovered: dict[str, ChainRecovered] = {}
        self.removed: dict[str, list[RetentionRemoved]] = {}
        self.removed_macs: set[str] = set()
        self._readers: dict[str, Callable[[bytes], None]] = {
            CHAIN_OPENED: self._opened,
            SEGMENT_OPENED: self._opened,
            CHAIN_WITNESS: self._witness,
            CHAIN_CLOSED: self._closed,
            RETENTION_REMOVED: self._took,
            CHAIN_RECOVERED: self._recovered,
        }

    def learn(self, event: str, written: bytes) -> None:
        """What a genuine line says that concerns other chains."""
        reader = self._readers.get(event)
        if reader is not None:
            reader(written)

    def was_removed(self, head: Head) -> bool:
        """Whether retention took the line of this head."""
        return any(one.head.seq >= head.seq for one in self.removed.get(head.chain, ()))

    def _opened(self, written: bytes) -> None:
        opened = as_kind(written, SegmentOpened)
        self._saw(() if opened is None else opened.heads)

    def _closed(self, written: bytes) -> None:
        closed = as_kind(written, SegmentSealed)
        self._saw(() if closed is None else closed.heads)

    def _witness(self, written: bytes) -> None:
        witness = as_kind(written, ChainWitness)
        self._saw(() if witness is None else witness.heads)

    def _took(self, written: bytes) -> None:
        removed = as_kind(written, RetentionRemoved)
        if removed is not None:
            self._saw([removed.head])
            # The newest few, whoever told of them: one may be told and not removed yet.
            told = [*self.removed.get(removed.head.chain, []), removed]
            self.removed[removed.head.chain] = sorted(told, key=lambda one: one.segment)[-3:]
            self.removed_macs.add(removed.head.mac)

    def _recovered(self, written: bytes) -> None:
        recovered = as_kind(written, ChainRecovered)
        if recovered is not None:
            self.recovered.setdefault(recovered.recovered, recovered)

    def _saw(self, heads: Iterable[Head]) -> None:
        for head in heads:
            known = self.seen.get(head.chain)
            if known is None or known.seq < head.seq:
                self.seen[head.chain] = head


def as_kind(written: bytes, kind: type[S]) -> S | None:
    """What a line says; None where it does not say that, as one of another version may not."""
    try:
        return msgspec.json.decode(written, type=kind)
    except ValueError:
        return None


def lost(written: bytes) -> str | None:
    """What a line about lost lines says, in words."""
    gap = as_kind(written, AuditGap)
    if gap is None or gap.event != AUDIT_GAP:
        return None
    return f"{gap.lost} records were lost between {gap.first_ts} and {gap.last_ts}: {gap.why}"
