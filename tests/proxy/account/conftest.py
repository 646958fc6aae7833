from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parts.redis_server import RedisServer
from tests.proxy.account.served import Served, served


@pytest.fixture(scope="session")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all tests with whole processes: it starts slowly. Each test has browsers of its own."""
    with (
        RedisServer(tmp_path_factory.mktemp("redis")) as redis,
        served(redis, tmp_path_factory.mktemp("gate")) as running,
    ):
        yield running
