"""What the gate and the commands need of a place that keeps personal access tokens, be it Redis or a folder.

That a token is over is a change of the directory (`revocation`): the same step takes its record away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from proxy.directory.changes import Deed, end
from proxy.directory.endings import Ending
from proxy.directory.store import StoreUnavailable
from proxy.identity.personal_records import Kept, Login, Owner, TokenRecord
from proxy.refusals import DirectoryUnavailable

EXPIRED_KEPT_SECONDS: Final = 7 * 24 * 3600
"""How long the record of an expired token stays, so that whoever uses it is told what happened."""

_CLOCKS_DIFFER_SECONDS: Final = 3600


class TooManyTokens(Exception):  # noqa: N818 - an answer
    """The owner has as many tokens as one may have."""


@dataclass(frozen=True, slots=True)
class OwnedToken:
    """A token in its owner's list. `used` is when it was last used, in Unix seconds, a minute more or less; None:
    never."""

    record: TokenRecord
    used: int | None


class TokenStore(Protocol):
    """A place that keeps tokens and logins. No method waits without a bound; each raises StoreUnavailable."""

    async def find(self, token_id: str) -> Kept | None:
        """The token of that id, with its owner's login. An id that nobody has takes the same steps."""
        ...

    async def owned(self, owner: Owner) -> tuple[OwnedToken, ...]:
        """The owner's tokens, the oldest first, some of them perhaps expired."""
        ...

    async def create(self, record: TokenRecord, *, limit: int) -> None:
        """Keep a new token. Raises TooManyTokens where its owner has `limit` that are not expired, however many are
        made at once."""
        ...

    async def used(self, uses: Mapping[str, int]) -> None:
        """Note when tokens were last used, by id, in Unix seconds. A token that is gone stays gone."""
        ...

    async def log_in(self, owner: Owner, login: Login, *, keep_seconds: float) -> None:
        """Note a login, unless a later one is known."""
        ...

    async def close(self) -> None: ...


def revocation(token_ids: Iterable[str], *, now: float, max_stale: float) -> Deed:
    """Make these tokens over, on every worker within a second, and their records gone.

    The endings must be known only as long as any worker may remember a token: where a directory is away, `max_stale`.
    """
    at, until = int(now), int(now + max_stale + _CLOCKS_DIFFER_SECONDS)
    return end(*(Ending("token", "", token_id, at, until) for token_id in token_ids))


@contextmanager
def asked_for_a_caller() -> Iterator[None]:
    """A store that is away, in the words for callers."""
    try:
        yield
    except StoreUnavailable as error:
        raise DirectoryUnavailable(
            "saltgate cannot reach its directory, where personal access tokens are kept. Try again soon.",
            reason="token_store_away",
        ) from error


class StoredTokens:
    """A store as `proxy.identity` asks it."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store

    async def find(self, token_id: str) -> Kept | None:
        with asked_for_a_caller():
            return await self._store.find(token_id)

    async def used(self, uses: Mapping[str, int]) -> None:
        with asked_for_a_caller():
            await self._store.used(uses)
