from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.directory import redis_store
from proxy.directory.changes import block, grant, import_directory, revoke
from proxy.directory.file_store import FileStore
from proxy.directory.model import Member, directory_from_toml, user
from proxy.directory.redis_store import RedisStore
from proxy.directory.view import DirectoryView, open_view
from proxy.isolation.ring import Ring
from proxy.refusals import DirectoryUnavailable
from tests.parts.redis_server import RedisServer

ISSUER = "https://i"
RING = Ring("ring", "k1", 1000, {}, {})
TWO = "".join(
    f'[workspaces.{name}]\nissuer = "{ISSUER}"\n[workspaces.{name}.projects.p]\nmembers = ["user:alice"]\n'
    for name in ("acme", "labs")
)
PATIENCE = 20.0  # a machine that is busy is no failure; a change that never comes is


class Clock:
    """A clock that stands until it is put on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def until(condition: Callable[[], bool], within: float = PATIENCE) -> float:
    """Seconds until the condition held."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)
    return loop.time() - began


def known(view: DirectoryView, workspace: str = "acme") -> frozenset[Member]:
    found = view.current().directory.workspaces.get(workspace)
    return frozenset() if found is None else frozenset(found.members)


def state(view: DirectoryView) -> str:
    return f"{'ready' if view.ready else 'not ready'}, {'away' if view.away else 'there'}"


async def filled(redis: RedisServer) -> RedisStore:
    store = RedisStore(redis.settings())
    await store.change(import_directory(directory_from_toml(TWO), RING))
    return store


async def test_a_change_is_in_force_on_every_view(redis: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        writer = await filled(redis)
        stores = [RedisStore(redis.settings()) for _ in range(2)]
        views = [await stack.enter_async_context(open_view(store, max_stale=60)) for store in stores]
        await until(lambda: all(view.ready for view in views))
        for number in range(3):
            member = user(f"u{number}")
            await writer.change(grant("acme", "p", member))
            assert await until(lambda m=member: all(m in known(view) for view in views)) < 5  # type: ignore[misc]
        await writer.change(revoke("acme", "p", user("u0")))
        await until(lambda: all(user("u0") not in known(view) for view in views))
        await writer.change(block(ISSUER, user("u1")))
        await until(lambda: all(view.current().blocks == {ISSUER: {user("u1")}} for view in views))
        await stack.aclose()
        for store in (*stores, writer):
            await store.close()


async def test_a_change_that_was_not_told_is_found_by_asking(redis: RedisServer) -> None:
    store = await filled(redis)
    async with open_view(store, max_stale=60) as view:
        await until(lambda: view.ready)
        redis.command("HDEL", redis_store.WORKSPACES, "acme")
        redis.command("INCR", redis_store.GENERATION)  # and no PUBLISH: as where the hearing is deaf
        assert await until(lambda: not known(view)) < 5
        redis.command("HDEL", redis_store.WORKSPACES, "labs")
        redis.command("INCR", redis_store.GENERATION)
        await until(lambda: not known(view, "labs"))
    await store.close()


async def test_a_lost_hearing_loses_no_change(redis: RedisServer) -> None:
    store, writer = await filled(redis), RedisStore(redis.settings())
    async with open_view(store, max_stale=60) as view:
        await until(lambda: view.ready)
        for number in range(5):
            redis.command("CLIENT", "KILL", "TYPE", "pubsub")
            await writer.change(grant("acme", "p", user(f"u{number}")))
            assert await until(lambda n=number: user(f"u{n}") in known(view)) < 5  # type: ignore[misc]
    await store.close()
    await writer.close()


async def test_a_redis_emptied_and_filled_to_the_same_generation_is_read_anew(redis: RedisServer) -> None:
    store = await filled(redis)
    async with open_view(store, max_stale=60) as view:
        await until(lambda: view.ready)
        other = Ring("another", "k1", 2000, {}, {})
        script = "redis.call('FLUSHALL') redis.call('SET', KEYS[1], 1) redis.call('HSET', KEYS[2], unpack(ARGV))"
        ring = ["id", other.id, "first_key", other.first_key, "base_epoch", str(other.base_epoch)]
        redis.command("EVAL", script, "2", redis_store.GENERATION, redis_store.RING, *ring)
        await until(lambda: view.current().ring == other)
        assert view.current().generation == 1
        assert not view.current().directory.workspaces
    await store.close()


async def test_after_a_lost_connection_everything_is_read_whatever_the_generation_says(redis: RedisServer) -> None:
    store = await filled(redis)
    async with open_view(store, max_stale=60) as view:
        await until(lambda: view.ready)
        redis.command("HDEL", redis_store.WORKSPACES, "acme")  # as where a replica took over that knew less
        redis.command("CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: not known(view))
    await store.close()


async def test_an_emptied_redis_takes_the_ring_away(redis: RedisServer) -> None:
    store = await filled(redis)
    async with open_view(store, max_stale=60) as view:
        await until(lambda: view.ready)
        redis.command("FLUSHALL")
        await until(lambda: view.current().ring is None)
        assert not view.ready
    await store.close()


@pytest.mark.slow
async def test_a_frozen_redis_is_away_then_stale_then_refused_and_heals(own_redis: RedisServer) -> None:
    clock = Clock()
    store, writer = await filled(own_redis), RedisStore(own_redis.settings())
    async with open_view(store, max_stale=300, clock=clock) as view:
        await until(lambda: view.ready)
        assert state(view) == "ready, there"
        own_redis.pause()
        await asyncio.sleep(0.6)  # the question that was on its way has been answered or never will be
        clock.now += 1.5
        assert state(view) == "ready, away"
        assert known(view)
        clock.now = 1000.0 + 299
        assert known(view)
        assert state(view) == "ready, away"
        clock.now = 1000.0 + 301
        with pytest.raises(DirectoryUnavailable) as caught:
            view.current()
        assert caught.value.reason == "directory_stale"
        assert state(view) == "not ready, away"
        own_redis.resume()
        await until(lambda: state(view) == "ready, there")
        await writer.change(grant("acme", "p", user("late")))
        await until(lambda: user("late") in known(view))
    await store.close()
    await writer.close()


@pytest.mark.slow
async def test_a_view_that_never_read_refuses_and_begins_by_itself(own_redis: RedisServer) -> None:
    await (await filled(own_redis)).close()
    own_redis.stop()
    store = RedisStore(own_redis.settings())
    with capture_logs() as lines:
        async with open_view(store, max_stale=300) as view:
            await asyncio.sleep(0.5)
            own_redis.start()
            await until(lambda: view.ready)
    assert [line["event"] for line in lines] == ["directory_away", "directory_back"]
    own_redis.stop()
    async with open_view(store, max_stale=300) as view:
        await asyncio.sleep(0.2)
        with pytest.raises(DirectoryUnavailable) as caught:
            view.current()
        assert caught.value.reason == "directory_never_read"
        assert state(view) == "not ready, away"
        own_redis.start()
        await until(lambda: view.ready)
        own_redis.stop()
        own_redis.start()
        writer = RedisStore(own_redis.settings())
        await writer.change(grant("acme", "p", user("late")))
        await until(lambda: user("late") in known(view))
        await writer.close()
    await store.close()


async def test_a_malformed_record_is_told_once_and_the_view_lives(redis: RedisServer) -> None:
    store, writer = await filled(redis), RedisStore(redis.settings())
    with capture_logs() as lines:
        async with open_view(store, max_stale=60) as view:
            await until(lambda: view.ready)
            redis.command("HSET", redis_store.WORKSPACES, "acme", "{")
            redis.command("INCR", redis_store.GENERATION)
            await until(lambda: not known(view))
            assert known(view, "labs")
            for number in range(3):
                await writer.change(grant("labs", "p", user(f"u{number}")))
                await until(lambda n=number: user(f"u{n}") in known(view, "labs"))  # type: ignore[misc]
    assert lines == [{"event": "directory_record_left_out", "log_level": "error", "record": "workspaces.acme"}]
    await store.close()
    await writer.close()


@pytest.mark.slow
async def test_the_snapshot_is_the_same_object_while_nothing_changes(redis: RedisServer) -> None:
    store = await filled(redis)
    async with open_view(store, max_stale=60) as view:
        await until(lambda: view.ready)
        snapshot = view.current()
        redis.command("CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.sleep(0.7)
        assert view.current() is snapshot
    await store.close()


async def test_only_what_changed_is_parsed_anew(redis: RedisServer) -> None:
    store, writer = await filled(redis), RedisStore(redis.settings())
    async with open_view(store, max_stale=60) as view:
        await until(lambda: view.ready)
        before = view.current().directory.workspaces
        await writer.change(grant("acme", "p", user("x")))
        await until(lambda: user("x") in known(view))
        after = view.current().directory.workspaces
        assert after["labs"] is before["labs"]
        assert after["acme"] is not before["acme"]
    await store.close()
    await writer.close()


async def test_who_waits_for_a_change_is_woken(redis: RedisServer) -> None:
    store, writer = await filled(redis), RedisStore(redis.settings())
    async with open_view(store, max_stale=60) as view:
        async with asyncio.timeout(PATIENCE):
            await view.changed()
            waiting = asyncio.ensure_future(view.changed())
            await asyncio.sleep(0)
            await writer.change(block(ISSUER, user("x")))
            await waiting
        assert view.current().blocks
    await store.close()
    await writer.close()


async def test_nothing_runs_on_after_the_view_is_left(redis: RedisServer) -> None:
    store = await filled(redis)
    before = asyncio.all_tasks()
    async with open_view(store, max_stale=60) as view:
        await until(lambda: view.ready)
    assert asyncio.all_tasks() == before
    await store.close()
    assert b"sub=1" not in redis.command("CLIENT", "LIST")


@pytest.mark.slow
async def test_a_file_that_changes_is_in_force_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "directory.toml"
    file.write_text(TWO)
    stores = [FileStore(file, tmp_path / "state") for _ in range(2)]
    await stores[0].change(import_directory(directory_from_toml(TWO), RING))
    async with open_view(stores[0], max_stale=60) as one, open_view(stores[1], max_stale=60) as two:
        await until(lambda: one.ready and two.ready)
        file.write_text(TWO.replace("alice", "erin"))
        await until(lambda: known(one) == known(two) == {user("erin")})
        file.write_text("broken [")
        await asyncio.sleep(1.2)
        assert known(one) == known(two) == {user("erin")}
        file.write_text(TWO)
        await until(lambda: known(one) == known(two) == {user("alice")})
