"""Personal access tokens on the account page: a person makes, sees and revokes his own, and nobody does it for him."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from config.settings import Tokens
from tests.parts.openid_provider import Browser
from tests.parts.redis_server import RedisServer
from tests.proxy.account.scene import AccountScene, account_scene

MAKE, END = "/account/tokens/make", "/account/tokens/end"


@pytest.fixture
async def scene(redis: RedisServer, tmp_path: Path) -> AsyncIterator[AccountScene]:
    async with account_scene(redis, tmp_path) as opened:
        yield opened


async def make(browser: Browser, name: str = "my editor", days: str = "30") -> str:
    form_token = (await browser.get("/account")).form_token
    shown = await browser.post(MAKE, {"form_token": form_token, "name": name, "days": days})
    found = re.search(r'value="(sgp_[^"]+)"', shown.text)
    assert found is not None, shown.text
    assert shown.headers["Cache-Control"] == "no-store"
    return found[1]


async def test_a_person_makes_a_token_uses_it_and_revokes_it(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    token = await make(browser, name="<b>editor</b>")
    assert await scene.status_of(token) != 401
    page = await browser.get("/account")
    assert "&lt;b&gt;editor&lt;/b&gt;" in page.text
    assert "<b>" not in page.text
    assert token not in page.text
    token_id = token[4:12]
    ended = await browser.post(END, {"form_token": page.form_token, "id": token_id})
    assert (ended.status, ended.headers["Location"]) == (303, "/account")
    await scene.bed.gate.view.confirm()
    assert await scene.status_of(token) == 401
    assert token_id not in (await browser.get("/account")).text


async def test_the_page_of_a_new_token_says_when_it_ends(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    form_token = (await browser.get("/account")).form_token
    before = datetime.now(UTC).replace(second=0, microsecond=0)
    shown = await browser.post(MAKE, {"form_token": form_token, "name": "my editor", "days": "7"})
    found = re.search(r"good until (\d{4}-\d\d-\d\d \d\d:\d\d) UTC", shown.text)
    assert found is not None
    until = datetime.strptime(f"{found[1]} +0000", "%Y-%m-%d %H:%M %z")
    assert before <= until - timedelta(days=7) <= datetime.now(UTC)


async def test_nobody_revokes_the_token_of_another(scene: AccountScene) -> None:
    token = await make(await scene.signed_in())
    scene.provider.person = {"sub": "u-bob-0002", "name": "Bob"}
    bob = await scene.signed_in()
    page = await bob.get("/account")
    assert token[4:12] not in page.text
    assert (await bob.post(END, {"form_token": page.form_token, "id": token[4:12]})).status == 400
    await scene.bed.gate.view.confirm()
    assert await scene.status_of(token) != 401


async def test_a_page_that_is_loaded_anew_makes_no_second_token(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    page = await browser.get("/account")
    once = page.text.partition('name="once" value="')[2].partition('"')[0]
    form = {"form_token": page.form_token, "once": once, "name": "laptop", "days": "30"}
    # What is refused may be sent again.
    assert (await browser.post(MAKE, {**form, "days": "999"})).status == 400
    made = await browser.post(MAKE, form)
    assert "sgp_" in made.text
    assert "http://gate.test/v1" in made.text
    again = await browser.post(MAKE, form)
    assert (again.status, again.headers["Location"]) == (303, "/account")
    assert "sgp_" not in again.text
    page = await browser.get("/account")
    assert page.text.count("laptop (sgp_") == 1
    # Another form, also one of another session, is another wish.
    assert "sgp_" in (await browser.post(MAKE, {**form, "once": "another"})).text
    other = await scene.signed_in()
    form["form_token"] = (await other.get("/account")).form_token
    assert "sgp_" in (await other.post(MAKE, form)).text


@pytest.mark.parametrize("path", [MAKE, END])
async def test_a_form_of_another_site_makes_and_ends_none(scene: AccountScene, path: str) -> None:
    browser = await scene.signed_in()
    token = await make(browser)
    form_token = (await browser.get("/account")).form_token
    form = {"name": "evil", "days": "30", "id": token[4:12]}
    attacks = [
        await browser.post(path, {**form, "form_token": form_token}, ("Origin", "http://evil.example")),
        await browser.post(path, {**form, "form_token": form_token}, ("Origin", "null")),
        await browser.post(path, form),
        await scene.browser().post(path, {**form, "form_token": form_token}),
        await scene.browser().post(path, form, ("Authorization", f"Bearer {scene.bed.token()}")),
    ]
    assert {shown.status for shown in attacks} == {400}
    await scene.bed.gate.view.confirm()
    assert await scene.status_of(token) != 401
    assert "evil" not in (await browser.get("/account")).text


@pytest.mark.parametrize(
    ("name", "days"), [("", "30"), ("x" * 65, "30"), ("a\nb", "30"), ("x", ""), ("x", "0"), ("x", "99999"), ("x", "-1")]
)
async def test_a_token_that_may_not_be_is_not_made(scene: AccountScene, name: str, days: str) -> None:
    browser = await scene.signed_in()
    form_token = (await browser.get("/account")).form_token
    assert (await browser.post(MAKE, {"form_token": form_token, "name": name, "days": days})).status == 400
    assert "You have none." in (await browser.get("/account")).text


async def test_who_signed_out_makes_none(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    again = Browser(scene.session, scene.bed.url, cookies=dict(browser.cookies))
    form_token = (await browser.get("/account")).form_token
    await browser.post("/auth/logout", {"form_token": form_token})
    shown = await again.post(MAKE, {"form_token": form_token, "name": "late", "days": "30"})
    assert (shown.status, "sgp_" in shown.text) == (303, False)


async def test_the_choices_are_within_the_settings(redis: RedisServer, tmp_path: Path) -> None:
    tokens = Tokens(max_lifetime=40 * 86400.0, default_lifetime=10 * 86400.0)
    async with account_scene(redis, tmp_path, tokens=tokens) as scene:
        browser = await scene.signed_in()
        page = await browser.get("/account")
        assert re.findall(r'<option value="(\d+)"( selected)?', page.text) == [("7", " selected"), ("30", "")]
        shown = await browser.post(MAKE, {"form_token": page.form_token, "name": "x", "days": "90"})
        assert shown.status == 400


async def test_a_form_that_made_none_may_be_sent_again(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path, tokens=Tokens(per_owner=1)) as scene:
        browser = await scene.signed_in()
        token = await make(browser)
        form = {"form_token": (await browser.get("/account")).form_token, "once": "o", "name": "second", "days": "30"}
        assert (await browser.post(MAKE, form)).status == 400
        await browser.post(END, {**form, "id": token[4:12]})
        assert "sgp_" in (await browser.post(MAKE, form)).text
