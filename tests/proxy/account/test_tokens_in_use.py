"""Personal access tokens at their use: outages, old groups, and what does not renew them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from config.settings import Directory, Tokens
from proxy.directory.changes import Deed
from proxy.directory.connect import open_store, open_tokens
from proxy.directory.token_store import revocation
from proxy.identity.personal import PersonalToken, new_personal_token
from proxy.identity.personal_records import Owner, TokenRecord
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import ABSENT
from tests.parts.wire_tap import WireTap
from tests.proxy.account.token_parts import ALICE, APOLLO, BOB, Desk, desk, id_of

pytestmark = pytest.mark.slow

ERIN = "u-erin-0005"


async def do(settings: Directory, deed: Deed) -> None:
    store = open_store(settings, None)
    try:
        await store.change(deed)
    finally:
        await store.close()


async def test_a_gate_that_lost_redis_knows_the_tokens_it_knew_and_learns_of_endings_when_it_is_back(
    redis: RedisServer, tmp_path: Path
) -> None:
    real = f"http://127.0.0.1:{redis.port}"
    async with WireTap(real) as wire:
        there = Directory(redis=wire.url.replace("http", "redis", 1) + "/0", max_stale=60.0)
        async with desk(redis, tmp_path, directory=there) as people:
            known, revoked, unknown = [await people.made() for _ in range(3)]
            for token in (known, revoked):
                assert (await people.models(token, **APOLLO)).status == 200
            wire.lead_to("http://127.0.0.1:9")
            wire.cut()
            await do(redis.settings(), revocation([id_of(revoked)], now=time.time(), max_stale=60.0))
            for _ in range(3):
                assert (await people.models(known, **APOLLO)).status == 200
                # Nobody can tell this gate: it serves as memberships do, until max_stale.
                assert (await people.models(revoked, **APOLLO)).status == 200
                answer = await people.models(unknown, **APOLLO)
                assert (answer.status, answer.code) == (503, "directory_unavailable")
            for answer in (await people.revoke(id_of(known)), await people.make()):
                assert (answer.status, answer.code) == (503, "directory_unavailable")
            wire.lead_to(real)
            assert (await people.until_refused(revoked, **APOLLO)).code == "invalid_token"
            assert (await people.models(known, **APOLLO)).status == 200
            async with asyncio.timeout(10):
                while (await people.models(unknown, **APOLLO)).status != 200:
                    await asyncio.sleep(0.05)


async def test_after_max_stale_no_token_serves(redis: RedisServer, tmp_path: Path) -> None:
    async with WireTap(f"http://127.0.0.1:{redis.port}") as wire:
        there = Directory(redis=wire.url.replace("http", "redis", 1) + "/0", max_stale=0.9)
        async with desk(redis, tmp_path, directory=there) as people:
            token = await people.made()
            assert (await people.models(token, **APOLLO)).status == 200
            wire.lead_to("http://127.0.0.1:9")
            wire.cut()
            refused = await people.until_refused(token, **APOLLO)
            assert (refused.status, refused.code) == (503, "directory_unavailable")


async def test_tokens_work_where_the_identity_provider_never_answered(redis: RedisServer, tmp_path: Path) -> None:
    async with desk(redis, tmp_path, issuer_answers=False, ready=False) as people:
        token = await made_by_hand(redis.settings(), people.bed.mint.issuer)
        async with asyncio.timeout(20):
            while (answer := await people.models(token.text(), **APOLLO)).status == 503:
                await asyncio.sleep(0.02)
        assert answer.status == 200
        assert (await people.models(people.sign_in(), **APOLLO)).code == "issuer_unavailable"


async def made_by_hand(settings: Directory, issuer: str, subject: str = ALICE) -> PersonalToken:
    token, tokens, now = new_personal_token(), open_tokens(settings), int(time.time())
    record = TokenRecord(
        id=token.id,
        digest=token.digest,
        owner=Owner(issuer, subject),
        name="x",
        projects=None,
        created=now,
        expires=now + 60,
    )
    await tokens.create(record, limit=5)
    await tokens.close()
    return token


async def test_a_token_of_an_issuer_that_is_not_trusted_any_more_is_none(redis: RedisServer, tmp_path: Path) -> None:
    async with desk(redis, tmp_path) as people:
        token = await made_by_hand(redis.settings(), "https://gone.example.com")
        answer = await people.models(token.text(), **APOLLO)
        assert (answer.status, answer.code) == (401, "invalid_token")


async def test_a_token_that_is_bound_to_nothing_is_not_taken_as_a_bound_one(redis: RedisServer, tmp_path: Path) -> None:
    async with desk(redis, tmp_path) as people:
        token = await people.made()
        answer = await people.ask("GET", "/v1/models", None, Authorization=f"DPoP {token}", **APOLLO)
        assert (answer.status, answer.code) == (401, "invalid_token")


async def test_two_scopes_of_one_person_are_not_mixed_up(redis: RedisServer, tmp_path: Path) -> None:
    """What is remembered of a scope is remembered of the credential, not of its owner."""
    async with desk(redis, tmp_path) as people:
        everything, limited = await people.made(), await people.made(projects=["acme/ares"])
        for _ in range(3):
            assert (await people.models(everything, **APOLLO)).status == 200
            assert (await people.models(limited, **APOLLO)).code == "not_a_member"
            assert (await people.models(people.sign_in(), **APOLLO)).status == 200
            assert (await people.models(limited, OpenAI_Project="ares")).status == 200


# Groups


async def test_a_token_uses_the_groups_of_its_owners_sign_in(redis: RedisServer, tmp_path: Path) -> None:
    async with desk(redis, tmp_path) as people:
        token = await people.made(people.sign_in(ERIN, ["cube"]))
        assert (await people.models(token)).status == 200


async def test_groups_of_an_old_sign_in_are_unknown_and_the_refusal_says_what_to_do(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with desk(redis, tmp_path, tokens=Tokens(groups_max_age=30.0)) as people:
        old = people.sign_in(ERIN, ["cube"], iat=int(time.time()) - 40)
        token = await people.made(old)
        refused = await people.models(token)
        assert (refused.status, refused.code) == (400, "scope_required")
        assert "saltgate login" in refused.document["error"]["message"]
        named = [
            await people.models(token, OpenAI_Organization=workspace, OpenAI_Project=project)
            for workspace, project in (("initech", "tps"), ("initech", "none"), ("globex", "vault"), ("x", "y"))
        ]
        assert {(each.status, each.body) for each in named} == {(403, named[0].body)}
        assert "saltgate login" in named[0].document["error"]["message"]
        await signed_in_again(people, token, people.sign_in(ERIN, ["cube"]))
        assert (await people.models(token)).status == 200


async def signed_in_again(people: Desk, token: str, credential: str) -> None:
    """A visit to the account, and the second in which the token's old groups are still remembered."""
    assert (await people.ask("GET", "/account", credential)).status == 200
    async with asyncio.timeout(10):
        while (await people.models(token)).status != 200:
            await asyncio.sleep(0.05)


async def test_memberships_of_the_person_himself_need_no_groups(redis: RedisServer, tmp_path: Path) -> None:
    async with desk(redis, tmp_path, tokens=Tokens(groups_max_age=30.0)) as people:
        token = await people.made(people.sign_in(ALICE, ["eng"], iat=int(time.time()) - 40))
        assert (await people.models(token, **APOLLO)).status == 200


async def test_a_token_does_not_renew_its_own_groups(redis: RedisServer, tmp_path: Path) -> None:
    async with desk(redis, tmp_path, tokens=Tokens(groups_max_age=30.0)) as people:
        token = await people.made(people.sign_in(ERIN, ["cube"], iat=int(time.time()) - 40))
        assert (await people.ask("GET", "/account", token)).status == 200
        assert (await people.ask("GET", "/account/tokens", token)).status == 401
        await asyncio.sleep(1.1)  # what is remembered of groups that are not known
        assert (await people.models(token)).code == "scope_required"


async def test_a_sign_in_of_another_renews_nothing(redis: RedisServer, tmp_path: Path) -> None:
    async with desk(redis, tmp_path) as people:
        token = await people.made(people.sign_in(ERIN, []))
        assert (await people.ask("GET", "/account", people.sign_in(BOB, ["cube"]))).status == 200
        assert (await people.models(token, OpenAI_Project="tps")).code == "not_a_member"


async def test_a_token_of_before_does_not_bring_groups_back(redis: RedisServer, tmp_path: Path) -> None:
    """Erin was taken out of the group; her access token of before is still good for some minutes."""
    async with desk(redis, tmp_path) as people:
        before = people.sign_in(ERIN, ["cube"], iat=int(time.time()) - 60)
        token = await people.made(people.sign_in(ERIN, []))
        await people.make(before)
        assert (await people.models(token, OpenAI_Project="tps")).code == "not_a_member"


async def test_where_issued_is_not_told_groups_are_not_known(redis: RedisServer, tmp_path: Path) -> None:
    async with desk(redis, tmp_path) as people:
        token = await people.made(people.sign_in(ERIN, ["cube"], iat=ABSENT))
        assert (await people.models(token)).code == "scope_required"


async def test_the_file_directory_has_tokens_too(redis: RedisServer, tmp_path: Path) -> None:
    there = Directory(file=tmp_path / "directory.toml", state=tmp_path / "state")
    async with desk(redis, tmp_path, directory=there) as people:
        token = await people.made(projects=["acme/ares"])
        assert (await people.models(token)).status == 200
        await people.revoke(id_of(token))
        assert (await people.until_refused(token)).code == "invalid_token"
        assert token[13:56].encode() not in (tmp_path / "state" / "directory.json").read_bytes()
