"""What `saltgate check` says of the Redis of `[directory]`: whether it may throw away what nobody else knows."""

from __future__ import annotations

from collections.abc import AsyncIterator

from redis.asyncio import Redis

from config.settings import Directory
from proxy.cli.lines import Level, Line
from proxy.directory.redis_connection import SHORT_SECONDS, bounded, connection_pool
from proxy.directory.store import StoreUnavailable


async def eviction_lines(place: Directory, part: str) -> AsyncIterator[Line]:
    """Nothing where there is no Redis, where it keeps what it was given, and where it cannot be asked."""
    try:
        policy = await _policy(place)
    except StoreUnavailable:  # the directory's own line says what is wrong with it
        return
    if policy.startswith("allkeys-"):
        yield Line(
            Level.FAULT,
            part,
            "maxmemory-policy",
            f"{policy} lets Redis throw away blocks, ended sign-ins and rotations when its memory is full, and what "
            "they forbid is allowed again: set it to noeviction",
        )
    elif policy.startswith("volatile-"):
        yield Line(
            Level.WARNING,
            part,
            "maxmemory-policy",
            f"{policy} lets Redis throw away used DPoP proofs, which could come again, sessions and personal access "
            "tokens when its memory is full: set it to noeviction",
        )


async def _policy(place: Directory) -> str:
    """The policy; "" where this Redis user may not see it. Raises StoreUnavailable."""
    if place.redis is None:
        return ""
    pool = connection_pool(place)
    try:
        async with bounded(SHORT_SECONDS):
            told = await Redis(connection_pool=pool).info("memory")
    finally:
        await pool.aclose()
    policy = told.get("maxmemory_policy")
    return policy if isinstance(policy, str) else ""
