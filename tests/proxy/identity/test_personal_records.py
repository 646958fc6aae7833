"""Whom a token proves, and that a guesser learns nothing from how it is refused."""

from __future__ import annotations

import hmac
from dataclasses import replace

import pytest

from proxy.identity import Identity
from proxy.identity.personal import PersonalToken
from proxy.identity.personal_records import (
    NOBODYS,
    Kept,
    Login,
    Owner,
    PersonalRules,
    TokenRecord,
    identify_personal,
)
from proxy.identity.reasons import Reason, invalid_token
from proxy.refusals import Dialect, InvalidToken, Refusal, TokenExpired

ISSUER = "https://sso.example.com"
NOW = 1_000_000.0
TOKEN = PersonalToken("abcd1234", bytes(range(32)))
RECORD = TokenRecord(
    id="abcd1234",
    digest=TOKEN.digest,
    owner=Owner(ISSUER, "alice"),
    name="ci",
    projects=None,
    created=int(NOW) - 100,
    expires=int(NOW) + 100,
)
RULES = PersonalRules(issuers=frozenset({ISSUER}), without_groups=frozenset(), groups_max_age=3600.0)
LOGIN = Login(frozenset({"eng"}), True, NOW - 10)


def identified(kept: Kept | None = None, *, token: PersonalToken = TOKEN, rules: PersonalRules = RULES) -> Identity:
    return identify_personal(token, kept or Kept(RECORD, LOGIN), rules=rules, now=NOW)


def test_a_token_proves_its_owner() -> None:
    assert identified() == Identity(
        issuer=ISSUER,
        subject="alice",
        groups=frozenset({"eng"}),
        groups_complete=True,
        expires_at=NOW + 100,
        method="pat",
        issued_at=NOW - 100,
        token_id="abcd1234",
    )


def refusals() -> dict[str, tuple[PersonalToken, Kept | None, PersonalRules]]:
    return {
        "unknown": (TOKEN, None, RULES),
        "wrong secret": (replace(TOKEN, secret=bytes(32)), Kept(RECORD, LOGIN), RULES),
        "nobody's digest": (TOKEN, Kept(replace(NOBODYS, id=TOKEN.id), None), RULES),
        "record of another id": (TOKEN, Kept(replace(RECORD, id="zzzz1234"), LOGIN), RULES),
        "issuer no longer trusted": (TOKEN, Kept(RECORD, LOGIN), replace(RULES, issuers=frozenset())),
        "wrong secret of an expired one": (
            replace(TOKEN, secret=bytes(32)),
            Kept(replace(RECORD, expires=int(NOW) - 1), LOGIN),
            RULES,
        ),
    }


@pytest.mark.parametrize("case", refusals())
def test_unknown_revoked_and_wrong_are_refused_alike_after_the_same_steps(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    token, kept, rules = refusals()[case]
    with pytest.raises(InvalidToken) as caught:
        identify_personal(token, kept, rules=rules, now=NOW)
    assert compared == [(32, 32)]
    revoked = invalid_token(Reason.PERSONAL_ENDED)
    for dialect in Dialect:
        assert caught.value.document(dialect) == revoked.document(dialect)


@pytest.mark.parametrize("expires", [NOW, NOW - 1, 0])
def test_an_expired_token_is_told_so_to_who_has_it(expires: float) -> None:
    with pytest.raises(TokenExpired) as caught:
        identified(Kept(replace(RECORD, expires=int(expires)), LOGIN))
    assert "saltgate pat create" in caught.value.message


@pytest.mark.parametrize(
    ("login", "groups", "complete"),
    [
        (LOGIN, {"eng"}, True),
        (replace(LOGIN, at=NOW - 3600), {"eng"}, True),
        (replace(LOGIN, at=NOW - 3600.1), set(), False),
        (replace(LOGIN, at=0), set(), False),
        (None, set(), False),
        (replace(LOGIN, groups_complete=False), {"eng"}, False),
        (Login(frozenset(), True, NOW), set(), True),
    ],
)
def test_groups_are_those_of_a_recent_login_or_unknown(login: Login | None, groups: set[str], complete: bool) -> None:
    found = identified(Kept(RECORD, login))
    assert (set(found.groups), found.groups_complete) == (groups, complete)


def test_where_people_have_no_groups_that_is_known_without_a_login() -> None:
    found = identified(Kept(RECORD, None), rules=replace(RULES, without_groups=frozenset({ISSUER})))
    assert (found.groups, found.groups_complete) == (frozenset(), True)


def test_a_tokens_projects_go_with_the_identity() -> None:
    limited = identified(Kept(replace(RECORD, projects=(("acme", "apollo"),)), LOGIN))
    assert limited.projects == frozenset({("acme", "apollo")})
    assert identified(Kept(replace(RECORD, projects=()), LOGIN)).projects == frozenset()


def test_a_record_does_not_show_the_digest() -> None:
    assert RECORD.digest.hex() not in repr(RECORD)
    assert repr(RECORD.digest) not in repr(RECORD)


def test_a_refusal_never_repeats_the_token() -> None:
    for token, kept, rules in refusals().values():
        with pytest.raises(Refusal) as caught:
            identify_personal(token, kept, rules=rules, now=NOW)
        assert token.id not in caught.value.message
