"""One issuer that is asked about opaque tokens (RFC 7662): few questions, short memory, and no answer means 503.

A token is asked about once however many show it at that moment, and not again for as long as the answer serves. An
issuer that does not answer is not asked for callers any more until it answers a question of saltgate's own.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import structlog

from config.settings import Introspection, Issuer
from proxy.identity import Identity
from proxy.identity.asking import NoAnswerError
from proxy.identity.breaker import Breaker
from proxy.identity.cache import Recent, digest_of
from proxy.identity.confirmation import Bound
from proxy.identity.introspected import FaultyAnswerError, identify
from proxy.identity.introspection_endpoint import IntrospectionEndpoint
from proxy.identity.reasons import Reason, invalid_token
from proxy.identity.token import Json
from proxy.refusals import IssuerUnavailable, Refusal, Unauthenticated

NEGATIVE_SECONDS: Final = 5.0
TELL_AGAIN_SECONDS: Final = 60.0
# How long it is remembered that a token was good, so that its holder does not wait behind inventions.
KNOWN_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What an issuer is spared, and what saltgate is. Times in seconds."""

    timeout: float = 3.0  # For a turn, and then for the answer.
    questions: int = 64  # Under way at once,
    known_questions: int = 32  # and further ones about tokens that were good within the last hour.
    waiting: int = 512  # Questions that wait for their turn, or are under way, of each of the two kinds.
    capacity: int = 20_000  # Answers that are remembered: so many good ones, and so many others.
    threshold: int = 5  # Failures in a row after which the issuer is doubted;
    first_pause: float = 1.0  # then between two probes, doubled each time,
    longest_pause: float = 30.0  # up to this.


class Introspector:
    """Use it as `async with`: it owns the questions under way and the probes.

    It starts also while the issuer is away, and heals by itself. `clock` gives Unix seconds, `monotonic` seconds that
    never jump.
    """

    def __init__(
        self,
        rules: Issuer,
        settings: Introspection,
        endpoint: IntrospectionEndpoint,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        bounds: Bounds | None = None,
    ) -> None:
        self.rules = rules
        self._cache_seconds = settings.cache
        self._endpoint = endpoint
        self._clock = clock
        self._monotonic = monotonic
        self._bounds = bounds or Bounds()
        self._breaker = Breaker(
            threshold=self._bounds.threshold,
            first_pause=self._bounds.first_pause,
            longest_pause=self._bounds.longest_pause,
        )
        self._good = Recent[Identity | Bound](capacity=self._bounds.capacity)
        self._refused = Recent[Unauthenticated](capacity=self._bounds.capacity)
        self._known = Recent[bool](capacity=self._bounds.capacity)
        self._strangers = _Lane(self._bounds.questions, self._bounds.waiting)
        self._acquainted = _Lane(self._bounds.known_questions, self._bounds.waiting)
        self._flights: dict[bytes, asyncio.Task[Identity | Bound | Refusal]] = {}
        self._sound = False
        self._probed = asyncio.Event()  # Set unless there is a doubt: then nobody asks until the probe has ended.
        self._doubt: asyncio.Task[None] | None = None
        self._told: dict[str, float] = {}
        self._log = structlog.get_logger().bind(issuer=rules.issuer)

    async def __aenter__(self) -> Self:
        # Before anybody is in need of it: an operator sees at once whether it works.
        self._doubt = asyncio.get_running_loop().create_task(self._probe_until_sound())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._flights.values(), *([] if self._doubt is None else [self._doubt])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def ready(self) -> bool:
        """Whether the issuer answered when it was last probed."""
        return self._sound

    async def judged(self, token: str, *, under: str = "") -> Identity | Bound:
        """Who is calling. Does not suspend for a token that was asked about a moment ago.

        `under` is the workspace that it is shown for, where its name is to stay unknown: a token is refused for each
        anew, so that no quick refusal tells that two of them are of one issuer.

        Raises `InvalidToken` or `TokenExpired` where the issuer says so, and `IssuerUnavailable` wherever that is not
        known for certain.
        """
        shown = _ShownToken(token, digest_of(token), digest_of(f"{under} {token}"))
        now = self._monotonic()
        found: Identity | Bound | Refusal | None = self._good.find(shown.digest, now=now) or self._refused.find(
            shown.place, now=now
        )
        if found is None:
            # A caller who leaves must not take away the answer that others wait for.
            found = await asyncio.shield(self._flights.get(shown.place) or self._take_off(shown, now))
        if isinstance(found, Identity | Bound):
            return found
        # A new one for each caller: what is raised collects a traceback.
        raise type(found)(found.message, reason=found.reason, retry_after=found.retry_after)

    def _take_off(self, shown: _ShownToken, now: float) -> asyncio.Task[Identity | Bound | Refusal]:
        if self._breaker.is_open:
            raise self._away("introspection_away")
        lane = self._acquainted if self._known.find(shown.digest, now=now) else self._strangers
        if lane.is_full:
            raise self._away("introspection_busy")
        flight = asyncio.get_running_loop().create_task(self._fly(shown, lane))
        lane.taken += 1
        self._flights[shown.place] = flight
        flight.add_done_callback(lambda _: self._land(shown, lane))
        return flight

    def _land(self, shown: _ShownToken, lane: _Lane) -> None:
        lane.taken -= 1
        del self._flights[shown.place]

    async def _fly(self, shown: _ShownToken, lane: _Lane) -> Identity | Bound | Refusal:
        try:
            async with asyncio.timeout(self._bounds.timeout) as turn, lane.turn:
                await self._probed.wait()
                turn.reschedule(None)
                return await self._asked(shown)
        except TimeoutError:
            return self._away("introspection_busy")
        except Exception as error:  # noqa: BLE001 - becomes a refusal, never an identity
            return self._failed(_whereabouts(error))

    async def _asked(self, shown: _ShownToken) -> Identity | Bound | Refusal:
        if self._breaker.is_open:  # since it waits for its turn
            return self._away("introspection_away")
        asked_at = self._monotonic()
        try:
            async with asyncio.timeout(self._bounds.timeout):
                claims = await self._endpoint.claims_of(shown.token)
        except TimeoutError:
            return self._failed(f"no answer within {self._bounds.timeout:g} s")
        except (NoAnswerError, FaultyAnswerError) as error:
            return self._failed(str(error))
        self._breaker.answered()
        return self._judged(claims, shown, asked_at)

    def _judged(
        self, claims: Mapping[str, Json] | None, shown: _ShownToken, asked_at: float
    ) -> Identity | Bound | Refusal:
        """What the answer means; remembered from when the question was asked, for it may be as old as that."""
        now = self._clock()
        try:
            if claims is None:
                raise invalid_token(Reason.INACTIVE)
            identity = identify(claims, rules=self.rules, now=now)
        except Unauthenticated as refusal:
            self._refused.keep(shown.place, refusal, until=asked_at + NEGATIVE_SECONDS)
            self._known.forget(shown.digest)
            return refusal
        lifetime = min(identity.expires_at - now, self._cache_seconds)
        if lifetime > 0:
            self._good.keep(shown.digest, identity, until=asked_at + lifetime)
        self._known.keep(shown.digest, True, until=asked_at + KNOWN_SECONDS)
        return identity

    def _failed(self, cause: str) -> IssuerUnavailable:
        self._tell(cause)
        if self._breaker.failed() and (self._doubt is None or self._doubt.done()):
            self._probed.clear()
            self._doubt = asyncio.get_running_loop().create_task(self._probe_until_sound())
        return self._away("introspection_failed")

    def _away(self, reason: str) -> IssuerUnavailable:
        return IssuerUnavailable(
            "The identity provider does not say now whether your token is good. Try again in a moment.",
            reason=reason,
            retry_after=math.ceil(self._breaker.pause),
        )

    async def _probe_until_sound(self) -> None:
        pause: float | None = 0.0
        while pause is not None:
            await asyncio.sleep(pause)
            was_open = self._breaker.is_open
            cause = await self._unsound()
            self._sound = cause is None
            pause = self._breaker.probed(sound=self._sound)
            self._probed.set()
            if cause is not None:
                self._tell(cause)
            elif was_open:
                self._told.clear()
                self._log.info("introspection_back")

    async def _unsound(self) -> str | None:
        """Why the issuer cannot be asked, if so."""
        try:
            await self.probe()
        except (NoAnswerError, FaultyAnswerError) as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody is asked for a caller until it is over
            return _whereabouts(error)
        return None

    async def probe(self) -> None:
        """Asks once about a token that cannot exist. Raises NoAnswerError, or FaultyAnswerError (RefusedClientError
        where the issuer does not let saltgate ask).
        """
        try:
            async with asyncio.timeout(self._bounds.timeout):
                await self._endpoint.probe()
        except TimeoutError:
            raise NoAnswerError(f"no answer within {self._bounds.timeout:g} s") from None

    def _tell(self, cause: str) -> None:
        """To the log, each cause once a minute: thousands of callers may meet it. There are few causes."""
        now = self._monotonic()
        if now - self._told.get(cause, -TELL_AGAIN_SECONDS) >= TELL_AGAIN_SECONDS:
            self._told[cause] = now
            self._log.warning("introspection_failed", cause=cause, remedy="saltgate check")


@dataclass(frozen=True, slots=True)
class _ShownToken:
    """A token, what stands for it, and what stands for it under the workspace that it is shown for."""

    token: str = field(repr=False)
    digest: bytes
    place: bytes


class _Lane:
    """Questions of one kind: so many have their turn at once, so many may be there at all."""

    def __init__(self, turns: int, places: int) -> None:
        self.turn = asyncio.Semaphore(turns)
        self.taken = 0
        self._places = places

    @property
    def is_full(self) -> bool:
        return self.taken >= self._places


def _whereabouts(error: Exception) -> str:
    """A fault of ours by its kind and place: its text may hold parts of the token."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
