"""Two real engines behind one gate: what is reused where requests go to the prefix that they share, and where not."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.engine.client import Vllm
from tests.engine.report import COMPARISON
from tests.parts.gate_bed import GateBed, gate_bed
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.affinity_gain import CHOICES, HEAD, Conversation, Played, chats, directory, documents, play, row

pytestmark = pytest.mark.asyncio(loop_scope="module")

USERS: Final = 4


def few_documents(name: str) -> list[Conversation]:
    return documents(name, projects=6, questions=4, words=500)


def few_chats(name: str) -> list[Conversation]:
    return chats(name, projects=4, each=2, turns=4, words=120)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bed(vllm: Vllm, second_vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GateBed]:
    """A gate that has proven both."""
    folder: Path = tmp_path_factory.mktemp("replicas")
    urls = [vllm.url, second_vllm.url]
    with RedisServer(folder) as redis:
        async with gate_bed(redis.settings(), urls, folder, document=directory(), proof="strict") as gate:
            [engine] = gate.gate.engines.engines
            async with asyncio.timeout(60):
                while not all(replica.settled(engine.profile) for replica in engine.replicas):
                    await asyncio.sleep(0.05)
            yield gate


@pytest.mark.parametrize("workload", [few_documents, few_chats], ids=["documents", "chats"])
async def test_more_is_reused_where_requests_go_to_the_prefix_that_they_share(
    bed: GateBed, workload: Callable[[str], list[Conversation]], record_property: Callable[[str, object], None]
) -> None:
    """Each choice has texts of its own, so that none finds what another one left.

    Least outstanding is told beside it, not compared: with few people nearly all goes to the first replica, so that it
    reuses as much as one engine would, and leaves the other one idle (the last column).
    """
    played: dict[str, Played] = {}
    for name, choice in CHOICES.items():
        bed.gate.gateway.relay.choice = choice()
        played[name] = await play(bed, workload(uuid.uuid4().hex), users=USERS)
    rows = [row(workload.__name__.removeprefix("few_"), name, one) for name, one in played.items()]
    record_property(COMPARISON, "\n".join([HEAD, *rows]))
    assert played["affinity"].reuse > played["round robin"].reuse + 0.05
