"""What an issuer's answer about a token means: exactly active, exactly not, or nothing at all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.settings import Introspection, Issuer
from proxy.identity import Identity
from proxy.identity.claims import identify as identify_signed
from proxy.identity.confirmation import Bound, bearer
from proxy.identity.introspected import Answer, FaultyAnswerError, RefusedClientError, active_claims, identify
from proxy.identity.reasons import Reason
from proxy.identity.token import VerifiedToken
from proxy.refusals import InvalidToken, TokenExpired, Unauthenticated
from tests.parts.tokens import ABSENT

NOW = 1_900_000_000.0
ISSUER = "https://sso.example.test/realms/acme"
RULES = Issuer(
    issuer=ISSUER,
    audiences=("saltgate",),
    introspection=Introspection(client_id="saltgate", service_accounts=("svc-batch",)),
)
GOOD: dict[str, object] = {
    "active": True,
    "sub": "u-alice-0001",
    "aud": "saltgate",
    "exp": int(NOW) + 300,
    "client_id": "chat-ui",
    "groups": ["eng"],
}


def answer(body: bytes, *, status: int = 200, media_type: str = "application/json", encoded: bool = False) -> Answer:
    return Answer(status=status, media_type=media_type, encoded=encoded, body=body)


def judged(rules: Issuer = RULES, /, **changes: object) -> Identity:
    members = {name: value for name, value in (GOOD | changes).items() if value is not ABSENT}
    claims = active_claims(answer(json.dumps(members).encode()))
    assert claims is not None
    return bearer(identify(claims, rules=rules, now=NOW))


def test_only_false_says_that_a_token_is_not_active() -> None:
    assert active_claims(answer(b'{"active":false}')) is None
    assert active_claims(answer(b'{"active":false,"sub":"u-alice-0001","aud":"saltgate"}')) is None


@pytest.mark.parametrize(
    "value", [b'"true"', b"1", b"1.0", b"null", b'"false"', b"0", b"[true]", b'{"a":true}', b'"active"', b'""']
)
def test_whatever_is_neither_true_nor_false_is_a_fault_of_the_issuer(value: bytes) -> None:
    with pytest.raises(FaultyAnswerError):
        active_claims(answer(b'{"active":' + value + b',"sub":"u-alice-0001","aud":"saltgate","exp":1900000300}'))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"true",
        b'"active"',
        b"<html>sign in</html>",
        b'{"active":true',
        b'{"active":true,"active":false}',
        b'{"active":false,"active":true}',
        b'{"active":true,"sub":"a","sub":"b"}',
        b'{"active":true,"exp":NaN}',
        b'{"active":true,"exp":1e999}',
        b'{"active":true,"x":{"a":1,"a":2}}',
        b'{"active":true,"sub":"\\ud800"}',
        b'{"active":true,"sub":"\xff"}',
        b"\xef\xbb\xbf" + b'{"active":true}',
        b'{"active":true,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda body: body[:40],
)
def test_what_is_not_one_json_object_without_doubt_is_a_fault_of_the_issuer(body: bytes) -> None:
    with pytest.raises(FaultyAnswerError) as caught:
        active_claims(answer(body))
    assert "sub" not in str(caught.value)


@pytest.mark.parametrize("body", [b'{"active":true}', b'{"active":false}'])
@pytest.mark.parametrize(
    "changes",
    [{"media_type": media_type} for media_type in ("text/html", "", "application/jwt", "text/json")]
    + [{"media_type": "application/token-introspection+jwt"}, {"encoded": True}]
    + [{"status": status} for status in (100, 201, 202, 204, 206, 301, 302, 304, 307, 400, 401, 403, 404, 429, 500)],
    ids=str,
)
def test_an_answer_in_another_form_is_a_fault_whatever_it_says(body: bytes, changes: dict[str, object]) -> None:
    with pytest.raises(FaultyAnswerError):
        active_claims(answer(body, **changes))  # type: ignore[arg-type]


def test_a_token_of_another_kind_is_not_active() -> None:
    assert active_claims(answer(b'{"error":"unsupported_token_type"}', status=400)) is None


@pytest.mark.parametrize(
    ("status", "body", "media_type"),
    [
        (400, b'{"error":"invalid_request"}', "application/json"),
        (400, b'{"error":["unsupported_token_type"]}', "application/json"),
        (400, b'{"error":"unsupported_token_type"}', "text/plain"),
        (200, b'{"error":"unsupported_token_type"}', "application/json"),
        (500, b'{"error":"unsupported_token_type"}', "application/json"),
    ],
)
def test_another_error_says_nothing_about_the_token(status: int, body: bytes, media_type: str) -> None:
    with pytest.raises(FaultyAnswerError):
        active_claims(answer(body, status=status, media_type=media_type))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b""),
        (403, b"<html>"),
        (400, b'{"error":"invalid_client"}'),
        (400, b'{"error":"unauthorized_client"}'),
        (401, b'{"active":false}'),
    ],
)
def test_that_saltgate_is_not_let_in_there_is_told_apart(status: int, body: bytes) -> None:
    with pytest.raises(RefusedClientError):
        active_claims(answer(body, status=status))


def test_an_active_token_gives_its_identity() -> None:
    identity = judged()
    assert identity == Identity(ISSUER, "u-alice-0001", frozenset({"eng"}), True, NOW + 300, "chat-ui", "introspection")


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": ISSUER},
        {"token_type": "bearer"},
        {"token_type": "BEARER"},
        {"token_use": "access_token"},
        {"aud": ["other", "saltgate"]},
        {"username": "alice@example.test"},
        {"scope": "llm.chat"},
        {"exp": int(NOW) - 20},
    ],
    ids=str,
)
def test_what_a_good_answer_may_also_say(changes: dict[str, object]) -> None:
    assert judged(**changes).subject == "u-alice-0001"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iss": ISSUER + "/"}, Reason.ISSUER),
        ({"iss": ISSUER.upper()}, Reason.ISSUER),
        ({"iss": None}, Reason.ISSUER),
        ({"iss": [ISSUER]}, Reason.ISSUER),
        ({"aud": ABSENT}, Reason.AUDIENCE),
        ({"aud": "other"}, Reason.AUDIENCE),
        ({"aud": "saltgate2"}, Reason.AUDIENCE),
        ({"aud": "saltgate other"}, Reason.AUDIENCE),
        ({"aud": []}, Reason.AUDIENCE),
        ({"aud": ["saltgate", 1]}, Reason.AUDIENCE),
        ({"aud": None}, Reason.AUDIENCE),
        ({"exp": ABSENT}, Reason.LIFETIME),
        ({"exp": str(int(NOW) + 300)}, Reason.LIFETIME),
        ({"exp": True}, Reason.LIFETIME),
        ({"exp": None}, Reason.LIFETIME),
        ({"exp": 253_402_300_800}, Reason.LIFETIME),
        ({"exp": int(NOW) + 30 * 3600}, Reason.LIFETIME),
        ({"nbf": int(NOW) + 60}, Reason.NOT_YET_VALID),
        ({"sub": ABSENT}, Reason.NO_SUBJECT),
        ({"sub": ABSENT, "aud": "other"}, Reason.AUDIENCE),
        ({"sub": ""}, Reason.SUBJECT),
        ({"sub": None}, Reason.SUBJECT),
        ({"sub": 7}, Reason.SUBJECT),
        ({"sub": "u-\u200balice-0001"}, Reason.SUBJECT),
        ({"sub": "a" * 256}, Reason.SUBJECT),
        ({"token_type": "DPoP"}, Reason.SENDER_CONSTRAINED),
        ({"cnf": {"jkt": "x"}}, Reason.SENDER_CONSTRAINED),
        ({"cnf": {"x5t#S256": "x"}}, Reason.SENDER_CONSTRAINED),
        ({"cnf": {}}, Reason.SENDER_CONSTRAINED),
        ({"cnf": None}, Reason.SENDER_CONSTRAINED),
        ({"token_type": "Refresh"}, Reason.NOT_AN_ACCESS_TOKEN),
        ({"token_type": "refresh_token"}, Reason.NOT_AN_ACCESS_TOKEN),
        ({"token_type": None}, Reason.NOT_AN_ACCESS_TOKEN),
        ({"token_type": ""}, Reason.NOT_AN_ACCESS_TOKEN),
        ({"token_type": ["Bearer"]}, Reason.NOT_AN_ACCESS_TOKEN),
        ({"token_use": "refresh_token"}, Reason.NOT_AN_ACCESS_TOKEN),
        ({"token_use": "id"}, Reason.NOT_AN_ACCESS_TOKEN),
        ({"nonce": "n"}, Reason.NOT_AN_ACCESS_TOKEN),
        ({"at_hash": "h"}, Reason.NOT_AN_ACCESS_TOKEN),
        ({"events": {}}, Reason.NOT_AN_ACCESS_TOKEN),
        ({"groups": "eng"}, Reason.GROUPS),
        ({"groups": ["eng", 1]}, Reason.GROUPS),
        ({"client_id": 5}, Reason.CLIENT),
    ],
    ids=str,
)
def test_an_active_token_that_breaks_a_rule_is_refused(changes: dict[str, object], reason: Reason) -> None:
    with pytest.raises(Unauthenticated) as caught:
        judged(**changes)
    assert caught.value.reason == reason.value


@pytest.mark.parametrize("use", [["access"], {"access": 1}], ids=str)
def test_a_token_use_that_is_no_word_is_refused(use: object) -> None:
    with pytest.raises(Unauthenticated):
        judged(token_use=use)


def test_an_active_token_that_is_over_is_refused() -> None:
    with pytest.raises(TokenExpired):
        judged(exp=int(NOW) - 60)


@pytest.mark.parametrize(
    "changes", [{"client_id": "other"}, {"client_id": ABSENT}, {"azp": "other"}, {"client_id": "chat-ui "}], ids=str
)
def test_a_client_that_is_not_listed_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(Unauthenticated) as caught:
        judged(dataclasses.replace(RULES, clients=("chat-ui",)), **changes)
    assert caught.value.reason == Reason.CLIENT.value


def test_the_issuers_own_claim_paths_hold_for_answers_too() -> None:
    rules = dataclasses.replace(RULES, subject=("uid",), groups=(("realm_access", "roles"), ("groups",)))
    identity = judged(rules, sub="alice@example.test", uid="00u1", realm_access={"roles": ["llm"]})
    assert (identity.subject, identity.groups) == ("00u1", frozenset({"eng", "llm"}))


def test_keycloaks_payload_type_is_required_of_answers_too() -> None:
    rules = dataclasses.replace(RULES, payload_type="Bearer")
    assert judged(rules, typ="Bearer").subject == "u-alice-0001"
    for typ in ("Refresh", ABSENT):
        with pytest.raises(Unauthenticated):
            judged(rules, typ=typ)


def test_more_groups_than_the_issuer_could_name_are_unknown() -> None:
    assert not judged(_claim_names={"groups": "src1"}).groups_complete


def test_a_listed_service_account_is_its_own_subject() -> None:
    identity = judged(sub=ABSENT, client_id="svc-batch")
    assert (identity.subject, identity.client) == ("svc-batch", "svc-batch")
    nested = dataclasses.replace(RULES, subject=("person", "id"))
    assert judged(nested, client_id="svc-batch").subject == "svc-batch"


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "chat-ui"},
        {"client_id": ABSENT, "azp": "svc-batch"},
        {"client_id": "svc-batch", "sub": None},
        {"client_id": "svc-batch", "sub": ""},
        {"client_id": "svc-batch", "username": "alice"},
        {"client_id": ["svc-batch"]},
    ],
    ids=str,
)
def test_an_answer_about_a_person_without_a_subject_names_nobody(changes: dict[str, object]) -> None:
    with pytest.raises(Unauthenticated):
        judged(**({"sub": ABSENT} | changes))


def test_without_a_list_no_client_is_a_subject() -> None:
    rules = dataclasses.replace(RULES, introspection=Introspection(client_id="saltgate"))
    with pytest.raises(Unauthenticated):
        judged(rules, sub=ABSENT, client_id="svc-batch")


def test_an_answer_does_not_show_its_body() -> None:
    assert "alice" not in repr(answer(b'{"active":true,"sub":"alice"}'))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS | st.sampled_from(["saltgate", "Bearer", "access", ISSUER, "svc-batch", NOW + 60, ["saltgate"], ["eng"]]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    (
        *("iss", "aud", "exp", "iat", "nbf", "sub", "groups", "client_id", "azp", "cid", "token_type", "token_use"),
        *("cnf", "username", "_claim_names", "hasgroups", "typ", "nonce", "events", "error", "scope"),
    )
)


@pytest.mark.parametrize("kind", ["Bearer", "DPoP", "dpop"])
def test_a_bound_opaque_token_proves_nobody_without_what_it_is_bound_to(kind: str) -> None:
    claims = GOOD | {"token_type": kind, "cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}}
    found = identify(claims, rules=RULES, now=NOW)  # type: ignore[arg-type]
    assert isinstance(found, Bound)
    with pytest.raises(InvalidToken):
        bearer(found)


def test_a_dpop_token_that_does_not_say_its_key_is_refused() -> None:
    with pytest.raises(InvalidToken):
        identify(GOOD | {"token_type": "DPoP"}, rules=RULES, now=NOW)  # type: ignore[arg-type]


@given(changes=st.dictionaries(NAMES, VALUES | st.just(ABSENT), max_size=4))
def test_whatever_an_issuer_says_of_a_token_it_is_an_identity_or_a_refusal(changes: dict[str, object]) -> None:
    claims = {name: value for name, value in (GOOD | changes).items() if value is not ABSENT}
    try:
        identity = bearer(identify(claims, rules=RULES, now=NOW))  # type: ignore[arg-type]
    except Unauthenticated:
        return
    assert "cnf" not in claims
    assert identity.subject in (claims.get("sub"), "svc-batch")
    assert claims.get("iss", ISSUER) == ISSUER


@given(changes=st.dictionaries(NAMES, VALUES | st.just(ABSENT), max_size=4))
def test_the_same_claims_prove_the_same_signed_or_answered(changes: dict[str, object]) -> None:
    told = GOOD | changes | {"iss": ISSUER, "token_type": "Bearer", "token_use": "access", "username": "a"}
    claims = {name: value for name, value in told.items() if value is not ABSENT}
    token = VerifiedToken(issuer=ISSUER, type="at+jwt", claims=claims)  # type: ignore[arg-type]

    def outcome(judge: Callable[[], Identity | Bound]) -> tuple[object, ...]:
        try:
            found = bearer(judge())
        except Unauthenticated as refusal:
            # Only the operator's word for a subject that is missing differs: the remedy does.
            return type(refusal), refusal.reason.replace(Reason.NO_SUBJECT.value, Reason.SUBJECT.value)
        return found.subject, found.groups, found.groups_complete, found.expires_at, found.client

    signed = outcome(lambda: identify_signed(token, rules=RULES, now=NOW))
    assert signed == outcome(lambda: identify(claims, rules=RULES, now=NOW))  # type: ignore[arg-type]


@given(body=st.binary(max_size=60) | st.text(alphabet='{}[]":,activetruefalse01 \\', max_size=60).map(str.encode))
def test_bytes_of_any_kind_are_an_answer_or_a_fault(body: bytes) -> None:
    for status in (200, 400):
        try:
            found = active_claims(answer(body, status=status))
        except FaultyAnswerError:
            continue
        assert b'"active"' in body or status == 400
        assert found is None or found["active"] is True
