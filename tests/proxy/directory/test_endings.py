"""What was granted before and is over: whom an ending ends, whom it does not, and how soon each view knows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.directory.changes import Change, ChangeRefused, end, fresh_ring, import_directory
from proxy.directory.endings import (
    EVERYBODY,
    MOST_OF_ISSUER,
    Ending,
    Endings,
    Of,
    folded,
    over,
    parse_endings,
    record_name,
    record_value,
)
from proxy.directory.file_store import FileStore
from proxy.directory.membership import Named, select_scope
from proxy.directory.model import directory_from_toml
from proxy.directory.redis_store import ENDINGS, RedisStore
from proxy.directory.snapshot import NOTHING_READ, Snapshot, read
from proxy.directory.store import Store
from proxy.directory.view import DirectoryView
from proxy.identity import Identity
from proxy.isolation.unit import Level
from proxy.refusals import InvalidToken
from tests.parts.redis_server import RedisServer

ISSUER = "https://sso.example.com"
ALICE = Identity(ISSUER, "alice", frozenset(), True, 9e9, session="s1", issued_at=1000.5)
LATER = 10**10
DIRECTORY = directory_from_toml(
    f'workspaces.acme = {{ issuer = "{ISSUER}", projects.apollo.members = ["user:alice"] }}'
)


def endings(*ended: Ending) -> Endings:
    return Endings({record_name(each.of, each.issuer, each.name): each for each in ended})


@pytest.mark.parametrize(
    ("ending", "identity", "over"),
    [
        (Ending("session", ISSUER, "s1", 1000, LATER), ALICE, True),
        (Ending("session", ISSUER, "s1", 999, LATER), ALICE, False),
        (Ending("session", ISSUER, "s1", 1, LATER), replace(ALICE, issued_at=None), True),
        (Ending("unnamed", ISSUER, "alice", 1000, LATER), replace(ALICE, session=None), True),
        (Ending("unnamed", ISSUER, "alice", 999, LATER), replace(ALICE, session=None), False),
        (Ending("unnamed", ISSUER, "alice", 1, LATER), replace(ALICE, session=None, issued_at=None), True),
        (Ending("unnamed", ISSUER, "alice", 2000, LATER), ALICE, False),
        (Ending("unnamed", ISSUER, "bob", 2000, LATER), replace(ALICE, session=None), False),
        (Ending("unnamed", "https://other.example.com", "alice", 2000, LATER), replace(ALICE, session=None), False),
        (Ending("unnamed", ISSUER, "alice", 2000, LATER), replace(ALICE, session=None, token_id="t1"), False),
        (Ending("session", ISSUER, "s2", 2000, LATER), ALICE, False),
        (Ending("session", "https://other.example.com", "s1", 2000, LATER), ALICE, False),
        (Ending("session", ISSUER, "s1", 2000, LATER), replace(ALICE, session=None), False),
        (Ending("session", ISSUER, "alice", 2000, LATER), ALICE, False),
        (Ending("subject", ISSUER, "alice", 1000, LATER), ALICE, True),
        (Ending("subject", ISSUER, "alice", 999, LATER), ALICE, False),
        (Ending("subject", ISSUER, "alice", 1, LATER), replace(ALICE, issued_at=None), True),
        (Ending("subject", ISSUER, "alic", 2000, LATER), ALICE, False),
        (Ending("subject", "https://other.example.com", "alice", 2000, LATER), ALICE, False),
        (Ending("subject", ISSUER, "alice", 2000, LATER), replace(ALICE, token_id="t1"), False),
        (Ending("issuer", ISSUER, EVERYBODY, 1000, LATER), ALICE, True),
        (Ending("issuer", ISSUER, EVERYBODY, 999, LATER), ALICE, False),
        (Ending("issuer", ISSUER, "alice", 2000, LATER), ALICE, False),
        (Ending("issuer", "https://other.example.com", EVERYBODY, 2000, LATER), ALICE, False),
        (Ending("issuer", ISSUER, EVERYBODY, 2000, LATER), replace(ALICE, token_id="t1"), False),
        (Ending("token", "", "t1", 1, LATER), replace(ALICE, token_id="t1"), True),
        (Ending("token", "", "t2", 1, LATER), replace(ALICE, token_id="t1"), False),
        (Ending("token", "", "t1", 1, LATER), ALICE, False),
    ],
)
def test_an_ending_ends_what_it_names_and_nothing_else(ending: Ending, identity: Identity, over: bool) -> None:
    assert endings(ending).has_ended(identity) is over


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(st.sampled_from(["session", "subject"]), NAMES, st.sampled_from(["session", "subject"]), NAMES)
def test_two_endings_never_share_a_record(one: Of, name: str, other: Of, second: str) -> None:
    same = record_name(one, ISSUER, name) == record_name(other, ISSUER, second)
    assert same is ((one, name) == (other, second))


@given(NAMES, st.integers(0, 10**11), st.integers(0, 10**11))
def test_what_is_written_is_read(name: str, at: int, until: int) -> None:
    ending = Ending("subject", ISSUER, name, at, until)
    found, faulty = parse_endings([(record_name(ending.of, ending.issuer, ending.name), record_value(ending))])
    assert (list(found.records.values()), faulty) == ([ending], ())


@pytest.mark.parametrize("value", ["", "soon", "1", "1 x", "-1 5", "1.5 2", "1  2", "9" * 13 + " 1", "\u0661 \u0662"])
def test_an_ending_whose_times_cannot_be_read_holds(value: str) -> None:
    found, faulty = parse_endings([(record_name("subject", ISSUER, "alice"), value)])
    assert found.has_ended(ALICE)
    assert len(faulty) == 1


@pytest.mark.parametrize("name", ["", "session", "session x", "person https://i alice", "token t1", "session  s1"])
def test_a_record_that_names_nobody_is_a_fault(name: str) -> None:
    found, faulty = parse_endings([(name, "1 2")])
    assert (found.records, faulty) == ({}, (name,))


def test_what_nobody_needs_is_forgotten_with_the_next() -> None:
    old, young = Ending("session", ISSUER, "old", 1, 10), Ending("session", ISSUER, "young", 1, 100)
    assert over(endings(old, young), now=11.0) == (record_name("session", ISSUER, "old"),)


@pytest.fixture(params=["redis", "file"])
async def store(request: pytest.FixtureRequest, redis: RedisServer, tmp_path: Path) -> Store:
    made: Store
    if request.param == "redis":
        made = RedisStore(redis.settings())
    else:
        (tmp_path / "directory.toml").write_text("")
        made = FileStore(tmp_path / "directory.toml", tmp_path / "state")
    await made.change(import_directory(DIRECTORY, fresh_ring("k1", now=1_700_000_000)))
    return made


async def test_an_ending_reaches_the_view_and_refuses(store: Store) -> None:
    view = DirectoryView(store, max_stale=300)
    following = asyncio.ensure_future(view.follow())
    try:
        await view.changed()
        assert scope(view.current())
        now = int((await store.read()).now)
        changed = view.changed()
        await store.change(end(Ending("session", ISSUER, "s1", now, now + 60)))
        await asyncio.wait_for(changed, 10)
        with pytest.raises(InvalidToken) as caught:
            scope(view.current())
        assert caught.value.reason == "ended"
    finally:
        following.cancel()
        await store.close()


def scope(snapshot: Snapshot) -> object:
    return select_scope(snapshot, ALICE, Named(), default_unit=Level.PROJECT, default_show_reuse=True)


async def test_a_new_ending_takes_the_old_ones_along(store: Store) -> None:
    now = int((await store.read()).now)
    await store.change(end(Ending("session", ISSUER, "old", now - 100, now - 1)))
    await store.change(end(Ending("session", ISSUER, "new", now, now + 60)))
    assert [ending.name for ending in (await store.read()).endings.records.values()] == ["new"]
    await store.close()


async def test_an_ending_twice_changes_nothing(store: Store) -> None:
    now = int((await store.read()).now)
    ending = Ending("subject", ISSUER, "alice", now, now + 60)
    assert not (await store.change(end(ending))).is_empty
    assert (await store.change(end(ending))).is_empty
    await store.close()


async def test_an_ending_never_moves_back(redis: RedisServer) -> None:
    """Who is told the later one first must not revive what it ended."""
    store = RedisStore(redis.settings())
    now = int((await store.read()).now)
    try:
        await store.change(end(Ending("subject", ISSUER, "alice", now, now + 60)))
        await store.change(end(Ending("subject", ISSUER, "alice", now - 100, now + 90)))
        (known,) = (await store.read()).endings.records.values()
        assert (known.at, known.until) == (now, now + 90)
        assert (await store.change(end(Ending("subject", ISSUER, "alice", now - 5, now + 10)))).is_empty
    finally:
        await store.close()


async def test_an_ending_is_not_kept_for_ever(store: Store) -> None:
    with pytest.raises(ChangeRefused):
        await store.change(end(Ending("session", ISSUER, "s", 1, LATER)))
    await store.close()


async def test_an_import_keeps_the_endings(store: Store) -> None:
    now = int((await store.read()).now)
    await store.change(end(Ending("session", ISSUER, "s", now, now + 60)))
    change = await store.change(import_directory(directory_from_toml("[workspaces]"), fresh_ring("k1", now=now)))
    assert isinstance(change, Change)
    assert len((await store.read()).endings.records) == 1
    await store.close()


async def test_a_record_of_another_hand_that_cannot_be_read_is_told(redis: RedisServer) -> None:
    store = RedisStore(redis.settings())
    await store.change(import_directory(DIRECTORY, fresh_ring("k1", now=1_700_000_000)))
    redis.command("HSET", ENDINGS, f"subject {ISSUER} alice", "soon")
    reading = read(await store.read(), NOTHING_READ)
    assert [fault.key for fault in reading.faults] == ["endings"]
    with pytest.raises(InvalidToken):
        scope(reading.snapshot)
    await store.close()


def sessions(count: int, *, issuer: str = ISSUER, first: int = 0) -> list[Ending]:
    return [Ending("session", issuer, f"s{number}", number, LATER) for number in range(first, first + count)]


def test_few_endings_are_kept_one_by_one() -> None:
    tokens = [Ending("token", "", str(number), number, LATER) for number in range(MOST_OF_ISSUER + 1)]
    others = sessions(MOST_OF_ISSUER, issuer="https://other.example.com")
    assert folded([*sessions(MOST_OF_ISSUER), *others, *tokens]) == ((), ())


def test_the_oldest_endings_of_an_issuer_that_has_too_many_become_one_of_its_own_people_alone() -> None:
    count = MOST_OF_ISSUER + 1
    ended = sessions(count)
    (wide,), gone = folded([*reversed(ended), *sessions(10, issuer="https://other.example.com")])
    assert (wide.of, wide.issuer, wide.until) == ("issuer", ISSUER, LATER)
    assert len(gone) == wide.at + 1 == count - MOST_OF_ISSUER * 3 // 4
    left = Endings({name: e for name, e in endings(*ended, wide).records.items() if name not in gone})
    for number in (0, wide.at, wide.at + 1, count - 1):
        assert left.has_ended(replace(ALICE, session=f"s{number}", issued_at=float(number)))
    # Of others what is older, and nothing that is younger.
    assert left.has_ended(replace(ALICE, session="other", issued_at=float(wide.at)))
    assert not left.has_ended(replace(ALICE, session="other", issued_at=wide.at + 1.0))


@pytest.mark.slow
async def test_a_flood_of_endings_is_bounded_and_forgets_none(redis: RedisServer, tmp_path: Path) -> None:
    store = RedisStore(redis.settings())
    await store.change(import_directory(DIRECTORY, fresh_ring("k1", now=1_700_000_000)))
    until = int((await store.read()).now) + 600
    for first in range(0, 3 * MOST_OF_ISSUER, MOST_OF_ISSUER // 2):
        many = sessions(MOST_OF_ISSUER // 2, first=first + 1000)
        await store.change(end(*(replace(each, until=until) for each in many)))
    known = (await store.read()).endings
    assert len(known.records) <= MOST_OF_ISSUER
    for number in range(1000, 3 * MOST_OF_ISSUER + 1000, 997):
        assert known.has_ended(replace(ALICE, session=f"s{number}", issued_at=float(number)))
    # Told late, of long ago: covered already, and it moves nothing back.
    await store.change(end(Ending("session", ISSUER, "late", 1001, until)))
    assert (await store.read()).endings.has_ended(replace(ALICE, session="late", issued_at=1001.0))
    await store.close()
