"""How long, and by what, a verified token is remembered."""

from __future__ import annotations

import pytest

from proxy.identity import Identity
from proxy.identity.cache import Verified, VerifiedTokens, digest_of

NOW = 1_900_000_000.0


def identity(subject: str = "u-alice-0001", *, expires_at: float = NOW + 300) -> Identity:
    return Identity("https://sso.example.test", subject, frozenset(), True, expires_at)


def cache(capacity: int = 10) -> VerifiedTokens:
    return VerifiedTokens(capacity=capacity, lifetime=60.0)


def test_an_entry_lives_at_most_its_lifetime() -> None:
    tokens = cache()
    tokens.keep(b"a", identity(), generation=1, now=NOW)
    assert tokens.find(b"a", now=NOW + 59.9) == Verified(identity(), 1, NOW + 60)
    assert tokens.find(b"a", now=NOW + 60) is None


def test_an_entry_ends_with_the_token() -> None:
    tokens = cache()
    tokens.keep(b"a", identity(expires_at=NOW + 5), generation=1, now=NOW)
    assert tokens.find(b"a", now=NOW + 4.9) is not None
    assert tokens.find(b"a", now=NOW + 5) is None


def test_an_entry_does_not_live_longer_for_being_used() -> None:
    tokens = cache()
    tokens.keep(b"a", identity(), generation=1, now=NOW)
    for second in range(60):
        assert tokens.find(b"a", now=NOW + second) is not None
    assert tokens.find(b"a", now=NOW + 60) is None


def test_a_token_that_is_verified_again_is_so_for_whoever_rests_on_it() -> None:
    tokens = cache()
    before = tokens.keep(b"a", identity(), generation=1, now=NOW)
    rests_on = tokens.find(b"a", now=NOW)
    assert rests_on is not None
    assert tokens.find(b"a", now=NOW + 70) is None
    assert tokens.keep(b"a", identity(), generation=1, now=NOW + 70) is before
    assert tokens.find(b"a", now=NOW + 71) is rests_on
    assert rests_on.until == NOW + 130


@pytest.mark.parametrize(("subject", "generation"), [("u-alice-0001", 2), ("u-bob-0002", 1)])
def test_who_rests_on_other_keys_or_on_another_name_gains_nothing_by_it(subject: str, generation: int) -> None:
    tokens = cache()
    tokens.keep(b"a", identity(), generation=1, now=NOW)
    rests_on = tokens.find(b"a", now=NOW)
    assert rests_on is not None
    assert tokens.keep(b"a", identity(subject), generation=generation, now=NOW + 50) == identity(subject)
    assert rests_on == Verified(identity(), 1, NOW + 60)
    assert tokens.find(b"a", now=NOW + 60) == Verified(identity(subject), generation, NOW + 110)


def test_nothing_stays_of_a_token_that_is_over() -> None:
    tokens = cache()
    tokens.keep(b"a", identity(expires_at=NOW + 5), generation=1, now=NOW)
    tokens.find(b"a", now=NOW + 5)
    assert len(tokens) == 0


def test_a_token_within_the_leeway_only_is_not_kept() -> None:
    tokens = cache()
    tokens.keep(b"a", identity(expires_at=NOW), generation=1, now=NOW)
    assert len(tokens) == 0


def test_the_cache_is_bounded_and_gives_up_what_was_unused_longest() -> None:
    tokens = cache(capacity=2)
    for name in (b"a", b"b"):
        tokens.keep(name, identity(), generation=1, now=NOW)
    tokens.find(b"a", now=NOW)
    tokens.keep(b"c", identity(), generation=1, now=NOW)
    assert len(tokens) == 2
    assert tokens.find(b"b", now=NOW) is None
    assert tokens.find(b"a", now=NOW) is not None


def test_the_key_stands_for_the_whole_token() -> None:
    start = "e" * 16_000
    assert len({digest_of(start + end) for end in ("a", "b", "", "aa")}) == 4
    assert len(digest_of(start)) == 32


def test_what_is_no_token_has_a_key_too() -> None:
    assert digest_of("\udcff") != digest_of("\udcfe")
