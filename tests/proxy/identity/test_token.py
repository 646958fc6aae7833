"""How a token is read before anybody has verified it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.identity.token import base64url, compact_token, strict_json
from tests.parts.tokens import base64url as encoded
from tests.proxy.identity.judging import ISSUER, mint


@given(st.binary(max_size=64))
def test_base64url_reads_what_it_writes(data: bytes) -> None:
    assert base64url(encoded(data)) == data


@given(st.text(alphabet="ABQgwz-_09+/= \n", max_size=12))
def test_no_two_texts_are_the_same_bytes(text: str) -> None:
    try:
        data = base64url(text)
    except ValueError:
        return
    assert encoded(data) == text


def test_a_token_tells_its_parts() -> None:
    m = mint()
    token = compact_token(m.token())
    assert (token.algorithm, token.key_id, token.type, token.issuer) == ("RS256", m.key().key_id, "at+jwt", ISSUER)
    assert token.claims["sub"] == "u-alice-0001"


def test_a_token_shows_neither_claims_nor_signature() -> None:
    shown = repr(compact_token(mint().token()))
    assert "alice" not in shown
    assert "signature" not in shown


_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(_VALUES)
def test_ordinary_json_is_read_as_it_is(value: object) -> None:
    assert strict_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b'{"a":1,"a":1}',
        b'[{"a":{"b":1,"b":2}}]',
        b'{"a":1,"\\u0061":2}',
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b"1e400",
        b'["\\udfff"]',
        b'{"\\ud800":1}',
        b"[" * 100_000,
        b"{'a':1}",
        b"[1,]",
        b"// c\n1",
    ],
)
def test_what_two_readers_could_read_differently_is_no_json(data: bytes) -> None:
    with pytest.raises(ValueError):
        strict_json(data)


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert strict_json(b'"\\ud83d\\ude00"') == "\U0001f600"
