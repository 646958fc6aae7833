"""A certified provider signs people in at a gate of two workers, and out of it by its back channel."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.proxy.account.served import Served

pytestmark = pytest.mark.process


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as opened:
        yield opened


async def account(gate: Served, cookie: str) -> int:
    """On a new connection, so of any of the workers."""
    jar = aiohttp.DummyCookieJar()
    headers = {"Accept": "text/html", "Cookie": cookie}
    async with (
        aiohttp.ClientSession(cookie_jar=jar) as fresh,
        fresh.get(f"{gate.url}/account", headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status


async def status_of(gate: Served, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as fresh,
        fresh.get(f"{gate.url}/w/acme/p/apollo/v1/models", headers=headers) as answer,
    ):
        return answer.status


async def test_sign_in_and_signed_out_everywhere_by_the_provider(gate: Served, session: aiohttp.ClientSession) -> None:
    landed = await gate.provider.walk(session, f"{gate.url}/auth/login", "alice", until=f"{gate.url}/auth/callback")
    async with session.get(landed, headers={"Accept": "text/html"}) as answer:
        page = await answer.text()
        assert str(answer.url) == f"{gate.url}/account"
    assert "Alice Example" in page
    assert "acme/apollo" in page
    port = gate.url.rpartition(":")[2]
    cookie = next(f"{c.key}={c.value}" for c in session.cookie_jar if c.key == f"saltgate-{port}")
    # Every worker knows the session.
    assert {await account(gate, cookie) for _ in range(8)} == {200}
    # The same person's token of another client of the provider, from the same session of it.
    signed_in = await gate.provider.sign_in(session, "alice")
    assert await status_of(gate, signed_in.access_token) != 401

    # She signs out at the provider itself, which tells the gate by its back channel.
    told = int(str((await gate.provider.admin(session, "GET", "/admin/hits")).get("ev:backchannel.success", 0)))
    async with session.get(f"{gate.provider.issuer}/session/end") as answer:
        form = dict(re.findall(r'name="([^"]+)" value="([^"]+)"', await answer.text()))
    form["logout"] = "yes"
    began = time.monotonic()
    async with session.post(f"{gate.provider.issuer}/session/end/confirm", data=form) as answer:
        assert answer.status < 400
    while {await account(gate, cookie) for _ in range(4)} != {303}:
        assert time.monotonic() - began < 5
        await asyncio.sleep(0.02)
    assert {await account(gate, cookie) for _ in range(8)} == {303}
    # Its access tokens name no session.
    while {await status_of(gate, signed_in.access_token) for _ in range(4)} != {401}:
        assert time.monotonic() - began < 5
        await asyncio.sleep(0.02)
    hits = await gate.provider.admin(session, "GET", "/admin/hits")
    assert hits.get("ev:backchannel.success") == told + 1
    assert "ev:backchannel.error" not in hits

    log = gate.log.read_text()
    secrets = [*re.findall(r"(?:code|state)=([^&]+)", landed), cookie.partition("=")[2], signed_in.access_token]
    assert len(secrets) == 4
    for secret in (*secrets, "gateway-web-secret"):
        assert secret not in log
