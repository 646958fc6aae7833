"""Giving tokens back (RFC 7009)."""

from __future__ import annotations

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.issuer import discover, refusal_of
from proxy.cli.sign_in.kept import KeptSignIn
from proxy.cli.sign_in.web import Web


async def revoke(web: Web, kept: KeptSignIn) -> None:
    """The refresh token first: it is what lives on. Raises SignInFailed where anything of it is still good."""
    endpoints = await discover(web, kept.issuer)
    if endpoints.revocation is None:
        raise SignInFailed(f"{kept.issuer} takes no tokens back")
    tokens = {"refresh_token": kept.refresh_token, "access_token": kept.access_token}
    for kind, token in tokens.items():
        if token is None:
            continue
        form = {"token": token, "token_type_hint": kind, "client_id": kept.client_id}
        answer = await web.post(endpoints.revocation, form)
        # Section 2.2.1: some issuers take no access tokens back, which end by themselves.
        takes_none = kind == "access_token" and answer.members().get("error") == "unsupported_token_type"
        if answer.status != 200 and not takes_none:
            raise refusal_of(answer, kept.issuer)
