"""What a caller is told."""

from __future__ import annotations

import pytest

from proxy.identity.reasons import Reason, invalid_token


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_text_that_says_what_to_do(reason: Reason) -> None:
    refusal = invalid_token(reason)
    assert refusal.reason == reason.value
    assert any(word in refusal.message for word in ("Send", "Sign in", "Ask", "Tell", "Check", "Copy", "Have", "Make"))


def test_a_forger_cannot_tell_an_unknown_key_from_a_wrong_signature() -> None:
    alike = (Reason.UNKNOWN_KEY, Reason.SIGNATURE, Reason.AMBIGUOUS_KEY, Reason.FAULT, Reason.ENCODING, Reason.PAYLOAD)
    assert len({invalid_token(reason).message for reason in alike}) == 1
