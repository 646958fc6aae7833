"""The lines of a directory in the order of their time, whatever its size: of each chain one line is in memory at once.

Chains are merged as they were written beside each other; what is older or newer than what is asked for is not read. The
MAC of each line is looked at on the way, so that nothing is shown as true that nobody has written; whether something is
missing only `verifying` can say.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from observability.audit.chain import BadLine, ChainKey, is_genuine, read_line
from observability.audit.files import LONGEST_LINE_BYTES, Segment, listed, tail
from observability.audit.segments import SegmentOpened

_SLACK = timedelta(hours=1)
"""A line tells when a request ended, and may be written later: by this much, where a disk was full meanwhile."""


@dataclass(slots=True)
class Doubtful:
    """How many lines were left out, because nobody with the key has written them."""

    lines: int = 0


def lines(
    directory: Path,
    keys: Mapping[str, ChainKey],
    doubtful: Doubtful,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[bytes]:
    """Each genuine line, of `since` to `until` and somewhat more, with its newline. Raises OSError."""
    waiting = sorted(listed(directory).chains.items(), key=lambda chain: chain[0][:16], reverse=True)
    open_chains: list[tuple[str, str, bytes, Iterator[tuple[str, bytes]]]] = []
    while waiting or open_chains:
        while waiting and (not open_chains or _started(waiting[-1][0]) <= open_chains[0][0]):
            chain, segments = waiting.pop()
            _push(open_chains, chain, _chain(segments, keys, doubtful, since, until))
        if open_chains:
            _, chain, written, rest = heapq.heappop(open_chains)
            yield written
            _push(open_chains, chain, rest)


def _push(
    open_chains: list[tuple[str, str, bytes, Iterator[tuple[str, bytes]]]],
    chain: str,
    rest: Iterator[tuple[str, bytes]],
) -> None:
    following = next(rest, None)
    if following is not None:
        heapq.heappush(open_chains, (following[0], chain, following[1], rest))


def _started(chain: str) -> str:
    """When a chain began, as a line would say it; or what its name says, which anybody may have chosen."""
    return f"{chain[:4]}-{chain[4:6]}-{chain[6:8]}T{chain[9:11]}:{chain[11:13]}:{chain[13:15]}"


def _chain(
    segments: list[Segment],
    keys: Mapping[str, ChainKey],
    doubtful: Doubtful,
    since: datetime | None,
    until: datetime | None,
) -> Iterator[tuple[str, bytes]]:
    first = None if since is None else (since - _SLACK).isoformat()
    last = None if until is None else (until + _SLACK).isoformat()
    for segment in segments:
        with suppress(FileNotFoundError):  # retention has just taken it
            if first is not None and _ends_before(segment, first):
                continue
            for ts, written in _segment(segment, keys, doubtful):
                if last is not None and ts > last:
                    return
                yield ts, written


def _ends_before(segment: Segment, moment: str) -> bool:
    try:
        found, _ = tail(segment.path)
    except BadLine:
        return False
    return found is not None and found.line.ts < moment


def _segment(segment: Segment, keys: Mapping[str, ChainKey], doubtful: Doubtful) -> Iterator[tuple[str, bytes]]:
    before: bytes | None = None
    with segment.path.open("rb") as file:
        while written := file.readline(LONGEST_LINE_BYTES):
            try:
                one = read_line(written)
            except BadLine:
                doubtful.lines += written.endswith(b"\n")
                continue
            if before is None:
                before = _before(written)
            if one.line.chain == segment.chain and is_genuine(one, before, keys):
                yield one.line.ts, written
            else:
                doubtful.lines += 1
            before = one.mac


def _before(written: bytes) -> bytes:
    """The MAC before a segment, by its own first line."""
    try:
        said = msgspec.json.decode(written, type=SegmentOpened).mac_before
        return bytes(32) if said is None else bytes.fromhex(said)
    except ValueError:
        return bytes(32)
