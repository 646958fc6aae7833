"""The canaries of tests are found however they come out, and nothing else is."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode

import pytest

from tests.parts.canaries import PART, Canaries, Leak


@pytest.mark.parametrize("begin", [0, 1, 13, 48 - PART])
def test_any_sixteen_characters_in_a_row_are_found(begin: int) -> None:
    canaries = Canaries()
    secret = canaries.new("key")
    (leak,) = canaries.leaks({"log": b"before " + secret[begin : begin + PART].encode() + b" after"})
    assert leak == Leak("key", "log", b"before ")


@pytest.mark.parametrize("skipped", [0, 1, 2, 3])
def test_encodings_are_found_wherever_the_secret_begins_in_what_was_encoded(skipped: int) -> None:
    canaries = Canaries()
    secret = canaries.known("key", "A~secret?with>all/kinds+of=characters").encode()
    around = b"x" * skipped + secret + b"y"
    for encoded in (b64encode(around), urlsafe_b64encode(around), secret.hex().encode(), secret.hex().upper().encode()):
        assert canaries.leaks({"log": encoded})


def test_upper_and_lower_case_are_the_same() -> None:
    canaries = Canaries()
    secret = canaries.known("key", "AbCdEfGhIjKlMnOpQrStUvWx")
    assert canaries.leaks({"log": secret.lower().encode()})
    assert canaries.leaks({"log": secret.upper().encode()})


def test_fifteen_characters_are_no_part() -> None:
    canaries = Canaries()
    part = canaries.new("key")[: PART - 1] + "\n"  # else its beginning behind its end may be a part, by chance
    assert not canaries.leaks({"log": part.encode() * 9})


def test_a_failed_check_names_the_canary_and_never_tells_it() -> None:
    canaries = Canaries()
    secret = canaries.new("the bearer token")
    with pytest.raises(AssertionError) as failed:
        canaries.check({"log": json.dumps({"x": secret}).encode(), "spans": b"well"})
    assert "the bearer token in log" in str(failed.value)
    assert not canaries.leaks({"message": str(failed.value).encode()})


def test_a_place_where_nothing_was_written_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="spans"):
        Canaries().check({"log": b"x", "spans": b""})
