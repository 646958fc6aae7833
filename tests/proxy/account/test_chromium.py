"""A person with a real browser, and one who is attacked in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.parts.chromium_profiles import Chromium, Page, open_chromium
from tests.parts.redis_server import free_port
from tests.proxy.account.served import Served

pytestmark = pytest.mark.process


@pytest.fixture
async def chromium(tmp_path: Path) -> AsyncIterator[Chromium]:
    async with open_chromium(tmp_path) as opened:
        yield opened


async def sign_in(page: Page, gate: Served, person: str) -> None:
    await page.go(f"{gate.url}/account")
    await page.until_at(f"{gate.provider.issuer}/interaction/")
    await page.fill(username=person, password=f"{person}-pw")
    await page.click("form button")
    await page.until_at(f"{gate.url}/account")


async def test_a_person_signs_in_looks_around_and_signs_out(gate: Served, chromium: Chromium) -> None:
    page = await chromium.page()
    await sign_in(page, gate, "alice")
    text = await page.text()
    for told in ("Alice Example", "u-alice-0001", "acme/apollo", "Chrome on Linux", "this one"):
        assert told in text
    name = f"saltgate-{gate.url.rpartition(':')[2]}"
    cookie = (await page.cookies())[name]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["session"]) == (True, "Lax", True)
    assert await page.asked("document.cookie") == ""
    assert await page.asked("getComputedStyle(document.querySelector('main')).maxWidth") != "none"

    # A second browser of hers, ended from the first one.
    other = await chromium.page()
    await sign_in(other, gate, "alice")
    await page.go(f"{gate.url}/account")
    await page.click("button[value=others]")
    await page.until("document.querySelectorAll('form[action=\"/account/sessions\"]').length === 0")
    await other.go(f"{gate.url}/account")
    await other.until_at(f"{gate.url}/account")  # Her provider still knows this browser: a new session.
    assert (await other.cookies())[name]["value"] != cookie["value"]

    await page.click("form[action='/auth/logout'] button")
    await page.until_at(f"{gate.provider.issuer}/session/end")
    await page.click("button[value=yes]")
    await page.until_at(f"{gate.url}/auth/signed-out")
    assert "You are signed out" in await page.text()
    assert name not in await page.cookies()
    await page.go(f"{gate.url}/account")
    await page.until_at(f"{gate.provider.issuer}/interaction/")


async def test_the_provider_signs_a_browser_out(gate: Served, chromium: Chromium) -> None:
    page = await chromium.page()
    await sign_in(page, gate, "alice")
    provider = await chromium.tab(page.context)
    await provider.go(f"{gate.provider.issuer}/session/end")
    await provider.click("button[value=yes]")
    await provider.until("document.title.toLowerCase().includes('sign-out success')")
    await page.go(f"{gate.url}/account")
    await page.until_at(f"{gate.provider.issuer}/interaction/")


async def test_pages_of_another_site_can_do_nothing(gate: Served, chromium: Chromium) -> None:
    """The attacker's page knows all but the session's secret. Another port is the same site: cookies come with it."""
    page = await chromium.page()
    await sign_in(page, gate, "alice")
    token = await page.asked("document.querySelector('[name=form_token]').value")
    for host in ("127.0.0.1", "localhost"):
        async with attacker(host, gate, token) as evil:
            await page.go(evil)
            await page.until("document.title === 'attacked'")
            seen = json.loads(await page.asked("JSON.stringify(window.seen)"))
            assert seen["read"] == "blocked"
            assert seen["framed"] == ""
            await page.click("#sign-out")
            await page.until_at(f"{gate.url}/auth/logout")
            said = await page.text()
            assert "another site" in said or "no longer good" in said
        await page.go(f"{gate.url}/account")
        await page.until_at(f"{gate.url}/account")
        assert "Alice Example" in await page.text()


async def test_a_link_from_another_site_shows_the_account(gate: Served, chromium: Chromium) -> None:
    page = await chromium.page()
    await sign_in(page, gate, "alice")
    await page.go("data:text/html,<title>elsewhere</title>")
    await page.go(f"{gate.url}/account")
    assert "Alice Example" in await page.text()


async def test_a_victim_is_not_signed_in_as_the_attacker(gate: Served, chromium: Chromium) -> None:
    """Login CSRF: the attacker stops at his own callback and sends the victim there."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as attackers:
        callback = await gate.provider.walk(
            attackers, f"{gate.url}/auth/login", "bob", until=f"{gate.url}/auth/callback"
        )
    victim = await chromium.page()
    await victim.go(callback)
    assert "did not begin this sign-in" in await victim.text()
    await victim.go(f"{gate.url}/account")
    await victim.until_at(f"{gate.provider.issuer}/interaction/")
    await victim.fill(username="alice", password="alice-pw")
    await victim.click("form button")
    await victim.until_at(f"{gate.url}/account")
    await victim.go(callback)
    await victim.until_at(f"{gate.url}/account")
    assert "Alice Example" in await victim.text()


@asynccontextmanager
async def attacker(host: str, gate: Served, token: str) -> AsyncIterator[str]:
    """A site with a page that tries to read, to frame and to post to the gate in the visitor's name."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type="text/html")

    text = f"""<!doctype html><title>attacking</title>
<form method="post" action="{gate.url}/auth/logout"><input type="hidden" name="form_token" value="{token}">
<button id="sign-out">x</button></form>
<iframe src="{gate.url}/account"></iframe>
<script>
window.seen = {{}};
async function attack() {{
  try {{
    const answer = await fetch("{gate.url}/account", {{credentials: "include"}});
    window.seen.read = await answer.text();
  }} catch (error) {{ window.seen.read = "blocked"; }}
  try {{ window.seen.framed = document.querySelector("iframe").contentDocument?.body?.innerText ?? ""; }}
  catch (error) {{ window.seen.framed = ""; }}
  document.title = "attacked";
}}
window.addEventListener("load", attack);
</script>"""
    app, port = web.Application(), free_port()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://{host}:{port}/"
    finally:
        await runner.cleanup()
