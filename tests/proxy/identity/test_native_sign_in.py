"""The gate's word on where to sign in: what is written is what is read, and another form is not guessed at."""

from __future__ import annotations

import json

import pytest

from proxy.identity.native_sign_in import MEMBER, NativeSignIn, NoSignInError, member_of, sign_ins_in
from proxy.identity.token import Json

ISSUER = "https://sso.example.com"
SIGN_INS = (
    NativeSignIn(issuer=ISSUER, client_id="saltgate cli", scopes=("openid", "offline_access")),
    NativeSignIn(issuer="https://other.example", client_id="c", scopes=(), resource="urn:llm"),
)
GOOD: dict[str, Json] = {"issuer": ISSUER, "client_id": "c", "scopes": ["openid"]}


def test_what_is_written_is_what_is_read() -> None:
    document = {"authorization_servers": [ISSUER, "https://other.example"], MEMBER: member_of(SIGN_INS)}
    assert sign_ins_in(json.loads(json.dumps(document))) == SIGN_INS


def test_a_gate_without_it_has_no_such_sign_in() -> None:
    assert sign_ins_in({"authorization_servers": [ISSUER]}) == ()


@pytest.mark.parametrize(
    "member",
    [
        "x",
        {},
        None,
        [None],
        [GOOD | {"issuer": None}],
        [GOOD | {"issuer": "https://sso.example.com/"}],
        [GOOD | {"issuer": "https://elsewhere.example"}],
        [GOOD | {"client_id": ""}],
        [GOOD | {"client_id": "a\x1b[2J"}],
        [GOOD | {"client_id": "é"}],
        [GOOD | {"scopes": "openid"}],
        [GOOD | {"scopes": ["openid profile"]}],
        [GOOD | {"scopes": [1]}],
        [GOOD | {"resource": 1}],
        [GOOD | {"resource": "a b"}],
        [GOOD | {"resource": "x" * 3000}],
        [GOOD] * 33,
    ],
)
def test_another_form_is_not_guessed_at(member: object) -> None:
    with pytest.raises(NoSignInError):
        sign_ins_in({"authorization_servers": [ISSUER], MEMBER: member})  # type: ignore[dict-item]


def test_an_issuer_whose_tokens_the_gate_does_not_take_is_not_signed_in_at() -> None:
    with pytest.raises(NoSignInError, match="does not take"):
        sign_ins_in({MEMBER: [dict(GOOD)]})
