"""The issuer signs people out: by a right logout token at once and everywhere, by a wrong one not at all."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from proxy.account.back_channel import BackChannel
from proxy.account.store import SessionStore
from proxy.accounting import Accounting
from proxy.desk import Visit
from proxy.directory.changes import Change, Deed
from proxy.directory.redis_connection import connection_pool
from proxy.directory.redis_store import RedisStore
from proxy.directory.store import StoreUnavailable
from proxy.identity.issuers import open_issuers
from proxy.identity.login_provider import LoginProvider
from proxy.refusals import DirectoryUnavailable
from tests.parts.openid_provider import CLIENT, OpenIdProvider, Shown
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import ABSENT, signing_key
from tests.proxy.account.scene import LOGIN, AccountScene, account_scene

pytestmark = pytest.mark.slow

PATH = "/auth/backchannel-logout"
EVENT = "http://schemas.openid.net/event/backchannel-logout"


@pytest.fixture
async def scene(redis: RedisServer, tmp_path: Path) -> AsyncIterator[AccountScene]:
    async with account_scene(redis, tmp_path) as opened:
        yield opened


async def tell(scene: AccountScene, token: str, **more: str) -> Shown:
    return await scene.browser().post(PATH, {"logout_token": token, **more}, ("Origin", ""))


async def ended_in_time(scene: AccountScene, token: str) -> bool:
    """Whether a token is refused within the second that the contract gives."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        if await scene.status_of(token) == 401:
            return True
        await asyncio.sleep(0.01)
    return False


def access_token(scene: AccountScene, **claims: object) -> str:
    return scene.provider.mint.token(claims=claims)


async def test_a_session_of_the_issuer_ends_here_with_its_tokens(scene: AccountScene) -> None:
    his, same = await scene.signed_in(), await scene.signed_in()
    scene.provider.person["sid"] = "another"
    elsewhere = await scene.signed_in()
    of_session, of_other = access_token(scene, sid="sid-alice"), access_token(scene, sid="another")
    assert await scene.status_of(of_session) != 401
    shown = await tell(scene, scene.provider.logout_token(sid="sid-alice"))
    assert (shown.status, shown.text, shown.headers["Cache-Control"]) == (200, "", "no-store")
    assert not await scene.is_signed_in(his)
    assert not await scene.is_signed_in(same)
    assert await scene.is_signed_in(elsewhere)
    assert await ended_in_time(scene, of_session)
    assert await scene.status_of(of_other) != 401


async def test_all_that_a_person_has_ends(scene: AccountScene) -> None:
    his = await scene.signed_in()
    token = access_token(scene, sub="u-alice-0001")
    other = access_token(scene, sub="u-carol-0003")
    assert (await tell(scene, scene.provider.logout_token(sid=ABSENT, sub="u-alice-0001"))).status == 200
    assert not await scene.is_signed_in(his)
    assert await ended_in_time(scene, token)
    assert await scene.status_of(other) != 401
    # What is issued later is good, or nobody could sign in again.
    scene.provider.mint.clock = lambda: time.time() + 2
    assert await scene.status_of(access_token(scene, sub="u-alice-0001")) != 401


async def test_a_logout_that_comes_late_revives_nothing(scene: AccountScene) -> None:
    token = access_token(scene, sub="u-alice-0001")
    for at in (time.time(), time.time() - 100):
        told = scene.provider.logout_token(sid=ABSENT, sub="u-alice-0001", iat=int(at))
        assert (await tell(scene, told)).status == 200
    await scene.bed.gate.view.confirm()
    assert await scene.status_of(token) == 401


async def test_a_person_without_a_session_here_is_ended_too(scene: AccountScene) -> None:
    token = access_token(scene, sub="u-bob-0002")
    assert (await tell(scene, scene.provider.logout_token(sid=ABSENT, sub="u-bob-0002"))).status == 200
    assert await ended_in_time(scene, token)


async def test_a_session_without_a_name_ends_with_any_of_its_person(scene: AccountScene) -> None:
    scene.provider.person.pop("sid")
    his = await scene.signed_in()
    assert (await tell(scene, scene.provider.logout_token(sid="new", sub="u-alice-0001"))).status == 200
    assert not await scene.is_signed_in(his)


@pytest.mark.parametrize("type_", ["logout+jwt", "application/logout+jwt", "LOGOUT+JWT", "JWT", ABSENT])
async def test_issuers_name_the_type_or_not(scene: AccountScene, type_: object) -> None:
    his = await scene.signed_in()
    assert (await tell(scene, scene.provider.logout_token(header={"typ": type_}))).status == 200
    assert not await scene.is_signed_in(his)


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": [CLIENT, "another-client"]},
        {"exp": ABSENT},
        {"events": {EVENT: {}, "urn:more": {}}},
        {"events": {EVENT: {"more": 1}}},
        {"iat": -100},
        {"unknown": {"nested": [1]}},
    ],
)
async def test_what_the_standard_leaves_open_is_taken(scene: AccountScene, changed: dict[str, object]) -> None:
    if changed.get("iat") == -100:
        changed = {"iat": int(time.time()) - 100}
    assert (await tell(scene, scene.provider.logout_token(header=None, **changed))).status == 200


WRONG: dict[str, Callable[[OpenIdProvider], str]] = {
    "nonce": lambda p: p.logout_token(nonce="n"),
    "nonce that is null": lambda p: p.logout_token(nonce=None),
    "other client": lambda p: p.logout_token(aud="another-client"),
    "list of other clients": lambda p: p.logout_token(aud=["a", "b"]),
    "no audience": lambda p: p.logout_token(aud=ABSENT),
    "audience of the API": lambda p: p.logout_token(aud="saltgate"),
    "audience that is a number": lambda p: p.logout_token(aud=[7, CLIENT]),
    "no events": lambda p: p.logout_token(events=ABSENT),
    "empty events": lambda p: p.logout_token(events={}),
    "events as a list": lambda p: p.logout_token(events=[EVENT]),
    "events as text": lambda p: p.logout_token(events=EVENT),
    "event that is true": lambda p: p.logout_token(events={EVENT: True}),
    "event that is null": lambda p: p.logout_token(events={EVENT: None}),
    "event of another spelling": lambda p: p.logout_token(events={EVENT.upper(): {}}),
    "event with a slash": lambda p: p.logout_token(events={EVENT + "/": {}}),
    "another event": lambda p: p.logout_token(events={"urn:caep:session-revoked": {}}),
    "neither session nor subject": lambda p: p.logout_token(sid=ABSENT),
    "empty session": lambda p: p.logout_token(sid=""),
    "session that is a number": lambda p: p.logout_token(sid=7),
    "session that is a list": lambda p: p.logout_token(sid=["sid-alice"]),
    "empty subject": lambda p: p.logout_token(sid=ABSENT, sub=""),
    "subject that is null": lambda p: p.logout_token(sub=None),
    "no iat": lambda p: p.logout_token(iat=ABSENT),
    "iat as text": lambda p: p.logout_token(iat=str(int(time.time()))),
    "iat that is true": lambda p: p.logout_token(iat=True),
    "three minutes old": lambda p: p.logout_token(iat=int(time.time()) - 180),
    "of the future": lambda p: p.logout_token(iat=int(time.time()) + 120, exp=int(time.time()) + 300),
    "expired": lambda p: p.logout_token(iat=int(time.time()) - 110, exp=int(time.time()) - 60),
    "exp before iat": lambda p: p.logout_token(exp=int(time.time()) - 10),
    "exp as text": lambda p: p.logout_token(exp="tomorrow"),
    "nbf of the future": lambda p: p.logout_token(nbf=int(time.time()) + 120),
    "no jti": lambda p: p.logout_token(jti=ABSENT),
    "empty jti": lambda p: p.logout_token(jti=""),
    "jti that is a number": lambda p: p.logout_token(jti=1),
    "endless jti": lambda p: p.logout_token(jti="j" * 300),
    "other issuer": lambda p: p.logout_token(iss="https://evil.example"),
    "issuer with a slash": lambda p: p.logout_token(iss=p.mint.issuer + "/"),
    "access token": lambda p: p.mint.token(claims={"sid": "sid-alice"}),
    "access token's type": lambda p: p.logout_token(header={"typ": "at+jwt"}),
    "ID token": lambda p: p.id_token("nonce", "access"),
    "ID token with the event": lambda p: p.mint.token(
        header={"typ": "JWT"}, audience=CLIENT, claims={"nonce": "n", "events": {EVENT: {}}, "jti": "1"}
    ),
    "unsigned": lambda p: p.mint.key().sign(b'{"alg":"none"}', b'{"iss":"%s"}' % p.mint.issuer.encode()),
    "HS256": lambda p: p.mint.key().sign(b'{"alg":"HS256"}', b'{"iss":"%s"}' % p.mint.issuer.encode()),
    "signed by another": lambda p: _forged(p),
    "signature cut off": lambda p: p.logout_token().rpartition(".")[0] + ".",
    "signature of another token": lambda p: p.logout_token().rpartition(".")[0] + "." + p.logout_token().split(".")[2],
    "crit": lambda p: p.logout_token(header={"crit": ["b64"]}),
    "unknown key": lambda p: p.logout_token(header={"kid": "who"}),
    "no token": lambda _: "",
    "no JWT": lambda _: "abc",
    "five parts": lambda _: "a.b.c.d.e",
    "not ASCII": lambda _: "\N{PILE OF POO}.a.b",
    "endless": lambda _: "a" * 50_000,
}


def _forged(provider: OpenIdProvider) -> str:
    header, payload, _ = provider.logout_token().split(".")
    other = signing_key("RS256", "rs256-0", number=9)
    pad = "=" * 4
    return other.sign(urlsafe_b64decode(header + pad), urlsafe_b64decode(payload + pad))


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_logout_token_ends_nothing(scene: AccountScene, wrong: str) -> None:
    his = await scene.signed_in()
    token = access_token(scene, sid="sid-alice")
    shown = await tell(scene, WRONG[wrong](scene.provider))
    assert shown.status == 400
    assert shown.headers["Cache-Control"] == "no-store"
    assert json.loads(shown.text)["error"] == "invalid_request"
    await scene.bed.gate.view.confirm()
    assert await scene.is_signed_in(his)
    assert await scene.status_of(token) != 401


async def test_a_logout_token_is_good_once(scene: AccountScene) -> None:
    told = scene.provider.logout_token(sid=ABSENT, sub="u-alice-0001")
    assert (await tell(scene, told)).status == 200
    scene.provider.mint.clock = lambda: time.time() + 2
    again = await scene.signed_in()
    assert (await tell(scene, told)).status == 400
    assert await scene.refusal() == "replayed"
    assert await scene.is_signed_in(again)


async def test_who_was_signed_out_by_his_issuer_needs_a_new_sign_in_there(scene: AccountScene) -> None:
    now = time.time()
    scene.provider.mint.clock = lambda: now  # a sign-in of a later second may bear the ended session's name
    assert (await tell(scene, scene.provider.logout_token())).status == 200
    await scene.bed.gate.view.confirm()
    assert (await scene.browser().sign_in(scene.provider)).status == 400
    assert await scene.refusal() == "ended"
    scene.provider.person["sid"] = "a new one"
    await scene.signed_in()


async def test_an_issuer_may_give_a_new_session_the_name_of_an_ended_one(scene: AccountScene) -> None:
    """Keycloak does, from a browser that keeps its cookie: nobody may be locked out for as long as tokens may live."""
    before = access_token(scene, sid="sid-alice")
    assert (await tell(scene, scene.provider.logout_token())).status == 200
    scene.provider.mint.clock = lambda: time.time() + 2
    again = await scene.signed_in()
    await scene.bed.gate.view.confirm()
    assert await scene.is_signed_in(again)
    assert await scene.status_of(access_token(scene, sid="sid-alice")) != 401
    assert await scene.status_of(before) == 401


async def test_tokens_that_name_no_session_end_with_any_of_their_person(scene: AccountScene) -> None:
    """Most issuers name the session in ID tokens alone: an access token of it looks like one of any other."""
    unnamed, his = access_token(scene, sub="u-alice-0001"), access_token(scene, sub="u-alice-0001", sid="another")
    others = access_token(scene, sub="u-carol-0003")
    assert (await tell(scene, scene.provider.logout_token(sid="sid-alice", sub="u-alice-0001"))).status == 200
    assert await ended_in_time(scene, unnamed)
    assert await scene.status_of(his) != 401
    assert await scene.status_of(others) != 401
    scene.provider.mint.clock = lambda: time.time() + 2
    assert await scene.status_of(access_token(scene, sub="u-alice-0001")) != 401


async def test_whose_session_it_was_is_known_also_where_the_logout_does_not_say(scene: AccountScene) -> None:
    await scene.signed_in()
    unnamed, others = access_token(scene, sub="u-alice-0001"), access_token(scene, sub="u-carol-0003")
    assert (await tell(scene, scene.provider.logout_token(sid="sid-alice"))).status == 200
    assert await ended_in_time(scene, unnamed)
    assert await scene.status_of(others) != 401


async def test_the_ids_of_two_issuers_are_two(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path, two_issuers=True) as scene:
        assert scene.other is not None
        for issuer in (scene.provider, scene.other):
            assert (await tell(scene, issuer.logout_token(jti="the same"))).status == 200


async def test_an_issuer_ends_no_session_of_another(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path, two_issuers=True) as scene:
        assert scene.other is not None
        browser = scene.browser()
        await browser.sign_in(scene.provider, f"?issuer={scene.provider.mint.issuer}")
        assert await scene.is_signed_in(browser)
        token = access_token(scene, sid="sid-alice", sub="u-alice-0001")
        assert (await tell(scene, scene.other.logout_token(sid="sid-alice"))).status == 200
        told = scene.other.logout_token(sid=ABSENT, sub="u-alice-0001")
        assert (await tell(scene, told)).status == 200
        await scene.bed.gate.view.confirm()
        assert await scene.is_signed_in(browser)
        assert await scene.status_of(token) != 401


@pytest.mark.parametrize("body", [b"", b"x", b"logout_token=a&logout_token=b", b"logout_token=%ff", b"\xff", b"{}"])
async def test_a_body_that_is_no_form_with_one_logout_token_is_400(scene: AccountScene, body: bytes) -> None:
    assert (await scene.browser().post(PATH, body)).status == 400


async def test_a_logout_that_could_not_be_carried_out_may_be_told_again(own_redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(own_redis, tmp_path) as scene:
        his = await scene.signed_in()
        told = scene.provider.logout_token()
        own_redis.stop()
        failed = await tell(scene, told)
        assert (failed.status, json.loads(failed.text)["error"]) == (400, "temporarily_unavailable")
        own_redis.start()
        assert (await tell(scene, told)).status == 200
        assert not await scene.is_signed_in(his)


class FailsOnce(RedisStore):
    """A directory that is away for the first change."""

    failures = 1

    async def change(self, deed: Deed) -> Change:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("away")
        return await super().change(deed)


class StaysAway(SessionStore):
    """A Redis that is still away when what was begun is to be undone."""

    async def forget(self, what: str) -> None:
        raise DirectoryUnavailable("away")


@pytest.mark.parametrize("kind", [SessionStore, StaysAway])
async def test_a_logout_that_was_half_carried_out_may_be_told_again(
    redis: RedisServer, kind: type[SessionStore]
) -> None:
    async with (
        OpenIdProvider() as provider,
        open_issuers((provider.settings(),), clock=time.time) as issuers,
        aiohttp.ClientSession() as session,
    ):
        login_provider = LoginProvider(
            issuers.issuers[0],
            client_id=CLIENT,
            login=LOGIN,
            session=session,
            clock=time.time,
            monotonic=time.monotonic,
        )
        store = FailsOnce(redis.settings())
        pool = connection_pool(redis.settings())
        sessions = kind(pool, clock=time.time, idle=60.0, absolute=60.0)
        clerk = BackChannel(
            providers={provider.mint.issuer: login_provider},
            sessions=sessions,
            store=store,
            clock=time.time,
            accounting=Accounting(None),
        )
        body = b"logout_token=" + provider.logout_token().encode()
        visit = Visit(method="POST", path=PATH, query="", headers=(), body=body)
        assert [(await clerk.end(visit)).status for _ in range(3)] == [400, 200, 400]
        assert len((await store.read()).endings.records) == 1
        await store.close()
        await sessions.close()


async def test_forged_logouts_cost_one_fetch_of_keys(scene: AccountScene) -> None:
    before = scene.provider.hits["jwks"]
    for _ in range(50):
        await tell(scene, scene.provider.logout_token(header={"kid": secrets.token_hex(4)}))
    assert scene.provider.hits["jwks"] <= before + 1


async def test_no_cookie_and_no_token_ends_anything_there(scene: AccountScene) -> None:
    his = await scene.signed_in()
    bearer = ("Authorization", f"Bearer {scene.bed.token()}")
    page = await his.get("/account")
    assert (await his.post(PATH, {"form_token": page.form_token, "sid": "sid-alice"}, bearer)).status == 400
    assert await scene.is_signed_in(his)
