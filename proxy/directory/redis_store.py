"""The directory in Redis. `redis-layout.md` describes the keys, so that a company's own sync can write them too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from config.settings import Directory as Settings
from proxy.directory.changes import Change, Deed, pause_before
from proxy.directory.endings import record_name as ending_record
from proxy.directory.endings import record_value
from proxy.directory.records import RawRecords, Records, block_record, parse_records, ring_record
from proxy.directory.redis_connection import LONG_SECONDS, PREFIX, SHORT_SECONDS, bounded, connection_pool
from proxy.directory.redis_tokens import token_keys
from proxy.directory.redis_transaction import Command, Transaction, queue, written
from proxy.directory.store import StoreUnavailable, unix_now
from proxy.isolation.ring import record_name

GENERATION: Final = PREFIX + "generation"
WORKSPACES: Final = PREFIX + "workspaces"
BLOCKS: Final = PREFIX + "blocks"
RING: Final = PREFIX + "ring"
RAISES: Final = PREFIX + "raises"
UNIT_KEYS: Final = PREFIX + "unit_keys"
ENDINGS: Final = PREFIX + "endings"
CHANGES: Final = PREFIX + "changes"

_READ: Final[tuple[Command, ...]] = (
    ("GET", GENERATION),
    ("HGETALL", WORKSPACES),
    ("SMEMBERS", BLOCKS),
    ("HGETALL", RING),
    ("HGETALL", RAISES),
    ("HGETALL", UNIT_KEYS),
    ("HGETALL", ENDINGS),
)

_ATTEMPTS: Final = 60
_HEARD_AT_ONCE: Final = 100


class RedisStore:
    """The Redis of `[directory]`, over a pool of connections of its own."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = unix_now) -> None:
        """Opens no connection yet. Raises ValueError where the URL or a certificate cannot be used.

        `clock` is Unix seconds.
        """
        self._clock = clock
        self._pool = connection_pool(settings)
        self._redis = Redis(connection_pool=self._pool)

    @asynccontextmanager
    async def hearing(self) -> AsyncIterator[_RedisHearing]:
        async with aclosing(self._redis.pubsub()) as pubsub:
            async with bounded(SHORT_SECONDS):
                await pubsub.subscribe(CHANGES)
                if await pubsub.get_message(timeout=SHORT_SECONDS) is None:
                    raise TimeoutError
            yield _RedisHearing(pubsub)

    async def stamp(self) -> bytes:
        async with bounded(SHORT_SECONDS), self._redis.pipeline(transaction=True) as pipe:
            queue(pipe, ("GET", GENERATION), ("HGET", RING, "id"))
            generation, ring_id = await pipe.execute()
        return _stamp(generation, ring_id)

    async def read(self) -> Records:
        async with bounded(LONG_SECONDS), self._redis.pipeline(transaction=True) as pipe:
            queue(pipe, *_READ)
            answers = await pipe.execute()
        return _records(*answers, now=self._clock())

    async def change(self, deed: Deed) -> Change:
        for attempt in range(_ATTEMPTS):
            async with bounded(2 * LONG_SECONDS), self._redis.pipeline(transaction=True) as pipe:
                await pipe.watch(GENERATION, WORKSPACES, BLOCKS, RING, RAISES, UNIT_KEYS, ENDINGS)
                # The clock after WATCH: if a ring that is missing now is made by another and lost again before this
                # change is written, it is not written.
                records = await _watched_records(pipe, self._clock())
                change = deed(records)
                await asyncio.sleep(pause_before(change, records))
                if await written(pipe, _commands(change)):
                    return change
            await asyncio.sleep(0.001 * min(attempt, 50))
        raise StoreUnavailable("the directory in Redis changes so often that nothing can be written; try again")

    async def close(self) -> None:
        await self._redis.aclose()
        await self._pool.aclose()


class _RedisHearing:
    def __init__(self, pubsub: PubSub) -> None:
        self._pubsub = pubsub

    async def heard(self, within: float) -> bool:
        async with bounded(within + SHORT_SECONDS):
            if await self._next(within) is None:
                return False
            # Many changes in a row are one reason to read.
            for _ in range(_HEARD_AT_ONCE):
                if await self._next(0) is None:
                    break
        return True

    async def _next(self, within: float) -> object | None:
        message: object | None = await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=within)
        return message


def _stamp(generation: bytes | None, ring_id: bytes | None) -> bytes:
    """The ring's id is part of it: a Redis that was emptied and filled anew may be at the same generation as before."""
    return (generation or b"") + b" " + (ring_id or b"")


def _records(
    generation: bytes | None,
    workspaces: Mapping[bytes, bytes],
    blocks: Iterable[bytes],
    ring: Mapping[bytes, bytes],
    raises: Mapping[bytes, bytes],
    unit_keys: Mapping[bytes, bytes],
    endings: Mapping[bytes, bytes],
    *,
    now: float,
) -> Records:
    raw = RawRecords(generation or b"", workspaces, blocks, ring, raises, unit_keys, endings)
    return parse_records(raw, stamp=_stamp(generation, ring.get(b"id")), now=now)


def _commands(change: Change) -> Iterator[Command]:
    """The change as commands of one transaction. Even an empty change reads something: that the transaction holds tells
    that it was decided on records of one moment."""
    if change.is_empty:
        yield "GET", GENERATION
        return
    for name, document in change.workspaces.items():
        yield ("HDEL", WORKSPACES, name) if document is None else ("HSET", WORKSPACES, name, document)
    for unit in change.raises:
        yield "HINCRBY", RAISES, record_name(unit), 1
    if change.unit_key is not None:
        unit, key_id = change.unit_key
        name = record_name(unit)
        yield ("HDEL", UNIT_KEYS, name) if key_id is None else ("HSET", UNIT_KEYS, name, key_id)
    ring = change.ring or change.turned
    if ring is not None:
        yield "DEL", RING
        yield "HSET", RING, *_fields(ring_record(ring))
    if change.block is not None:
        yield "SADD", BLOCKS, block_record(*change.block)
    if change.unblock is not None:
        yield "SREM", BLOCKS, block_record(*change.unblock)
    yield from _of_endings(change)
    yield "INCR", GENERATION
    yield "PUBLISH", CHANGES, "changed"


def _of_endings(change: Change) -> Iterator[Command]:
    for ending in change.endings:
        yield "HSET", ENDINGS, ending_record(ending.of, ending.issuer, ending.name), record_value(ending)
        if ending.of == "token":  # It has no record any more: only so it stays over when the ending is forgotten.
            yield "DEL", *token_keys(ending.name)
    if change.forgotten:
        yield "HDEL", ENDINGS, *change.forgotten


def _fields(record: Mapping[str, str | int]) -> Iterator[str | int]:
    for name, value in record.items():
        yield name
        yield value


async def _watched_records(pipe: Transaction, now: float) -> Records:
    """The records between WATCH and MULTI: if they change before the change is written, it is not written."""
    return _records(*[await pipe.immediate_execute_command(*command) for command in _READ], now=now)
