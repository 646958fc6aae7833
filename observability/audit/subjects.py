"""How a person is named in the audit: by a pseudonym that only the audit's key can make, or by his subject. Pure.

The pseudonym is HMAC-SHA-256 under a key derived from the audit's, so the same person has the same one for as long as
that key is the first; who asks for a person by name can compute it, and without the key nobody can try names.
"""

from __future__ import annotations

import hmac
from typing import Final, Literal

from observability.audit.chain import ChainKey

Subjects = Literal["pseudonym", "plain"]

PREFIX: Final = "hmac:"
REMEMBERED: Final = 4096


def pseudonym(key: ChainKey, issuer: str, subject: str) -> str:
    """Length-prefixed, so that no two (issuer, subject) give the same bytes."""
    message = b"".join(len(part).to_bytes(4, "big") + part for part in (_bytes(issuer), _bytes(subject)))
    return PREFIX + hmac.digest(key.names, message, "sha256").hex()[:32]


class Names:
    """What persons are called, in the way of `[audit] subjects`. Those of some thousand are remembered."""

    def __init__(self, key: ChainKey, subjects: Subjects) -> None:
        self._key = key
        self._plain = subjects == "plain"
        self._known: dict[tuple[str | None, str], str] = {}

    def name(self, issuer: str | None, subject: str | None) -> str | None:
        if subject is None:
            return None
        known = self._known.get((issuer, subject))
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[issuer, subject] = self._made(issuer or "", subject)
        return known

    def _made(self, issuer: str, subject: str) -> str:
        if self._plain:
            return _bytes(subject).decode("utf-8")
        return pseudonym(self._key, issuer, subject)


def _bytes(text: str) -> bytes:
    # A lone surrogate is text that UTF-8 has no way to say.
    return text.encode("utf-8", "replace")
