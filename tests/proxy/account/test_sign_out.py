"""Signing out: here at once, then at the issuer."""

from __future__ import annotations

from collections.abc import AsyncIterator
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


async def test_the_session_is_over_and_the_browser_goes_on_to_the_issuer(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    copied = Browser(scene.session, scene.bed.url, cookies=dict(browser.cookies))
    status, headers, text = await sign_out(browser)
    assert status == 200
    assert browser.cookies == {}
    assert not await scene.is_signed_in(copied)
    address, _, query = headers["Refresh"].removeprefix("0;url=").partition("?")
    assert address == f"{scene.provider.url}/logout"
    asked = dict(pair.split("=") for pair in query.split("&"))
    assert asked["client_id"] == CLIENT
    assert asked["post_logout_redirect_uri"] == "http%3A%2F%2Fgate.test%2Fauth%2Fsigned-out"
    assert asked["id_token_hint"].count(".") == 2
    assert "signed out here" in text


async def test_an_issuer_without_a_way_out_is_told_to_know_the_person_still(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path) as scene:
        scene.provider.metadata["end_session_endpoint"] = None
        _, headers, text = await sign_out(await scene.signed_in())
        assert "Refresh" not in headers
        assert "may still know you" in text


async def test_a_long_id_token_is_no_hint(scene: AccountScene) -> None:
    scene.provider.changed = {"more": "x" * 6000}
    _, headers, _ = await sign_out(await scene.signed_in())
    assert "id_token_hint" not in headers["Refresh"]
    assert "client_id" in headers["Refresh"]


async def test_a_sign_out_twice_is_no_harm(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    again = Browser(scene.session, scene.bed.url, cookies=dict(browser.cookies))
    token = (await browser.get("/account")).form_token
    await browser.post("/auth/logout", {"form_token": token})
    shown = await again.post("/auth/logout", {"form_token": token})
    assert (shown.status, "Refresh" in shown.headers) == (200, False)


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
