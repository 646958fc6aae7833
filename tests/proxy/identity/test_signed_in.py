"""Who has signed in by an ID token. Through the gate they are tried in `tests/proxy/account`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from base64 import urlsafe_b64encode

import pytest

from config.presets import PRESETS
from config.settings import Issuer
from proxy.identity.keys import key_set
from proxy.identity.signed_in import SignedIn
from proxy.identity.signed_in import signed_in as judge
from proxy.identity.token import Json, VerifiedToken, compact_token
from proxy.refusals import InvalidToken, Unauthenticated
from tests.parts.tokens import ABSENT, TokenMint
from tests.proxy.identity.judging import ISSUER, NOW, RULES, judged, mint

CLIENT, NONCE, ACCESS = "saltgate-web", "n" * 43, "an-access-token"
ALL = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")


def at_hash(bits: int) -> str:
    digest = hashlib.new(f"sha{bits}", ACCESS.encode()).digest()
    return urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode()


def id_token(mint: TokenMint, **claims: object) -> str:
    own: dict[str, object] = {"nonce": NONCE, "client_id": ABSENT}
    return mint.token(header={"typ": "JWT"}, audience=CLIENT, claims=own | claims)


def signed_in(
    token: str, mint: TokenMint, rules: Issuer = RULES, *, nonce: str = NONCE, access_token: str | None = ACCESS
) -> SignedIn:
    parsed = compact_token(token)
    verified = key_set(json.dumps(mint.jwks()).encode()).verified(parsed, algorithms=rules.algorithms)
    return judge(
        verified,
        algorithm=parsed.algorithm,
        rules=rules,
        client_id=CLIENT,
        nonce=nonce,
        access_token=access_token,
        now=NOW,
    )


def test_a_right_one_says_who_has_signed_in() -> None:
    issuer = mint()
    found = signed_in(id_token(issuer, sid="s-1", name="Alice", at_hash=at_hash(256)), issuer)
    identity = found.identity
    assert (identity.issuer, identity.subject, identity.groups) == (ISSUER, "u-alice-0001", frozenset({"eng"}))
    assert (identity.session, identity.client, identity.method) == ("s-1", CLIENT, "session")
    assert (identity.issued_at, found.subject, found.name) == (NOW, "u-alice-0001", "Alice")
    assert "Alice" not in repr(found)


@pytest.mark.parametrize("algorithm", ALL)
def test_at_hash_is_by_the_algorithm_of_the_token(algorithm: str) -> None:
    issuer = mint(algorithm)
    rules = dataclasses.replace(RULES, algorithms=ALL)
    bits = 512 if algorithm in {"EdDSA", "Ed25519"} else int(algorithm[2:])
    signed_in(id_token(issuer, at_hash=at_hash(bits)), issuer, rules)
    for wrong in {256, 384, 512} - {bits}:
        with pytest.raises(InvalidToken) as caught:
            signed_in(id_token(issuer, at_hash=at_hash(wrong)), issuer, rules)
        assert caught.value.reason == "id_token_at_hash"


@pytest.mark.parametrize("access_token", [None, "another", "", "é", "\udcff"])
def test_an_at_hash_of_nothing_or_of_another_token_is_wrong(access_token: str | None) -> None:
    issuer = mint()
    with pytest.raises(InvalidToken):
        signed_in(id_token(issuer, at_hash=at_hash(256)), issuer, access_token=access_token)


def test_without_a_nonce_that_was_sent_none_fits() -> None:
    issuer = mint()
    for claim in ("", NONCE, ABSENT, "\udcff"):
        with pytest.raises(Unauthenticated):
            signed_in(id_token(issuer, nonce=claim), issuer, nonce="")


def test_other_audiences_are_taken_only_with_the_client_as_authorized_party() -> None:
    issuer = mint()
    signed_in(id_token(issuer, aud=[CLIENT, "api"], azp=CLIENT), issuer)
    signed_in(id_token(issuer, aud=[CLIENT]), issuer)
    wrongs: list[dict[str, object]] = [
        {"aud": [CLIENT, "api"]},
        {"azp": None},
        {"azp": [CLIENT]},
        {"aud": [[CLIENT]]},
        {"aud": {}},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidToken):
            signed_in(id_token(issuer, **wrong), issuer)


def test_an_id_token_is_no_access_token_and_an_access_token_no_id_token() -> None:
    issuer = mint()
    with pytest.raises(Unauthenticated):
        judged(id_token(issuer), issuer)
    with pytest.raises(Unauthenticated):
        signed_in(issuer.token(), issuer)
    # Not even where both have the same audience.
    with pytest.raises(Unauthenticated):
        signed_in(issuer.token(audience=CLIENT, nonce=NONCE), issuer)


def test_the_token_of_another_issuer_is_refused() -> None:
    claims: dict[str, Json] = {"sub": "u", "aud": CLIENT, "iat": NOW, "exp": NOW + 60, "nonce": NONCE}
    token = VerifiedToken("https://evil.example", "JWT", claims)
    with pytest.raises(InvalidToken):
        judge(token, algorithm="RS256", rules=RULES, client_id=CLIENT, nonce=NONCE, access_token=None, now=NOW)


def test_okta_names_the_person_in_sub_whom_its_access_tokens_name_in_uid() -> None:
    issuer = mint()
    okta = dataclasses.replace(RULES, kind="okta", subject=tuple(PRESETS["okta"]["subject"]))  # type: ignore[arg-type]
    access = judged(issuer.token(subject="alice@example.com", uid="00u1"), issuer, okta)
    assert signed_in(id_token(issuer, sub="00u1"), issuer, okta).identity.subject == access.subject == "00u1"


def test_another_claim_names_the_person_in_both_or_nobody_signs_in() -> None:
    issuer = mint()
    entra = dataclasses.replace(RULES, kind="entra", subject=("oid",))
    found = signed_in(id_token(issuer, sub="pairwise", oid="o-1"), issuer, entra)
    assert (found.identity.subject, found.subject) == ("o-1", "pairwise")
    with pytest.raises(InvalidToken):
        signed_in(id_token(issuer, sub="o-1"), issuer, entra)


@pytest.mark.parametrize("name", [7, "", "x" * 201, "a\nb", "\u202egnp", ABSENT, None])
def test_a_strange_name_is_left_out(name: object) -> None:
    issuer = mint()
    assert signed_in(id_token(issuer, name=name), issuer).name is None
