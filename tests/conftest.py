from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.parts.redis_server import RedisServer

# A busy machine takes its time; that is no fault of what is tried.
settings.register_profile("saltgate", deadline=None)
settings.load_profile("saltgate")


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(shared_redis: RedisServer) -> RedisServer:
    """An empty Redis. Tests that stop or freeze it take `own_redis`."""
    shared_redis.command("FLUSHALL")
    return shared_redis


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server
