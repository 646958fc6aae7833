"""What a verified token proves; the corpus holds the many wrong ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from config.settings import Login
from proxy.identity.claims import identify
from proxy.identity.token import VerifiedToken
from proxy.refusals import InvalidToken, TokenExpired
from tests.parts.tokens import ABSENT
from tests.proxy.identity.judging import ISSUER, NOW, RULES, judged, mint


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (31, "31 seconds"),
        (60, "1 minute"),
        (4 * 60 + 20, "4 minutes"),
        (3600, "1 hour"),
        (5 * 3600, "5 hours"),
        (86400, "1 day"),
        (9 * 86400, "9 days"),
    ],
)
def test_an_expired_token_is_told_how_long_ago_and_what_to_do(seconds: int, said: str) -> None:
    m = mint()
    token = m.token(iat=NOW - seconds - 300, exp=NOW - seconds)
    with pytest.raises(TokenExpired, match=f"Your sign-in expired {said} ago. Sign in again"):
        judged(token, m)


PAGE = "https://llm.example.com/auth/login"


@pytest.mark.parametrize(
    ("login", "page", "remedy"),
    [
        (None, PAGE, "Sign in again, or have your client refresh its token."),
        (Login(native_client_id="cli"), PAGE, "Run `saltgate login`."),
        (Login(native_client_id="cli"), None, "Run `saltgate login`."),
        (Login(client_id="web"), None, "Sign in again, or have your client refresh its token."),
        (Login(client_id="web"), PAGE, f"Sign in again at {PAGE}, or have your client refresh its token."),
        (Login(client_id="web", native_client_id="cli"), PAGE, f"Run `saltgate login`, or sign in at {PAGE}."),
    ],
)
def test_the_remedy_is_one_that_the_deployment_has(login: Login | None, page: str | None, remedy: str) -> None:
    claims = {"iss": ISSUER, "sub": "s", "aud": "saltgate", "iat": NOW - 600, "exp": NOW - 240}
    token = VerifiedToken(ISSUER, "at+jwt", claims)  # type: ignore[arg-type]
    with pytest.raises(TokenExpired) as caught:
        identify(token, rules=replace(RULES, login=login), now=NOW, sign_in_url=page)
    assert caught.value.message == f"Your sign-in expired 4 minutes ago. {remedy}"


def test_an_expired_token_for_somebody_else_is_invalid_only_after_it_is_expired() -> None:
    m = mint()
    with pytest.raises(TokenExpired):
        judged(m.token(audience="other", iat=NOW - 600, exp=NOW - 300), m)


def test_the_leeway_is_the_issuers_own() -> None:
    m = mint()
    token = m.token(iat=NOW - 300, exp=NOW - 40)
    with pytest.raises(TokenExpired):
        judged(token, m)
    assert judged(token, m, leeway=60.0).expires_at == NOW - 40


def test_an_identity_ends_with_exp_and_not_with_the_leeway() -> None:
    m = mint()
    assert judged(m.token(lifetime=120), m).expires_at == NOW + 120


def test_an_identity_names_issuer_method_and_client() -> None:
    m = mint()
    identity = judged(m.token(client_id="batch"), m)
    assert (identity.issuer, identity.method, identity.client) == (RULES.issuer, "jwt", "batch")


def test_groups_of_several_paths_are_united() -> None:
    m = mint()
    token = m.token(groups=["a", "b"], realm_access={"roles": ["b", "c"]})
    assert judged(token, m, groups=(("groups",), ("realm_access", "roles"))).groups == {"a", "b", "c"}


def test_a_claim_name_with_dots_is_one_name_and_never_a_path() -> None:
    m = mint()
    token = m.token(claims={"realm_access": {"roles": ["wrong"]}, "realm_access.roles": ["right"]})
    assert judged(token, m, groups=(("realm_access.roles",),)).groups == {"right"}


def test_without_group_paths_no_claim_gives_a_group() -> None:
    m = mint()
    identity = judged(m.token(groups=["eng"], hasgroups=True), m, groups=())
    assert (identity.groups, identity.groups_complete) == (frozenset(), True)


def test_an_overage_leaves_named_groups_but_says_that_there_are_more() -> None:
    m = mint()
    identity = judged(m.token(groups=["eng"], _claim_names={"groups": "src1"}), m)
    assert (identity.groups, identity.groups_complete) == (frozenset({"eng"}), False)


@pytest.mark.parametrize(
    "extra", [{"_claim_names": ["groups"]}, {"_claim_names": None}, {"hasgroups": "true"}, {"hasgroups": 1}]
)
def test_an_overage_said_in_a_strange_form_counts_too(extra: dict[str, object]) -> None:
    m = mint()
    assert judged(m.token(claims=extra), m).groups_complete is False


@pytest.mark.parametrize("extra", [{"_claim_names": {"address": "src1"}}, {"hasgroups": False}])
def test_claims_elsewhere_that_are_no_groups_change_nothing(extra: dict[str, object]) -> None:
    m = mint()
    assert judged(m.token(claims=extra), m).groups_complete is True


def test_the_subject_may_stand_deeper() -> None:
    m = mint()
    assert judged(m.token(sub=ABSENT, user={"id": "u-7"}), m, subject=("user", "id")).subject == "u-7"


def test_a_verified_token_of_one_issuer_is_not_judged_by_the_rules_of_another() -> None:
    with pytest.raises(InvalidToken):
        identify(VerifiedToken(issuer="https://other.example.test", type="at+jwt", claims={}), rules=RULES, now=NOW)
