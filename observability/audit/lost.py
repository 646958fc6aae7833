"""What a command lost and could not tell before it ended: an empty file whose name says it, until a chain tells it.

    CHAIN.LOST.FIRST.LAST.MAC.lost    mac = HMAC-SHA-256(journal key, "CHAIN.LOST.FIRST.LAST"), its first 32 digits

A full disk often has room for a name where it has none for a line, and `[audit] journal` may be on another disk.
Without the key nobody makes such a name; who takes the file away hides the gap, as who takes a journal away does.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from observability.audit.files import FILE_MODE, LOST_NAME, LOST_SUFFIX, held
from observability.audit.gap import AUDIT_GAP, AuditGap


@dataclass(frozen=True, slots=True)
class Left:
    """What is to be told, and done once that is on disk."""

    gap: AuditGap
    settle: Callable[[], None]


def leave(places: Iterable[Path], key: bytes, chain: str, gap: AuditGap) -> bool:
    """Whether one of the directories, the first that can, keeps it for whoever writes there next."""
    told = f"{chain}.{gap.lost}.{gap.first_ts}.{gap.last_ts}"
    for place in places:
        with suppress(OSError):
            path = place / f"{told}.{_mac(key, told)}{LOST_SUFFIX}"
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
            return True
    return False


def left(places: Iterable[Path], keys: Sequence[bytes]) -> Iterator[Left]:
    """Each that can be opened, held as long as the caller works on it."""
    for path in (path for place in dict.fromkeys(places) for path in sorted(place.glob(f"*{LOST_SUFFIX}"))):
        gap = _gap(path.name, keys)
        if gap is None:
            continue
        with suppress(OSError), held(path) as is_held:
            if is_held and path.exists():  # another one may have been quicker
                yield Left(gap, path.unlink)


def _gap(name: str, keys: Sequence[bytes]) -> AuditGap | None:
    match = LOST_NAME.fullmatch(name)
    if match is None or not any(hmac.compare_digest(_mac(key, match["told"]), match["mac"]) for key in keys):
        return None
    return AuditGap(
        event=AUDIT_GAP,
        lost=int(match["lost"]),
        first_ts=match["first"],
        last_ts=match["last"],
        why=f"the command of chain {match['chain']} could not write them",
    )


def _mac(key: bytes, told: str) -> str:
    return hmac.digest(key, b"saltgate audit lost " + told.encode("ascii"), "sha256").hex()[:32]
