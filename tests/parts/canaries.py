"""Secrets that are recognised wherever they come out again, whole or in part, as they are or encoded.

    canaries = Canaries()
    token = canaries.new("bearer token")                    # put it somewhere, …
    canaries.known("access token", mint.token())            # … also what somebody else made
    canaries.check({"log": log.read_bytes(), "spans": b"".join(sink.raw), "answers": answers})

One of at least 16 characters in a row is found: less than that opens nothing, and could be there by chance.
"""

from __future__ import annotations

import secrets
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

PART: Final = 16
_ENCODED_AT_MOST: Final = 1024


@dataclass(frozen=True, slots=True)
class Leak:
    """`canary` is its name, never itself: a failed test is read by many."""

    canary: str
    where: str
    around: bytes


@dataclass(slots=True)
class Canaries:
    """The secrets of one test. Letters count in any case."""

    _parts: dict[bytes, str] = field(default_factory=dict)

    def new(self, name: str, length: int = 48) -> str:
        """A secret that nobody had before, of letters and digits."""
        return self.known(name, secrets.token_hex((length + 1) // 2)[:length])

    def known(self, name: str, value: str) -> str:
        """From now on this value is a secret, too: it is given back."""
        data = value.encode()
        assert len(data) >= PART, "too short to be recognised"
        for form in _forms(data):
            for at in range(len(form) - PART + 1):
                self._parts.setdefault(form[at : at + PART], name)
        return value

    def leaks(self, written: Mapping[str, bytes]) -> list[Leak]:
        """What came out, at most one of each canary at each place."""
        found: dict[tuple[str, str], Leak] = {}
        for where, data in written.items():
            lowered = data.lower()
            for at in range(len(lowered) - PART + 1):
                name = self._parts.get(lowered[at : at + PART])
                if name is not None and (name, where) not in found:
                    found[name, where] = Leak(name, where, data[max(at - 60, 0) : at])
        return list(found.values())

    def check(self, written: Mapping[str, bytes]) -> None:
        """Raises AssertionError with all that came out. Each place must have something in it, or nothing was tried."""
        assert all(written.values()), [where for where, data in written.items() if not data]
        leaks = self.leaks(written)
        assert not leaks, "\n".join(f"{leak.canary} in {leak.where}, after {leak.around!r}" for leak in leaks)


def _forms(data: bytes) -> Iterator[bytes]:
    yield data.lower()
    head = data[:_ENCODED_AT_MOST]
    yield head.hex().encode()
    for encode in (b64encode, urlsafe_b64encode):
        for skipped in range(3):  # base64 knows three places where a byte can begin
            encoded = encode(b"\0" * skipped + head).rstrip(b"=").lower()
            yield encoded[4 if skipped else 0 :]
