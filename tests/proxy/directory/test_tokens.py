"""Personal access tokens where they are kept, in Redis and in a folder: the same rules in both."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from redis import Redis

from config.settings import Directory
from proxy.directory.changes import end, first_import, fresh_ring, import_directory
from proxy.directory.connect import open_store, open_tokens
from proxy.directory.endings import Ending
from proxy.directory.file_tokens import FileTokens
from proxy.directory.model import directory_from_toml, directory_to_toml
from proxy.directory.redis_tokens import RedisTokens
from proxy.directory.snapshot import NOTHING_READ, read
from proxy.directory.store import Store, StoreUnavailable
from proxy.directory.token_records import RecordDamaged, token_document, token_record
from proxy.directory.token_store import EXPIRED_KEPT_SECONDS, StoredTokens, TokenStore, TooManyTokens, revocation
from proxy.identity.personal import PersonalToken, new_personal_token
from proxy.identity.personal_records import Login, Owner, TokenRecord
from proxy.refusals import DirectoryUnavailable
from tests.parts.redis_server import RedisServer

ISSUER = "https://sso.example.com"
ALICE = Owner(ISSUER, "u-älice 0001")
BOB = Owner(ISSUER, "u-bob-0002")
DIRECTORY = directory_from_toml(f'[workspaces.acme]\nissuer = "{ISSUER}"\n[workspaces.acme.projects.apollo]\n')


@dataclass(slots=True)
class Place:
    """Where tokens are kept, with a clock of the test's, which may stand in the past of Redis's own."""

    tokens: TokenStore
    store: Store
    settings: Directory
    folder: Path
    redis: RedisServer | None
    now: float

    def record(self, token: PersonalToken, owner: Owner = ALICE, *, lifetime: int = 1000) -> TokenRecord:
        return TokenRecord(
            id=token.id,
            digest=token.digest,
            owner=owner,
            name="ci",
            projects=(("acme", "apollo"),),
            created=int(self.now),
            expires=int(self.now) + lifetime,
        )

    async def make(self, owner: Owner = ALICE, *, lifetime: int = 1000, limit: int = 50) -> TokenRecord:
        record = self.record(new_personal_token(), owner, lifetime=lifetime)
        await self.tokens.create(record, limit=limit)
        return record

    async def revoke(self, *ids: str) -> None:
        await self.store.change(revocation(ids, now=(await self.store.read()).now, max_stale=300.0))

    async def ids(self, owner: Owner = ALICE) -> list[str]:
        return [token.record.id for token in await self.tokens.owned(owner)]

    def everything(self) -> bytes:
        """All that is kept, byte for byte."""
        files = [path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()]
        return b"\n".join([*files, *(() if self.redis is None else everything_in(self.redis))])


def everything_in(redis: RedisServer) -> Iterator[bytes]:
    """Every key with its value, as it lies there."""
    with Redis.from_url(redis.url) as client:
        for key in client.scan_iter():
            match client.type(key):
                case b"hash":
                    value: object = client.hgetall(key)
                case b"set":
                    value = client.smembers(key)
                case b"zset":
                    value = client.zrange(key, 0, -1, withscores=True)
                case _:
                    value = client.get(key)
            yield key
            yield value if isinstance(value, bytes) else repr(value).encode()


@pytest.fixture(params=["redis", "file"])
async def place(request: pytest.FixtureRequest, redis: RedisServer, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "redis":
        settings = redis.settings()
    else:
        (tmp_path / "directory.toml").write_text(directory_to_toml(DIRECTORY))
        settings = Directory(file=tmp_path / "directory.toml", state=tmp_path / "state")
    store, tokens = open_store(settings, None), open_tokens(settings)
    await store.change(import_directory(DIRECTORY, fresh_ring("k1", now=1_700_000_000)))
    now = (await store.read()).now
    yield Place(tokens, store, settings, tmp_path, redis if request.param == "redis" else None, now)
    await tokens.close()
    await store.close()


async def test_what_is_made_is_found_by_its_id_and_by_its_owner(place: Place) -> None:
    record = await place.make()
    kept = await place.tokens.find(record.id)
    assert kept is not None
    assert (kept.record, kept.login) == (record, None)
    assert [(token.record, token.used) for token in await place.tokens.owned(ALICE)] == [(record, None)]
    assert await place.tokens.owned(BOB) == ()
    assert await place.tokens.find("00000000") is None


async def test_the_secret_is_nowhere(place: Place) -> None:
    token = new_personal_token()
    await place.tokens.create(place.record(token), limit=5)
    await place.tokens.used({token.id: int(place.now)})
    everything = place.everything()
    assert token.id.encode() in everything
    assert token.digest.hex().encode() in everything
    spellings = (
        token.secret,
        token.text().encode(),
        token.text().encode()[13:56],
        urlsafe_b64encode(token.secret)[:40],
        b64encode(token.secret)[:40],
        token.secret.hex().encode(),
    )
    assert [spelling for spelling in spellings if spelling in everything] == []


async def test_revoking_takes_the_record_and_tells_every_worker_in_one_step(place: Place) -> None:
    record, other = await place.make(), await place.make()
    before = (await place.store.read()).generation
    await place.revoke(record.id)
    records = await place.store.read()
    assert records.generation == before + 1
    assert [ending.name for ending in records.endings.records.values()] == [record.id]
    assert await place.tokens.find(record.id) is None
    assert await place.ids() == [other.id]


async def test_a_revoked_token_stays_over_when_its_ending_is_forgotten(place: Place) -> None:
    record = await place.make()
    now = int((await place.store.read()).now)
    await place.store.change(end(Ending("token", "", record.id, now - 100, now - 50)))
    await place.store.change(end(Ending("session", ISSUER, "s", now, now + 50)))
    assert [ending.name for ending in (await place.store.read()).endings.records.values()] == ["s"]
    assert await place.tokens.find(record.id) is None


async def test_an_ending_is_known_for_longer_than_any_worker_may_remember(place: Place) -> None:
    record = await place.make()
    await place.revoke(record.id)
    (ending,) = (await place.store.read()).endings.records.values()
    assert ending.until >= ending.at + 300 + 60
    assert ending.until < ending.at + 24 * 3600


async def test_a_late_use_does_not_bring_a_revoked_token_back(place: Place) -> None:
    record = await place.make()
    await place.revoke(record.id)
    await place.tokens.used({record.id: int(place.now), "zzzzzzzz": 5})
    assert await place.tokens.find(record.id) is None
    assert await place.ids() == []
    assert b"zzzzzzzz" not in place.everything()


async def test_the_last_use_is_shown(place: Place) -> None:
    record = await place.make()
    await place.tokens.used({record.id: int(place.now) + 7})
    assert [token.used for token in await place.tokens.owned(ALICE)] == [int(place.now) + 7]
    await place.tokens.used({})


async def test_however_many_are_made_at_once_the_limit_holds(place: Place) -> None:
    made = await asyncio.gather(*(place.make(limit=7) for _ in range(20)), return_exceptions=True)
    refused = [each for each in made if isinstance(each, BaseException)]
    assert [type(each) for each in refused] == [TooManyTokens] * 13
    assert len(await place.ids()) == 7
    await place.make(BOB, limit=7)


async def test_who_revokes_one_may_make_another(place: Place) -> None:
    record = await place.make(limit=1)
    with pytest.raises(TooManyTokens):
        await place.make(limit=1)
    await place.revoke(record.id)
    other = await place.make(limit=1)
    assert await place.ids() == [other.id]


async def test_an_expired_token_counts_no_more_and_goes_with_the_next(place: Place) -> None:
    await place.make(lifetime=-1)
    assert len(await place.ids()) == 1
    other = await place.make(limit=1)
    assert await place.ids() == [other.id]


async def test_an_id_that_is_taken_is_not_written_over(place: Place) -> None:
    record = await place.make()
    with pytest.raises(StoreUnavailable, match="taken"):
        await place.tokens.create(replace(record, owner=BOB, digest=bytes(32)), limit=5)
    kept = await place.tokens.find(record.id)
    assert kept is not None
    assert kept.record == record


async def test_a_login_is_found_with_each_of_its_owners_tokens(place: Place) -> None:
    record, bobs = await place.make(), await place.make(BOB)
    login = Login(frozenset({"eng", "ops"}), True, float(int(place.now)))
    await place.tokens.log_in(ALICE, login, keep_seconds=1000)
    kept, other = await place.tokens.find(record.id), await place.tokens.find(bobs.id)
    assert kept is not None
    assert other is not None
    assert (kept.login, other.login) == (login, None)


async def test_an_older_login_never_replaces_a_later_one(place: Place) -> None:
    """Else who was taken out of a group would show a token of before."""
    record = await place.make()
    now = float(int(place.now))
    later, earlier = Login(frozenset(), True, now), Login(frozenset({"eng"}), True, now - 60)
    await place.tokens.log_in(ALICE, later, keep_seconds=1000)
    for login in (earlier, replace(earlier, at=now)):
        await place.tokens.log_in(ALICE, login, keep_seconds=1000)
        kept = await place.tokens.find(record.id)
        assert kept is not None
        assert kept.login == later
    await place.tokens.log_in(ALICE, replace(earlier, at=now + 1), keep_seconds=1000)
    kept = await place.tokens.find(record.id)
    assert kept is not None
    assert kept.login == replace(earlier, at=now + 1)


async def test_owners_of_like_names_are_not_the_same(place: Place) -> None:
    await place.make(Owner("https://a", "b c"))
    await place.make(Owner("https://a", "b"))
    assert len(await place.ids(Owner("https://a", "b"))) == 1
    assert len(await place.ids(Owner("https://a", "b c"))) == 1
    assert await place.ids(Owner("https://a", "c")) == []


async def test_an_import_and_an_export_never_touch_tokens_and_logins(place: Place) -> None:
    record = await place.make()
    await place.tokens.used({record.id: 5})
    await place.tokens.log_in(ALICE, Login(frozenset({"eng"}), True, place.now), keep_seconds=1000)
    before = await place.tokens.find(record.id), await place.tokens.owned(ALICE)
    for text in ("[workspaces]\n", directory_to_toml(DIRECTORY)):
        await place.store.change(first_import(directory_from_toml(text), "k1", None))
        assert (await place.tokens.find(record.id), await place.tokens.owned(ALICE)) == before
    exported = directory_to_toml(read(await place.store.read(), NOTHING_READ).snapshot.directory)
    assert record.id not in exported
    assert "eng" not in exported


async def test_a_token_changes_nothing_that_workers_read(place: Place) -> None:
    before = await place.store.read()
    await place.make()
    after = await place.store.read()
    assert replace(after, stamp=b"", now=0) == replace(before, stamp=b"", now=0)


async def test_a_place_that_is_away_is_our_fault(tmp_path: Path) -> None:
    (tmp_path / "directory.json").write_text("{")
    for tokens in (RedisTokens(Directory(redis="redis://127.0.0.1:9/0")), FileTokens(tmp_path)):
        asked = StoredTokens(tokens)
        for question in (asked.find("abcd1234"), asked.used({"abcd1234": 1})):
            with pytest.raises(DirectoryUnavailable):
                await question
        with pytest.raises(StoreUnavailable):
            await tokens.owned(ALICE)
        await tokens.close()


@pytest.mark.slow
async def test_a_frozen_redis_is_waited_for_a_second_at_most(own_redis: RedisServer) -> None:
    tokens = RedisTokens(own_redis.settings())
    assert await tokens.find("00000000") is None
    own_redis.pause()
    try:
        async with asyncio.timeout(5):
            with pytest.raises(StoreUnavailable):
                await tokens.find("00000000")
    finally:
        own_redis.resume()
        await tokens.close()


async def test_redis_lets_go_of_what_nobody_needs(redis: RedisServer) -> None:
    tokens = RedisTokens(redis.settings())
    token = new_personal_token()
    now = time.time()
    record = TokenRecord(
        id=token.id, digest=token.digest, owner=BOB, name="x", projects=None, created=int(now), expires=int(now) + 60
    )
    await tokens.create(record, limit=5)
    await tokens.log_in(BOB, Login(frozenset(), True, now), keep_seconds=77)
    await tokens.used({token.id: 9})
    bounds = {
        f"{{saltgate}}:1:token:{token.id}": EXPIRED_KEPT_SECONDS + 60,
        f"{{saltgate}}:1:token_used:{token.id}": EXPIRED_KEPT_SECONDS + 60,
        f"{{saltgate}}:1:tokens_of:{ISSUER} {BOB.subject}": EXPIRED_KEPT_SECONDS + 60,
        f"{{saltgate}}:1:login:{ISSUER} {BOB.subject}": 77,
    }
    for key, seconds in bounds.items():
        left = int(redis.command("TTL", key)[1:])
        assert 0 < left <= seconds, key
    await tokens.close()


async def test_the_folder_lets_go_of_what_nobody_needs(tmp_path: Path) -> None:
    now = 1_700_000_000.0
    tokens = FileTokens(tmp_path, clock=lambda: now)
    token = new_personal_token()
    record = TokenRecord(
        id=token.id, digest=token.digest, owner=BOB, name="x", projects=None, created=int(now), expires=int(now) + 60
    )
    await tokens.create(record, limit=5)
    await tokens.log_in(BOB, Login(frozenset(), True, now), keep_seconds=77)
    now += EXPIRED_KEPT_SECONDS + 61
    other = replace(record, id="zzzzzzzz", owner=ALICE, expires=int(now) + 60)
    await tokens.create(other, limit=5)
    await tokens.log_in(ALICE, Login(frozenset(), True, now), keep_seconds=77)
    assert await tokens.find(token.id) is None
    assert BOB.subject not in (tmp_path / "directory.json").read_text()


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"secret_sha256":"' + b"0" * 64 + b'"}',
        b'{"secret_sha256":"zz","issuer":"i","subject":"s","name":"n","created":1,"expires":2}',
        b'{"secret_sha256":"' + b"0" * 64 + b'","issuer":"i","subject":"s","name":"n","created":1,"expires":true}',
        b'{"secret_sha256":"'
        + b"0" * 64
        + b'","issuer":"i","subject":"s","name":"n","created":1,"expires":2,"only":1}',
        b'{"secret_sha256":"' + b"0" * 64 + b'","issuer":"i","subject":"s","name":"n","created":1,"expires":2,'
        b'"projects":["acme"]}',
    ],
)
async def test_a_record_that_is_not_known_as_a_whole_is_no_token_and_our_fault(
    document: bytes, redis: RedisServer
) -> None:
    with pytest.raises(RecordDamaged):
        token_record("abcd1234", document)
    redis.command("SET", "{saltgate}:1:token:abcd1234", document)
    tokens = RedisTokens(redis.settings())
    with pytest.raises(DirectoryUnavailable):
        await StoredTokens(tokens).find("abcd1234")
    await tokens.close()


async def test_a_login_that_cannot_be_read_tells_no_groups(redis: RedisServer) -> None:
    token = new_personal_token()
    record = TokenRecord(id=token.id, digest=token.digest, owner=BOB, name="x", projects=None, created=1, expires=2**40)
    redis.command("SET", f"{{saltgate}}:1:token:{token.id}", token_document(record))
    redis.command("SET", f"{{saltgate}}:1:login:{ISSUER} {BOB.subject}", '{"groups": ["eng"]}')
    tokens = RedisTokens(redis.settings())
    kept = await tokens.find(token.id)
    assert kept is not None
    assert kept.login is None
    await tokens.close()
