"""What it brings, in tokens: `affinity_gain` tells it in seconds, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.demo.simulator import AT_ONCE, EngineShape
from tests.proxy.relay.affinity_gain import CHOICES, Conversation, chats, crowd, documents, play, simulated

pytestmark = pytest.mark.slow


def few_documents(name: str) -> list[Conversation]:
    """2,000 tokens each: twelve of them fill the caches of three replicas, and no single one."""
    return documents(name, projects=12, questions=5)


def few_chats(name: str) -> list[Conversation]:
    return chats(name, projects=12, each=2, turns=5)


def small_crowd(name: str) -> list[Conversation]:
    """One project, whose instructions every replica may hold."""
    return crowd(name, conversations=20, turns=4)


@pytest.mark.parametrize(
    ("workload", "more"),
    [(few_documents, 0.2), (few_chats, 0.2), (small_crowd, 0.0)],
    ids=["documents", "chats", "crowd"],
)
async def test_more_is_reused_than_where_each_replica_has_its_turn(
    workload: Callable[[str], list[Conversation]], more: float, tmp_path: Path
) -> None:
    shape = EngineShape(pace=AT_ONCE, capacity_blocks=800, answer_tokens=16)
    reuse = {}
    for name in ("affinity", "round robin"):
        (folder := tmp_path / name.replace(" ", "-")).mkdir()
        async with simulated(folder, CHOICES[name](), replicas=3, shape=shape) as bed:
            played = await play(bed, workload("test"), users=6)
        reuse[name] = played.reuse
    assert reuse["affinity"] > reuse["round robin"] + more
