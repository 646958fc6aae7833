"""One sign-in on its way: what saltgate must know again when the browser comes back from the issuer. Pure.

It travels as the `state` of the authorization request (RFC 6749 section 4.1.1), sealed: nobody can read it, make one or
change one, and it opens only together with the cookie of the browser that began. So a flood of begun sign-ins leaves
nothing behind here. That each is used once, the store sees to.
"""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.identity.token import base64url
from proxy.refusals import InvalidRequest

ATTEMPT_SECONDS: Final = 600
_NONCE_BYTES: Final = 12  # of AES-GCM, NIST SP 800-38D section 8.2
_LONGEST_STATE: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """`verifier` is PKCE's (RFC 7636), `nonce` what the ID token must repeat; `begun_at` is Unix seconds."""

    issuer: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    return_to: str
    begun_at: int


def fresh_attempt(issuer: str, *, return_to: str, now: float) -> Attempt:
    """With 256 random bits each in `nonce` and `verifier`."""
    return Attempt(
        issuer=issuer,
        nonce=secrets.token_urlsafe(32),
        verifier=secrets.token_urlsafe(32),
        return_to=return_to,
        begun_at=int(now),
    )


class AttemptSeal:
    """`secrets_` are those of the isolation keys, the current one first: each worker of each machine has them. The keys
    here are made of them for this purpose alone.
    """

    def __init__(self, secrets_: Iterable[bytes]) -> None:
        self._ciphers = tuple(
            AESGCM(hmac.new(secret, b"saltgate sign-in state", sha256).digest()) for secret in secrets_
        )

    def seal(self, attempt: Attempt, browser: str) -> str:
        """The `state` that only `browser`, the value of its cookie, can bring back."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        fields = [attempt.issuer, attempt.nonce, attempt.verifier, attempt.return_to, attempt.begun_at]
        sealed = self._ciphers[0].encrypt(nonce, json.dumps(fields).encode(), browser.encode("ascii"))
        return urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode("ascii")

    def open(self, state: str, browser: str, *, now: float) -> Attempt:
        """The attempt that this browser began. Raises InvalidRequest where it began none, or too long ago."""
        attempt = self._opened(state, browser)
        if attempt is None:
            raise InvalidRequest(
                "This browser did not begin this sign-in, or saltgate's keys have changed since. Sign in again.",
                reason="state",
            )
        if not -ATTEMPT_SECONDS < now - attempt.begun_at <= ATTEMPT_SECONDS:
            raise InvalidRequest("The sign-in took longer than 10 minutes. Sign in again.", reason="state_expired")
        return attempt

    def _opened(self, state: str, browser: str) -> Attempt | None:
        try:
            data = base64url(state) if state.isascii() and len(state) <= _LONGEST_STATE else b""
        except ValueError:
            return None
        nonce, sealed = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        for cipher in self._ciphers if len(nonce) == _NONCE_BYTES else ():
            try:
                fields = json.loads(cipher.decrypt(nonce, sealed, browser.encode("ascii")))
            except InvalidTag:
                continue
            issuer, nonce_claim, verifier, return_to, begun_at = fields
            return Attempt(issuer=issuer, nonce=nonce_claim, verifier=verifier, return_to=return_to, begun_at=begun_at)
        return None
