"""One issuer whose tokens are accepted: its keys are fetched, kept fresh, and used while the issuer is away.

A fetch is always single: whoever needs one joins it. What may be asked and how stands in `asking`.
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

import aiohttp
import structlog
from yarl import URL

from config.settings import Issuer
from proxy.identity.asking import NoAnswerError, address_in, document, metadata, trusted_address
from proxy.identity.keys import KeySet, NoSuchKeyError, key_set
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import CompactToken, VerifiedToken
from proxy.refusals import IssuerUnavailable, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When keys are fetched, and how long they serve. All in seconds."""

    interval: float = 300.0  # Between two fetches; `Cache-Control` of the JWK Set may shorten it,
    shortest_interval: float = 60.0  # but not below this.
    cool_down: float = 30.0  # Between two fetches that a token with an unknown key asked for.
    first_pause: float = 1.0  # After a failed fetch; doubled with each further one,
    longest_pause: float = 60.0  # up to this.
    timeout: float = 5.0  # For one fetch in all, discovery and keys.
    max_stale: float = 24 * 3600.0  # Known keys serve that long after the last good fetch.


class KeysNotFetchedError(Exception):
    """The issuer could not be asked or gave no usable answer. The text says why, for the log."""


class TrustedIssuer:
    """An issuer and its keys. Use it as `async with`: it owns the task that keeps the keys fresh.

    It starts also while the issuer is away, and heals by itself. `session` must neither follow cookies nor decompress;
    `clock` gives Unix seconds, `monotonic` seconds that never jump; `tls` holds a private authority or a client
    certificate. `fetched` is how often the keys were fetched so far, `not_fetched` how often they could not be.
    """

    def __init__(
        self,
        rules: Issuer,
        *,
        session: aiohttp.ClientSession,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        tls: ssl.SSLContext | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self.rules = rules
        self._session = session
        self._clock = clock
        self._monotonic = monotonic
        self._tls = tls
        self._schedule = schedule or Schedule()
        self._interval = self._schedule.interval
        self._log = structlog.get_logger().bind(issuer=rules.issuer)
        self._keys: KeySet | None = None
        self.generation = 0
        """Counts the changes of the keys. What was verified under another generation is to be verified again."""
        self._fetched_at: float | None = None
        self._asked_at: float | None = None
        self._failing = False
        self.fetched = 0
        self.not_fetched = 0
        self._flight: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        # Under way before anybody can ask, so that the first caller joins it and no fetch on demand is spent.
        self._flight = self._start_fetch()
        self._keeper = asyncio.get_running_loop().create_task(self._keep_fresh())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for task in (self._keeper, self._flight) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def ready(self) -> bool:
        """Whether there are keys that may be used: tokens of this issuer can be judged."""
        fetched_at = self._fetched_at
        return fetched_at is not None and self._monotonic() - fetched_at <= self._schedule.max_stale

    @property
    def keys_age(self) -> float | None:
        """Seconds since the last good fetch; None before the first."""
        return None if self._fetched_at is None else self._monotonic() - self._fetched_at

    async def verified(self, token: CompactToken) -> VerifiedToken:
        """The token, its signature checked with the issuer's key.

        Waits for a fetch only where no key fits and a fetch may be made. Raises `InvalidToken`, or `IssuerUnavailable`
        where the right key may exist but the issuer cannot be asked: that is our fault, not the caller's.
        """
        try:
            return self._verified(token)
        except NoSuchKeyError:
            asked = await self._fetch_on_demand()
        try:
            return self._verified(token)
        except NoSuchKeyError:
            raise self._unknown_key(token, asked=asked) from None

    def _unknown_key(self, token: CompactToken, *, asked: bool) -> Refusal:
        """Whose fault it is that no key fits: the keys that we hold may be older than the token."""
        if not self.ready or self._failing:
            return IssuerUnavailable(
                "The identity provider cannot be reached, so your token cannot be checked. Try again in a moment.",
                reason="no_keys" if not self.ready else "unknown_key_while_away",
            )
        if asked or self._knew_keys_of(token):
            return invalid_token(Reason.UNKNOWN_KEY)
        return IssuerUnavailable(
            "Your token is signed with a key that saltgate does not know yet. Try again in a moment.",
            reason="unknown_key_not_asked",
            retry_after=math.ceil(self._schedule.cool_down),
        )

    def _knew_keys_of(self, token: CompactToken) -> bool:
        """Whether the keys were fetched after the token was issued, as it says itself; nobody is let in by that."""
        issued_at = token.claims.get("iat")
        if isinstance(issued_at, bool) or not isinstance(issued_at, int | float) or self.keys_age is None:
            return False
        return issued_at < self._clock() - self.keys_age

    def _verified(self, token: CompactToken) -> VerifiedToken:
        if self._keys is None or not self.ready:
            raise NoSuchKeyError
        return self._keys.verified(token, algorithms=self.rules.algorithms)

    async def _fetch_on_demand(self) -> bool:
        """Joins the fetch under way, else makes one unless the last on demand was a moment ago: then False.

        Anybody can invent a key id; without the pause, a flood of such tokens would be a flood on the issuer.
        """
        now = self._monotonic()
        if self._flight is None:
            if self._asked_at is not None and now - self._asked_at < self._schedule.cool_down:
                return False
            self._asked_at = now
        await self._fetch()
        return True

    async def _keep_fresh(self) -> None:
        pause = self._schedule.first_pause
        while True:
            await self._fetch()
            if self._failing:
                await asyncio.sleep(pause)
                pause = min(pause * 2, self._schedule.longest_pause)
            else:
                await asyncio.sleep(self._interval)
                pause = self._schedule.first_pause

    async def _fetch(self) -> None:
        """Joins the fetch under way or starts one. Never raises for a failed one: `_failing` says it."""
        # A caller who leaves must not take away the fetch that others wait for.
        self._flight = self._flight or self._start_fetch()
        await asyncio.shield(self._flight)

    def _start_fetch(self) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._fly())

    async def _fly(self) -> None:
        started = self._monotonic()
        try:
            keys, self._interval = await self._fetched()
        except KeysNotFetchedError as error:
            self._failing = True
            self.not_fetched += 1
            self._log.warning("issuer_keys_not_fetched", cause=str(error), age_seconds=self.keys_age)
        else:
            self.fetched += 1
            self._adopt(keys, started)
        finally:
            self._flight = None

    def _adopt(self, keys: KeySet, fetched_at: float) -> None:
        if keys != self._keys:
            self.generation += 1
            self._log.info(
                "issuer_keys_changed", usable=len(keys.keys), skipped=keys.skipped, generation=self.generation
            )
        elif self._failing:
            self._log.info("issuer_keys_fetched_again")
        self._keys, self._fetched_at, self._failing = keys, fetched_at, False

    async def asked(self) -> KeySet:
        """The keys that the issuer gives at this moment; none of them is adopted. Raises KeysNotFetchedError."""
        return (await self._fetched())[0]

    async def _fetched(self) -> tuple[KeySet, float]:
        """The issuer's keys, and the seconds until they are to be fetched again."""
        try:
            async with asyncio.timeout(self._schedule.timeout):
                body, cache_control = await document(self._session, await self._jwks_uri(), self._tls)
            return key_set(body), self._interval_by(cache_control)
        except NoAnswerError as error:
            raise KeysNotFetchedError(str(error)) from error
        except Exception as error:
            # Whatever the network or the document does, the keeper goes on and known keys serve.
            raise KeysNotFetchedError(f"{type(error).__name__}: {error}") from error

    async def _jwks_uri(self) -> URL:
        """The configured address, else the one that discovery gives."""
        if self.rules.jwks_uri is not None:
            return trusted_address(self.rules.jwks_uri)
        found = await metadata(self._session, self.rules.issuer, self._tls)
        return address_in(found, "jwks_uri", self.rules.issuer)

    def _interval_by(self, cache_control: str) -> float:
        """A withdrawn key must stop soon, so Cache-Control only shortens the interval (RFC 9111 section 5.2.2)."""
        if _NOT_STORED.search(cache_control):
            return min(self._schedule.shortest_interval, self._schedule.interval)
        if age := _MAX_AGE.search(cache_control):
            return min(max(float(age[1]), self._schedule.shortest_interval), self._schedule.interval)
        return self._schedule.interval


_MAX_AGE: Final = re.compile(r"(?:^|[\s,])max-age=(\d{1,9})", re.IGNORECASE | re.ASCII)
_NOT_STORED: Final = re.compile(r"(?:^|[\s,])no-(?:store|cache)\b", re.IGNORECASE | re.ASCII)
