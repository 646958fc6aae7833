"""A sample of the unit table through whole gates: the salts that an engine receives (all of it is in isolation/)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import pytest

from config.settings import Isolation, IsolationKey
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.directory.changes import Change
from proxy.isolation.unit import ProjectUnit, TeamUnit, Unit, WorkspaceUnit
from tests.parts.gate_bed import KEY, GateBed, chat, gate_bed
from tests.parts.redis_server import RedisServer

# Who asks for which project of which workspace, about which collection.
Who = tuple[str, str, str, str | None]
UnitName = Literal["deployment", "workspace", "team", "project", "collection", "user"]

DIRECTORY: Final = """
[workspaces.acme]
issuer = "{issuer}"
[workspaces.acme.projects.apollo]
members = ["user:alice", "user:anton"]
team = "red"
model_units = {{ alone = "user" }}
[workspaces.acme.projects.ares]
members = ["user:alice", "user:bella"]
team = "red"
[workspaces.acme.projects.hermes]
members = ["user:carl"]
[workspaces.acme.teams.red]
members = []
[workspaces.acme.collections.handbook]
projects = ["apollo", "ares"]
[workspaces.globex]
issuer = "{issuer}"
[workspaces.globex.projects.apollo]
members = ["user:alice"]
"""
ALICE: Final[Who] = ("alice", "acme", "apollo", None)
COLLEAGUE: Final[Who] = ("anton", "acme", "apollo", None)
TEAM: Final[Who] = ("bella", "acme", "ares", None)
WORKSPACE: Final[Who] = ("carl", "acme", "hermes", None)
STRANGER: Final[Who] = ("alice", "globex", "apollo", None)
ABOUT: Final[Who] = ("alice", "acme", "apollo", "handbook")
TEAM_ABOUT: Final[Who] = ("bella", "acme", "ares", "handbook")

EVERYBODY: Final = {"colleague": COLLEAGUE, "team": TEAM, "workspace": WORKSPACE, "stranger": STRANGER}
SHARES: Final[Mapping[UnitName, set[str]]] = {
    "deployment": {"colleague", "team", "workspace", "stranger"},
    "workspace": {"colleague", "team", "workspace"},
    "team": {"colleague", "team"},
    "project": {"colleague"},
    "collection": {"colleague"},
    "user": set(),
}


@asynccontextmanager
async def gate_under(unit: UnitName, redis: RedisServer, folder: Path) -> AsyncIterator[tuple[GateBed, Simulator]]:
    shape = EngineShape(models=("tiny", "alone"), pace=AT_ONCE)
    isolation = Isolation(unit=unit, keys=(IsolationKey(id="k1", secret=KEY),))
    async with (
        Simulator(shape) as engine,
        gate_bed(redis.settings(), [engine.url], folder, document=DIRECTORY, isolation=isolation) as bed,
    ):
        yield bed, engine


async def salt_of(bed: GateBed, engine: Simulator, who: Who, *, model: str = "tiny") -> str:
    """The salt that the engine received."""
    subject, workspace, project, collection = who
    headers = bed.headers(subject, project, workspace)
    if collection is not None:
        headers["X-Saltgate-Collection"] = collection
    engine.requests.clear()
    status, _, answer = await bed.post(document=chat(model=model), headers=headers)
    assert status == 200, answer
    (received,) = engine.requests
    assert received.salt is not None
    return received.salt


@pytest.mark.parametrize("unit", SHARES)
async def test_the_engine_gets_one_salt_from_those_who_share_and_another_from_all_others(
    unit: UnitName, redis: RedisServer, tmp_path: Path
) -> None:
    async with gate_under(unit, redis, tmp_path) as (bed, engine):
        own = await salt_of(bed, engine, ALICE)
        assert await salt_of(bed, engine, ALICE) == own
        salts = {name: await salt_of(bed, engine, who) for name, who in EVERYBODY.items()}
        assert {name for name, salt in salts.items() if salt == own} == SHARES[unit]
        alone = [await salt_of(bed, engine, who, model="alone") for who in (ALICE, COLLEAGUE, ALICE)]
        assert alone[0] == alone[2] != alone[1]
        if unit != "user":
            about, team_about = await salt_of(bed, engine, ABOUT), await salt_of(bed, engine, TEAM_ABOUT)
            assert about == team_about != own


RAISED: Final[Mapping[UnitName, Unit]] = {
    "workspace": WorkspaceUnit("acme"),
    "team": TeamUnit("acme", "red"),
    "project": ProjectUnit("acme", "apollo"),
}


@pytest.mark.parametrize("unit", RAISED)
async def test_a_raise_gives_those_who_share_a_new_salt_together_and_leaves_the_stranger_his(
    unit: UnitName, redis: RedisServer, tmp_path: Path
) -> None:
    async with gate_under(unit, redis, tmp_path) as (bed, engine):
        before = {who: await salt_of(bed, engine, who) for who in (ALICE, COLLEAGUE, STRANGER)}
        await bed.change(lambda _: Change(raises=(RAISED[unit],)))
        async with asyncio.timeout(10):
            while await salt_of(bed, engine, ALICE) == before[ALICE]:
                await asyncio.sleep(0.01)
        after = {who: await salt_of(bed, engine, who) for who in before}
    assert after[ALICE] == after[COLLEAGUE] != before[ALICE]
    assert after[STRANGER] == before[STRANGER]
