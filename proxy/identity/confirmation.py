"""What a token is bound to (RFC 7800), and the caller who is nobody until he has shown that he holds it."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from proxy.identity import Identity
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import Json


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What the caller must hold: a DPoP key by its thumbprint (RFC 9449 section 6.1), a certificate by the SHA-256 of
    its DER (RFC 8705 section 3.1), or both. At least one is there, as base64url.
    """

    key: str | None = None
    certificate: str | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A caller whom a token names and who is no `Identity` yet: the token alone proves nothing of whoever shows it.

    `proxy.identity.possession` makes an `Identity` of it, for one request, once the request has shown what the token is
    bound to. So nothing that remembers a `Bound` can let anybody in by it.
    """

    caller: Identity
    confirmation: Confirmation

    @property
    def issuer(self) -> str:
        return self.caller.issuer

    @property
    def expires_at(self) -> float:
        return self.caller.expires_at


def bound(caller: Identity, claims: Mapping[str, Json]) -> Identity | Bound:
    """The caller, with what his token is bound to by its claims or by the introspection that told of it.

    Raises `InvalidToken` for a `cnf` that is not understood as a whole: a binding that is not checked would be none.
    """
    if "cnf" not in claims:
        return caller
    return Bound(caller, _confirmation(claims["cnf"]))


def bearer(found: Identity | Bound) -> Identity:
    """The caller, where his token alone is enough. Raises `InvalidToken` for a bound one: it is never downgraded."""
    if isinstance(found, Bound):
        raise invalid_token(Reason.NO_CERTIFICATE if found.confirmation.key is None else Reason.BOUND)
    return found


def check_certificate(wanted: str, certificate: bytes | None) -> None:
    """Raises `InvalidToken` unless `certificate` (DER) is the one with this thumbprint."""
    if certificate is None:
        raise invalid_token(Reason.NO_CERTIFICATE)
    if not compare_digest(base64url_digest(certificate), wanted):
        raise invalid_token(Reason.OTHER_CERTIFICATE)


def base64url_digest(data: bytes) -> str:
    """SHA-256 as RFC 7638, RFC 8705 and RFC 9449 write it: base64url without padding."""
    return urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode("ascii")


_MEMBERS: Final = {"jkt", "x5t#S256"}
# Keycloak says beside a thumbprint what it is of. Of another key than a proof's, another rule would hold.
_OF_DPOP: Final = ("kc-jkt-type", "DPoP")
_DIGEST: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # 32 bytes in base64url


def _confirmation(value: Json) -> Confirmation:
    if not isinstance(value, dict):
        raise invalid_token(Reason.SENDER_CONSTRAINED)
    said = value.keys() - ({_OF_DPOP[0]} if "jkt" in value and _OF_DPOP in value.items() else set())
    if not said or not said <= _MEMBERS:
        raise invalid_token(Reason.SENDER_CONSTRAINED)
    return Confirmation(key=_digest(value, "jkt"), certificate=_digest(value, "x5t#S256"))


def _digest(members: Mapping[str, Json], name: str) -> str | None:
    if name not in members:
        return None
    value = members[name]
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise invalid_token(Reason.SENDER_CONSTRAINED)
    return value
