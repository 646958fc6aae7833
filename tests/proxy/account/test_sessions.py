"""Sessions: what Redis holds of them, how they end, and that nothing but their cookie is one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from config.settings import Sessions
from proxy.account.session import Session, form_token, listed, opened_record, sealed_record, session_key
from proxy.account.store import MOST_SESSIONS, SessionStore
from proxy.directory.changes import block, end
from proxy.directory.endings import Ending
from proxy.directory.model import group
from proxy.directory.redis_connection import connection_pool
from proxy.identity import Identity
from proxy.refusals import DirectoryUnavailable
from tests.parts.openid_provider import Browser
from tests.parts.redis_server import RedisServer
from tests.proxy.account.scene import AccountScene, account_scene

pytestmark = pytest.mark.slow

ISSUER = "https://sso.example"
COOKIE, OTHER = "c" * 43, "o" * 43


@pytest.fixture
async def scene(redis: RedisServer, tmp_path: Path) -> AsyncIterator[AccountScene]:
    async with account_scene(redis, tmp_path) as opened:
        yield opened


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def session(clock: Clock, *, absolute: float = 86400.0, sid: str | None = "sid-1", subject: str = "u-1") -> Session:
    identity = Identity(
        issuer=ISSUER,
        subject=subject,
        groups=frozenset({"eng", "a group"}),
        groups_complete=True,
        expires_at=clock.now + absolute,
        client="web",
        method="session",
        session=sid,
        issued_at=clock.now,
    )
    return Session(
        identity=identity,
        subject=subject,
        name="Alice",
        browser="Firefox on Linux",
        started_at=clock.now,
        id_token="header.payload.signature",
    )


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(redis: RedisServer, clock: Clock) -> AsyncIterator[SessionStore]:
    opened = SessionStore(connection_pool(redis.settings()), clock=clock, idle=3600.0, absolute=86400.0)
    yield opened
    await opened.close()


def test_a_record_opens_with_its_cookie_only_and_gives_the_same_session(clock: Clock) -> None:
    kept = session(clock)
    record = sealed_record(kept, COOKIE)
    assert opened_record(record, COOKIE) == kept
    assert opened_record(record, OTHER) is None


def test_a_copy_of_redis_tells_neither_token_nor_groups_nor_cookie(clock: Clock) -> None:
    record = sealed_record(session(clock), COOKIE)
    for secret in (b"signature", b"a group", b"Alice", b"sid-1", COOKIE.encode(), form_token(COOKIE).encode()):
        assert secret not in record
    assert session_key(COOKIE) != session_key(OTHER)
    assert "signature" not in repr(session(clock))


@pytest.mark.parametrize("record", [b"", b"{}", b"[]", b"null", b"{\xff", b'{"sealed": 7}', b'{"sealed": "AAAA"}'])
def test_a_damaged_record_is_no_session(record: bytes) -> None:
    assert opened_record(record, COOKIE) is None
    assert listed("k", record) is None


def test_a_sealed_part_cannot_be_moved_into_another_record(clock: Clock) -> None:
    mine, his = json.loads(sealed_record(session(clock), COOKIE)), json.loads(sealed_record(session(clock), OTHER))
    mine["sealed"] = his["sealed"]
    assert opened_record(json.dumps(mine).encode(), COOKIE) is None


async def test_a_session_ends_when_it_is_idle_too_long(redis: RedisServer, clock: Clock) -> None:
    store = SessionStore(connection_pool(redis.settings()), clock=clock, idle=0.25, absolute=86400.0)
    try:
        await store.start(session(clock), COOKIE)
        began = time.monotonic()
        while time.monotonic() - began < 0.5:
            assert await store.find(COOKIE) is not None  # Each use keeps it.
        time.sleep(0.3)
        assert await store.find(COOKIE) is None
    finally:
        await store.close()


async def test_no_use_keeps_a_session_beyond_its_absolute_end(store: SessionStore, clock: Clock) -> None:
    await store.start(session(clock, absolute=1000.0), COOKIE)
    clock.now += 999.0
    assert await store.find(COOKIE) is not None
    clock.now += 1.0
    assert await store.find(COOKIE) is None


async def test_redis_forgets_a_session_at_its_absolute_end(
    store: SessionStore, clock: Clock, redis: RedisServer
) -> None:
    await store.start(session(clock, absolute=1000.0), COOKIE)
    clock.now += 990.0
    await store.find(COOKIE)
    left = int(redis.command("PTTL", "{saltgate}:1:session:" + session_key(COOKIE)).strip()[1:])
    assert 0 < left <= 10_000


async def test_an_ended_session_does_not_come_back(store: SessionStore, clock: Clock) -> None:
    await store.start(session(clock), COOKIE)
    await store.end(COOKIE)
    assert await store.find(COOKIE) is None
    assert not await store.listed(session(clock))


async def test_a_person_has_a_bounded_number_of_sessions(store: SessionStore, clock: Clock, redis: RedisServer) -> None:
    for number in range(MOST_SESSIONS + 5):
        clock.now += 1
        await store.start(session(clock), f"{number:043}")
    assert len(await store.listed(session(clock))) == MOST_SESSIONS
    assert await store.find(f"{4:043}") is None
    assert await store.find(f"{5:043}") is not None
    index = redis.command("KEYS", "*sessions_of*").split(b"\r\n")[2]
    assert redis.command("ZCARD", index) == b":%d\r\n" % MOST_SESSIONS


@pytest.mark.parametrize(
    ("of_issuer", "named", "subject", "left"),
    [
        (ISSUER, "sid-1", None, {"other session", "other person", "without"}),
        (ISSUER, "sid-1", "u-1", {"other session", "other person"}),
        (ISSUER, None, "u-1", {"other person"}),
        (ISSUER, "sid-9", None, {"his", "other session", "other person", "without"}),
        (ISSUER, None, "u-9", {"his", "other session", "other person", "without"}),
        ("https://evil.example", "sid-1", "u-1", {"his", "other session", "other person", "without"}),
    ],
)
async def test_the_issuer_ends_what_it_names_and_nothing_else(
    store: SessionStore, clock: Clock, of_issuer: str, named: str | None, subject: str | None, left: set[str]
) -> None:
    sessions = {
        "his": session(clock),
        "other session": session(clock, sid="sid-2"),
        "without": session(clock, sid=None),
        "other person": session(clock, subject="u-2", sid="sid-3"),
    }
    cookies = {name: f"{number:043}" for number, name in enumerate(sessions)}
    for name, kept in sessions.items():
        await store.start(kept, cookies[name])
    await store.end_all(of_issuer, session=named, subject=subject)
    assert {name for name in sessions if await store.find(cookies[name]) is not None} == left


async def test_a_redis_that_does_not_answer_is_told_as_such(own_redis: RedisServer, clock: Clock) -> None:
    store = SessionStore(connection_pool(own_redis.settings()), clock=clock, idle=1.0, absolute=1.0)
    own_redis.stop()
    with pytest.raises(DirectoryUnavailable):
        await store.find(COOKIE)
    await store.close()


async def test_a_person_ends_one_of_his_sessions_or_all_others(scene: AccountScene) -> None:
    here, there, third = await scene.signed_in(), await scene.signed_in(), await scene.signed_in()
    page = await here.get("/account")
    handles = re.findall(r'name="session" value="([0-9a-f]{16})"', page.text)
    assert len(handles) == 2
    ended = await here.post("/account/sessions", {"form_token": page.form_token, "session": handles[0]})
    assert (ended.status, ended.headers["Location"]) == (303, "/account")
    assert sorted([await scene.is_signed_in(there), await scene.is_signed_in(third)]) == [False, True]
    await here.post("/account/sessions", {"form_token": page.form_token, "session": "others"})
    assert not await scene.is_signed_in(there)
    assert not await scene.is_signed_in(third)
    assert await scene.is_signed_in(here)


async def test_nobody_ends_the_session_of_another_person(scene: AccountScene) -> None:
    alice = await scene.signed_in()
    handle = session_key(alice.cookies["saltgate-80"])[:16]
    scene.provider.person = {"sub": "u-bob-0002", "name": "Bob"}
    bob = await scene.signed_in()
    page = await bob.get("/account")
    assert handle not in page.text
    for wanted in (handle, session_key(alice.cookies["saltgate-80"]), "others", "", "*"):
        await bob.post("/account/sessions", {"form_token": page.form_token, "session": wanted})
    assert await scene.is_signed_in(alice)


FORMS = ["/auth/logout", "/account/sessions"]


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "http://gate.test.evil.example",
        "http://gate.test:81",
        "https://gate.test",
        "http://GATE.test",
        "http://sub.gate.test",
        "http://gate.test/",
    ],
)
async def test_a_form_of_another_site_changes_nothing(scene: AccountScene, path: str, origin: str) -> None:
    browser = await scene.signed_in()
    other = await scene.signed_in()
    token = (await browser.get("/account")).form_token
    shown = await browser.post(path, {"form_token": token, "session": "others"}, ("Origin", origin))
    assert shown.status == 400
    assert await scene.refusal() == "other_origin"
    assert await scene.is_signed_in(browser)
    assert await scene.is_signed_in(other)


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("token", ["", "A" * 43, "of another session", "\N{PILE OF POO}", None])
async def test_a_form_without_the_sessions_own_token_changes_nothing(
    scene: AccountScene, path: str, token: str | None
) -> None:
    browser, other = await scene.signed_in(), await scene.signed_in()
    if token == "of another session":
        token = (await other.get("/account")).form_token
    form = {"session": "others"} | ({} if token is None else {"form_token": token})
    assert (await browser.post(path, form)).status == 400
    assert await scene.refusal() == "form_token"
    assert await scene.is_signed_in(browser)
    assert await scene.is_signed_in(other)


async def test_the_token_of_a_form_is_not_derived_from_what_a_page_tells(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    page = await browser.get("/account")
    cookie = browser.cookies["saltgate-80"]
    assert page.form_token == form_token(cookie)
    assert cookie not in page.text


async def test_a_cookie_is_no_credential_for_the_api(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    for path in ("/v1/models", "/w/acme/p/apollo/v1/models"):
        shown = await browser.get(path)
        assert (shown.status, json.loads(shown.text)["error"]["code"]) == (401, "credential_required")
    cookie = browser.cookies["saltgate-80"]
    for headers in (("Authorization", f"Bearer {cookie}"), ("x-api-key", cookie), ("api-key", cookie)):
        assert (await browser.get("/v1/models", headers)).status == 401


async def test_a_token_is_no_session_for_the_pages(scene: AccountScene) -> None:
    bearer = ("Authorization", f"Bearer {scene.bed.token()}")
    stranger = scene.browser()
    victim = await scene.signed_in()
    token = (await victim.get("/account")).form_token
    for path in FORMS:
        assert (await stranger.post(path, {"form_token": token, "session": "others"}, bearer)).status == 400
    assert (await stranger.get("/auth/signed-out", bearer)).status == 200
    assert await scene.is_signed_in(victim)
    # /account with a credential is for programs, also where a cookie comes with it: never the cookie's page.
    for headers in (bearer, ("x-api-key", "abc"), ("Authorization", "Basic x")):
        shown = await victim.get("/account", headers)
        assert "Alice" not in shown.text


async def test_a_program_without_a_credential_is_not_sent_to_a_sign_in(scene: AccountScene) -> None:
    shown = await scene.browser().get("/account", ("Accept", "application/json"))
    assert shown.status == 401
    assert "WWW-Authenticate" in shown.headers


async def test_who_is_blocked_sees_nothing_and_can_sign_out(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    token = (await browser.get("/account")).form_token
    await scene.bed.change(block(scene.provider.mint.issuer, group("eng")))
    await scene.bed.gate.view.confirm()
    shown = await browser.get("/account")
    assert (shown.status, "acme/apollo" in shown.text) == (403, False)
    assert (await browser.post("/auth/logout", {"form_token": token})).status == 200


async def test_a_session_that_the_directory_knows_as_ended_is_none(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    now = int(time.time())
    await scene.bed.change(end(Ending("session", scene.provider.mint.issuer, "sid-alice", now, now + 3600)))
    await scene.bed.gate.view.confirm()
    assert not await scene.is_signed_in(browser)


async def test_sessions_of_the_settings_are_those_of_the_gate(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path, sessions=Sessions(idle=0.2, absolute=60.0)) as scene:
        browser = await scene.signed_in()
        assert await scene.is_signed_in(browser)
        time.sleep(0.25)
        assert not await scene.is_signed_in(browser)


@pytest.mark.parametrize("path", ["/account", "/auth/login", "/auth/callback", "/auth/signed-out"])
async def test_no_page_can_be_framed_scripted_kept_or_told_on(scene: AccountScene, path: str) -> None:
    browser = await scene.signed_in()
    shown = await browser.get(path)
    assert shown.headers["X-Frame-Options"] == "DENY"
    assert shown.headers["Cache-Control"] == "no-store"
    assert shown.headers["X-Content-Type-Options"] == "nosniff"
    assert shown.headers["Referrer-Policy"] == "same-origin"
    if shown.status != 303:
        policy = shown.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert policy.endswith("form-action 'self'; frame-ancestors 'none'; base-uri 'none'")


async def test_sessions_over_https_have_the_cookie_of_the_host(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path, public_url="https://gate.test") as scene:
        browser = scene.browser()
        shown = await browser.sign_in(scene.provider)
        line = next(line for line in shown.cookies if line.startswith("__Host-saltgate="))
        assert line.partition("; ")[2] == "Path=/; HttpOnly; SameSite=Lax; Secure"
        assert await scene.is_signed_in(browser)


async def test_people_of_an_issuer_that_is_no_longer_used_are_not_signed_in(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path) as before:
        browser = await before.signed_in()
        assert await before.is_signed_in(browser)
    async with account_scene(redis, tmp_path) as after:
        assert after.provider.mint.issuer != before.provider.mint.issuer
        same = replace(browser, session=after.session, url=after.bed.url)
        assert not await after.is_signed_in(same)
        form = {"form_token": form_token(next(iter(browser.cookies.values()))), "name": "late", "days": "30"}
        assert (await same.post("/account/tokens/make", form)).status == 303


async def test_another_gates_cookie_is_no_session_here(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    value = browser.cookies["saltgate-80"]
    for name in ("saltgate-8080", "__Host-saltgate", "saltgate"):
        assert not await scene.is_signed_in(Browser(scene.session, scene.bed.url, cookies={name: value}))
