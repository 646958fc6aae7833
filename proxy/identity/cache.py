"""What is known of tokens since a moment ago: not each of a person's requests costs a signature or a question."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import Generic, TypeVar

from proxy.identity import Identity
from proxy.identity.confirmation import Bound

V = TypeVar("V")


@dataclass(slots=True)
class Verified:
    """Whom a token names, the key generation that it was verified under, and until when that serves (Unix seconds).

    Where the token is verified again and names the same, `until` is later: so it is for all that rest on it.
    """

    found: Identity | Bound
    generation: int
    until: float


class VerifiedTokens:
    """At most `capacity` callers by their whole token, the longest unused given up first.

    What is remembered of a bound token is a `Bound`: each request must still show what the token is bound to.

    The key is the SHA-256 of the whole token: no part of a token stands for it, and no token stays in memory.
    An entry serves until the token's `exp`, but no longer than `lifetime` seconds; then the token has to be verified
    again. It also ends with the key generation that it was verified under: a key that the issuer withdrew verifies
    nothing any more.
    """

    def __init__(self, *, capacity: int, lifetime: float) -> None:
        self._capacity = capacity
        self._lifetime = lifetime
        self._entries: OrderedDict[bytes, Verified] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, digest: bytes, *, now: float) -> Verified | None:
        """None where unknown or over."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        if now >= entry.until:
            if now >= entry.found.expires_at:
                del self._entries[digest]
            return None
        self._entries.move_to_end(digest)
        return entry

    def keep(self, digest: bytes, found: Identity | Bound, *, generation: int, now: float) -> Identity | Bound:
        """Keeps a caller who was just verified; nothing where his token is over but for the leeway. Returns him as he
        is kept: the same object as before, where nothing but the time is another.
        """
        until = min(found.expires_at, now + self._lifetime)
        if until <= now:
            return found
        entry = self._entries.get(digest)
        if entry is not None and entry.generation == generation and entry.found == found:
            entry.until = until
        else:
            entry = self._entries[digest] = Verified(found, generation, until)
        self._entries.move_to_end(digest)
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
        return entry.found


def digest_of(token: str) -> bytes:
    """What stands for the token as a key; defined for any text, so that also what is no token gets a refusal."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


class Recent(Generic[V]):
    """At most `capacity` values by digest, each until its own moment, the longest unused given up first.

    Moments are monotonic seconds: a wall clock that is set back lengthens nothing.
    """

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[bytes, tuple[V, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, digest: bytes, *, now: float) -> V | None:
        entry = self._entries.get(digest)
        if entry is None:
            return None
        value, until = entry
        if now >= until:
            del self._entries[digest]
            return None
        self._entries.move_to_end(digest)
        return value

    def keep(self, digest: bytes, value: V, *, until: float) -> None:
        self._entries[digest] = (value, until)
        self._entries.move_to_end(digest)
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def forget(self, digest: bytes) -> None:
        self._entries.pop(digest, None)
