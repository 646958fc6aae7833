"""Who may sign in here, how a password is kept, and how often one may be tried."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Final

from proxy.demo.provider.expiring import ExpiringMap

_COST, _BLOCK, _PARALLEL = 2**14, 8, 1  # RFC 7914 section 2's interactive sizes: 16 MiB and some 50 ms a try
_HASH: Final = re.compile(
    r"scrypt\$(\d{1,7})\$(\d{1,2})\$(\d{1,2})\$([A-Za-z0-9+/=]{1,88})\$([A-Za-z0-9+/=]{1,88})", re.ASCII
)
_MAXIMUM_MEMORY: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A password as it is kept: scrypt (RFC 7914) with its own salt."""

    cost: int
    block: int
    parallel: int
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    def matches(self, password: str) -> bool:
        """Whether this is the password. Takes tens of milliseconds on purpose; call it off the event loop."""
        return hmac.compare_digest(_scrypt(password, self.salt, self.cost, self.block, self.parallel), self.digest)

    def __str__(self) -> str:
        salt, digest = b64encode(self.salt).decode("ascii"), b64encode(self.digest).decode("ascii")
        return f"scrypt${self.cost}${self.block}${self.parallel}${salt}${digest}"


# Nobody's password: checked where the username is unknown, so that the answer takes as long.
NOBODY: Final = PasswordHash(_COST, _BLOCK, _PARALLEL, b"", b"")


def hash_password(password: str) -> PasswordHash:
    """The password as it may be kept, with a fresh salt."""
    salt = secrets.token_bytes(16)
    return PasswordHash(_COST, _BLOCK, _PARALLEL, salt, _scrypt(password, salt, _COST, _BLOCK, _PARALLEL))


def parse_password_hash(text: str) -> PasswordHash:
    """What `str(PasswordHash)` wrote. Raises ValueError."""
    match = _HASH.fullmatch(text)
    if match is None:
        raise ValueError("not a password hash of this program")
    cost, block, parallel = (int(part) for part in match.groups()[:3])
    return PasswordHash(cost, block, parallel, b64decode(match[4]), b64decode(match[5]))


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who may sign in. `subject` is the `sub` of his tokens and never changes; the rest may."""

    subject: str
    username: str
    password: PasswordHash = field(repr=False)
    name: str
    groups: frozenset[str]


class Attempts:
    """How often a password may be tried: per username, and in all, since each try costs the machine 16 MiB and 50 ms.

    A try is counted before it is made, so that tries at the same time cannot exceed the bound. Usernames are kept as
    digests: a long one takes no more room than a short one.
    """

    def __init__(self, *, per_username: int = 5, overall: int = 60, window_seconds: float = 60.0) -> None:
        self._per_username = per_username
        self._overall = overall
        self._window = window_seconds
        self._counts: ExpiringMap[bytes, tuple[int, float]] = ExpiringMap(limit=overall + 1)

    def seconds_to_wait(self, username: str, *, now: float) -> float:
        """0 where the try may be made; it is then counted. Else how long until the next may."""
        own, everybody = _digest(username), b""
        wait = max(self._wait(everybody, self._overall, now), self._wait(own, self._per_username, now))
        if wait == 0:
            self._count(own, now)
            self._count(everybody, now)
        return wait

    def succeeded(self, username: str, *, now: float) -> None:
        """Forget the tries of a person who proved to know his password."""
        self._counts.pop(_digest(username), now=now)

    def _wait(self, key: bytes, limit: int, now: float) -> float:
        count, ends = self._counts.get(key, now=now) or (0, now)
        return ends - now if count >= limit else 0

    def _count(self, key: bytes, now: float) -> None:
        count, ends = self._counts.get(key, now=now) or (0, now + self._window)
        self._counts.put(key, (count + 1, ends), expires_at=ends, now=now)


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    secret = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(secret, salt=salt, n=cost, r=block, p=parallel, maxmem=_MAXIMUM_MEMORY, dklen=32)


def _digest(username: str) -> bytes:
    return hashlib.sha256(username.encode("utf-8", "surrogatepass")).digest()
