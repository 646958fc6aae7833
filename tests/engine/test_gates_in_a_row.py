"""Two gates in a row before the real vLLM: what the first keeps apart is apart in the engine's cache, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import aiohttp
import pytest
import pytest_asyncio

from config.secret import Secret
from config.settings import Isolation, IsolationKey
from tests.engine.client import EngineClient, Vllm
from tests.engine.endpoints import SALTED, Endpoint
from tests.engine.gate import ALICE, BOB, CAROL, MALLORY, GateClient, fresh_prompt, gate_before
from tests.parts.gate_bed import gate_bed
from tests.parts.redis_server import RedisServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

FRONT: Final = "service-account-front"
_DIRECTORY: Final = """
[workspaces.hosted]
issuer = "{issuer}"

[workspaces.hosted.projects.front]
members = ["user:service-account-front"]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gate(vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GateClient]:
    """The first gate, whose engine is the second."""
    folder = tmp_path_factory.mktemp("row")
    with RedisServer(folder) as redis:
        second_place = replace(redis.settings(), redis=redis.url.removesuffix("/0") + "/1")
        keys = Isolation(
            keys=(IsolationKey(id="k2", secret=Secret(b"second-0123456789abcdef0123456789abcdef", "test")),)
        )
        async with (
            gate_bed(second_place, [vllm.url], folder, document=_DIRECTORY, isolation=keys, gates=(FRONT,)) as second,
            gate_before(
                Vllm(second.url), redis.settings(), folder, api_key=Secret(second.token(FRONT).encode(), "test")
            ) as first,
            aiohttp.ClientSession(vllm.url) as session,
        ):
            yield replace(first, engine=EngineClient(session))


@pytest.mark.parametrize("endpoint", SALTED, ids=lambda endpoint: endpoint.name)
@pytest.mark.parametrize("stream", [False, True])
async def test_reuse_through_two_gates_is_that_of_the_first_alone(
    gate: GateClient, endpoint: Endpoint, stream: bool
) -> None:
    prompt = fresh_prompt()
    assert not await gate.shares(ALICE, endpoint, prompt, stream=stream)
    assert await gate.shares(CAROL, endpoint, prompt, stream=stream)
    for other in (BOB, MALLORY, ALICE.on("ares")):
        assert not await gate.shares(other, endpoint, prompt, stream=stream)
        assert await gate.shares(other, endpoint, prompt, stream=stream)
