"""An issuer as the client that saltgate is there sees it: where browsers go to sign in and out, and what a code brings.

OpenID Connect Core 1.0 section 3.1 (the code flow), RFC 7636 (PKCE), RFC 9207 (`iss` with the code).
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import quote_plus, urlencode

import aiohttp
import structlog
from authlib.oauth2.rfc7636 import create_s256_code_challenge  # type: ignore[import-untyped]
from yarl import URL

from config.settings import Issuer, Login
from proxy.identity.asking import ACCEPT_JSON, NoAnswerError, body_of
from proxy.identity.issuer import TrustedIssuer
from proxy.identity.logout_token import Logout, logout_token_claims
from proxy.identity.provider_metadata import DISCOVERY_PATH, ProviderMetadata, provider_metadata
from proxy.identity.signed_in import SignedIn, signed_in
from proxy.identity.token import Json, compact_token, strict_json
from proxy.refusals import InvalidRequest, IssuerUnavailable

T = TypeVar("T")

ASK_SECONDS: Final = 5.0
"""For discovery in all, and for the token endpoint's answer."""
METADATA_SECONDS: Final = 300.0
COOL_DOWN_SECONDS: Final = 5.0
"""Between two tries to fetch metadata that did not come."""
CODES_AT_ONCE: Final = 16
"""Anybody can come back with an invented code: so many of them are asked about at the same time."""

_log = structlog.get_logger("saltgate.identity")


@dataclass(frozen=True, slots=True)
class CodeAnswer:
    """What the token endpoint gave for a code. The ID token is not verified yet."""

    id_token: str = field(repr=False)
    access_token: str | None = field(repr=False)


class LoginProvider:
    """One issuer with `[issuers.login] client_id`. `clock` gives Unix seconds, `monotonic` seconds that never jump.

    `session` must neither follow cookies nor decompress.
    """

    def __init__(
        self,
        issuer: TrustedIssuer,
        *,
        client_id: str,
        login: Login,
        session: aiohttp.ClientSession,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.client_id = client_id
        self._issuer = issuer
        self._login = login
        self._session = session
        self._clock = clock
        self._monotonic = monotonic
        self._tls = tls
        self._metadata: ProviderMetadata | None = None
        self._fetch_again = 0.0
        self._fetching = asyncio.Lock()
        self._codes = asyncio.Semaphore(CODES_AT_ONCE)

    @property
    def rules(self) -> Issuer:
        return self._issuer.rules

    @property
    def callback(self) -> str | None:
        """The name of its own redirect URI, where it has one."""
        return self._login.callback

    async def metadata(self) -> ProviderMetadata:
        """Where its endpoints are, not older than some minutes unless it does not answer. Raises IssuerUnavailable."""
        async with self._fetching:
            if self._monotonic() >= self._fetch_again:
                await self._fetch_metadata()
        if self._metadata is None:
            raise IssuerUnavailable(
                "The identity provider cannot be reached, so nobody can sign in there. Try again in a moment.",
                reason="no_metadata",
            )
        return self._metadata

    async def authorization_address(self, *, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Where a browser goes to sign in (OpenID Connect Core section 3.1.2.1). Raises IssuerUnavailable."""
        metadata = await self.metadata()
        return with_query(
            metadata.authorization_endpoint,
            {
                "response_type": "code",
                "client_id": self.client_id,
                "redirect_uri": redirect_uri,
                "scope": " ".join(self._login.scopes),
                "state": state,
                "nonce": nonce,
                "code_challenge": create_s256_code_challenge(verifier),
                "code_challenge_method": "S256",
            },
        )

    async def redeem(self, code: str, *, redirect_uri: str, verifier: str) -> CodeAnswer:
        """What the code brings. Raises InvalidRequest where the issuer refuses the code, IssuerUnavailable where it
        gives no usable answer.
        """
        metadata = await self.metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        status, body = await self._answered(self._posted(metadata, form), "the token endpoint")
        return self._code_answer(status, body)

    async def signed_in(self, answer: CodeAnswer, *, nonce: str) -> SignedIn:
        """Who has signed in. Raises InvalidToken, IssuerUnavailable."""
        token = compact_token(answer.id_token)
        verified = await self._issuer.verified(token)
        return signed_in(
            verified,
            algorithm=token.algorithm,
            rules=self.rules,
            client_id=self.client_id,
            nonce=nonce,
            access_token=answer.access_token,
            now=self._clock(),
        )

    async def logout(self, logout_token: str) -> Logout:
        """What a logout token says is over. Raises InvalidToken, IssuerUnavailable."""
        verified = await self._issuer.verified(compact_token(logout_token))
        return logout_token_claims(verified, rules=self.rules, client_id=self.client_id, now=self._clock())

    async def _fetch_metadata(self) -> None:
        try:
            address = self.rules.issuer.removesuffix("/") + DISCOVERY_PATH
            status, body = await self._answered(self._got(address), "the metadata")
            self._metadata = provider_metadata(body if status == 200 else b"", issuer=self.rules.issuer)
        except (NoAnswerError, IssuerUnavailable) as error:
            self._fetch_again = self._monotonic() + COOL_DOWN_SECONDS
            _log.warning("issuer_metadata_not_fetched", issuer=self.rules.issuer, cause=str(error))
        else:
            self._fetch_again = self._monotonic() + METADATA_SECONDS

    async def _answered(self, asking: Awaitable[tuple[int, bytes]], what: str) -> tuple[int, bytes]:
        """Not chained: an error's text may hold what was sent."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await asking
        except (aiohttp.ClientError, NoAnswerError, TimeoutError, OSError, ValueError) as error:
            raise IssuerUnavailable(
                "The identity provider gives no answer, so you cannot be signed in. Try again in a moment.",
                reason=f"{what.rpartition(' ')[2]}_{type(error).__name__}",
            ) from None

    async def _got(self, address: str) -> tuple[int, bytes]:
        async with self._session.get(
            URL(address), allow_redirects=False, ssl=self._tls or True, headers=ACCEPT_JSON
        ) as response:
            return response.status, await body_of(response)

    async def _posted(self, metadata: ProviderMetadata, form: Mapping[str, str]) -> tuple[int, bytes]:
        headers, form = self._authenticated(metadata, form)
        async with (
            self._codes,
            self._session.post(
                URL(metadata.token_endpoint), data=form, allow_redirects=False, ssl=self._tls or True, headers=headers
            ) as response,
        ):
            return response.status, await body_of(response)

    def _authenticated(
        self, metadata: ProviderMetadata, form: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """The client's own proof (RFC 6749 section 2.3.1): the secret in a header, unless the issuer wants it in the
        form; a client without a secret only names itself.
        """
        headers = dict(ACCEPT_JSON)
        if self._login.client_secret is None:
            return headers, {**form, "client_id": self.client_id}
        secret = self._login.client_secret.value.decode("ascii")
        if not metadata.takes_secret_in_header:
            return headers, {**form, "client_id": self.client_id, "client_secret": secret}
        pair = f"{quote_plus(self.client_id)}:{quote_plus(secret)}".encode("ascii")
        return {**headers, "Authorization": f"Basic {b64encode(pair).decode('ascii')}"}, dict(form)

    def _code_answer(self, status: int, body: bytes) -> CodeAnswer:
        members = _members(body)
        if status == 200:
            return _tokens(members)
        error = members.get("error")
        if status == 400 and error == "invalid_grant":
            raise InvalidRequest(
                "The identity provider does not know this sign-in, or it was used before. Sign in again.",
                reason="code_refused",
            )
        if isinstance(error, str) and error in {"invalid_client", "unauthorized_client"}:
            _log.error(
                "sign_in_client_refused", issuer=self.rules.issuer, remedy="look at [issuers.login] and at the issuer"
            )
        raise IssuerUnavailable(
            "The identity provider did not complete the sign-in. Try again; if it happens again, tell your "
            "administrator.",
            reason="token_endpoint",
        )


def with_query(address: str, parameters: Mapping[str, str]) -> str:
    """The address with these parameters behind those that it has (RFC 6749 section 3.1)."""
    return f"{address}{'&' if '?' in address else '?'}{urlencode(parameters)}"


def _members(body: bytes) -> Mapping[str, Json]:
    try:
        value = strict_json(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _tokens(members: Mapping[str, Json]) -> CodeAnswer:
    """Whatever else comes, a refresh token too, is let go of unread: saltgate signs nobody in again by itself."""
    id_token, access_token = members.get("id_token"), members.get("access_token")
    if not isinstance(id_token, str) or not (access_token is None or isinstance(access_token, str)):
        raise IssuerUnavailable(
            "The identity provider sent no ID token. Tell your administrator.", reason="no_id_token"
        )
    return CodeAnswer(id_token, access_token)
