from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.isolation.ring import Ring
from tests.parts.redis_server import RedisServer
from tests.proxy.cli.place import Place


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(params=["redis", "file"])
def bare_place(
    request: pytest.FixtureRequest, server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Place:
    if request.param == "redis":
        server.command("FLUSHALL")
        return Place(tmp_path, f'redis = "{server.url}"', capsys)
    return Place(tmp_path, 'file = "directory.toml"\nstate = "state"', capsys)


@pytest.fixture
def place(bare_place: Place) -> Place:
    """With a salt ring of long ago: who makes one waits for the second to be over."""
    bare_place.make_ring(Ring("ring", "2026-11", 1_700_000_000, {}, {}))
    return bare_place
