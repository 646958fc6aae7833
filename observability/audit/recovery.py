"""What a process that was killed left behind: the requests of its journal that have no line yet, and where it stopped.

Both go into the chain of whoever finds it, in one group. So a chain that was cut off by a kill, perhaps within a line,
is told from one that somebody cut: of the first another chain says where it ended.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec

from observability.audit.chain import BadLine, Head
from observability.audit.entries import Ending, content, recovered_entry
from observability.audit.files import JOURNAL_SUFFIX, Listing, Segment, held, last_line, listed, mark_ended
from observability.audit.journal import left_open
from observability.audit.segments import CHAIN_CLOSED

CHAIN_RECOVERED: Final = "chain.recovered"
GROUP_LINES: Final = 1024
"""No process writes more lines at once, so no more than these may be written and still be in its journal."""
_TAIL_BYTES: Final = 4 * 1024 * 1024
_REQUEST_ID: Final = re.compile(rb'"request_id":"(req_[0-9a-f]{24})"')


class ChainRecovered(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """The chain of a process that ended without closing it, as it was found: no `head` where nothing whole is in it.

    `requests` of it had no line, and have one right before this. `journal` missing: whether there were any more is not
    known.
    """

    event: str
    recovered: str
    head: Head | None
    torn_bytes: int
    requests: int
    journal: Literal["found", "missing", "unreadable"]


@dataclass(frozen=True, slots=True)
class Remains:
    """What is to be written of one chain, and done once that is on disk."""

    chain: str
    lines: list[bytes]
    requests: int
    settle: Callable[[], None]


def dead_chains(listing: Listing, own: str) -> list[list[Segment]]:
    """The chains that have not ended and that nobody writes to. Raises OSError."""
    found = []
    for chain, segments in listing.chains.items():
        if chain != own and chain not in listing.ended:
            # One that another account wrote, a command's, may be closed to us.
            with suppress(PermissionError, FileNotFoundError), held(segments[-1].path) as is_held:
                if is_held:
                    found.append(segments)
    return found


@dataclass(frozen=True, slots=True)
class Journals:
    """Where they are, and the keys that may have sealed them."""

    directory: Path
    keys: Sequence[bytes] = field(repr=False)


def remains(directory: Path, journals: Journals, own: str, wall_ns: Callable[[], int]) -> Iterator[Remains]:
    """Of each chain that a killed process left, held as long as the caller works on it. Raises OSError."""
    dead = dead_chains(listed(directory), own)
    written = {request for segments in dead for request in _requests_in_tail(segments)}
    for segments in dead:
        with ExitStack() as stack:
            if not stack.enter_context(held(segments[-1].path)):
                continue
            now = listed(directory)  # another one may have been quicker, or its process has gone on in another segment
            if segments[0].chain in now.ended or now.chains.get(segments[0].chain, []) != segments:
                continue
            yield _remains(directory, journals, segments, written, wall_ns())


def _remains(directory: Path, journals: Journals, segments: list[Segment], written: set[str], now_ns: int) -> Remains:
    chain = segments[0].chain
    journal = journals.directory / f"{chain}{JOURNAL_SUFFIX}"

    def settle() -> None:
        with suppress(OSError):  # what cannot be removed is not looked at again
            journal.unlink()
        mark_ended(directory, chain)

    try:
        last, torn = last_line(segments)
    except BadLine:
        last, torn = None, 0
    if last is not None and last.line.event == CHAIN_CLOSED and not torn:
        return Remains(chain, [], 0, settle)
    entries, state = _unwritten(left_open(journal, chain, journals.keys), chain, written, now_ns)
    told = ChainRecovered(
        event=CHAIN_RECOVERED,
        recovered=chain,
        head=None if last is None else last.head,
        torn_bytes=torn,
        requests=len(entries),
        journal=state,
    )
    return Remains(chain, [*entries, content(told, now_ns)], len(entries), settle)


def _unwritten(
    left: Iterator[tuple[bytes, Ending | None]], chain: str, written: set[str], now_ns: int
) -> tuple[list[bytes], Literal["found", "missing", "unreadable"]]:
    entries = []
    try:
        for packed, ending in left:
            entry = recovered_entry(packed, ending, chain, now_ns)
            if entry.request_id not in written:
                written.add(entry.request_id)
                entries.append(content(entry))
    except FileNotFoundError:
        return entries, "missing"
    except (OSError, ValueError):
        return entries, "unreadable"
    return entries, "found"


def _requests_in_tail(segments: list[Segment]) -> Iterator[str]:
    for segment in segments[-2:]:
        with segment.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL_BYTES, 0))
            for match in _REQUEST_ID.finditer(file.read()):
                yield match[1].decode("ascii")
