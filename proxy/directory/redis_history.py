"""The history behind the administrators' pages, in the Redis of the directory (`redis-layout.md`): written and read for
the supervisor, in the background. Every key has an end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from redis.asyncio import Redis

from config.settings import Directory as Settings
from proxy.directory.redis_connection import LONG_SECONDS, PREFIX, bounded, connection_pool
from proxy.directory.store import StoreUnavailable
from proxy.questions import Done, Keep, Recall, Recalled

SLOT: Final = PREFIX + "history:slot:"
GATES: Final = PREFIX + "history:gates"
REQUESTS: Final = PREFIX + "history:requests"
_FIELD: Final = b"summary"
_GATE: Final = b"gate"

# How long slots of so many seconds are kept: a little longer than a reader looks back.
LIVES: Final = {60: 2 * 3600, 360: 8 * 3600, 1440: 50 * 3600}
LONGEST: Final = max(LIVES.values())
MOST_GATES: Final = 32
MOST_READ: Final = 1000


class RedisHistory:
    """Opens a connection when it is first asked."""

    def __init__(self, settings: Settings) -> None:
        self._pool = connection_pool(settings)
        self._redis: Any = Redis(connection_pool=self._pool)

    async def keep(self, asked: Keep, *, now: float) -> Done:
        """`now` is Unix seconds. What lies too far in the past is left out."""
        try:
            async with bounded(LONG_SECONDS), self._redis.pipeline(transaction=False) as pipe:
                for seconds, slot, data in asked.slots:
                    if seconds in LIVES:
                        pipe.set(_slot_key(seconds, slot, asked.gate), data, ex=LIVES[seconds])
                for request in asked.requests:
                    entry = {_GATE: asked.gate, _FIELD: request}
                    pipe.xadd(REQUESTS, entry, maxlen=asked.most_requests, approximate=True)
                pipe.zadd(GATES, {asked.gate: int(now)})
                pipe.zremrangebyscore(GATES, "-inf", int(now) - LONGEST)
                pipe.expire(GATES, LONGEST)
                pipe.expire(REQUESTS, LONGEST)
                await pipe.execute()
        except StoreUnavailable as error:
            return Done(str(error))
        return Done()

    async def recall(self, asked: Recall) -> Recalled:
        try:
            async with bounded(LONG_SECONDS):
                newest = await self._redis.zrange(GATES, 0, MOST_GATES - 1, desc=True)
                gates = [name for gate in newest if (name := gate.decode("ascii", "replace")) != asked.gate]
                slots = await self._slots(gates, asked.slots)
                requests, last = await self._requests(asked)
        except StoreUnavailable as error:
            return Recalled(why=str(error))
        return Recalled(slots, requests, last)

    async def close(self) -> None:
        await self._redis.aclose()
        await self._pool.aclose()

    async def _slots(
        self, gates: Iterable[str], slots: Iterable[tuple[int, int]]
    ) -> tuple[tuple[str, int, int, bytes], ...]:
        wanted = [(gate, seconds, slot) for gate in gates for seconds, slot in slots]
        if not wanted:
            return ()
        found = await self._redis.mget([_slot_key(seconds, slot, gate) for gate, seconds, slot in wanted])
        return tuple((*named, data) for named, data in zip(wanted, found, strict=True) if data is not None)

    async def _requests(self, asked: Recall) -> tuple[tuple[bytes, ...], str]:
        entries = await self._redis.xrange(REQUESTS, min=f"({asked.after}" if asked.after else "-", count=MOST_READ)
        own = asked.gate.encode("ascii")
        others = tuple(fields[_FIELD] for _, fields in entries if fields.get(_GATE) != own and _FIELD in fields)
        return others, entries[-1][0].decode("ascii") if entries else asked.after


def _slot_key(seconds: int, slot: int, gate: str) -> str:
    return f"{SLOT}{seconds}:{slot}:{gate}"
