"""Whatever comes, it is refused with a `Refusal`; the pure way has no broad `except` that could hide a crash."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.identity import Identity
from proxy.identity.credential import Form, credential
from proxy.refusals import Refusal
from tests.parts.tokens import base64url, signing_key
from tests.proxy.identity.judging import ISSUER, NOW, judged, mint

MINT = mint("ES256")
TOKEN = MINT.token()
STRANGER = signing_key("ES256", MINT.key().key_id, number=99)
EFFORT = settings(max_examples=80, deadline=None)

_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
_names = st.sampled_from(
    [
        "iss",
        "sub",
        "aud",
        "exp",
        "iat",
        "nbf",
        "typ",
        "azp",
        "client_id",
        "groups",
        "cnf",
        "events",
        "hasgroups",
        "_claim_names",
    ]
)
_likely = st.sampled_from(
    [ISSUER, "saltgate", ["saltgate"], NOW, NOW + 60, int(NOW) + 60, ["eng"], "u-alice-0001", "chat-ui", True]
)
_header_names = st.sampled_from(["alg", "kid", "typ", "crit", "b64", "cty", "jwk", "jku", "x5c", "enc", "zip"])
_likely_header = st.sampled_from(["ES256", "none", "HS256", "at+jwt", MINT.key().key_id, [], {}, False])


def outcome(token: str) -> Identity | Refusal:
    try:
        return judged(token, MINT, algorithms=("ES256",))
    except Refusal as refusal:
        return refusal


def written(members: dict[str, object]) -> bytes:
    return json.dumps(members).encode()


@EFFORT
@given(st.text(max_size=200))
def test_any_text_is_refused(text: str) -> None:
    assert isinstance(outcome(text), Refusal)


@EFFORT
@given(
    st.lists(
        st.tuples(st.sampled_from(["Authorization", "x-api-key", "api-key", "Cookie"]), st.text(max_size=60)),
        max_size=4,
    )
)
def test_any_headers_give_a_credential_or_a_refusal(headers: list[tuple[str, str]]) -> None:
    try:
        shown = credential(headers)
    except Refusal:
        return
    assert shown.token.isascii()
    assert shown.token.isprintable()
    assert shown.form is not Form.SIGNED or shown.token.count(".") == 2


@EFFORT
@given(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80))
def test_any_three_parts_are_refused(header: bytes, payload: bytes, signature: bytes) -> None:
    assert isinstance(outcome(".".join(map(base64url, (header, payload, signature)))), Refusal)


@EFFORT
@given(st.data())
def test_a_token_changed_by_one_character_is_refused(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(TOKEN) - 1))
    letter = data.draw(st.sampled_from("ABab01-_.=+/ \n\0é"))
    edits: list[Callable[[], str]] = [
        lambda: TOKEN[:place] + letter + TOKEN[place + 1 :],
        lambda: TOKEN[:place] + letter + TOKEN[place:],
        lambda: TOKEN[:place] + TOKEN[place + 1 :],
        lambda: TOKEN[:place],
        lambda: TOKEN[place + 1 :],
    ]
    changed = data.draw(st.sampled_from(edits))()
    if changed != TOKEN:
        assert isinstance(outcome(changed), Refusal)


@EFFORT
@given(
    st.dictionaries(_header_names, _likely_header | _json, max_size=4),
    st.dictionaries(_names, _likely | _json, max_size=6),
)
def test_nothing_that_a_stranger_signs_is_accepted(header: dict[str, object], claims: dict[str, object]) -> None:
    head = {"alg": "ES256", "typ": "at+jwt", "kid": STRANGER.key_id} | header
    body = {"iss": ISSUER, "sub": "u-alice-0001", "aud": "saltgate", "exp": NOW + 60} | claims
    assert isinstance(outcome(STRANGER.sign(written(head), written(body))), Refusal)


@EFFORT
@given(
    st.dictionaries(_header_names, _likely_header | _json, max_size=2),
    st.dictionaries(_names, _likely | _json, max_size=4),
)
def test_whatever_the_issuer_signs_an_identity_keeps_its_promises(
    header: dict[str, object], claims: dict[str, object]
) -> None:
    head = {"alg": "ES256", "typ": "at+jwt", "kid": MINT.key().key_id} | header
    body: dict[str, object] = {"iss": ISSUER, "sub": "u-alice-0001", "aud": "saltgate", "exp": NOW + 60} | claims
    got = outcome(MINT.key().sign(written(head), written(body)))
    if isinstance(got, Identity):
        assert got.issuer == ISSUER
        assert 0 < len(got.subject) <= 255
        assert got.subject == body["sub"]
        assert NOW - 30 < got.expires_at <= NOW + 25 * 3600 + 30
        assert body["aud"] == "saltgate" or "saltgate" in body["aud"]  # type: ignore[operator]  # a list, if accepted
        assert not {"cnf", "events", "nonce"} & set(body)
        assert not {"crit", "b64", "cty", "enc"} & set(head)
        got.subject.encode()
        assert all(group.encode() for group in got.groups)


def test_the_fuzzed_token_is_good_as_it_is() -> None:
    assert isinstance(outcome(TOKEN), Identity)
    with pytest.raises(Refusal):
        raise outcome(TOKEN[:-1] + ("A" if TOKEN[-1] != "A" else "Q"))  # type: ignore[misc]  # a Refusal
