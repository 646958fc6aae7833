"""A sign-in on its way: sealed, bound to its browser, over after ten minutes."""

from __future__ import annotations

import pytest

from proxy.account.attempt import Attempt, AttemptSeal, fresh_attempt
from proxy.refusals import InvalidRequest

KEY, OTHER = b"k" * 32, b"o" * 32
BROWSER, STRANGER = "b" * 43, "s" * 43
NOW = 1_900_000_000.0


def attempt() -> Attempt:
    return fresh_attempt("https://sso.example", return_to="/account", now=NOW)


def test_only_the_browser_that_began_can_go_on() -> None:
    begun = attempt()
    seal = AttemptSeal([KEY])
    state = seal.seal(begun, BROWSER)
    assert seal.open(state, BROWSER, now=NOW + 1) == begun
    with pytest.raises(InvalidRequest):
        seal.open(state, STRANGER, now=NOW + 1)


def test_the_state_tells_nothing_and_cannot_be_changed() -> None:
    begun = attempt()
    seal = AttemptSeal([KEY])
    state = seal.seal(begun, BROWSER)
    assert begun.nonce not in state
    assert seal.seal(begun, BROWSER) != state
    for place in range(len(state)):
        changed = state[:place] + ("A" if state[place] != "A" else "B") + state[place + 1 :]
        with pytest.raises(InvalidRequest):
            seal.open(changed, BROWSER, now=NOW)


@pytest.mark.parametrize("state", ["", "A", "A" * 16, "A" * 64, "=" * 40, "é" * 40, "\udcff", "A" * 4000, "+/" * 20])
def test_what_is_no_state_is_refused(state: str) -> None:
    with pytest.raises(InvalidRequest):
        AttemptSeal([KEY]).open(state, BROWSER, now=NOW)


def test_it_is_over_after_ten_minutes() -> None:
    seal = AttemptSeal([KEY])
    state = seal.seal(attempt(), BROWSER)
    assert seal.open(state, BROWSER, now=NOW + 600).begun_at == NOW
    for late in (601.0, 86400.0, -601.0):
        with pytest.raises(InvalidRequest) as caught:
            seal.open(state, BROWSER, now=NOW + late)
        assert caught.value.reason == "state_expired"


def test_a_rotated_key_still_opens_and_a_foreign_one_does_not() -> None:
    state = AttemptSeal([KEY]).seal(attempt(), BROWSER)
    assert AttemptSeal([OTHER, KEY]).open(state, BROWSER, now=NOW).issuer == "https://sso.example"
    with pytest.raises(InvalidRequest):
        AttemptSeal([OTHER]).open(state, BROWSER, now=NOW)


def test_nonce_and_verifier_have_256_random_bits_and_are_not_shown() -> None:
    one, other = attempt(), attempt()
    assert one.nonce != other.nonce
    assert one.verifier != other.verifier
    assert (len(one.nonce), len(one.verifier)) == (43, 43)
    assert one.verifier not in repr(one)
    assert one.nonce not in repr(one)
