"""The tokens: access tokens (RFC 9068), ID tokens (OIDC Core section 2), refresh tokens."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, GuestProtocol, RSAKey
from joserfc.jws import JWSRegistry

from proxy.demo.provider.clients import Client
from proxy.demo.provider.errors import OAuthError
from proxy.demo.provider.keys import ALGORITHMS, SigningKey, SigningKeys
from proxy.demo.provider.people import Person

ACCESS_TOKEN_TYPE: Final = "at+jwt"  # noqa: S105 - a media type, RFC 9068 section 2.1
ID_TOKEN_TYPE: Final = "JWT"  # noqa: S105 - a media type, RFC 7519 section 5.1
_JWT: Final = re.compile(r"[A-Za-z0-9_-]{1,700}\.[A-Za-z0-9_-]{1,12000}\.[A-Za-z0-9_-]{1,700}", re.ASCII)
_REFRESH_TOKEN: Final = re.compile(r"([A-Za-z0-9_-]{22})\.([0-9]{1,9})\.([A-Za-z0-9_-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long things live, in seconds. A short access token bounds what a lost one is worth."""

    access_token: float = 3600.0
    code: float = 60.0
    sign_in: float = 600.0
    device_code: float = 600.0
    device_interval: float = 5.0
    session: float = 8 * 3600.0
    grant: float = 7 * 86400.0

    def __post_init__(self) -> None:
        if not 0 < self.access_token <= 86400:
            raise ValueError("an access token lives at most 24 hours")


@dataclass(frozen=True, slots=True)
class TokenResponse:
    """What the token endpoint answers (RFC 6749 section 5.1). `expires_in` is in seconds."""

    access_token: str = field(repr=False)
    expires_in: int
    scope: str
    id_token: str | None = field(default=None, repr=False)
    refresh_token: str | None = field(default=None, repr=False)

    def document(self) -> dict[str, object]:
        members = {
            "access_token": self.access_token,
            "token_type": "Bearer",
            "expires_in": self.expires_in,
            "scope": self.scope,
            "id_token": self.id_token,
            "refresh_token": self.refresh_token,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class OwnToken:
    """A token that this provider signed, its signature checked. `jti` is empty for an ID token."""

    jti: str
    subject: str
    client_id: str
    scope: frozenset[str]
    expires_at: float


def access_token_claims(
    issuer: str,
    client: Client,
    *,
    subject: str,
    groups: frozenset[str],
    scope: frozenset[str],
    grant_id: str,
    signed_in_at: float | None,
    now: float,
    lifetime: float,
) -> dict[str, object]:
    """RFC 9068 section 2.2. `jti` starts with the grant, so that revoking a grant reaches its tokens at userinfo."""
    claims: dict[str, object] = {
        "iss": issuer,
        "sub": subject,
        "aud": client.audience,
        "client_id": client.id,
        "iat": int(now),
        "exp": int(now + lifetime),
        "jti": f"{grant_id}.{secrets.token_urlsafe(12)}",
        "scope": " ".join(sorted(scope)),
        "groups": sorted(groups),
    }
    return claims if signed_in_at is None else {**claims, "auth_time": int(signed_in_at)}


def id_token_claims(
    issuer: str,
    client: Client,
    person: Person,
    *,
    access_token: str,
    scope: frozenset[str],
    nonce: str | None,
    signed_in_at: float,
    now: float,
    lifetime: float,
) -> dict[str, object]:
    """OIDC Core section 2, with `at_hash` (3.1.3.6). There is no `nonce` where none was sent, nor after a refresh."""
    claims: dict[str, object] = {
        "iss": issuer,
        "aud": client.id,
        "iat": int(now),
        "exp": int(now + lifetime),
        "auth_time": int(signed_in_at),
        "at_hash": _left_half(access_token),
        **person_claims(person, scope),
    }
    return claims if nonce is None else {**claims, "nonce": nonce}


def person_claims(person: Person, scope: frozenset[str]) -> dict[str, object]:
    """What `scope` lets a client know of a person (OIDC Core section 5.4), and at least the subject."""
    claims: dict[str, object] = {"sub": person.subject}
    if "profile" in scope:
        claims |= {"name": person.name, "preferred_username": person.username}
    if "groups" in scope:
        claims["groups"] = sorted(person.groups)
    return claims


def sign(claims: Mapping[str, object], *, token_type: str, key: SigningKey) -> str:
    header = {"alg": key.algorithm, "kid": key.kid, "typ": token_type}
    return jwt.encode(header, dict(claims), key.jwk, algorithms=[key.algorithm], default_type=None)


def own_token(token: str, keys: SigningKeys, *, token_type: str, issuer: str) -> OwnToken | None:
    """The token, if this provider signed it as `token_type`. The caller looks at the time: a logout hint may be old."""
    if _JWT.fullmatch(token) is None:
        return None
    try:
        return _own_token(token, keys, token_type, issuer)
    except (JoseError, ValueError, TypeError, RecursionError):
        return None


def new_grant_id() -> str:
    return secrets.token_urlsafe(16)


def refresh_token(grant_id: str, generation: int, secret: bytes) -> str:
    """The grant's refresh token of one generation.

    The tag makes it unguessable, and makes every earlier one recognisable without keeping them: what verifies but is of
    an earlier generation was used before (RFC 9700 section 4.14.2).
    """
    body = f"{grant_id}.{generation}"
    return f"{body}.{_unpadded(hmac.digest(secret, body.encode('ascii'), 'sha256'))}"


def read_refresh_token(token: str, secret: bytes) -> tuple[str, int] | None:
    """Its grant and generation, if this provider made it."""
    match = _REFRESH_TOKEN.fullmatch(token)
    if match is None:
        return None
    expected = refresh_token(match[1], int(match[2]), secret)
    return (match[1], int(match[2])) if hmac.compare_digest(expected, token) else None


def challenge_of(verifier: str) -> str:
    """The S256 challenge (RFC 7636 section 4.6). Raises OAuthError where the verifier has not the form of 4.1."""
    if re.fullmatch(r"[A-Za-z0-9._~-]{43,128}", verifier, re.ASCII) is None:
        raise OAuthError("invalid_grant", "code_verifier has 43 to 128 unreserved characters")
    return _unpadded(hashlib.sha256(verifier.encode("ascii")).digest())


def _own_token(token: str, keys: SigningKeys, token_type: str, issuer: str) -> OwnToken | None:
    def key_of(signature: GuestProtocol) -> RSAKey | ECKey:
        key = keys.verifying(signature.headers().get("kid"))
        if key is None:
            raise ValueError("signed by nobody here")
        return key.jwk

    read = jwt.decode(token, key_of, registry=JWSRegistry(algorithms=list(ALGORITHMS)))
    claims = read.claims
    if read.header.get("typ") != token_type or claims["iss"] != issuer:
        return None
    return OwnToken(
        jti=str(claims.get("jti", "")),
        subject=str(claims["sub"]),
        client_id=str(claims["client_id"] if token_type == ACCESS_TOKEN_TYPE else claims["aud"]),
        scope=frozenset(str(claims.get("scope", "")).split()),
        expires_at=float(claims["exp"]),
    )


def _left_half(access_token: str) -> str:
    return _unpadded(hashlib.sha256(access_token.encode("ascii")).digest()[:16])


def _unpadded(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")
