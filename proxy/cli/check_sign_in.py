"""What `saltgate check` says of an issuer where people sign in with a browser."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import aiohttp

from config.settings import Issuer
from proxy.account.sign_in import callback_path
from proxy.cli.lines import Level, Line
from proxy.identity.asking import NoAnswerError, document, trusted_address
from proxy.identity.login_provider import ASK_SECONDS
from proxy.identity.provider_metadata import DISCOVERY_PATH, ProviderMetadata, provider_metadata


async def sign_in_lines(
    rules: Issuer, session: aiohttp.ClientSession, tls: ssl.SSLContext | None, *, public_url: str, alone: bool
) -> AsyncIterator[Line]:
    """Nothing for an issuer where nobody signs in with a browser. `alone`: there is no other such issuer."""
    if rules.login is None or rules.login.client_id is None:
        return
    part = f"issuer {rules.issuer}"
    try:
        async with asyncio.timeout(ASK_SECONDS):
            metadata = await _metadata(rules.issuer, session, tls)
    except (aiohttp.ClientError, NoAnswerError, TimeoutError, OSError, ValueError) as error:
        address = rules.issuer.removesuffix("/") + DISCOVERY_PATH
        why = str(error) if isinstance(error, NoAnswerError) else type(error).__name__
        yield Line(Level.FAULT, part, "sign-in", f"{why}. Nobody can sign in. See what {address} says")
        return
    if not (alone or rules.login.callback is not None or metadata.names_itself):
        yield Line(
            Level.FAULT,
            part,
            "sign-in",
            "it does not name itself when it answers (RFC 9207), and there are other issuers, so nobody can sign in. "
            "Set `callback` under [issuers.login]",
        )
        return
    yield Line(Level.OK, part, "sign-in", f"its redirect URI is {public_url}{callback_path(rules.login.callback)}")


async def _metadata(issuer: str, session: aiohttp.ClientSession, tls: ssl.SSLContext | None) -> ProviderMetadata:
    address = trusted_address(issuer.removesuffix("/") + DISCOVERY_PATH)
    return provider_metadata((await document(session, address, tls))[0], issuer=issuer)
