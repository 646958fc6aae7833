"""All issuers whose tokens are accepted: a token becomes the `Identity` that it proves, or is refused."""

from __future__ import annotations

import ssl
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import structlog
from msgspec import Struct

from config.settings import Issuer
from proxy.identity import Identity
from proxy.identity.cache import Verified, VerifiedTokens, digest_of
from proxy.identity.claims import identify
from proxy.identity.confirmation import Bound, bearer
from proxy.identity.credential import Form, Scheme, credential
from proxy.identity.issuer import Schedule, TrustedIssuer
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.shown import Shown
from proxy.identity.token import compact_token
from proxy.refusals import InvalidToken, Refusal

CACHE_CAPACITY: Final = 20_000
CACHE_LIFETIME: Final = 60.0  # seconds


@asynccontextmanager
async def open_issuers(
    settings: tuple[Issuer, ...],
    *,
    clock: Callable[[], float],
    monotonic: Callable[[], float] = time.monotonic,
    tls: Mapping[str, ssl.SSLContext] | None = None,
    schedule: Schedule | None = None,
    sign_in_url: str | None = None,
) -> AsyncIterator[TrustedIssuers]:
    """The issuers, with the session and the tasks that they need, for as long as the `async with` lasts.

    `clock` gives Unix seconds. `tls` holds, by issuer identifier, the context of each issuer with a private authority
    or a client certificate; the others get the system's authorities. `sign_in_url` is our own page for people.
    """
    # Cookies would travel between issuers; a body that unpacks itself would escape the bound on its length.
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False) as session,
        AsyncExitStack() as stack,
    ):
        issuers = [
            await stack.enter_async_context(
                TrustedIssuer(
                    rules,
                    session=session,
                    clock=clock,
                    monotonic=monotonic,
                    tls=(tls or {}).get(rules.issuer),
                    schedule=schedule,
                )
            )
            for rules in settings
        ]
        yield TrustedIssuers(issuers, clock=clock, sign_in_url=sign_in_url)


class Warrant(Struct, frozen=True):
    """What a caller rests on whose bearer token was verified a moment ago: the issuer's keys of then, and a time. It
    holds again where the same token was verified again meanwhile, for whatever scope.
    """

    issuer: TrustedIssuer
    verified: Verified

    def holds(self, now: float) -> bool:
        """Whether the token, shown again at `now` (Unix seconds), would be judged as it was."""
        issuer, verified = self.issuer, self.verified
        return now < verified.until and issuer.generation == verified.generation and issuer.ready


class TrustedIssuers:
    """Chooses a token's issuer by its exact `iss`, verifies and judges it, and remembers it for a moment."""

    def __init__(
        self,
        issuers: Iterable[TrustedIssuer],
        *,
        clock: Callable[[], float],
        capacity: int = CACHE_CAPACITY,
        lifetime: float = CACHE_LIFETIME,
        sign_in_url: str | None = None,
    ) -> None:
        self.issuers = tuple(issuers)
        self.faults = 0
        """How many tokens were refused because of a fault of ours. Each is logged; none is ever let through."""
        self.hits = 0
        """How many tokens had been verified a moment before."""
        self.misses = 0
        """How many had not."""
        self._by_name = {issuer.rules.issuer: issuer for issuer in self.issuers}
        if len(self._by_name) != len(self.issuers):
            raise ValueError("an issuer is configured twice")
        self._clock = clock
        self._sign_in_url = sign_in_url
        self._recent = VerifiedTokens(capacity=capacity, lifetime=lifetime)

    @property
    def ready(self) -> bool:
        """Whether tokens of at least one issuer can be judged."""
        return any(issuer.ready for issuer in self.issuers)

    async def identify(self, token: str) -> Identity:
        """Who is calling, where the token alone proves it. Raises as `judged` does; `InvalidToken` for a bound one."""
        return bearer(await self.judged(token))

    async def judged(self, token: str) -> Identity | Bound:
        """Whom the token names. Does not suspend for a token that was verified a moment ago.

        Raises `TokenExpired`, `InvalidToken` or `IssuerUnavailable`, and nothing else: a fault of ours is logged,
        counted in `faults`, and refuses the token.
        """
        try:
            digest = digest_of(token)
            return self._remembered(digest) or await self._identified(token, digest)
        except Refusal:
            raise
        except Exception as error:  # noqa: BLE001 - becomes a refusal, never an identity
            # Not chained: the error's text may hold parts of the token.
            raise self._fault(error) from None

    def warrant(self, shown: Shown, identity: Identity) -> Warrant | None:
        """What it rests on that `shown` has shown this identity just now, where that is a bearer token of these issuers
        and nothing else. None for who is bound to something, or for whom a front end speaks: such an identity is
        another one than the token's own, made for one request.
        """
        presented = credential(shown.headers)
        if presented.form is not Form.SIGNED or presented.scheme is not Scheme.BEARER:
            return None
        found = self._recent.find(digest_of(presented.token), now=self._clock())
        if found is None or found.found is not identity:
            return None
        return Warrant(self._by_name[identity.issuer], found)

    def _remembered(self, digest: bytes) -> Identity | Bound | None:
        found = self._recent.find(digest, now=self._clock())
        if found is None:
            return None
        issuer = self._by_name[found.found.issuer]
        if not issuer.ready or issuer.generation != found.generation:
            return None
        self.hits += 1
        return found.found

    async def _identified(self, text: str, digest: bytes) -> Identity | Bound:
        self.misses += 1
        token = compact_token(text)
        issuer = self._by_name.get(token.issuer)
        if issuer is None:
            raise invalid_token(Reason.ISSUER)
        verified = await issuer.verified(token)
        # No await from here on: the keys that verified are those of this generation.
        now = self._clock()
        found = identify(verified, rules=issuer.rules, now=now, sign_in_url=self._sign_in_url)
        return self._recent.keep(digest, found, generation=issuer.generation, now=now)

    def _fault(self, error: Exception) -> InvalidToken:
        self.faults += 1
        place = traceback.extract_tb(error.__traceback__)[-1]
        structlog.get_logger().error(
            "token_verifier_fault", fault=type(error).__name__, place=f"{Path(place.filename).name}:{place.lineno}"
        )
        return invalid_token(Reason.FAULT)
