"""One issuer's introspection endpoint (RFC 7662): found, and asked one question at a time."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Mapping

import aiohttp
from yarl import URL

from config.settings import Introspection, Issuer
from proxy.identity.asking import ACCEPT_JSON, NoAnswerError, address_in, body_of, metadata, trusted_address
from proxy.identity.client_authentication import client_authentication
from proxy.identity.introspected import Answer, FaultyAnswerError, active_claims
from proxy.identity.token import Json


class IntrospectionEndpoint:
    """`session` must neither follow cookies nor decompress. Whoever asks bounds the time.

    The token is in the body of a POST and nowhere else. What the methods raise holds nothing that was sent or answered.
    """

    def __init__(
        self,
        rules: Issuer,
        settings: Introspection,
        *,
        session: aiohttp.ClientSession,
        clock: Callable[[], float],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._rules = rules
        self._configured = settings.endpoint
        self._session = session
        self._tls = tls
        self._client = client_authentication(settings, issuer=rules.issuer, clock=clock)
        self.address: URL | None = None

    async def probe(self) -> None:
        """Finds the endpoint anew and asks about a token that cannot exist.

        Raises NoAnswerError or FaultyAnswerError where it cannot be relied on: to call such a token active, too.
        """
        try:
            await self._find()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswerError(f"its metadata cannot be read: {_words(error)}") from None
        if await self.claims_of(f"saltgate-asks-{secrets.token_urlsafe(32)}") is not None:
            raise FaultyAnswerError("it calls a token active that cannot exist, so no answer of it is believed")

    async def claims_of(self, token: str) -> Mapping[str, Json] | None:
        """What the issuer says of an active token; None of another one.

        Raises NoAnswerError, or FaultyAnswerError for an answer that says nothing about the token.
        """
        if self.address is None:
            raise NoAnswerError("its introspection endpoint is not known yet")
        try:
            return active_claims(await self._answer(self.address, token))
        except (aiohttp.ClientError, OSError) as error:
            # Not chained: where the issuer answers with what it was sent, so do the texts of these.
            raise NoAnswerError(f"{self.address}: {_words(error)}") from None

    async def _find(self) -> None:
        if self._configured is not None:
            self.address = trusted_address(self._configured)
        else:
            found = await metadata(self._session, self._rules.issuer, self._tls)
            self.address = address_in(found, "introspection_endpoint", self._rules.issuer)

    async def _answer(self, address: URL, token: str) -> Answer:
        """Asks once more where a connection that was kept open turns out to be closed: it says nothing about either."""
        try:
            return await self._posted(address, token)
        except (aiohttp.ServerDisconnectedError, ConnectionResetError):
            return await self._posted(address, token)

    async def _posted(self, address: URL, token: str) -> Answer:
        proof = self._client.proof()
        async with self._session.post(
            address,
            data={"token": token, "token_type_hint": "access_token", **proof.form},
            headers={**ACCEPT_JSON, **proof.headers},
            allow_redirects=False,
            ssl=self._tls or True,
        ) as response:
            return Answer(
                status=response.status,
                media_type=response.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
                encoded=response.headers.get("Content-Encoding", "identity").strip().lower() != "identity",
                body=await body_of(response),
            )


def _words(error: Exception) -> str:
    """Why, in words that quote nothing of an answer."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return "its certificate is not accepted"
        case aiohttp.ClientConnectorError():
            return f"cannot connect ({error.os_error.strerror or type(error.os_error).__name__})"
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            return "its answer is not whole"
        case aiohttp.ClientResponseError():
            return "its answer is not HTTP"
        case ValueError():
            return "it is not JSON"
        case _:
            return type(error).__name__
