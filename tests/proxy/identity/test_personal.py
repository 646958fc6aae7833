"""The form of a personal access token: what is cut, changed or made up is refused without asking anybody."""

from __future__ import annotations

import re
import zlib
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.identity.credential import Form, credential
from proxy.identity.personal import PersonalToken, new_personal_token, personal_token
from proxy.identity.reasons import Reason
from proxy.refusals import InvalidToken

TOKEN = PersonalToken("abcd1234", bytes(range(32)))
TEXT = TOKEN.text()
ASCII = "".join(map(chr, range(33, 127)))


def refused(text: str) -> str:
    with pytest.raises(InvalidToken) as caught:
        personal_token(text)
    assert len(text) < 8 or text not in caught.value.message
    return caught.value.reason


@given(st.binary(min_size=32, max_size=32), st.from_regex(r"[0-9A-Za-z]{8}", fullmatch=True))
def test_what_is_made_is_read(secret: bytes, token_id: str) -> None:
    text = PersonalToken(token_id, secret).text()
    assert re.fullmatch(r"sgp_[0-9A-Za-z]{8}_[A-Za-z0-9_-]{43}_[0-9A-Za-z]{6}", text)
    assert personal_token(text) == PersonalToken(token_id, secret)


def test_the_form_stays_as_it_is_for_those_who_search_leaks_for_it() -> None:
    assert "sgp_abcd1234_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8_" + TEXT[-6:] == TEXT
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    checksum = 0
    for digit in TEXT[-6:]:
        checksum = 62 * checksum + digits.index(digit)
    assert checksum == zlib.crc32(TEXT[4:-7].encode())


@given(st.integers(0, len(TEXT) - 1), st.sampled_from(ASCII))
def test_one_changed_character_is_seen_without_asking(position: int, character: str) -> None:
    changed = TEXT[:position] + character + TEXT[position + 1 :]
    if changed != TEXT:
        assert refused(changed) == Reason.PERSONAL_FORM.value


@pytest.mark.parametrize("length", [0, 3, 4, 12, 13, 30, 56, 57, 62])
def test_a_cut_token_is_seen_without_asking(length: int) -> None:
    assert refused(TEXT[:length]) == Reason.PERSONAL_FORM.value


@pytest.mark.parametrize(
    "text",
    [
        TEXT + "\n",
        " " + TEXT,
        TEXT + "=",
        TEXT.upper(),
        TEXT.replace("sgp_", "sgp-"),
        TEXT.replace("sgp_", "SGP_"),
        TEXT.replace("abcd1234", "abcd123\u0664"),
        TEXT + TEXT,
        "sgp_",
        "sgp_" + "_" * 59,
        "",
    ],
)
def test_another_spelling_is_no_token(text: str) -> None:
    assert refused(text) == Reason.PERSONAL_FORM.value


def test_the_unused_bits_of_the_secrets_last_character_are_zero() -> None:
    """Else one token would have four spellings, each with a digest of its own in memory."""
    body = urlsafe_b64encode(bytes(32)).rstrip(b"=").decode()
    twin = body[:-1] + chr(ord(body[-1]) + 1)
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    rest = zlib.crc32(f"abcd1234_{twin}".encode())
    checksum = ""
    for _ in range(6):
        rest, digit = divmod(rest, 62)
        checksum = digits[digit] + checksum
    assert refused(f"sgp_abcd1234_{twin}_{checksum}") == Reason.PERSONAL_FORM.value


def test_no_two_tokens_are_alike() -> None:
    made = [new_personal_token() for _ in range(200)]
    assert len({token.secret for token in made}) == len({token.id for token in made}) == len(made)


def test_a_tokens_secret_is_not_shown() -> None:
    assert TOKEN.text() not in repr(TOKEN)
    assert repr(TOKEN.secret) not in repr(TOKEN)


def test_it_comes_through_every_header_that_a_client_has() -> None:
    for line in (("Authorization", f"Bearer {TEXT}"), ("x-api-key", TEXT), ("api-key", TEXT)):
        assert credential([line]).form is Form.PERSONAL
