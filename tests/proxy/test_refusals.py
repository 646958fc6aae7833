"""Contract section 6: every refusal's status, code and types, in both forms, and the headers that go with it."""

from __future__ import annotations

import json

import pytest

from proxy import refusals
from proxy.answers import refusal_headers
from proxy.refusals import Dialect, Refusal, Unauthenticated

INVALID = "invalid_request_error"
OVERLOADED = ("server_error", "overloaded_error")
BROKEN = ("server_error", "api_error")
CONTRACT: dict[str, tuple[int, str, str]] = {
    "invalid_request": (400, INVALID, INVALID),
    "scope_required": (400, INVALID, INVALID),
    "credential_required": (401, "authentication_error", "authentication_error"),
    "invalid_token": (401, "authentication_error", "authentication_error"),
    "token_expired": (401, "authentication_error", "authentication_error"),
    "not_a_member": (403, "permission_error", "permission_error"),
    "unit_too_wide": (403, "permission_error", "permission_error"),
    "model_not_allowed": (403, "permission_error", "permission_error"),
    "blocked": (403, "permission_error", "permission_error"),
    "endpoint_not_allowed": (404, INVALID, "not_found_error"),
    "model_not_found": (404, INVALID, "not_found_error"),
    "body_too_large": (413, INVALID, "request_too_large"),
    "unsupported_media_type": (415, INVALID, INVALID),
    "rate_limited": (429, "rate_limit_error", "rate_limit_error"),
    "engine_failed": (502, *BROKEN),
    "engine_timeout": (504, *BROKEN),
    "directory_unavailable": (503, *OVERLOADED),
    "salt_unavailable": (503, *OVERLOADED),
    "audit_unavailable": (503, *OVERLOADED),
    "issuer_unavailable": (503, *OVERLOADED),
    "engine_unavailable": (503, *OVERLOADED),
    "engine_busy": (503, *OVERLOADED),
    "draining": (503, *OVERLOADED),
    "gate_error": (500, *BROKEN),
}


def every_refusal() -> list[type[Refusal]]:
    found = [one for one in vars(refusals).values() if isinstance(one, type) and issubclass(one, Refusal)]
    return [one for one in found if hasattr(one, "code")]


EACH = pytest.mark.parametrize("kind", every_refusal(), ids=lambda kind: kind.__name__)


def test_there_is_one_refusal_for_each_code_of_the_contract() -> None:
    assert {kind.code for kind in every_refusal()} == set(CONTRACT)


@EACH
def test_a_refusal_has_the_contracts_status_and_types_in_both_forms(kind: type[Refusal]) -> None:
    refusal = kind("Do this.", param="model")
    status, openai, anthropic = CONTRACT[kind.code]
    assert refusal.status == status
    expected = {"message": "Do this.", "type": openai, "code": kind.code, "param": "model"}
    assert json.loads(refusal.document(Dialect.OPENAI)) == {"error": expected}
    expected = {"message": "Do this.", "type": anthropic, "code": kind.code}
    assert json.loads(refusal.document(Dialect.ANTHROPIC)) == {"type": "error", "error": expected}


@EACH
def test_the_operators_reason_is_in_no_answer(kind: type[Refusal]) -> None:
    refusal = kind("Do this.", reason="finer-word")
    assert refusal.reason == "finer-word"
    assert not [d for d in Dialect if b"finer-word" in refusal.document(d)]
    assert b"finer-word" not in refusal_headers(refusal, "https://llm.example.com")
    assert kind("Do this.").reason == kind.code


@EACH
def test_only_what_is_worth_a_retry_says_when(kind: type[Refusal]) -> None:
    """RFC 9110 section 10.2.3: whole seconds."""
    headers = refusal_headers(kind("Do this."), "https://llm.example.com")
    assert (b"Retry-After: 5\r\n" in headers) == (kind.status == 503)
    assert b"Retry-After: 7\r\n" in refusal_headers(kind("Do this.", retry_after=7), "https://llm.example.com")


@EACH
def test_only_a_401_challenges_and_without_an_error_where_nothing_was_shown(kind: type[Refusal]) -> None:
    """RFC 6750 section 3 and RFC 9728 section 5.1."""
    headers = refusal_headers(kind("Do this."), "https://llm.example.com").decode()
    assert headers.count("WWW-Authenticate: ") == (2 if issubclass(kind, Unauthenticated) else 0)
    assert ("WWW-Authenticate: Bearer " in headers) == (kind.status == 401) == issubclass(kind, Unauthenticated)
    if kind.status == 401:
        metadata = "https://llm.example.com/.well-known/oauth-protected-resource"
        assert f'resource_metadata="{metadata}"' in headers
        assert headers.count("error=") == (kind.code != "credential_required")
        assert issubclass(kind, Unauthenticated)
        assert kind.challenge_error is None or f'error="{kind.challenge_error}"' in headers
    assert not headers or headers.endswith("\r\n")
    assert "\r\n\r\n" not in headers
