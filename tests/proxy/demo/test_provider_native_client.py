"""Signing in without a browser: the client believes only an answer to its own question, from whom it asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import pytest
from aiohttp import ClientSession, DummyCookieJar, web
from aiohttp.test_utils import TestServer

from proxy.demo.provider import SignInFailed, sign_in

PAGE = '<input type="hidden" name="sign_in" value="x">'


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"iss": "http://127.0.0.1:1"}, "not to this sign-in"),
        ({"state": "another"}, "not to this sign-in"),
        ({"code": "", "error": "access_denied"}, "answered access_denied"),
    ],
)
async def test_an_answer_to_another_question_or_from_another_issuer_is_not_believed(
    changed: Mapping[str, str], told: str
) -> None:
    async with rogue(changed=changed) as (issuer, asked):
        await refused(issuer, told)
    assert asked == ["/sign-in"]


async def test_the_same_answer_unchanged_is_believed_up_to_the_exchange() -> None:
    async with rogue() as (issuer, asked):
        await refused(issuer, "answered invalid_grant")
    assert asked == ["/sign-in", "/token"]


async def test_an_answer_at_another_address_is_not_believed() -> None:
    async with rogue(callback="http://127.0.0.1:1/elsewhere") as (issuer, _):
        await refused(issuer, "not to this sign-in")


async def test_a_password_never_goes_to_a_provider_that_says_it_is_another() -> None:
    async with rogue(named="https://sso.example.com") as (issuer, asked):
        await refused(issuer, "another issuer")
    assert asked == []


@asynccontextmanager
async def rogue(
    *,
    named: str | None = None,
    callback: str = "http://127.0.0.1:1/callback",
    changed: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[str, list[str]]]:
    """A provider whose answers a test bends, and the paths that were posted to."""
    posted: list[str] = []
    state = ""

    async def discovery(request: web.Request) -> web.Response:
        endpoints = {"authorization_endpoint": f"{issuer}/authorize", "token_endpoint": f"{issuer}/token"}
        return web.json_response({"issuer": named or issuer, **endpoints})

    async def authorize(request: web.Request) -> web.Response:
        nonlocal state
        state = request.query["state"]
        return web.Response(text=PAGE, content_type="text/html")

    async def answer(request: web.Request) -> web.Response:
        posted.append(request.path)
        query = {"code": "a code", "state": state, "iss": issuer, **(changed or {})}
        return web.Response(status=303, headers={"Location": f"{callback}?{urlencode(query)}"})

    async def token(request: web.Request) -> web.Response:
        posted.append(request.path)
        return web.json_response({"error": "invalid_grant"}, status=400)

    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", discovery)
    app.router.add_get("/authorize", authorize)
    app.router.add_post("/sign-in", answer)
    app.router.add_post("/token", token)
    async with TestServer(app) as server:
        issuer = str(server.make_url("")).rstrip("/")
        yield issuer, posted


async def refused(issuer: str, told: str) -> None:
    async with ClientSession(cookie_jar=DummyCookieJar()) as session:
        with pytest.raises(SignInFailed, match=told):
            await sign_in(session, issuer, "alice", "secret")
