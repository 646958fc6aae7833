"""ID tokens: the client believes one that is for it, of now, of this sign-in, and beside this access token."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from proxy.identity.id_token import IdTokenRefusedError, id_token_claims
from proxy.identity.token import Json, VerifiedToken

NOW = 1_800_000_000.0
ISSUER = "https://sso.example.com"
ABSENT = object()


def judged(
    *, typ: str | None = None, sent: str | None = "n", algorithm: str = "RS256", **changed: object
) -> tuple[str, str | None, float | None]:
    claims: dict[str, Json] = {
        "iss": ISSUER,
        "aud": "us",
        "sub": "u-alice-0001",
        "iat": NOW - 60,
        "exp": NOW + 300,
        "nonce": "n",
        **changed,  # type: ignore[dict-item]
    }
    claims = {name: value for name, value in claims.items() if value is not ABSENT}
    verified = VerifiedToken(issuer=str(claims["iss"]), type=typ, claims=claims)
    found = id_token_claims(
        verified, issuer=ISSUER, client_id="us", nonce=sent, access_token="at", algorithm=algorithm, now=NOW
    )
    return found.subject, found.session_id, found.signed_in_at


def at_hash(digest: str) -> str:
    octets = hashlib.new(digest, b"at").digest()
    return urlsafe_b64encode(octets[: len(octets) // 2]).rstrip(b"=").decode()


def test_a_good_one_says_who_signed_in() -> None:
    assert judged() == ("u-alice-0001", None, None)
    assert judged(sid="s1", auth_time=NOW - 60, typ="JWT") == ("u-alice-0001", "s1", NOW - 60)


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": ["us"]},
        {"aud": ["us", "them"], "azp": "us"},
        {"azp": "us"},
        {"exp": NOW - 29},
        {"iat": NOW + 29},
        {"nonce": ABSENT, "sent": None},
        {"at_hash": at_hash("sha256")},
        {"at_hash": at_hash("sha384"), "algorithm": "ES384"},
        {"at_hash": at_hash("sha512"), "algorithm": "PS512"},
        {"at_hash": at_hash("sha512"), "algorithm": "EdDSA"},
        {"at_hash": at_hash("sha512"), "algorithm": "Ed25519"},
        {"at_hash": ABSENT},
    ],
)
def test_what_the_standard_allows_is_believed(changed: dict[str, Any]) -> None:
    assert judged(**changed)[0] == "u-alice-0001"


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"iss": "https://sso.example.com/"}, "iss"),
        ({"typ": "at+jwt"}, "typ"),
        ({"typ": "logout+jwt"}, "typ"),
        ({"events": {}}, "events"),
        ({"aud": "them"}, "aud"),
        ({"aud": ["them"]}, "aud"),
        ({"aud": "us2"}, "aud"),
        ({"aud": ["us", 1], "azp": "us"}, "aud"),
        ({"aud": ABSENT}, "aud"),
        ({"aud": ["us", "them"]}, "azp"),
        ({"aud": ["us", "them"], "azp": "them"}, "azp"),
        ({"azp": "them"}, "azp"),
        ({"azp": None}, "azp"),
        ({"exp": NOW - 31}, "exp"),
        ({"exp": ABSENT}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": NOW - 1, "iat": NOW}, "exp"),
        ({"exp": NOW + 30 * 86400}, "exp"),
        ({"iat": ABSENT}, "iat"),
        ({"iat": NOW + 31}, "iat"),
        ({"nbf": NOW + 31}, "nbf"),
        ({"nonce": "N"}, "nonce"),
        ({"nonce": ABSENT}, "nonce"),
        ({"nonce": ["n"]}, "nonce"),
        ({"nonce": "\ud800"}, "nonce"),
        ({"at_hash": at_hash("sha512")}, "at_hash"),
        ({"at_hash": ""}, "at_hash"),
        ({"at_hash": None}, "at_hash"),
        ({"sub": ""}, "sub"),
        ({"sub": ABSENT}, "sub"),
        ({"sub": "a\nb"}, "sub"),
        ({"sub": "x" * 256}, "sub"),
        ({"sid": 7}, "sid"),
        ({"auth_time": "now"}, "auth_time"),
    ],
)
def test_one_that_breaks_a_rule_is_not_believed(changed: dict[str, Any], rule: str) -> None:
    with pytest.raises(IdTokenRefusedError) as refused:
        judged(**changed)
    assert str(refused.value) == rule


def test_a_nonce_that_nobody_sent_belongs_to_another_sign_in() -> None:
    with pytest.raises(IdTokenRefusedError, match="nonce"):
        judged(sent=None)


@pytest.mark.parametrize("payload_type", ["Bearer", "DPoP", "Refresh", "Offline", "Logout"])
def test_keycloaks_other_tokens_are_no_id_tokens(payload_type: str) -> None:
    claims: dict[str, Json] = {"iss": ISSUER, "aud": "us", "sub": "u", "iat": NOW, "exp": NOW + 9, "typ": payload_type}
    with pytest.raises(IdTokenRefusedError, match="typ"):
        id_token_claims(
            VerifiedToken(ISSUER, None, claims),
            issuer=ISSUER,
            client_id="us",
            nonce=None,
            access_token="at",
            algorithm="RS256",
            now=NOW,
        )


def test_an_access_token_hash_that_cannot_be_computed_does_not_fit() -> None:
    with pytest.raises(IdTokenRefusedError, match="at_hash"):
        judged(algorithm="XX999", at_hash=at_hash("sha256"))
