"""`saltgate check` and a Redis that may throw away what nobody else knows."""

from __future__ import annotations

import pytest

from config.settings import Directory
from proxy.cli.check_eviction import eviction_lines
from proxy.cli.lines import Level
from tests.parts.redis_server import RedisServer


async def levels(place: Directory) -> list[Level]:
    found = [line async for line in eviction_lines(place, "directory")]
    assert all("noeviction" in line.message for line in found)
    return [line.level for line in found]


@pytest.mark.parametrize(
    ("policy", "level"),
    [
        ("noeviction", []),
        ("allkeys-lru", [Level.FAULT]),
        ("allkeys-random", [Level.FAULT]),
        ("volatile-lru", [Level.WARNING]),
        ("volatile-ttl", [Level.WARNING]),
    ],
)
async def test_a_redis_that_throws_away_blocks_is_a_fault_and_one_that_forgets_proofs_a_warning(
    own_redis: RedisServer, policy: str, level: list[Level]
) -> None:
    assert own_redis.command("CONFIG", "SET", "maxmemory-policy", policy).startswith(b"+OK")
    assert await levels(own_redis.settings()) == level


async def test_who_may_not_ask_is_told_nothing(own_redis: RedisServer) -> None:
    own_redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    own_redis.command("ACL", "SETUSER", "default", "-info")
    assert await levels(own_redis.settings()) == []


async def test_a_file_throws_nothing_away() -> None:
    assert await levels(Directory()) == []
