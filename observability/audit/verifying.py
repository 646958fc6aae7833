"""Whether anything in a directory is missing or was changed: every line's MAC, every chain's place, every chain's end.

What a chain says of others is gathered while all are read, and asked at the end: a chain that ends before what another
one has seen of it was cut; one that is not there, and that no line of retention names, was removed. A directory that
is being written to is read on until what was seen of each chain has been reached. One without any chain is not intact:
a saltgate begins a chain when it starts, so all that was there is gone, or it is another directory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from observability.audit.chain import ChainKey, Head
from observability.audit.chain_reading import ChainReading, seen_by_another
from observability.audit.facts import Facts, Finding, Findings
from observability.audit.files import listed, undisturbed

_READINGS: Final = 20
NO_AUDIT: Final = (
    "there is no audit here: the directory has no file of a chain, and a saltgate begins one when it starts"
)


class Verdict(msgspec.Struct, frozen=True):
    """What came of it. `heads` are where the chains end."""

    intact: bool
    chains: int
    segments: int
    records: int
    faults: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    heads: tuple[Head, ...]


def verify(directory: Path, keys: Mapping[str, ChainKey], wanted: Collection[str] = ()) -> Verdict:
    """`wanted` are MACs in hex that lines must have. Nobody takes files away meanwhile. Raises OSError."""
    with undisturbed(directory):
        reading = _Reading(directory, keys, wanted)
        reading.read()
        ends = reading.ends()
        for _ in range(_READINGS):
            # A chain may have been closed, or another one begun, while they were read.
            if not ends or not reading.read():
                break
            ends = reading.ends()
        return reading.verdict(ends)


class _Reading:
    """One reading of the directory, that goes on where it was when it is asked to read again."""

    def __init__(self, directory: Path, keys: Mapping[str, ChainKey], wanted: Collection[str]) -> None:
        self._directory = directory
        self._keys = keys
        self._facts = Facts()
        self._findings = Findings()
        self._wanted = set(wanted)
        self._chains: dict[str, ChainReading] = {}
        self._strangers: tuple[str, ...] = ()

    def read(self) -> bool:
        """Whether there was anything that was not read before."""
        before = self._records
        listing = listed(self._directory)
        for name, segments in listing.chains.items():
            chain = self._chains.get(name)
            if chain is None:
                chain = ChainReading(name, self._keys, self._facts, self._findings, self._wanted)
                self._chains[name] = chain
            chain.read(segments)
        self._strangers = listing.strangers
        return self._records > before

    @property
    def _records(self) -> int:
        return sum(chain.records for chain in self._chains.values())

    def ends(self) -> list[Finding]:
        """The faults of how chains begin and end, as far as it was read."""
        faults = [
            Finding("fault", f"chain {chain} is missing: {seen_by_another(head)}")
            for chain, head in self._facts.seen.items()
            if chain not in self._chains and not self._facts.was_removed(head)
        ]
        for chain in self._chains.values():
            faults += chain.ends()
        return faults

    def verdict(self, ends: Sequence[Finding]) -> Verdict:
        faults = [*self._findings.faults, *ends]
        if not self._chains:
            faults.append(Finding("fault", NO_AUDIT))
        faults += [
            Finding("fault", f"no line has the MAC {mac}: what ended with it is missing")
            for mac in sorted(self._wanted - self._facts.removed_macs)
        ]
        if self._findings.more:
            faults.append(Finding("fault", f"and {self._findings.more} more"))
        return Verdict(
            intact=not faults,
            chains=len(self._chains),
            segments=sum(chain.segments for chain in self._chains.values()),
            records=self._records,
            faults=tuple(faults),
            notes=(
                *self._findings.notes,
                *(note for chain in self._chains.values() for note in chain.notes()),
                *(Finding("note", "is nothing of an audit", name) for name in self._strangers),
            ),
            heads=tuple(chain.head for chain in self._chains.values()),
        )
