"""One caller's pseudonym, the attribute `user.hash`: the same for the same caller, and without the key nobody's."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

CHARACTERS: Final = 16


def pseudonym(key: bytes, issuer: str, subject: str) -> str:
    """16 hex digits of HMAC-SHA-256. Keyed, because names can be guessed and hashed by anybody.

    No issuer has a space in it, so no two callers give the same text.
    """
    return hmac.new(key, f"{issuer} {subject}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:CHARACTERS]
