"""Opaque tokens: which issuer is asked about one, for nothing in it tells (contract section 5)."""

from __future__ import annotations

import hmac
import ssl
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeAlias

import aiohttp

from config.settings import Introspection, Issuer
from proxy.identity import Identity
from proxy.identity.confirmation import Bound
from proxy.identity.introspection import Bounds, Introspector
from proxy.identity.introspection_endpoint import IntrospectionEndpoint
from proxy.identity.reasons import Reason, invalid_token
from proxy.refusals import ScopeRequired

IssuerOfWorkspace: TypeAlias = Callable[[str], str | None]
"""The issuer whose users a workspace names; None where there is no such workspace.

Raises DirectoryUnavailable where that is not known.
"""


class OpaqueTokens:
    """Chooses the issuer that is asked. A token goes to one issuer at most, and to none that it may not be meant for.

    `issuers` are the names of all issuers, also of those whose `introspectors` are not there. `key` is secret, and the
    same in all workers of a deployment: see `_ask_about_another`.
    """

    def __init__(
        self,
        introspectors: Iterable[Introspector],
        *,
        issuers: Iterable[str],
        issuer_of_workspace: IssuerOfWorkspace,
        key: bytes,
    ) -> None:
        self.introspectors = tuple(introspectors)
        self._by_name = {introspector.rules.issuer: introspector for introspector in self.introspectors}
        self._issuers = frozenset(issuers)
        self._issuer_of_workspace = issuer_of_workspace
        self._key = key

    async def judged(self, token: str, workspace: str | None) -> Identity | Bound:
        """Who is calling. `workspace` is the one that the request names.

        Raises a 401 Refusal; `ScopeRequired` where nothing says which issuer to ask; `IssuerUnavailable` or
        `DirectoryUnavailable` where saltgate cannot know.
        """
        if not self.introspectors:
            raise invalid_token(Reason.OPAQUE)
        if workspace is None:
            return await self._only().judged(token)
        introspector = self._by_name.get(self._issuer_of(workspace) or "")
        if introspector is None:
            return await self._ask_about_another(token, workspace)
        return await introspector.judged(token, under="" if len(self._issuers) == 1 else workspace)

    def _only(self) -> Introspector:
        if len(self.introspectors) > 1:
            raise ScopeRequired(
                "Several identity providers may know this token. Name its workspace: send the header "
                "OpenAI-Organization, or use the base URL /w/WORKSPACE/p/PROJECT/v1."
            )
        return self.introspectors[0]

    def _issuer_of(self, workspace: str) -> str | None:
        if len(self._issuers) == 1:
            # No other could have issued the token. So of a workspace that does not exist its people are told what they
            # are told of one that is not theirs.
            return next(iter(self._issuers))
        return self._issuer_of_workspace(workspace)

    async def _ask_about_another(self, token: str, workspace: str) -> Identity | Bound:
        """Refuses as a wrong token at a workspace with introspection is refused, in the same words and the same time.

        Else who has no token at all could find out who the customers are. So a question is asked, about a token that
        cannot exist: the one shown is nobody's business here. It goes to the same issuer from every worker: were it
        another one on the next, that one's time or its being away would tell that nobody owns the workspace.
        """
        number = int.from_bytes(self._digest(workspace)[:8]) % len(self.introspectors)
        stand_in = urlsafe_b64encode(self._digest(f"{workspace} {token}")).decode("ascii").rstrip("=")
        await self.introspectors[number].judged(stand_in)
        raise invalid_token(Reason.INACTIVE)

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")


MAXIMUM_CONNECTIONS: Final = 128  # Above the questions that an issuer may be asked at once, so that none waits here.


@asynccontextmanager
async def open_introspection(
    settings: tuple[Issuer, ...],
    *,
    issuer_of_workspace: IssuerOfWorkspace,
    key: bytes,
    clock: Callable[[], float],
    monotonic: Callable[[], float] = time.monotonic,
    tls: Mapping[str, ssl.SSLContext] | None = None,
    bounds: Bounds | None = None,
) -> AsyncIterator[OpaqueTokens]:
    """The issuers that are asked about opaque tokens, with what they need, for as long as the `async with` lasts.

    `key` is that of `OpaqueTokens`, `clock` gives Unix seconds. `tls` holds, by issuer identifier, the context of each
    issuer with a private authority or a client certificate.
    """
    async with AsyncExitStack() as stack:
        introspectors = [
            await stack.enter_async_context(
                introspector(
                    rules,
                    rules.introspection,
                    session=await stack.enter_async_context(introspection_session()),
                    clock=clock,
                    monotonic=monotonic,
                    tls=(tls or {}).get(rules.issuer),
                    bounds=bounds,
                )
            )
            for rules in settings
            if rules.introspection is not None
        ]
        yield OpaqueTokens(
            introspectors,
            issuers=(rules.issuer for rules in settings),
            issuer_of_workspace=issuer_of_workspace,
            key=key,
        )


def introspection_session() -> aiohttp.ClientSession:
    """Connections of one issuer's own: when it hangs, it takes none from others, nor from the keys of signed tokens."""
    return aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        connector=aiohttp.TCPConnector(limit=MAXIMUM_CONNECTIONS),
    )


def introspector(
    rules: Issuer,
    settings: Introspection,
    *,
    session: aiohttp.ClientSession,
    clock: Callable[[], float],
    monotonic: Callable[[], float] = time.monotonic,
    tls: ssl.SSLContext | None = None,
    bounds: Bounds | None = None,
) -> Introspector:
    """One issuer that is asked about opaque tokens, not yet entered."""
    endpoint = IntrospectionEndpoint(rules, settings, session=session, clock=clock, tls=tls)
    return Introspector(rules, settings, endpoint, clock=clock, monotonic=monotonic, bounds=bounds)
