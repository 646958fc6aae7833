"""Signing out: here at once, then at the issuer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest

from tests.parts.openid_provider import CLIENT, Browser
from tests.parts.redis_server import RedisServer
from tests.proxy.account.scene import AccountScene, account_scene


@pytest.fixture
async def scene(redis: RedisServer, tmp_path: Path) -> AsyncIterator[AccountScene]:
    async with account_scene(redis, tmp_path) as opened:
        yield opened


async def sign_out(browser: Browser) -> tuple[int, dict[str, str], str]:
    page = await browser.get("/account")
    shown = await browser.post("/auth/logout", {"form_token": page.form_token})
    return shown.status, dict(shown.headers), shown.text


def leads_on(page: str) -> str:
    """Where the browser goes by itself."""
    found = re.search(r'<meta http-equiv="refresh" content="0;url=([^"]+)">', page)
    return "" if found is None else unescape(found[1])


async def test_the_session_is_over_and_the_browser_goes_on_to_the_issuer(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    copied = Browser(scene.session, scene.bed.url, cookies=dict(browser.cookies))
    status, _, text = await sign_out(browser)
    assert status == 200
    assert browser.cookies == {}
    assert not await scene.is_signed_in(copied)
    address, _, query = leads_on(text).partition("?")
    assert address == f"{scene.provider.url}/logout"
    asked = dict(pair.split("=") for pair in query.split("&"))
    assert asked["client_id"] == CLIENT
    assert asked["post_logout_redirect_uri"] == "http%3A%2F%2Fgate.test%2Fauth%2Fsigned-out"
    assert asked["id_token_hint"].count(".") == 2
    assert "signed out here" in text


async def test_an_issuer_without_a_way_out_is_told_to_know_the_person_still(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path) as scene:
        scene.provider.metadata["end_session_endpoint"] = None
        _, _, text = await sign_out(await scene.signed_in())
        assert leads_on(text) == ""
        assert "may still know you" in text


async def test_a_long_id_token_is_no_hint(scene: AccountScene) -> None:
    scene.provider.changed = {"more": "x" * 6000}
    _, _, text = await sign_out(await scene.signed_in())
    assert "id_token_hint" not in text
    assert "client_id" in leads_on(text)


async def test_the_head_of_the_answer_fits_into_the_buffer_of_a_proxy(scene: AccountScene) -> None:
    """nginx has 4 KiB for it unless it is told otherwise; ID tokens with many groups have more."""
    scene.provider.changed = {"more": "x" * 3000}
    _, headers, text = await sign_out(await scene.signed_in())
    assert "id_token_hint" in leads_on(text)
    assert sum(len(name) + len(value) + 4 for name, value in headers.items()) < 2048


async def test_a_sign_out_twice_is_no_harm(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    again = Browser(scene.session, scene.bed.url, cookies=dict(browser.cookies))
    token = (await browser.get("/account")).form_token
    await browser.post("/auth/logout", {"form_token": token})
    shown = await again.post("/auth/logout", {"form_token": token})
    assert (shown.status, leads_on(shown.text)) == (200, "")


async def test_the_page_after_it_does_not_say_so_to_who_is_signed_in(scene: AccountScene) -> None:
    assert "You are signed out" in (await scene.browser().get("/auth/signed-out")).text
    shown = await (await scene.signed_in()).get("/auth/signed-out")
    assert (shown.status, shown.headers["Location"]) == (303, "/account")


async def test_a_link_signs_nobody_out(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    token = (await browser.get("/account")).form_token
    assert (await browser.get(f"/auth/logout?form_token={token}")).status == 404
    assert await scene.is_signed_in(browser)


async def test_a_token_in_the_query_of_the_form_is_not_read(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    token = (await browser.get("/account")).form_token
    assert (await browser.post(f"/auth/logout?form_token={token}", b"")).status == 400
    assert await scene.is_signed_in(browser)


@pytest.mark.parametrize("body", [b"form_token=%ff", b"a&&", b"=", b"\xff\xfe", b"a=1&a=2", b"x=" + b"y" * 60000])
async def test_a_form_that_cannot_be_read_is_a_page(scene: AccountScene, body: bytes) -> None:
    browser = await scene.signed_in()
    assert (await browser.post("/auth/logout", body)).status == 400
    assert await scene.is_signed_in(browser)
