"""The door for personal access tokens: asked for at their use, remembered for a moment.

That a token is over is told to every worker by the directory (`proxy/directory/endings.py`), so memory need not forget
it in time; it is there that a cached token is refused.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from proxy.identity import Identity
from proxy.identity.cache import digest_of
from proxy.identity.personal import PersonalToken, personal_token
from proxy.identity.personal_records import Kept, PersonalRules, identify_personal
from proxy.refusals import DirectoryUnavailable

REMEMBERED_SECONDS: Final = 30.0
# A person whose groups are not known was just told to sign in again, and will try at once.
GROUPLESS_SECONDS: Final = 1.0
# A book that did not answer is not asked again for tokens that are known: their requests would all wait for it.
AWAY_SECONDS: Final = 1.0
LOOK_UP_SECONDS: Final = 2.0
LOOKED_UP_AT_ONCE: Final = 32
TOLD_EVERY_SECONDS: Final = 60.0
CAPACITY: Final = 20_000


class TokenBook(Protocol):
    """Where tokens are kept. Neither method waits without a bound; each raises DirectoryUnavailable."""

    async def find(self, token_id: str) -> Kept | None: ...

    async def used(self, uses: Mapping[str, int]) -> None:
        """Note when tokens were last used, by id, in Unix seconds. A token that is gone stays gone."""
        ...


@dataclass(frozen=True, slots=True)
class _Entry:
    kept: Kept
    asked: float
    fresh_until: float


class PersonalTokens:
    """Who a personal access token is. Only tokens that were right are remembered, by the SHA-256 of the whole token.

    What the book said serves for half a minute, and where the book cannot be asked for `max_stale` seconds after it
    said so: then memberships are no older either. `clock` is Unix seconds.
    """

    def __init__(
        self,
        book: TokenBook,
        rules: PersonalRules,
        *,
        max_stale: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        capacity: int = CAPACITY,
    ) -> None:
        self._book = book
        self._rules = rules
        self._max_stale = max_stale
        self._clock = clock
        self._monotonic = monotonic
        self._capacity = capacity
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._slots = asyncio.Semaphore(LOOKED_UP_AT_ONCE)
        self._away_until = float("-inf")
        self._uses: dict[str, int] = {}

    async def identify(self, text: str) -> Identity:
        """Who is calling. Does not suspend for a token that was looked up a moment ago.

        Raises InvalidToken, TokenExpired, or DirectoryUnavailable where saltgate cannot know.
        """
        token, key = personal_token(text), digest_of(text)
        entry = self._fresh(key) or await self._look_up(token, key)
        identity = self._judged(token, None if entry is None else entry.kept)
        if len(self._uses) < self._capacity or token.id in self._uses:
            self._uses[token.id] = int(self._clock())
        return identity

    async def tell_uses(self) -> None:
        """Notes in the book when tokens were last used, once a minute, until cancelled."""
        while True:
            await asyncio.sleep(TOLD_EVERY_SECONDS)
            await self.tell_uses_now()

    async def tell_uses_now(self) -> None:
        """Notes what is not noted yet. What cannot be noted is kept for the next time, unless it is known anew."""
        uses, self._uses = self._uses, {}
        if not uses:
            return
        try:
            await self._book.used(uses)
        except DirectoryUnavailable:
            self._uses = uses | self._uses

    def _judged(self, token: PersonalToken, kept: Kept | None) -> Identity:
        return identify_personal(token, kept, rules=self._rules, now=self._clock())

    def _fresh(self, key: bytes) -> _Entry | None:
        """What is remembered and need not be asked, or cannot."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        now = self._monotonic()
        return entry if now < entry.fresh_until or (now < self._away_until and self._serves(entry, now)) else None

    def _serves(self, entry: _Entry, now: float) -> bool:
        return now - entry.asked <= self._max_stale

    async def _look_up(self, token: PersonalToken, key: bytes) -> _Entry | None:
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS), self._slots:
                # Of many requests at once with one token only the first need ask.
                return self._fresh(key) or await self._ask(token, key)
        except (DirectoryUnavailable, TimeoutError):
            now = self._monotonic()
            self._away_until = now + AWAY_SECONDS
            entry = self._entries.get(key)
            if entry is not None and self._serves(entry, now):
                return entry
            raise DirectoryUnavailable(
                "saltgate cannot look up your personal access token just now. Try again soon.",
                reason="personal_not_looked_up",
            ) from None

    async def _ask(self, token: PersonalToken, key: bytes) -> _Entry | None:
        asked = self._monotonic()
        kept = await self._book.find(token.id)
        self._entries.pop(key, None)  # Whatever the book says now, it does not say what it said before.
        if kept is None:
            return None
        identity = self._judged(token, kept)
        seconds = REMEMBERED_SECONDS if identity.groups_complete else GROUPLESS_SECONDS
        entry = _Entry(kept, asked, asked + min(seconds, self._max_stale))
        self._entries[key] = entry
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
        return entry
