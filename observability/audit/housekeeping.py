"""What a chain says of others: where they are, so that nobody can cut or remove them, and what retention took away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from observability.audit.chain import BadLine, Head
from observability.audit.files import ENDED_SUFFIX, Listing, Segment, last_line, listed, tail

CHAIN_WITNESS: Final = "chain.witness"
RETENTION_REMOVED: Final = "retention.removed"
NEIGHBOURS: Final = 4
"""So many of those that are written to are seen by each: with many workers, all by all would be most of the lines."""
REMEMBERED_ENDED: Final = 64


class ChainWitness(msgspec.Struct, frozen=True, kw_only=True):
    """Where other chains are."""

    event: str
    heads: tuple[Head, ...]


class RetentionRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that is older than `retention` and is removed right after this line. `head` is its last line's."""

    event: str
    segment: int
    head: Head
    last_ts: str
    retention_seconds: float


class Witness:
    """What one chain has told of the others."""

    def __init__(self, directory: Path, own: str) -> None:
        self._directory = directory
        self._own = own
        self._told: dict[str, Head] = {}

    def heads(self) -> tuple[Head, ...]:
        """Of those that have moved since they were told. Raises OSError."""
        moved = []
        for segments in _watched(listed(self._directory), self._own):
            chain = segments[0].chain
            with suppress(FileNotFoundError, PermissionError, BadLine):
                last, _ = last_line(segments)
                if last is not None and self._told.get(chain) != last.head:
                    moved.append(last.head)
        return tuple(moved)

    def told(self, heads: Iterable[Head]) -> None:
        """They are on disk."""
        self._told |= {head.chain: head for head in heads}
        while len(self._told) > REMEMBERED_ENDED * 4:
            del self._told[next(iter(self._told))]


def _watched(listing: Listing, own: str) -> Iterator[list[Segment]]:
    """Those that ended last, and the next few that are written to, in a circle beginning at the own one."""
    ended = [segments for chain, segments in listing.chains.items() if chain in listing.ended]
    yield from ended[-REMEMBERED_ENDED:]
    written = [chain for chain in listing.chains if chain not in listing.ended and chain != own]
    behind = [chain for chain in written if chain > own]
    for chain in (*behind, *written)[: min(NEIGHBOURS, len(written))]:
        yield listing.chains[chain]


def outlived(
    directory: Path, own: str, retention_seconds: float, now: float
) -> Iterator[tuple[RetentionRemoved, Callable[[], None]]]:
    """Each segment that is too old, of each chain the oldest first, and how it is removed. Raises OSError.

    What cannot be read is kept: it is what an auditor will ask for.
    """
    listing = listed(directory)
    for chain, segments in listing.chains.items():
        is_over = chain in listing.ended and chain != own
        for segment in segments if is_over else segments[:-1]:
            removed = _outlived(segment, retention_seconds, now, may_be_torn=is_over)
            if removed is None:
                break
            yield removed, _removal(directory, segment, is_last=is_over and segment is segments[-1])


def _outlived(segment: Segment, retention_seconds: float, now: float, *, may_be_torn: bool) -> RetentionRemoved | None:
    if now - segment.path.stat().st_mtime < retention_seconds:
        return None
    try:
        last, torn = tail(segment.path)
        if (
            last is None
            or (torn and not may_be_torn)
            or now - datetime.fromisoformat(last.line.ts).timestamp() < retention_seconds
        ):
            return None
    except (BadLine, ValueError, PermissionError):
        return None
    return RetentionRemoved(
        event=RETENTION_REMOVED,
        segment=segment.number,
        head=last.head,
        last_ts=last.line.ts,
        retention_seconds=retention_seconds,
    )


def _removal(directory: Path, segment: Segment, *, is_last: bool) -> Callable[[], None]:
    def remove() -> None:
        segment.path.unlink(missing_ok=True)
        if is_last:
            (directory / f"{segment.chain}{ENDED_SUFFIX}").unlink(missing_ok=True)

    return remove
