"""What the layout in Redis promises, and what hostile or broken records do: cost only what they name."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from config.secret import Secret
from config.settings import Directory as Settings
from proxy.directory import redis_store
from proxy.directory.changes import ChangeRefused, import_directory, make_ring
from proxy.directory.model import Fault, directory_from_toml
from proxy.directory.redis_store import RedisStore
from proxy.directory.snapshot import NOTHING_READ, Reading, read
from proxy.directory.store import StoreUnavailable
from proxy.isolation.ring import Ring, record_name
from proxy.isolation.unit import CollectionUnit, DeploymentUnit, ProjectUnit, TeamUnit, UserUnit, WorkspaceUnit
from tests.parts.redis_server import RedisServer

ISSUER = "https://i"
RING = Ring("ring", "k1", 1000, {}, {})
TWO = f'[workspaces.acme]\nissuer = "{ISSUER}"\n[workspaces.labs]\nissuer = "{ISSUER}"\n'
LAYOUT = (Path(redis_store.__file__).parent / "redis-layout.md").read_text()


async def reading(store: RedisStore) -> Reading:
    return read(await store.read(), NOTHING_READ)


def keys_of(faults: tuple[Fault, ...]) -> list[str]:
    return [fault.key for fault in faults]


def test_the_page_names_every_key_and_no_other() -> None:
    names = {redis_store.GENERATION, redis_store.WORKSPACES, redis_store.BLOCKS, redis_store.RING}
    names |= {redis_store.RAISES, redis_store.UNIT_KEYS, redis_store.CHANGES}
    assert set(re.findall(r"^\| `(\{saltgate\}:1:\w+)`", LAYOUT, re.MULTILINE)) == names


def test_the_page_gives_the_record_names_that_the_ring_uses() -> None:
    units = (
        DeploymentUnit(),
        WorkspaceUnit("acme"),
        TeamUnit("acme", "red"),
        ProjectUnit("acme", "apollo"),
        CollectionUnit("acme", "handbook"),
        UserUnit("acme", "apollo", "https://i", "u-1"),
    )
    for unit in units:
        row = next(line for line in LAYOUT.splitlines() if line.startswith(f"| `{unit}`"))
        assert f"| `{record_name(unit)}` |" in row


async def test_a_companys_own_sync_can_write_the_pages_example(store: RedisStore, redis: RedisServer) -> None:
    example = re.search(r"```json\n(.*?)```", LAYOUT, re.DOTALL)
    assert example is not None
    redis.command("HSET", redis_store.WORKSPACES, "acme", example[1])
    found = await reading(store)
    assert not found.faults
    assert set(found.snapshot.directory.workspaces["acme"].projects) == {"apollo"}


@pytest.mark.parametrize(
    "document", [b"", b"{", b"\xff\xfe", b"[]", b'{"issuer":"https://i","admin":true}', b"[" * 99999]
)
async def test_a_malformed_workspace_is_left_out_and_the_others_serve(
    store: RedisStore, redis: RedisServer, document: bytes
) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    redis.command("HSET", redis_store.WORKSPACES, "acme", document)
    found = await reading(store)
    assert set(found.snapshot.directory.workspaces) == {"labs"}
    assert found.snapshot.ring == RING
    assert found.faults


@pytest.mark.parametrize("name", [b"\xff", b"", b"ACME", b"a/b", b"{saltgate}", b"a" * 64])
async def test_a_hostile_name_is_left_out(store: RedisStore, redis: RedisServer, name: bytes) -> None:
    redis.command("HSET", redis_store.WORKSPACES, name, b'{"issuer":"https://i"}')
    found = await reading(store)
    assert not found.snapshot.directory.workspaces
    assert len(found.faults) == 1


async def test_an_old_membership_does_not_outlive_its_malformed_record(store: RedisStore, redis: RedisServer) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    before = await reading(store)
    redis.command("HSET", redis_store.WORKSPACES, "acme", "{")
    after = read(await store.read(), before)
    assert set(after.snapshot.directory.workspaces) == {"labs"}
    assert read(await store.read(), after).faults == after.faults


@pytest.mark.parametrize(("key", "value"), [("raises", "-1"), ("raises", "1.5"), ("raises", "x"), ("unit_keys", "a b")])
async def test_an_epoch_or_key_that_cannot_be_read_takes_its_workspace_out(
    store: RedisStore, redis: RedisServer, key: str, value: str
) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    redis.command("HSET", redis_store.PREFIX + key, record_name(ProjectUnit("acme", "apollo")), value)
    found = await reading(store)
    assert set(found.snapshot.directory.workspaces) == {"labs"}
    assert found.snapshot.ring is not None
    assert keys_of(found.faults) == [key]


@pytest.mark.parametrize(
    ("record", "value"), [("10:deployment", "x"), ("junk", "1"), ("", "1"), (b"\xff", "1"), ("9:ab", "1")]
)
async def test_an_epoch_that_may_be_anybodys_takes_the_ring_out(
    store: RedisStore, redis: RedisServer, record: str | bytes, value: str
) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    redis.command("HSET", redis_store.RAISES, record, value)
    assert (await reading(store)).snapshot.ring is None


@pytest.mark.parametrize(
    ("field", "value"), [("id", ""), ("first_key", ""), ("first_key", "a/b"), ("base_epoch", "-1")]
)
async def test_a_malformed_ring_is_no_ring_and_none_is_made_over_it(
    store: RedisStore, redis: RedisServer, field: str, value: str
) -> None:
    await store.change(make_ring(RING))
    redis.command("HSET", redis_store.RING, field, value)
    assert (await store.change(make_ring(Ring("other", "k2", 2000, {}, {})))).is_empty
    assert (await reading(store)).snapshot.ring is None


async def test_nothing_vanishes_where_its_raise_cannot_be_counted(store: RedisStore, redis: RedisServer) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    redis.command("HSET", redis_store.RAISES, record_name(WorkspaceUnit("labs")), "many")
    with pytest.raises(ChangeRefused, match="raises"):
        await store.change(import_directory(directory_from_toml("[workspaces]"), RING))
    assert len((await store.read()).workspaces) == 2


async def test_a_malformed_workspace_that_goes_is_raised_as_a_whole(store: RedisStore, redis: RedisServer) -> None:
    await store.change(import_directory(directory_from_toml(TWO), RING))
    redis.command("HSET", redis_store.WORKSPACES, "acme", "{")
    change = await store.change(import_directory(directory_from_toml(TWO), RING))
    assert change.raises == (WorkspaceUnit("acme"),)


async def test_a_malformed_block_is_told_and_the_others_hold(store: RedisStore, redis: RedisServer) -> None:
    redis.command("SADD", redis_store.BLOCKS, b"\xff", "nonsense", "https://i alice", "https://i user:bob")
    found = await reading(store)
    assert found.snapshot.blocks == {"https://i": {"user:bob"}}
    assert keys_of(found.faults) == ["blocks"] * 3


async def test_a_change_that_another_writer_crosses_is_decided_anew(store: RedisStore, redis: RedisServer) -> None:
    decided: list[object] = []

    def deed(records: object) -> object:
        if not decided:  # a sync of the company, between the decision and its writing
            redis.command("HSET", redis_store.WORKSPACES, "labs", '{"issuer":"https://i"}')
        decided.append(records)
        return import_directory(directory_from_toml(TWO), RING)(records)  # type: ignore[arg-type]

    await store.change(deed)  # type: ignore[arg-type]
    assert len(decided) == 2


async def test_a_key_of_another_type_is_an_unavailable_store_and_not_a_crash(
    store: RedisStore, redis: RedisServer
) -> None:
    redis.command("SET", redis_store.WORKSPACES, "x")
    with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
        await store.read()


async def test_a_frozen_redis_is_unavailable_within_a_bound(own_redis: RedisServer) -> None:
    store = RedisStore(own_redis.settings())
    await store.stamp()
    own_redis.pause()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="in time"):
        await store.stamp()
    with pytest.raises(StoreUnavailable, match="in time"):
        async with store.hearing():
            pass
    assert time.monotonic() - began < 20
    own_redis.resume()
    await store.stamp()
    await store.close()


@pytest.mark.parametrize("url", ["rediss://h/0?ssl_cert_reqs=none", "rediss://h/0?ssl_check_hostname=no", "http://h"])
def test_an_address_that_weakens_the_connection_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"redis"):
        RedisStore(Settings(redis=url))


async def test_the_redis_users_need_no_more_than_the_page_says(own_redis: RedisServer) -> None:
    rights = re.search(r"`(~\{saltgate\}[^`]+)`", LAYOUT)
    more = re.search(r"also\s+`([^`]+)`", LAYOUT)
    assert rights is not None
    assert more is not None
    own_redis.command("ACL", "SETUSER", "gate", "reset", "on", ">word", *rights[1].split())
    store = RedisStore(Settings(redis=own_redis.url, username="gate", password=Secret(b"word", "the test")))
    async with store.hearing() as hearing:
        assert not await hearing.heard(0.01)
    await store.read()
    await store.stamp()
    with pytest.raises(StoreUnavailable, match="permissions"):
        await store.change(make_ring(RING))
    own_redis.command("ACL", "SETUSER", "gate", *more[1].split())
    assert (await store.change(make_ring(RING))).ring == RING
    await store.close()


async def test_a_wrong_password_is_unavailable_and_not_told(own_redis: RedisServer) -> None:
    own_redis.command("ACL", "SETUSER", "gate", "reset", "on", ">word", "~*", "&*", "+@all")
    store = RedisStore(Settings(redis=own_redis.url, username="gate", password=Secret(b"hush-hush", "the test")))
    with pytest.raises(StoreUnavailable) as caught:
        await store.stamp()
    assert "hush-hush" not in str(caught.value)
    await store.close()
