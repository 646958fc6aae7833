from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.parts.redis_server import RedisServer

# A busy machine takes its time; that is no fault of what is tried.
settings.register_profile("saltgate", deadline=None)
settings.load_profile("saltgate")

# An exporter's thread may outlive the test that started it: without a handler Python would write what it complains of
# to the standard error of another one.
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())


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
