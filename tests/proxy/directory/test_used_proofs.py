"""A proof comes once, whichever worker it comes to, and however many of them at once."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from config.settings import Directory
from proxy.directory.used_proofs import FOLDER, PROOFS, UsedProofs, open_used_proofs
from proxy.identity.dpop import ACCEPTED_SECONDS, Proof
from proxy.identity.possession import REMEMBERED_SECONDS
from proxy.refusals import DirectoryUnavailable
from tests.parts.redis_server import RedisServer, free_port

NOW = 1_900_000_000.0


@pytest.fixture(params=["redis", "file"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    if request.param == "file":
        return Directory(file=tmp_path / "directory.toml", state=tmp_path / "state")
    redis: RedisServer = request.getfixturevalue("redis")
    return redis.settings()


@asynccontextmanager
async def workers(settings: Directory, count: int = 2) -> AsyncIterator[list[UsedProofs]]:
    async with AsyncExitStack() as stack:
        opened = [open_used_proofs(settings) for _ in range(count)]
        for used in opened:
            stack.push_async_callback(used.close)
        yield opened


async def test_a_proof_is_new_once_on_all_workers_together(settings: Directory) -> None:
    async with workers(settings) as (one, other):
        assert await one.first_use(Proof("a", NOW))
        assert not await one.first_use(Proof("a", NOW))
        assert not await other.first_use(Proof("a", NOW))
        assert await other.first_use(Proof("b", NOW))
        assert not await one.first_use(Proof("b", NOW))


async def test_of_many_at_once_exactly_one_is_the_first(settings: Directory) -> None:
    async with workers(settings) as two:
        for name in ("a", "b", "c"):
            asked = [used.first_use(Proof(name, NOW)) for used in two * 50]
            told = await asyncio.gather(*asked, return_exceptions=True)
            # On a busy machine Redis may not say it in time: then nobody is let in twice, but perhaps the first is not.
            late = [one for one in told if isinstance(one, BaseException)]
            assert all(isinstance(one, DirectoryUnavailable) for one in late), late
            assert told.count(True) == 1 or (late and told.count(True) == 0)


async def test_a_worker_that_starts_anew_knows_what_came_before(settings: Directory) -> None:
    async with workers(settings, 1) as (one,):
        assert await one.first_use(Proof("a", NOW))
    async with workers(settings, 1) as (again,):
        assert not await again.first_use(Proof("a", NOW))


async def test_redis_forgets_a_proof_only_when_it_is_accepted_nowhere_any_more(redis: RedisServer) -> None:
    async with workers(redis.settings(), 1) as (used,):
        await used.first_use(Proof("a", NOW))
    left = int(redis.command("TTL", PROOFS + "a")[1:])
    assert 2 * ACCEPTED_SECONDS < left <= REMEMBERED_SECONDS


async def test_proofs_change_nothing_of_the_directory(redis: RedisServer) -> None:
    async with workers(redis.settings(), 1) as (used,):
        await used.first_use(Proof("a", NOW))
    assert redis.command("KEYS", "*") == b"*1\r\n$%d\r\n%b\r\n" % (len(PROOFS + "a"), (PROOFS + "a").encode())


async def test_where_redis_is_away_nobody_can_know(tmp_path: Path) -> None:
    async with workers(Directory(redis=f"redis://127.0.0.1:{free_port()}/0"), 1) as (used,):
        with pytest.raises(DirectoryUnavailable):
            await used.first_use(Proof("a", NOW))


@pytest.mark.slow
async def test_where_redis_does_not_answer_nobody_can_know(own_redis: RedisServer) -> None:
    async with workers(own_redis.settings(), 1) as (used,):
        assert await used.first_use(Proof("a", NOW))
        own_redis.pause()
        with pytest.raises(DirectoryUnavailable):
            await used.first_use(Proof("b", NOW))
        own_redis.resume()
        assert not await used.first_use(Proof("a", NOW))


async def test_a_redis_user_who_may_not_write_proofs_lets_nobody_in(redis: RedisServer) -> None:
    redis.command("ACL", "SETUSER", "reader", "on", "nopass", "~{saltgate}:1:*", "+@read", "+@connection")
    async with workers(Directory(redis=redis.url, username="reader"), 1) as (used,):
        with pytest.raises(DirectoryUnavailable):
            await used.first_use(Proof("a", NOW))


async def test_the_redis_user_of_the_layout_page_may_write_proofs_and_nothing_else(redis: RedisServer) -> None:
    page = (Path(__file__).parents[3] / "proxy/directory/redis-layout.md").read_text()
    selector = "(~{saltgate}:1:proofs:* +set)"
    assert selector in page
    redis.command("ACL", "SETUSER", "gate", "on", "nopass", "~{saltgate}:1:*", "+@read", "+@connection", selector)
    async with workers(Directory(redis=redis.url, username="gate"), 1) as (used,):
        assert await used.first_use(Proof("a", NOW))
        assert not await used.first_use(Proof("a", NOW))
    assert b"NOPERM" not in redis.command("ACL", "DRYRUN", "gate", "SET", PROOFS + "a", "")
    assert b"no permissions" in redis.command("ACL", "DRYRUN", "gate", "SET", "{saltgate}:1:ring", "")


async def test_a_state_folder_that_cannot_be_written_to_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in its place")
    async with workers(Directory(file=tmp_path / "d.toml", state=tmp_path / "state"), 1) as (used,):
        with pytest.raises(DirectoryUnavailable):
            await used.first_use(Proof("a", NOW))


async def test_the_state_folder_keeps_what_is_accepted_and_forgets_the_rest(tmp_path: Path) -> None:
    async with workers(Directory(file=tmp_path / "d.toml", state=tmp_path), 1) as (used,):
        assert await used.first_use(Proof("old", NOW))
        later = NOW + 2 * ACCEPTED_SECONDS
        assert await used.first_use(Proof("new", later))
        assert not await used.first_use(Proof("old", NOW))
        assert await used.first_use(Proof("much later", NOW + 10 * REMEMBERED_SECONDS))
        assert {path.name for path in (tmp_path / FOLDER).rglob("*") if path.is_file()} == {"much later"}


async def test_the_files_are_nobody_elses(tmp_path: Path) -> None:
    async with workers(Directory(file=tmp_path / "d.toml", state=tmp_path), 1) as (used,):
        await used.first_use(Proof("a", NOW))
    made = [tmp_path / FOLDER, *(tmp_path / FOLDER).rglob("*")]
    assert [path.name for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_a_directory_that_is_nowhere_has_no_proofs() -> None:
    with pytest.raises(ValueError, match="needs redis"):
        open_used_proofs(Directory())
