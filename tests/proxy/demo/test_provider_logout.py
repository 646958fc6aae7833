"""Signing out (OIDC RP-Initiated Logout)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.proxy.demo.provider_parts import WEB_SIGNED_OUT, Answer, Browser, Scene, request, scene, web_request


@pytest.fixture
async def at() -> AsyncIterator[Scene]:
    async with scene() as running:
        yield running


async def test_a_client_that_names_the_person_signs_him_out_and_gets_the_browser_back(at: Scene) -> None:
    browser = at.browser()
    tokens = await at.exchange(await at.code(browser))
    assert await is_signed_in(browser)
    hint = {"id_token_hint": str(tokens.document["id_token"])}
    done = await browser.get("/logout", hint)
    assert done.status == 200
    assert not await is_signed_in(browser)


async def test_signing_out_ends_the_refresh_tokens_of_that_sign_in_and_of_no_other(at: Scene) -> None:
    browser, elsewhere = at.browser(), at.browser()
    here, there = await at.exchange(await at.code(browser)), await at.exchange(await at.code(elsewhere))
    await browser.get("/logout", {"id_token_hint": str(here.document["id_token"])})
    assert (await refresh(at, here)).document["error"] == "invalid_grant"
    assert (await refresh(at, there)).status == 200
    assert await is_signed_in(elsewhere)


async def test_an_expired_hint_is_as_good(at: Scene) -> None:
    browser = at.browser()
    tokens = await at.exchange(await at.code(browser))
    at.clock.now += 3601
    await browser.get("/logout", {"id_token_hint": str(tokens.document["id_token"])})
    assert not await is_signed_in(browser)


async def test_nobody_is_signed_out_by_a_mere_link(at: Scene) -> None:
    browser = at.browser()
    await at.code(browser)
    page = await browser.get("/logout", {"client_id": "chat-ui", "post_logout_redirect_uri": WEB_SIGNED_OUT})
    assert "Sign out?" in page.text
    assert await is_signed_in(browser)
    done = await browser.post("/confirm", {"sign_in": page.sign_in, "choice": "allow"})
    assert done.location == WEB_SIGNED_OUT
    assert not await is_signed_in(browser)


async def test_another_persons_token_or_a_forged_one_is_no_hint(at: Scene) -> None:
    bobs = at.browser()
    answer = await bobs.sign_in(await bobs.get("/authorize", request()), "bob", "bob knows that")
    bob = await at.exchange(answer.query["code"])
    browser = at.browser()
    await at.code(browser)
    for hint in (str(bob.document["id_token"]), "e30.e30.e30", str(bob.document["access_token"])):
        assert "Sign out?" in (await browser.get("/logout", {"id_token_hint": hint})).text
    assert await is_signed_in(browser)


async def test_who_stays_is_still_signed_in(at: Scene) -> None:
    browser = at.browser()
    await at.code(browser)
    page = await browser.get("/logout")
    stayed = await browser.post("/confirm", {"sign_in": page.sign_in, "choice": "deny"})
    assert "You are still signed in" in stayed.text
    assert await is_signed_in(browser)


async def test_the_state_comes_back_with_the_browser(at: Scene) -> None:
    query = {"client_id": "chat-ui", "post_logout_redirect_uri": WEB_SIGNED_OUT, "state": "a&b"}
    answer = await at.browser().get("/logout", query)
    assert answer.location == f"{WEB_SIGNED_OUT}?state=a%26b"


@pytest.mark.parametrize(
    "query",
    [
        {"client_id": "chat-ui", "post_logout_redirect_uri": "https://evil.example/"},
        {"client_id": "chat-ui", "post_logout_redirect_uri": WEB_SIGNED_OUT + "/more"},
        {"client_id": "saltgate-cli", "post_logout_redirect_uri": WEB_SIGNED_OUT},
        {"post_logout_redirect_uri": WEB_SIGNED_OUT},
    ],
)
async def test_signing_out_redirects_to_nobody_elses_address(at: Scene, query: dict[str, str]) -> None:
    answer = await at.browser().get("/logout", query)
    assert answer.status == 400
    assert answer.location is None


async def test_a_client_cannot_be_named_against_the_hint(at: Scene) -> None:
    tokens = await at.tokens()
    hint = {"id_token_hint": str(tokens.document["id_token"])}
    query = {**hint, "client_id": "chat-ui", "post_logout_redirect_uri": WEB_SIGNED_OUT}
    assert (await at.browser().get("/logout", query)).status == 400


async def is_signed_in(browser: Browser) -> bool:
    return 'name="password"' not in (await browser.get("/authorize", web_request(prompt="consent"))).text


async def refresh(at: Scene, tokens: Answer) -> Answer:
    form = {"grant_type": "refresh_token", "client_id": "saltgate-cli"}
    return await at.call("/token", {**form, "refresh_token": str(tokens.document["refresh_token"])})
