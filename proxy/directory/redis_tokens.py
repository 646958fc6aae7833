"""Personal access tokens and logins in Redis, each a key of its own. `redis-layout.md` describes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from redis.asyncio import Redis

from config.settings import Directory as Settings
from proxy.directory.redis_connection import LONG_SECONDS, PREFIX, SHORT_SECONDS, bounded, connection_pool
from proxy.directory.redis_transaction import Command, executed, queue, written
from proxy.directory.store import StoreUnavailable, unix_now
from proxy.directory.token_records import (
    RecordDamaged,
    login_document,
    login_record,
    owner_name,
    token_document,
    token_record,
)
from proxy.directory.token_store import EXPIRED_KEPT_SECONDS, OwnedToken, TooManyTokens
from proxy.identity.personal_records import NOBODYS, Kept, Login, Owner, TokenRecord

_TOKEN: Final = PREFIX + "token:"
_USED: Final = PREFIX + "token_used:"
TOKENS_OF: Final = PREFIX + "tokens_of:"
LOGIN: Final = PREFIX + "login:"
_ATTEMPTS: Final = 100
_USES_AT_ONCE: Final = 500


def token_keys(token_id: str) -> tuple[str, str]:
    """What is to be deleted with a token."""
    return _TOKEN + token_id, _USED + token_id


class RedisTokens:
    """The Redis of `[directory]`, over a pool of connections of its own."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = unix_now) -> None:
        """Opens no connection yet. Raises ValueError where the URL or a certificate cannot be used."""
        self._clock = clock
        self._pool = connection_pool(settings)
        self._redis = Redis(connection_pool=self._pool)

    async def find(self, token_id: str) -> Kept | None:
        async with bounded(SHORT_SECONDS):
            document = await _get(self._redis.execute_command, _TOKEN + token_id)
            record = NOBODYS if document is None else _readable(token_id, document)
            login = await _get(self._redis.execute_command, _login_key(record.owner))
        return None if record is NOBODYS else Kept(record, None if login is None else login_record(login))

    async def owned(self, owner: Owner) -> tuple[OwnedToken, ...]:
        ask: _Ask = self._redis.execute_command
        async with bounded(LONG_SECONDS):
            ids = await _ids(ask, owner)
            if not ids:
                return ()
            documents, uses = [await ask("MGET", *(key + each for each in ids)) for key in (_TOKEN, _USED)]
        return _owned(ids, documents, uses)

    async def create(self, record: TokenRecord, *, limit: int) -> None:
        for attempt in range(_ATTEMPTS):
            async with bounded(LONG_SECONDS):
                if await self._created(record, limit):
                    return
            await asyncio.sleep(0.001 * attempt)
        raise StoreUnavailable("the owner's tokens change so often that none can be made; try again")

    async def used(self, uses: Mapping[str, int]) -> None:
        listed = list(uses.items())
        for begin in range(0, len(listed), _USES_AT_ONCE):
            async with bounded(SHORT_SECONDS), self._redis.pipeline(transaction=False) as pipe:
                # XX: only beside a token that is still there.
                uses_now = listed[begin : begin + _USES_AT_ONCE]
                queue(pipe, *(("SET", _USED + token_id, at, "XX", "KEEPTTL") for token_id, at in uses_now))
                await executed(pipe)

    async def log_in(self, owner: Owner, login: Login, *, keep_seconds: float) -> None:
        key = _login_key(owner)
        for _ in range(_ATTEMPTS):
            async with bounded(SHORT_SECONDS), self._redis.pipeline(transaction=True) as pipe:
                await pipe.watch(key)
                document = await _get(pipe.immediate_execute_command, key)
                known = None if document is None else login_record(document)
                if known is not None and known.at >= int(login.at):
                    return
                if await written(pipe, [("SET", key, login_document(login), "EX", max(1, int(keep_seconds)))]):
                    return
        raise StoreUnavailable("the login in Redis changes so often that nothing can be written; try again")

    async def close(self) -> None:
        await self._redis.aclose()
        await self._pool.aclose()

    async def _created(self, record: TokenRecord, limit: int) -> bool:
        """Whether it was written; not, where the owner's tokens have changed meanwhile."""
        index = TOKENS_OF + owner_name(record.owner)
        async with self._redis.pipeline(transaction=True) as pipe:
            await pipe.watch(index, _TOKEN + record.id)
            ask: _Ask = pipe.immediate_execute_command
            ids = await _ids(ask, record.owner)
            *documents, taken = await ask("MGET", *(_TOKEN + token_id for token_id in (*ids, record.id)))
            if taken is not None:
                raise StoreUnavailable("the new token's id is taken; try again")
            live = _live(ids, documents, self._clock())
            if len(live) >= limit:
                raise TooManyTokens
            gone = [token_id for token_id in ids if token_id not in live]
            return await written(pipe, _creation(index, record, live, gone))


def _creation(index: str, record: TokenRecord, live: Mapping[str, int], gone: Iterable[str]) -> Iterator[Command]:
    until = record.expires + EXPIRED_KEPT_SECONDS
    token, used = token_keys(record.id)
    yield "SET", token, token_document(record), "EXAT", until
    yield "SET", used, 0, "EXAT", until
    for token_id in gone:
        yield "ZREM", index, token_id
        yield "DEL", *token_keys(token_id)
    yield "ZADD", index, record.expires, record.id
    yield "EXPIREAT", index, max((until, *(expires + EXPIRED_KEPT_SECONDS for expires in live.values())))


_Ask = Callable[..., Awaitable[Any]]
"""One command, answered at once: of a Redis, or of its pipeline between WATCH and MULTI."""


async def _get(ask: _Ask, key: str) -> bytes | None:
    value: bytes | None = await ask("GET", key)
    return value


async def _ids(ask: _Ask, owner: Owner) -> tuple[str, ...]:
    found: list[bytes] = await ask("ZRANGE", TOKENS_OF + owner_name(owner), 0, -1)
    return tuple(each.decode("ascii", "replace") for each in found)


def _login_key(owner: Owner) -> str:
    return LOGIN + owner_name(owner)


def _readable(token_id: str, document: bytes) -> TokenRecord:
    """A record that cannot be read says nothing against its owner: it is our trouble."""
    try:
        return token_record(token_id, document)
    except RecordDamaged as error:
        raise StoreUnavailable(str(error)) from error


def _live(ids: Sequence[str], documents: Sequence[bytes | None], now: float) -> dict[str, int]:
    """The ids of the tokens that are there and not expired, and when they will be. What cannot be read counts, too."""
    live: dict[str, int] = {}
    for token_id, document in zip(ids, documents, strict=True):
        if document is None:
            continue
        try:
            expires = token_record(token_id, document).expires
        except RecordDamaged:
            expires = int(now) + EXPIRED_KEPT_SECONDS
        if expires > now:
            live[token_id] = expires
    return live


def _owned(
    ids: Sequence[str], documents: Sequence[bytes | None], uses: Sequence[bytes | None]
) -> tuple[OwnedToken, ...]:
    found = [
        OwnedToken(_readable(token_id, document), int(use) or None if use is not None and use.isdigit() else None)
        for token_id, document, use in zip(ids, documents, uses, strict=True)
        if document is not None
    ]
    return tuple(sorted(found, key=lambda token: (token.record.created, token.record.id)))
