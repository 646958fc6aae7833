"""What an ID token proves to the client that asked for it (OpenID Connect Core 1.0 section 3.1.3.7). Pure.

An ID token is for the client alone and opens nothing: as a credential it is refused (`claims`). Here are the rules by
which a client of the issuer - saltgate's own pages, `saltgate login` - believes who signed in.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proxy.identity.claims import LATEST_TIME, MAXIMUM_SUBJECT_CHARACTERS
from proxy.identity.token import Json, VerifiedToken

LEEWAY: Final = 30.0  # seconds that clocks may differ
MAXIMUM_LIFETIME: Final = 25 * 3600.0


class IdTokenRefusedError(ValueError):
    """The ID token breaks a rule. The text names the rule and holds nothing of the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdTokenClaims:
    """Who signed in. `subject` is unique within the issuer and stays; `session_id` is the issuer's (`sid`), by which a
    back-channel logout names what it ends. `signed_in_at` is Unix seconds, where the issuer says it.
    """

    issuer: str
    subject: str
    session_id: str | None
    signed_in_at: float | None


def id_token_claims(
    verified: VerifiedToken,
    *,
    issuer: str,
    client_id: str,
    nonce: str | None,
    access_token: str | None,
    algorithm: str,
    now: float,
    leeway: float = LEEWAY,
    maximum_lifetime: float = MAXIMUM_LIFETIME,
) -> IdTokenClaims:
    """Who signed in, at `now` in Unix seconds. Raises IdTokenRefusedError for a token that breaks any rule.

    `verified` came straight from the token endpoint, signed by a key of `issuer` with `algorithm`. `nonce` is the one
    that was sent; None where none was, and then the token may carry none. `access_token` is the one that came with it;
    None where none came.
    """
    claims = verified.claims
    if verified.issuer != issuer:
        raise IdTokenRefusedError("iss")
    _check_is_id_token(verified)
    _check_audience(claims, client_id)
    _check_times(claims, now, leeway, maximum_lifetime)
    _check_nonce(claims, nonce)
    _check_access_token_hash(claims, access_token, algorithm)
    return IdTokenClaims(
        issuer=issuer,
        subject=_subject(claims),
        session_id=_text_or_none(claims, "sid"),
        signed_in_at=_time(claims, "auth_time") if "auth_time" in claims else None,
    )


_TYPES: Final = frozenset({None, "jwt", "application/jwt"})
_OTHER_PAYLOAD_TYPES: Final = frozenset({"bearer", "dpop", "refresh", "offline", "logout"})  # Keycloak's other tokens


def _check_is_id_token(verified: VerifiedToken) -> None:
    """RFC 8725 section 3.11: no other kind of token of the same issuer may pass for this one."""
    if (None if verified.type is None else verified.type.lower()) not in _TYPES:
        raise IdTokenRefusedError("typ")
    payload_type = verified.claims.get("typ")
    if isinstance(payload_type, str) and payload_type.lower() in _OTHER_PAYLOAD_TYPES:
        raise IdTokenRefusedError("typ")
    if "events" in verified.claims:
        raise IdTokenRefusedError("events")


def audiences(claims: Mapping[str, Json]) -> frozenset[str]:
    """Whom the token is for, by `aud`: one name or a list of names; nobody where it is neither."""
    value = claims.get("aud")
    named = value if isinstance(value, list) else [value]
    names = frozenset(name for name in named if isinstance(name, str))
    return names if all(isinstance(name, str) for name in named) else frozenset()


def _check_audience(claims: Mapping[str, Json], client_id: str) -> None:
    """Rules 3 to 5 of the section: issued to this client, and to others only where it says that it is for this one."""
    named = audiences(claims)
    if client_id not in named:
        raise IdTokenRefusedError("aud")
    if ("azp" in claims or len(named) > 1) and claims.get("azp") != client_id:
        raise IdTokenRefusedError("azp")


def _check_times(claims: Mapping[str, Json], now: float, leeway: float, maximum_lifetime: float) -> None:
    expires_at, issued_at = _time(claims, "exp"), _time(claims, "iat")
    if expires_at + leeway <= now or not 0 < expires_at - issued_at <= maximum_lifetime:
        raise IdTokenRefusedError("exp")
    if issued_at > now + leeway:
        raise IdTokenRefusedError("iat")
    if "nbf" in claims and _time(claims, "nbf") > now + leeway:
        raise IdTokenRefusedError("nbf")


def _check_nonce(claims: Mapping[str, Json], nonce: str | None) -> None:
    """Binds the token to this sign-in. One that nobody sent belongs to another."""
    value = claims.get("nonce")
    if nonce is None and "nonce" not in claims:
        return
    if not nonce or not isinstance(value, str) or not _equal(value, nonce):
        raise IdTokenRefusedError("nonce")


def _check_access_token_hash(claims: Mapping[str, Json], access_token: str | None, algorithm: str) -> None:
    """Section 3.1.3.6: where there is one it must fit; what cannot be computed does not fit."""
    if "at_hash" not in claims:
        return
    value, digest = claims["at_hash"], _HASHES.get(algorithm[-3:], _HASHES.get(algorithm))
    if digest is None or not isinstance(value, str) or access_token is None:
        raise IdTokenRefusedError("at_hash")
    octets = hashlib.new(digest, access_token.encode("ascii", "replace")).digest()
    if not _equal(value, urlsafe_b64encode(octets[: len(octets) // 2]).rstrip(b"=").decode("ascii")):
        raise IdTokenRefusedError("at_hash")


# By the bits in the algorithm's name; for Ed25519 the hash that it signs with (RFC 8032 section 5.1).
_HASHES: Final = {"256": "sha256", "384": "sha384", "512": "sha512", "EdDSA": "sha512", "Ed25519": "sha512"}


def _subject(claims: Mapping[str, Json]) -> str:
    value = claims.get("sub")
    if not isinstance(value, str) or not 0 < len(value) <= MAXIMUM_SUBJECT_CHARACTERS or not value.isprintable():
        raise IdTokenRefusedError("sub")
    return value


def _text_or_none(claims: Mapping[str, Json], name: str) -> str | None:
    value = claims.get(name)
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= MAXIMUM_SUBJECT_CHARACTERS):
        raise IdTokenRefusedError(name)
    return value


def _time(claims: Mapping[str, Json], name: str) -> float:
    """A NumericDate (RFC 7519 section 2); a bool is no number, and the comparison also keeps NaN out."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LATEST_TIME:
        raise IdTokenRefusedError(name)
    return float(value)


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
