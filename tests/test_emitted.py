from __future__ import annotations

import pytest

from tests.parts.emitted import search_emitted

FORMS = (
    b'"token": "eyJhbGciOiJSUzI1NiJ9',
    b"salt sg1-k1-ZWxlcGhhbnRzLWFyZS1sYXJnZS1hbmltYWxz",
    b"sgp_0123456789abcdef0123",
    b"Authorization: Bearer 0123456789abcdef",
    b"authorization=basic dXNlcjpwYXNzd29yZDEyMw==",
    b"__Host-saltgate=0123456789abcdef0123",
)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_secret_is_found_and_not_quoted(form: bytes) -> None:
    with pytest.raises(AssertionError) as raised:
        search_emitted("the log", b'{"event":"x"}\n{' + form + b"}")
    assert form[-12:].decode() not in str(raised.value)


def test_a_secret_of_no_form_is_found_where_it_is_known() -> None:
    with pytest.raises(AssertionError, match="holds a secret"):
        search_emitted("the log", b"of hunter2hunter2", ["hunter2hunter2"])


def test_what_may_be_told_is_none() -> None:
    search_emitted("the log", b'"salt_fingerprint":"baa6d2677094","salt_key_id":"k1","x":"[redacted]","auth":"bearer"')
