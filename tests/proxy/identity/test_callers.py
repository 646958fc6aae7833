"""The door to all kinds of credential: each is judged in the way of its form, or refused."""

from __future__ import annotations

import pytest

from proxy.identity.callers import Callers
from proxy.identity.issuers import TrustedIssuers
from proxy.identity.opaque import OpaqueTokens
from proxy.identity.reasons import Reason
from proxy.identity.shown import Shown
from proxy.refusals import InvalidToken


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("sgp_abcdefgh_secret_crc123", Reason.PERSONAL),
        ("opaque", Reason.OPAQUE),
        ("a.b", Reason.OPAQUE),
        ("..", Reason.OPAQUE),
        ("a..c", Reason.OPAQUE),
    ],
)
async def test_a_form_that_is_not_accepted_here_is_refused(token: str, reason: Reason) -> None:
    opaque = OpaqueTokens((), issuers=(), issuer_of_workspace=lambda _: None, key=b"secret")
    callers = Callers(TrustedIssuers((), clock=lambda: 0.0), opaque=opaque)
    shown = Shown(headers=(("x-api-key", token),), method="POST", path="/v1/chat/completions", workspace="acme")
    with pytest.raises(InvalidToken) as caught:
        await callers.identify(shown)
    assert caught.value.reason == reason.value
