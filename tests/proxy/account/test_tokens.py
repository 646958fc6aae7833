"""`/account/tokens` through a whole gate: each makes, sees and revokes his own, and nobody anything else."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis import Redis

from config.settings import Tokens
from proxy.account.pace import PER_MINUTE, Pace
from proxy.account.tokens import lifetime_words
from proxy.directory.changes import block, end, grant, revoke
from proxy.directory.endings import Ending
from proxy.directory.model import group, user
from proxy.identity.personal import personal_token
from proxy.refusals import RateLimited
from tests.parts.redis_server import RedisServer
from tests.proxy.account.token_parts import ADMIN, ALICE, APOLLO, BOB, CAROL, MALLORY, Desk, desk, id_of

pytestmark = pytest.mark.slow


@pytest.fixture
async def people(redis: RedisServer, tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk(redis, tmp_path, administrators=(f"user:{ADMIN}", "group:admins")) as open_desk:
        yield open_desk


# One's own


async def test_a_signed_in_person_makes_a_token_that_acts_for_him(people: Desk) -> None:
    answer = await people.make(name="My laptop 💻", expires_in=3600)
    found = answer.document
    assert answer.status == 201
    assert answer.headers["Cache-Control"] == "no-store"
    assert found | {"token": 0, "id": 0, "created_at": 0, "expires_at": 0} == {
        "token": 0,
        "id": 0,
        "name": "My laptop 💻",
        "projects": None,
        "created_at": 0,
        "expires_at": 0,
    }
    assert found["expires_at"] - found["created_at"] == 3600
    assert personal_token(found["token"]).id == found["id"]
    served = await people.models(found["token"], **APOLLO)
    assert (served.status, served.document["data"][0]["id"]) == (200, "tiny")
    assert (await people.models(found["token"], OpenAI_Project="hermes")).code == "not_a_member"


async def test_a_list_never_shows_a_secret(people: Desk) -> None:
    token = await people.made()
    answer = await people.ask("GET", "/account/tokens", people.sign_in())
    assert [each["id"] for each in answer.document["tokens"]] == [id_of(token)]
    assert token[13:56].encode() not in answer.body
    assert personal_token(token).digest.hex().encode() not in answer.body
    assert answer.document["tokens"][0]["last_used_at"] is None


async def test_each_sees_only_his_own(people: Desk) -> None:
    await people.made()
    assert await people.listed(people.sign_in(BOB)) == []


async def test_the_last_use_is_told_a_minute_more_or_less(people: Desk) -> None:
    token = await people.made()
    await people.models(token, **APOLLO)
    await people.bed.gate.reception.personal.tell_uses_now()
    (shown,) = await people.listed()
    assert abs(shown["last_used_at"] - time.time()) < 60


async def test_a_revoked_token_is_refused_everywhere_within_a_second(people: Desk) -> None:
    token, other = await people.made(), await people.made()
    assert (await people.models(token, **APOLLO)).status == 200
    began = time.monotonic()
    assert (await people.revoke(id_of(token))).document == {"revoked": 1}
    refused = await people.until_refused(token, **APOLLO)
    assert time.monotonic() - began < 5  # a busy machine; how long it takes is measured in revocation_latency.py
    assert (refused.status, refused.code) == (401, "invalid_token")
    assert (await people.models(other, **APOLLO)).status == 200
    assert [each["id"] for each in await people.listed()] == [id_of(other)]


async def test_revoke_all_ends_all_of_ones_own_and_nobody_elses(people: Desk) -> None:
    mine = [await people.made() for _ in range(3)]
    bobs = await people.made(people.sign_in(BOB))
    answer = await people.ask("POST", "/account/tokens/revoke-all", people.sign_in(), {})
    assert answer.document == {"revoked": 3}
    for token in mine:
        assert (await people.until_refused(token, **APOLLO)).status == 401
    assert (await people.models(bobs)).status == 200
    answer = await people.ask("POST", "/account/tokens/revoke-all", people.sign_in(), {})
    assert answer.document == {"revoked": 0}


async def test_unknown_revoked_and_wrong_are_told_the_same(people: Desk) -> None:
    cached, uncached = await people.made(), await people.made()
    assert (await people.models(cached, **APOLLO)).status == 200
    for token in (cached, uncached):
        await people.revoke(id_of(token))
    await people.until_refused(cached, **APOLLO)
    live = personal_token(await people.made())
    answers = [
        await people.models(token, **APOLLO)
        for token in (
            cached,
            uncached,
            type(live)(live.id, bytes(32)).text(),
            type(live)("zzzzzzzz", live.secret).text(),
        )
    ]
    own = {"x-request-id", "date", "server-timing"}  # what tells one request from another
    told = {
        (each.status, each.body, *sorted(pair for pair in each.headers.items() if pair[0].lower() not in own))
        for each in answers
    }
    assert len(told) == 1
    assert answers[0].status == 401
    assert 'error="invalid_token"' in answers[0].headers["WWW-Authenticate"]


async def test_twenty_at_once_do_not_pass_the_limit(redis: RedisServer, tmp_path: Path) -> None:
    async with desk(redis, tmp_path, tokens=Tokens(per_owner=5)) as people:
        answers = await asyncio.gather(*(people.make() for _ in range(20)))
        assert sorted(answer.status for answer in answers) == [201] * 5 + [400] * 15
        assert "5 personal access tokens" in next(a for a in answers if a.status == 400).document["error"]["message"]
        assert len(await people.listed()) == 5
        assert (await people.make(people.sign_in(BOB))).status == 201


async def test_no_secret_is_in_redis_nor_in_the_log(people: Desk, redis: RedisServer) -> None:
    tokens = [await people.made() for _ in range(3)]
    for token in tokens:
        await people.models(token, **APOLLO)
    await people.revoke(id_of(tokens[0]))
    await people.until_refused(tokens[0], **APOLLO)
    await people.models(tokens[1][:-1] + "!", **APOLLO)
    async with asyncio.timeout(10):
        while b"personal_token_revoked" not in (log := people.bed.log.read_bytes()):
            await asyncio.sleep(0.01)  # what is logged is written by a thread
    with Redis.from_url(redis.url) as client:
        kept = b"".join(key + (client.dump(key) or b"") for key in client.scan_iter())
    told = [(line["event"], line["token_id"]) for line in map(json.loads, log.splitlines()) if "token_id" in line]
    assert told == [
        *(("personal_token_created", id_of(token)) for token in tokens),
        ("personal_token_revoked", id_of(tokens[0])),
    ]
    for token in tokens:
        assert token[13:50].encode() not in log
        assert token[13:50].encode() not in kept
        assert personal_token(token).secret not in kept


# What proves nobody here


async def test_a_personal_access_token_makes_lists_and_revokes_none(people: Desk) -> None:
    token = await people.made()
    for method, path, document in (
        ("GET", "/account/tokens", None),
        ("POST", "/account/tokens", {"name": "more"}),
        ("POST", "/account/tokens/revoke", {"id": id_of(token)}),
        ("POST", "/account/tokens/revoke-all", {}),
    ):
        answer = await people.ask(method, path, token, document)
        assert (answer.status, answer.code) == (401, "invalid_token"), path
    assert [each["id"] for each in await people.listed()] == [id_of(token)]


async def test_nobody_and_a_cookie_are_nobody(people: Desk) -> None:
    token = people.sign_in()
    for cookie in ("", f"__Host-saltgate={token}", f"Authorization=Bearer {token}"):
        answer = await people.ask("POST", "/account/tokens", None, {"name": "x"}, Cookie=cookie)
        assert (answer.status, answer.code) == (401, "credential_required")


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data"])
async def test_a_form_is_not_taken(people: Desk, content_type: str) -> None:
    """A page of another site can send one without asking."""
    for path in ("/account/tokens", "/account/tokens/revoke-all"):
        answer = await people.ask("POST", path, people.sign_in(), b'{"name":"x"}', Content_Type=content_type)
        assert answer.code == "unsupported_media_type"
    assert await people.listed() == []


async def test_who_is_blocked_or_whose_sign_in_is_over_makes_none(people: Desk) -> None:
    ended, issuer = people.sign_in(CAROL, sid="s-1"), people.bed.mint.issuer
    now = int(time.time())
    await people.bed.change(end(Ending("session", issuer, "s-1", now, now + 100)))
    await people.bed.change(block(issuer, user(BOB)))
    async with asyncio.timeout(10):
        while (await people.make(people.sign_in(BOB))).status == 201:
            await asyncio.sleep(0.01)
    assert (await people.make(people.sign_in(BOB))).code == "blocked"
    assert (await people.make(ended)).code == "invalid_token"
    assert (await people.make(people.sign_in(CAROL, sid="s-2"))).status == 201


# Administrators


@pytest.mark.parametrize(
    ("subject", "groups", "may"),
    [
        (ADMIN, (), True),
        (BOB, ("admins",), True),
        (BOB, (), False),
        (BOB, (f"user:{ADMIN}", ADMIN, "group:admins", "admin"), False),
        ("admins", (), False),
        (MALLORY, ("eng",), False),
    ],
)
async def test_only_administrators_see_and_end_what_others_have(
    people: Desk, subject: str, groups: tuple[str, ...], may: bool
) -> None:
    token = await people.made()
    credential, issuer = people.sign_in(subject, groups), people.bed.mint.issuer
    seen = await people.ask("GET", f"/account/tokens?issuer={issuer}&subject={ALICE}", credential)
    ended = await people.revoke(id_of(token), credential)
    everything = await people.ask(
        "POST", "/account/tokens/revoke-all", credential, {"issuer": issuer, "subject": ALICE}
    )
    if may:
        assert [each["id"] for each in seen.document["tokens"]] == [id_of(token)]
        assert (ended.document, everything.document) == ({"revoked": 1}, {"revoked": 0})
        assert (await people.until_refused(token, **APOLLO)).status == 401
    else:
        assert (seen.code, ended.code, everything.code) == ("not_a_member", "invalid_request", "not_a_member")
        assert (await people.models(token, **APOLLO)).status == 200


async def test_an_administrator_by_token_is_none(people: Desk) -> None:
    by_token = await people.made(people.sign_in(ADMIN, ("admins",)))
    token = await people.made()
    assert (await people.revoke(id_of(token), by_token)).status == 401
    seen = await people.ask("GET", f"/account/tokens?issuer={people.bed.mint.issuer}&subject={ALICE}", by_token)
    assert seen.status == 401


async def test_what_is_not_ones_own_and_what_is_not_there_look_alike(people: Desk) -> None:
    token = await people.made()
    bob = people.sign_in(BOB)
    ids = (id_of(token), "zzzzzzzz", "", "../../etc", "a" * 1000, "abc\u0000defg")
    assert len({(await people.revoke(each, bob)).body for each in ids}) == 1
    issuer = people.bed.mint.issuer
    others = (f"issuer={issuer}&subject={ALICE}", f"issuer={issuer}&subject=nobody", "issuer=https://x&subject=y")
    assert len({(await people.ask("GET", f"/account/tokens?{each}", bob)).body for each in others}) == 1
    assert (await people.models(token, **APOLLO)).status == 200


async def test_naming_oneself_needs_no_administrator(people: Desk) -> None:
    token = await people.made()
    answer = await people.ask(
        "GET", f"/account/tokens?issuer={people.bed.mint.issuer}&subject={ALICE}", people.sign_in()
    )
    assert [each["id"] for each in answer.document["tokens"]] == [id_of(token)]


async def test_without_administrators_nobody_is_one(redis: RedisServer, tmp_path: Path) -> None:
    async with desk(redis, tmp_path) as people:
        token = await people.made()
        assert (await people.revoke(id_of(token), people.sign_in(ADMIN, ("admins",)))).status == 400


# What may be asked for


@pytest.mark.parametrize(
    ("wish", "param"),
    [
        ({"name": ""}, "name"),
        ({"name": " ci"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "a\u202eb"}, "name"),
        ({"name": "a\u200bb"}, "name"),
        ({"name": "\x1b[31mred"}, "name"),
        ({"name": None}, "name"),
        ({"name": 7}, "name"),
        ({"expires_in": 59}, "expires_in"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": -1}, "expires_in"),
        ({"expires_in": True}, "expires_in"),
        ({"expires_in": 3600.5}, "expires_in"),
        ({"expires_in": "3600"}, "expires_in"),
        ({"expires_in": None}, "expires_in"),
        ({"expires_in": 365 * 24 * 3600 + 1}, "expires_in"),
        ({"expires_in": 10**30}, "expires_in"),
        ({"projects": []}, "projects"),
        ({"projects": "acme/apollo"}, "projects"),
        ({"projects": ["acme"]}, "projects"),
        ({"projects": ["acme/apollo/x"]}, "projects"),
        ({"projects": ["acme/apollo", "acme/apollo"]}, "projects"),
        ({"projects": ["acme/apollo", 7]}, "projects"),
        ({"projects": [f"acme/p{n}" for n in range(51)]}, "projects"),
    ],
)
async def test_a_token_that_may_not_be_is_not_made(people: Desk, wish: dict[str, object], param: str) -> None:
    answer = await people.make(None, **wish)
    assert (answer.status, answer.code, answer.document["error"]["param"]) == (400, "invalid_request", param)
    assert await people.listed() == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b'{"name":"a","name":"b"}', b'{"name":"\\ud800"}', b'{"name":"a","owner":"b"}',
     b'{"name":"a","subject":"u-bob-0002"}', b"[" * 5000, b'{"name":NaN}', b"\xff"],
)  # fmt: skip
async def test_a_body_that_is_not_the_one_asked_for_is_refused(people: Desk, body: bytes) -> None:
    assert (await people.ask("POST", "/account/tokens", people.sign_in(), body)).code == "invalid_request"
    assert await people.listed() == []


@pytest.mark.parametrize(
    "query", ["issuer=x", "subject=x", "issuer=x&subject=y&z=1", "issuer=a&issuer=b&subject=c", "&", "%", "a" * 4000]
)
async def test_a_query_that_is_not_the_one_asked_for_is_refused(people: Desk, query: str) -> None:
    answer = await people.ask("GET", f"/account/tokens?{query}", people.sign_in())
    assert answer.code == "invalid_request"


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "'; DROP TABLE", "日本語", "🦊", "a" * 64, "%s%n{}"])
async def test_an_odd_name_is_only_a_name(people: Desk, name: str) -> None:
    await people.made(name=name)
    assert [each["name"] for each in await people.listed()] == [name]


async def test_the_lifetimes_are_the_deployments(redis: RedisServer, tmp_path: Path) -> None:
    settings = Tokens(max_lifetime=7200.0, default_lifetime=600.0)
    async with desk(redis, tmp_path, tokens=settings) as people:
        made = (await people.make()).document
        assert made["expires_at"] - made["created_at"] == 600
        assert (await people.make(expires_in=7200)).status == 201
        refused = await people.make(expires_in=7201)
        assert refused.code == "invalid_request"
        assert "2 hours at most" in refused.document["error"]["message"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (365 * 24 * 3600.0, "365 days"),
        (24 * 3600.0, "1 day"),
        (36 * 3600.0, "36 hours"),
        (5400.0, "90 minutes"),
        (61.5, "61 seconds"),
    ],
)
def test_a_lifetime_is_told_as_people_say_it(seconds: float, words: str) -> None:
    assert lifetime_words(seconds) == words


async def test_nobody_asks_more_often_than_the_pace() -> None:
    now = 0.0
    pace = Pace(clock=lambda: now, per_minute=3, capacity=2)
    for _ in range(3):
        pace.take(ALICE)
    for _ in range(2):
        with pytest.raises(RateLimited) as caught:
            pace.take(ALICE)
        assert caught.value.retry_after == 60
    pace.take(BOB)
    now = 60.0
    pace.take(ALICE)


async def test_the_pages_have_a_pace(people: Desk) -> None:
    credential = people.sign_in()
    answers = [await people.ask("GET", "/account/tokens", credential) for _ in range(PER_MINUTE + 1)]
    assert [answer.status for answer in answers] == [200] * PER_MINUTE + [429]
    assert (answers[-1].code, int(answers[-1].headers["Retry-After"]) > 0) == ("rate_limited", True)
    assert (await people.ask("GET", "/account/tokens", people.sign_in(BOB))).status == 200


# Projects


async def test_a_limited_token_is_as_of_a_member_of_nothing_else(people: Desk) -> None:
    token = await people.made(projects=["acme/apollo"])
    assert (await people.models(token)).status == 200  # its only one
    assert (await people.models(token, OpenAI_Project="apollo")).status == 200
    assert (await people.models(token, OpenAI_Organization="acme")).status == 200
    refused = [
        await people.models(token, OpenAI_Organization=workspace, OpenAI_Project=project)
        for workspace, project in (("acme", "ares"), ("acme", "nothing"), ("globex", "vault"), ("no", "no"))
    ]
    refused += [await people.models(token, OpenAI_Project="ares"), await people.models(token, OpenAI_Project="none")]
    refused += [await people.ask("GET", "/w/acme/p/ares/v1/models", token)]
    assert {(each.status, each.body) for each in refused} == {(403, refused[0].body)}
    account = await people.ask("GET", "/account", token)
    assert [each["project"] for each in account.document["memberships"]] == ["apollo"]


async def test_a_token_is_for_ones_own_projects_only_and_others_look_like_none(people: Desk) -> None:
    refused = [
        await people.make(projects=projects)
        for projects in (
            ["acme/hermes"],
            ["acme/apollo", "globex/vault"],
            ["acme/nothing"],
            ["no/no"],
            ["A B/../x"[:3] + "/x"],
        )
    ]
    assert {(each.status, each.code, each.body) for each in refused} == {(403, "not_a_member", refused[0].body)}
    assert await people.listed() == []


async def test_a_limit_gives_nothing_that_the_owner_lost(people: Desk) -> None:
    token = await people.made(projects=["acme/apollo"])
    assert (await people.models(token)).status == 200
    await people.bed.change(revoke("acme", "apollo", user(ALICE)))
    refused = await people.until_refused(token, **APOLLO)
    assert refused.code == "not_a_member"
    await people.bed.change(grant("acme", "apollo", user(ALICE)))
    async with asyncio.timeout(10):
        while (await people.models(token)).status != 200:
            await asyncio.sleep(0.01)


async def test_a_blocked_owners_tokens_are_refused_and_so_are_those_of_a_blocked_group(people: Desk) -> None:
    token = await people.made(people.sign_in(groups=["eng"]))
    issuer = people.bed.mint.issuer
    assert (await people.models(token, **APOLLO)).status == 200
    await people.bed.change(block(issuer, group("eng")))
    assert (await people.until_refused(token, **APOLLO)).code == "blocked"
