"""Which credential a request shows, and what is refused before anybody looks into it."""

from __future__ import annotations

import pytest

from proxy.identity.credential import Form, credential
from proxy.identity.reasons import Reason
from proxy.refusals import CredentialRequired, InvalidRequest, InvalidToken

TOKEN = "eyJh.eyJi.c2ln"
OTHER = "eyJh.eyJj.c2ln"


@pytest.mark.parametrize(
    "name", ["Authorization", "authorization", "AUTHORIZATION", "x-api-key", "X-Api-Key", "api-key", "API-KEY"]
)
def test_each_of_the_three_headers_carries_the_token(name: str) -> None:
    value = f"Bearer {TOKEN}" if name.lower() == "authorization" else TOKEN
    assert credential([("Host", "llm.example.test"), (name, value)]).token == TOKEN


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_may_have_any_case(scheme: str) -> None:
    assert credential([("Authorization", f"{scheme} {TOKEN}")]).token == TOKEN


def test_the_same_token_in_several_headers_counts_once() -> None:
    headers = [("Authorization", f"Bearer {TOKEN}"), ("X-Api-Key", TOKEN), ("api-key", TOKEN), ("api-key", TOKEN)]
    assert credential(headers).token == TOKEN


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", f"Bearer {TOKEN}"), ("x-api-key", OTHER)],
        [("Authorization", f"Bearer {TOKEN}"), ("api-key", OTHER)],
        [("x-api-key", TOKEN), ("api-key", OTHER)],
        [("x-api-key", TOKEN), ("x-api-key", OTHER)],
    ],
)
def test_two_different_credentials_are_refused(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidRequest):
        credential(headers)


@pytest.mark.parametrize("second", [TOKEN, OTHER])
def test_two_authorization_headers_are_refused_even_when_equal(second: str) -> None:
    with pytest.raises(InvalidRequest):
        credential([("Authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {second}")])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer ")],
        [("x-api-key", "")],
        [("Authorization", "Basic dTpw")],
        [("Authorization", "DPoP")],
        [("Authorization", "DPoP ")],
        [("Authorization", TOKEN)],
        [("Authorization", f"Bearerx {TOKEN}")],
    ],
)
def test_no_credential_is_told_how_to_send_one(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(CredentialRequired, match="Authorization: Bearer TOKEN") as caught:
        credential(headers)
    assert caught.value.challenge_error is None


@pytest.mark.parametrize(
    "name", ["Cookie", "Proxy-Authorization", "X-Forwarded-Access-Token", "Sec-WebSocket-Protocol"]
)
def test_no_other_header_authenticates(name: str) -> None:
    with pytest.raises(CredentialRequired):
        credential([(name, f"Bearer {TOKEN}")])


def test_a_plain_user_header_identifies_nobody() -> None:
    with pytest.raises(CredentialRequired):
        credential([("X-OpenWebUI-User-Email", "alice@example.test"), ("X-Forwarded-User", "alice")])


def test_an_empty_api_key_does_not_hide_the_bearer_token() -> None:
    assert credential([("x-api-key", ""), ("Authorization", f"Bearer {TOKEN}")]).token == TOKEN


@pytest.mark.parametrize(
    "value",
    [f"Bearer  {TOKEN}", f"Bearer\t{TOKEN}", f"Bearer \t{TOKEN}", f"Bearer {TOKEN} ", f"Bearer Bearer {TOKEN}"],
)
def test_anything_but_one_space_after_the_scheme_is_refused(value: str) -> None:
    with pytest.raises(InvalidToken) as caught:
        credential([("Authorization", value)])
    assert caught.value.reason == Reason.WHITE_SPACE.value


@pytest.mark.parametrize(
    "value",
    [
        "{{LIBRECHAT_OPENID_TOKEN}}",
        "{{ LIBRECHAT_OPENID_ACCESS_TOKEN }}",
        "${OPENAI_API_KEY}",
        "$OPENAI_API_KEY",
        "%OPENAI_API_KEY%",
        "<your token>",
        "sk-${TOKEN}",
        "null",
        "undefined",
        "None",
    ],
)
def test_an_unexpanded_template_is_named_as_such(value: str) -> None:
    with pytest.raises(InvalidToken, match="unexpanded template") as caught:
        credential([("Authorization", f"Bearer {value}")])
    assert caught.value.reason == Reason.TEMPLATE.value
    assert value not in caught.value.message


@pytest.mark.parametrize(
    "value", ["ey\udcffJh.eyJi.c2ln", "eyJh.eyJi.c2lñ", "\udc80", "eyJh.eyJi.c2ln\u2028", "a\uff0eb\uff0ec"]
)
def test_bytes_outside_ascii_are_refused_and_never_a_fault(value: str) -> None:
    with pytest.raises(InvalidToken) as caught:
        credential([("Authorization", f"Bearer {value}"), ("x-api-key", value)])
    assert caught.value.reason == Reason.NOT_ASCII.value


def test_a_token_may_have_16_kib_and_no_byte_more() -> None:
    longest = "a.b." + "c" * (16 * 1024 - 4)
    assert credential([("x-api-key", longest)]).token == longest
    with pytest.raises(InvalidToken) as caught:
        credential([("x-api-key", longest + "c")])
    assert caught.value.reason == Reason.TOO_LONG.value


@pytest.mark.parametrize("value", ["a.b&", "sk-proj-ab\u007f", "a.b.c\n", "a,b", 'a"b', "=", "a=b", "a%2eb"])
def test_what_no_token_can_be_is_refused(value: str) -> None:
    with pytest.raises(InvalidToken) as caught:
        credential([("Authorization", f"Bearer {value}")])
    assert caught.value.reason == Reason.OPAQUE.value


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("a.b.c", Form.SIGNED),
        ("sk-proj-abc", Form.OPAQUE),
        ("a.b", Form.OPAQUE),
        ("a.b.c.d", Form.OPAQUE),
        ("a..c", Form.OPAQUE),
        ("a.b.c=", Form.OPAQUE),
        ("a.b+.c", Form.OPAQUE),
        ("sgp_abcdefgh_secret_crc123", Form.PERSONAL),
        ("sgp_a.b.c", Form.PERSONAL),
        ("sgp_", Form.PERSONAL),
    ],
)
def test_each_credential_has_one_form(value: str, form: Form) -> None:
    assert credential([("x-api-key", value)]).form is form


def test_an_encrypted_token_is_refused_as_such() -> None:
    with pytest.raises(InvalidToken) as caught:
        credential([("x-api-key", "a.b.c.d.e")])
    assert caught.value.reason == Reason.ENCRYPTED.value


def test_a_credential_does_not_show_its_token() -> None:
    assert TOKEN not in repr(credential([("x-api-key", TOKEN)]))
