"""What an ID token proves to the client that asked for it (OpenID Connect Core 1.0 section 3.1.3.7). Pure.

An ID token is for a client, an access token for a resource server: each has rules of its own, and neither passes for
the other.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256, sha384, sha512
from typing import Any, Final

from config.settings import Issuer
from proxy.identity import Identity
from proxy.identity.claims import (
    checked_times,
    claimed_groups,
    claimed_session,
    claimed_subject,
    groups_overflow,
    is_accepted_type,
    time_claim,
)
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import Json, VerifiedToken

ID_TOKEN_TYPES: Final = ("JWT", "")
"""Issuers send `typ: JWT` or none; what is named otherwise (at+jwt, logout+jwt) is another kind of token."""

_MAXIMUM_NAME_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """Who has signed in. `identity.method` is "session"; `subject` is the token's own `sub`, which a logout token
    repeats and which need not be what the directory knows the person by.
    """

    identity: Identity
    subject: str
    name: str | None = field(repr=False)


def id_token_claims(
    token: VerifiedToken,
    *,
    algorithm: str,
    rules: Issuer,
    client_id: str,
    nonce: str,
    access_token: str | None,
    now: float,
) -> SignedIn:
    """Who has signed in, by an ID token whose signature was checked; `algorithm` is its header's `alg`, `access_token`
    the one that came beside it, `nonce` the one that was sent for this very sign-in.

    Raises InvalidToken or TokenExpired; its `reason` names the rule.
    """
    claims = token.claims
    if token.issuer != rules.issuer:
        raise invalid_token(Reason.ISSUER)
    if not is_accepted_type(token.type, ID_TOKEN_TYPES) or "events" in claims:
        raise invalid_token(Reason.NOT_AN_ID_TOKEN)
    if "cnf" in claims:
        raise invalid_token(Reason.SENDER_CONSTRAINED)
    expires_at = checked_times(claims, rules, now)
    _check_client(claims, client_id)
    _check_nonce(claims, nonce)
    _check_access_token(claims, access_token, algorithm)
    issued_at = time_claim(claims, "iat", Reason.LIFETIME)
    if issued_at is None:
        raise invalid_token(Reason.LIFETIME)
    identity = Identity(
        issuer=rules.issuer,
        subject=claimed_subject(claims, id_token_subject(rules)),
        groups=claimed_groups(claims, rules),
        groups_complete=not groups_overflow(claims, rules),
        expires_at=expires_at,
        client=client_id,
        method="session",
        session=claimed_session(claims),
        issued_at=issued_at,
    )
    return SignedIn(identity=identity, subject=claimed_subject(claims, ("sub",)), name=_name(claims))


def id_token_subject(rules: Issuer) -> tuple[str, ...]:
    """Where an ID token names whom the access tokens name at `rules.subject`.

    Okta's access tokens hold the person's id in `uid`, its ID tokens hold the same id in `sub`. All others use one
    claim in both.
    """
    return ("sub",) if rules.kind == "okta" and rules.subject == ("uid",) else rules.subject


def _check_client(claims: Mapping[str, Json], client_id: str) -> None:
    """Whether the token is meant for this client, and for no other beside it. Raises InvalidToken.

    `aud` must contain it; where it names others, too, or `azp` is there, `azp` must be it.
    """
    named = audiences(claims)
    if client_id not in named:
        raise invalid_token(Reason.AUDIENCE)
    if ("azp" in claims or named != {client_id}) and claims.get("azp") != client_id:
        raise invalid_token(Reason.CLIENT)


def audiences(claims: Mapping[str, Json]) -> frozenset[str]:
    """Whom the token is for, by `aud`: one name or a list of names. Raises InvalidToken."""
    value = claims.get("aud")
    named = [value] if isinstance(value, str) else value
    if not isinstance(named, list):
        raise invalid_token(Reason.AUDIENCE)
    names = [name for name in named if isinstance(name, str)]
    if len(names) != len(named):
        raise invalid_token(Reason.AUDIENCE)
    return frozenset(names)


def _check_nonce(claims: Mapping[str, Json], nonce: str) -> None:
    value = claims.get("nonce")
    if not nonce or not isinstance(value, str) or not _equal(value, nonce):
        raise invalid_token(Reason.NONCE)


# `at_hash` is by the hash of the ID token's own algorithm (OpenID Connect Core section 3.1.3.6); for Ed25519 it is
# SHA-512, as RFC 8032 section 5.1 uses and issuers do.
_HASHES: Final[Mapping[str, Any]] = {
    **{f"{kind}256": sha256 for kind in ("RS", "PS", "ES")},
    **{f"{kind}384": sha384 for kind in ("RS", "PS", "ES")},
    **{f"{kind}512": sha512 for kind in ("RS", "PS", "ES")},
    "EdDSA": sha512,
    "Ed25519": sha512,
}


def _check_access_token(claims: Mapping[str, Json], access_token: str | None, algorithm: str) -> None:
    """With the code flow `at_hash` may be left out; where it is there it must be right, and there must be something
    that it can be right about.
    """
    if "at_hash" not in claims:
        return
    value, make = claims["at_hash"], _HASHES.get(algorithm)
    if not isinstance(value, str) or make is None or access_token is None or not access_token.isascii():
        raise invalid_token(Reason.ACCESS_TOKEN_HASH)
    digest = make(access_token.encode("ascii")).digest()
    if not _equal(value, urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode("ascii")):
        raise invalid_token(Reason.ACCESS_TOKEN_HASH)


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


def _name(claims: Mapping[str, Json]) -> str | None:
    """What a page calls the person. It decides nothing, so a strange one is left out, not refused."""
    for member in ("name", "preferred_username", "email"):
        value = claims.get(member)
        if isinstance(value, str) and 0 < len(value) <= _MAXIMUM_NAME_CHARACTERS and value.isprintable():
            return value
    return None
