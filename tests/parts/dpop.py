"""DPoP clients for tests: a key of their own, and proofs of it, right or wrong as told."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from tests.parts.tokens import ABSENT, SigningKey, TokenMint, base64url, signing_key


@dataclass(slots=True)
class DpopClient:
    """`algorithm` is what its key is for; clients of equal `number` have the same one."""

    algorithm: str = "ES256"
    number: int = 70
    clock: Callable[[], float] = time.time
    key: SigningKey = field(init=False)

    def __post_init__(self) -> None:
        self.key = signing_key(self.algorithm, "dpop", number=self.number)

    @property
    def jwk(self) -> dict[str, object]:
        """The public key alone."""
        return dict(self.key.key.as_dict(private=False))

    @property
    def thumbprint(self) -> str:
        return self.key.key.thumbprint()

    def token(self, mint: TokenMint, subject: str = "u-alice-0001", **more: object) -> str:
        """An access token that is bound to the key."""
        return mint.token(subject, groups=(), cnf={"jkt": self.thumbprint}, **more)  # type: ignore[arg-type]

    def proof(
        self,
        token: str,
        url: str,
        method: str = "POST",
        *,
        header: Mapping[str, object] | None = None,
        signed_by: SigningKey | None = None,
        claims: Mapping[str, object] | None = None,
        **overrides: object,
    ) -> str:
        """A proof for one request. `header`, `claims` and `overrides` replace members, add or omit (ABSENT) some."""
        head = {"typ": "dpop+jwt", "alg": self.key.algorithm, "jwk": self.jwk} | dict(header or {})
        body: dict[str, object] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": url,
            "iat": int(self.clock()),
            "ath": base64url(sha256(token.encode()).digest()),
        }
        return (signed_by or self.key).sign(_json(head), _json(body | dict(claims or {}) | overrides))


def _json(members: Mapping[str, object]) -> bytes:
    kept = {name: value for name, value in members.items() if value is not ABSENT}
    return json.dumps(kept, separators=(",", ":")).encode()
