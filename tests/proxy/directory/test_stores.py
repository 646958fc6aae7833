"""What holds of both stores."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from proxy.directory.changes import (
    ChangeRefused,
    block,
    fresh_ring,
    grant,
    import_directory,
    make_first_ring,
    make_ring,
    revoke,
    unblock,
)
from proxy.directory.file_store import FileStore
from proxy.directory.model import Directory, directory_from_toml, group, user
from proxy.directory.redis_store import RedisStore
from proxy.directory.removal import RemovalPolicy
from proxy.directory.rotation import pin_unit, raise_unit, rotate_ring
from proxy.directory.snapshot import NOTHING_READ, Snapshot, read
from proxy.directory.store import Store
from proxy.isolation.ring import Plan, Ring, record_name
from proxy.isolation.unit import CollectionUnit, Level, ProjectUnit, TeamUnit, Unit, UserUnit, WorkspaceUnit
from tests.parts.redis_server import RedisServer

ISSUER = "https://sso.example.com/realms/acme"
FULL = f"""
[workspaces.acme]
issuer = "{ISSUER}"
[workspaces.acme.projects.apollo]
members = ["user:alice"]
team = "red"
[workspaces.acme.projects.ares]
[workspaces.acme.teams.red]
members = ["user:carol"]
[workspaces.acme.collections.handbook]
projects = ["apollo"]
[workspaces.labs]
issuer = "{ISSUER}"
[workspaces.labs.projects.zeta]
members = ["user:dave"]
"""
LESS = f"""
[workspaces.acme]
issuer = "{ISSUER}"
[workspaces.acme.projects.apollo]
members = ["user:alice"]
"""
RING = Ring("ring", "k1", 1000, {}, {})


@pytest.fixture(params=["redis", "file"])
async def open_stores(
    request: pytest.FixtureRequest, redis: RedisServer, tmp_path: Path
) -> AsyncIterator[Callable[[], Store]]:
    """Any number of stores of one place."""
    opened: list[Store] = []

    def another() -> Store:
        store: Store = (
            RedisStore(redis.settings())
            if request.param == "redis"
            else FileStore(tmp_path / "directory.toml", tmp_path / "state")
        )
        opened.append(store)
        return store

    yield another
    for store in opened:
        await store.close()


@pytest.fixture
def store(open_stores: Callable[[], Store]) -> Store:
    return open_stores()


async def snapshot(store: Store) -> Snapshot:
    reading = read(await store.read(), NOTHING_READ)
    assert not [fault for fault in reading.faults if "No such file" not in fault.message]
    return reading.snapshot


async def load(store: Store, text: str) -> None:
    await store.change(import_directory(directory_from_toml(text), RING))


async def epoch(store: Store, unit: Unit) -> int:
    ring = (await snapshot(store)).ring
    assert ring is not None
    return ring.epoch(unit)


async def test_an_import_makes_the_directory_exactly_what_the_file_says(store: Store) -> None:
    await load(store, FULL)
    assert (await snapshot(store)).directory == directory_from_toml(FULL)
    await load(store, LESS)
    assert (await snapshot(store)).directory == directory_from_toml(LESS)


async def test_an_import_of_nothing_new_changes_nothing(store: Store) -> None:
    await load(store, FULL)
    before = await store.stamp()
    await load(store, FULL)
    assert await store.stamp() == before


async def test_every_change_changes_the_stamp(store: Store) -> None:
    stamps = [await store.stamp()]
    await load(store, FULL)
    stamps.append(await store.stamp())
    for deed in (
        grant("labs", "zeta", group("eng")),
        revoke("labs", "zeta", group("eng")),
        block(ISSUER, user("x")),
        unblock(ISSUER, user("x")),
        raise_unit(WorkspaceUnit("acme")),
        pin_unit(WorkspaceUnit("acme"), "k2"),
        pin_unit(WorkspaceUnit("acme"), None),
        rotate_ring("k2", over=1000),
        rotate_ring("k3", over=0),
    ):
        await store.change(deed)
        stamps.append(await store.stamp())
    assert len(set(stamps)) == len(stamps)


async def test_there_is_no_ring_until_one_is_made(store: Store) -> None:
    assert (await snapshot(store)).ring is None
    await store.change(make_ring(RING))
    assert (await snapshot(store)).ring == RING


async def test_the_first_import_makes_the_ring_and_a_later_one_keeps_it(store: Store) -> None:
    await load(store, LESS)
    await store.change(import_directory(directory_from_toml(FULL), fresh_ring("k2", now=5000)))
    await store.change(make_ring(fresh_ring("k3", now=6000)))
    ring = (await snapshot(store)).ring
    assert ring is not None
    assert (ring.id, ring.first_key, ring.base_epoch) == ("ring", "k1", 1000)


async def test_twenty_who_race_make_one_ring(open_stores: Callable[[], Store]) -> None:
    rings = [fresh_ring("k1", now=i) for i in range(20)]
    deeds = [make_ring(r) if i % 2 else import_directory(directory_from_toml(FULL), r) for i, r in enumerate(rings)]
    changes = await asyncio.gather(*(open_stores().change(deed) for deed in deeds))
    made = [change.ring for change in changes if change.ring is not None]
    assert len(made) == 1
    assert (await snapshot(open_stores())).ring == made[0]


async def test_twenty_who_race_to_grant_all_succeed(open_stores: Callable[[], Store]) -> None:
    await load(open_stores(), FULL)
    everybody = [user(f"u{i}") for i in range(20)]
    await asyncio.gather(*(open_stores().change(grant("labs", "zeta", member)) for member in everybody))
    members = (await snapshot(open_stores())).directory.workspaces["labs"].projects["zeta"].members
    assert set(members) == {user("dave"), *everybody}


async def test_a_unit_that_comes_back_under_its_name_does_not_get_its_old_epoch(store: Store) -> None:
    units: list[Unit] = [
        WorkspaceUnit("labs"),
        ProjectUnit("labs", "zeta"),
        UserUnit("labs", "zeta", ISSUER, "dave"),
        TeamUnit("acme", "red"),
        ProjectUnit("acme", "ares"),
        CollectionUnit("acme", "handbook"),
    ]
    await load(store, FULL)
    before = [await epoch(store, unit) for unit in units]
    await load(store, LESS)
    await load(store, FULL)
    assert [await epoch(store, unit) - old for unit, old in zip(units, before, strict=True)] == [1] * len(units)


async def test_a_unit_that_stays_keeps_its_epoch(store: Store) -> None:
    await load(store, FULL)
    await load(store, LESS)
    await load(store, FULL)
    assert await epoch(store, ProjectUnit("acme", "apollo")) == 1000
    assert await epoch(store, WorkspaceUnit("acme")) == 1000


async def test_a_workspace_that_goes_to_another_issuer_gets_a_new_epoch(store: Store) -> None:
    await load(store, FULL)
    await load(store, FULL.replace(ISSUER, "https://other.example"))
    assert await epoch(store, ProjectUnit("acme", "apollo")) == 1001


async def test_an_import_touches_neither_blocks_nor_raises_nor_the_ring(store: Store) -> None:
    await load(store, FULL)
    await load(store, LESS)
    await store.change(block(ISSUER, user("mallory")))
    before = await snapshot(store)
    await load(store, LESS.replace("alice", "erin"))
    after = await snapshot(store)
    assert (after.blocks, after.ring) == (before.blocks, before.ring)
    assert after.blocks == {ISSUER: {user("mallory")}}


async def test_a_grant_and_a_revocation_touch_one_project_only(store: Store) -> None:
    await load(store, FULL)
    change = await store.change(grant("acme", "ares", group("eng")))
    assert change.workspaces.keys() == {"acme"}
    assert change.raises == ()
    assert (await snapshot(store)).directory.workspaces["acme"].projects_of(group("eng")) == ("ares",)
    await store.change(revoke("acme", "ares", group("eng")))
    assert (await snapshot(store)).directory == directory_from_toml(FULL)


async def test_granting_twice_is_one_membership(store: Store) -> None:
    await load(store, FULL)
    assert (await store.change(grant("labs", "zeta", user("dave")))).is_empty


@pytest.mark.parametrize(
    ("deed", "why"),
    [
        (grant("nope", "zeta", user("x")), "no workspace nope"),
        (grant("labs", "nope", user("x")), "no project labs/nope"),
        (revoke("labs", "zeta", user("x")), "no member"),
        (revoke("acme", "apollo", user("carol")), "through team red"),
        (unblock(ISSUER, user("x")), "not blocked"),
    ],
)
async def test_what_cannot_be_done_is_refused_and_changes_nothing(
    store: Store, deed: Callable[..., object], why: str
) -> None:
    await load(store, FULL)
    before = await store.stamp()
    with pytest.raises(ChangeRefused, match=why):
        await store.change(deed)  # type: ignore[arg-type]
    assert await store.stamp() == before


async def test_blocks_are_per_issuer_and_member_with_any_characters(store: Store) -> None:
    who = [user("a b"), group("/eng/ünit"), user("user:x"), user("https://x y")]
    await load(store, LESS)
    for member in who:
        await store.change(block(ISSUER, member))
    assert (await snapshot(store)).blocks == {ISSUER: frozenset(who)}
    await store.change(unblock(ISSUER, who[0]))
    assert (await snapshot(store)).blocks == {ISSUER: frozenset(who[1:])}


async def test_a_reader_never_sees_half_an_import(open_stores: Callable[[], Store]) -> None:
    def directory(mark: str) -> Directory:
        return directory_from_toml(
            "".join(
                f'[workspaces.w{i}]\nissuer = "{ISSUER}"\n[workspaces.w{i}.projects.p]\nmembers = ["user:{mark}"]\n'
                for i in range(40)
            )
        )

    writer, done = open_stores(), asyncio.Event()
    await writer.change(import_directory(directory("a"), RING))
    seen: set[str] = set()

    async def hammer(store: Store) -> None:
        while not done.is_set():
            workspaces = (await snapshot(store)).directory.workspaces.values()
            marks = {member for workspace in workspaces for member in workspace.members}
            assert len(workspaces) == 40
            assert len(marks) == 1
            seen.update(marks)

    async def write() -> None:
        for mark in "bcdefgh":
            await writer.change(import_directory(directory(mark), RING))
            await asyncio.sleep(0.02)
        done.set()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(hammer(open_stores()))
        tasks.create_task(write())
    assert len(seen) > 1


async def test_a_rotation_is_kept_as_it_was_decided_and_so_is_its_end(store: Store) -> None:
    await load(store, FULL)
    change = await store.change(rotate_ring("k2", over=86_400))
    assert change.turned is not None
    assert (await snapshot(store)).ring == change.turned
    assert change.turned.plan == Plan("k2", change.turned.plan.start, 86_400)  # type: ignore[union-attr]
    ended = (await store.change(rotate_ring("k3", over=0))).turned
    assert (await snapshot(store)).ring == ended == Ring("ring", "k3", 1000, {}, {}, None, ("k1", "k2"))


async def test_a_pin_and_its_end_are_kept(store: Store) -> None:
    await load(store, FULL)
    acme = WorkspaceUnit("acme")
    await store.change(pin_unit(acme, "k2"))
    ring = (await snapshot(store)).ring
    assert ring is not None
    assert (dict(ring.keys), dict(ring.raises)) == ({record_name(acme): "k2"}, {record_name(acme): 1})
    await store.change(pin_unit(acme, None))
    ring = (await snapshot(store)).ring
    assert ring is not None
    assert (dict(ring.keys), dict(ring.raises)) == ({}, {record_name(acme): 2})


async def test_an_import_touches_neither_plan_nor_pin_nor_raise_of_what_stays(store: Store) -> None:
    await load(store, FULL)
    for deed in (raise_unit(ProjectUnit("acme", "apollo")), pin_unit(WorkspaceUnit("labs"), "k2")):
        await store.change(deed)
    await store.change(rotate_ring("k3", over=1000))
    before = (await snapshot(store)).ring
    await load(store, FULL.replace('members = ["user:carol"]', "members = []"))
    assert (await snapshot(store)).ring == before


async def test_twenty_who_race_to_raise_are_counted_each(open_stores: Callable[[], Store]) -> None:
    await load(open_stores(), FULL)
    apollo = ProjectUnit("acme", "apollo")
    await asyncio.gather(*(open_stores().change(raise_unit(apollo)) for _ in range(20)))
    assert await epoch(open_stores(), apollo) == 1020


async def test_of_ten_who_race_to_rotate_one_wins_and_the_others_are_told(open_stores: Callable[[], Store]) -> None:
    await load(open_stores(), FULL)
    deeds = [rotate_ring(f"k{i}", over=1000) for i in range(2, 12)]
    answers = await asyncio.gather(*(open_stores().change(deed) for deed in deeds), return_exceptions=True)
    won = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert [type(answer) for answer in answers].count(ChangeRefused) == 9
    assert (await snapshot(open_stores())).ring == won[0].turned


async def test_all_kinds_of_deeds_that_race_are_all_in_force(open_stores: Callable[[], Store]) -> None:
    await load(open_stores(), FULL)
    acme, apollo = WorkspaceUnit("acme"), ProjectUnit("acme", "apollo")
    deeds = [raise_unit(apollo), pin_unit(acme, "k9"), rotate_ring("k2", over=1000), grant("labs", "zeta", user("x"))]
    deeds += [block(ISSUER, user("x")), raise_unit(apollo), import_directory(directory_from_toml(FULL), RING)]
    await asyncio.gather(*(open_stores().change(deed) for deed in deeds))
    ring = (await snapshot(open_stores())).ring
    assert ring is not None
    assert ring.plan is not None
    assert ring.keys == {record_name(acme): "k9"}
    assert ring.raises == {record_name(acme): 1, record_name(apollo): 2}


async def test_a_revocation_and_its_raise_are_one_step(store: Store) -> None:
    await load(store, FULL)
    before = (await snapshot(store)).generation
    change = await store.change(revoke("labs", "zeta", user("dave"), RemovalPolicy(Level.PROJECT)))
    after = await snapshot(store)
    assert change.raises == (ProjectUnit("labs", "zeta"),)
    assert after.generation == before + 1
    assert after.ring is not None
    assert after.ring.epoch(ProjectUnit("labs", "zeta")) == 1001


@pytest.mark.slow
async def test_a_ring_is_written_when_the_second_of_its_base_epoch_is_over(store: Store) -> None:
    await store.change(make_first_ring("k1"))
    records = await store.read()
    assert records.ring is not None
    assert records.now >= records.ring.base_epoch + 1


@pytest.mark.slow
async def test_many_who_race_after_a_loss_never_make_a_ring_of_an_epoch_that_was(
    open_stores: Callable[[], Store], redis: RedisServer, tmp_path: Path
) -> None:
    epochs = []
    for _ in range(2):
        await asyncio.gather(*(open_stores().change(make_first_ring("k1")) for _ in range(5)))
        epochs.append(await epoch(open_stores(), WorkspaceUnit("acme")))
        redis.command("FLUSHALL")
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
    assert epochs[0] < epochs[1]
