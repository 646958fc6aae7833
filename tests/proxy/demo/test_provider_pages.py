"""The pages: who may post their forms, how often a password may be tried, and what a browser is told to refuse."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from tests.proxy.demo.provider_parts import PASSWORD, Scene, request, scene, web_request


@pytest.fixture
async def at() -> AsyncIterator[Scene]:
    async with scene() as running:
        yield running


async def test_the_sign_in_form_counts_only_from_the_browser_that_was_shown_it(at: Scene) -> None:
    attackers, victims = at.browser(), at.browser()
    page = await attackers.get("/authorize", request())
    await victims.get("/authorize", request())
    assert (await victims.sign_in(page)).status == 403
    assert (await at.browser().sign_in(page)).status == 403


@pytest.mark.parametrize(
    "header",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/sign-in", "/confirm", "/device"])
async def test_a_form_sent_by_another_sites_page_is_refused(at: Scene, header: dict[str, str], path: str) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    form = {"sign_in": page.sign_in, "username": "alice", "password": PASSWORD, "choice": "deny"}
    answer = await browser.post(path, form, **header)
    assert answer.status == 403
    assert answer.location is None


async def test_a_sign_in_form_is_good_once(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    assert (await browser.sign_in(page)).status == 303
    assert (await browser.sign_in(page)).status == 403


async def test_a_sign_in_form_expires(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    at.clock.now += 600
    assert (await browser.sign_in(page)).status == 403


async def test_a_consent_counts_only_for_the_person_whom_the_page_named(at: Scene) -> None:
    browser = at.browser()
    await browser.sign_in(await browser.get("/authorize", request()))
    page = await browser.get("/authorize", request())
    await browser.sign_in(await browser.get("/authorize", request(prompt="login")), "bob", "bob knows that")
    answer = await browser.post("/confirm", {"sign_in": page.sign_in, "choice": "allow"})
    assert answer.status == 403
    assert answer.location is None


async def test_nobody_consents_without_being_signed_in(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    answer = await browser.post("/confirm", {"sign_in": page.sign_in, "choice": "allow"})
    assert answer.status == 403


async def test_signing_in_gives_a_session_that_nobody_can_have_planted(at: Scene) -> None:
    browser = at.browser()
    name = f"saltgate-session-{at.provider.address.port}"
    browser.cookies[name] = planted = "x" * 43
    await browser.sign_in(await browser.get("/authorize", request()))
    assert browser.cookies[name] != planted


async def test_cookies_are_out_of_reach_of_scripts_and_other_sites(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    for answer in (page, await browser.sign_in(page)):
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie


async def test_a_session_ends_after_its_time(at: Scene) -> None:
    browser = at.browser()
    await browser.sign_in(await browser.get("/authorize", web_request()))
    at.clock.now += at.provider.lifetimes.session
    assert 'name="password"' in (await browser.get("/authorize", web_request())).text


async def test_a_wrong_password_and_an_unknown_name_are_told_alike(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    wrong, unknown = await browser.sign_in(page, "alice", "guess"), await browser.sign_in(page, "nobody", "guess")
    assert (wrong.status, unknown.status) == (403, 403)
    assert wrong.text.replace("alice", "nobody") == unknown.text
    assert "guess" not in wrong.text


async def test_an_unknown_person_has_no_password_at_all(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    assert (await browser.sign_in(page, "nobody", "")).status == 403
    assert (await browser.sign_in(page, "", "")).status == 403


async def test_passwords_may_be_tried_a_few_times_and_then_not_even_the_right_one(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    for _ in range(3):
        assert (await browser.sign_in(page, "alice", "guess")).status == 403
    answer = await browser.sign_in(page)
    assert answer.status == 429
    assert int(answer.headers["Retry-After"]) == 60
    at.clock.now += 60
    assert (await browser.sign_in(page)).status == 303


async def test_guessing_over_many_names_is_bounded_too(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    statuses = [(await browser.sign_in(page, f"name{n}", "guess")).status for n in range(7)]
    assert statuses == [403] * 6 + [429]


async def test_who_knows_his_password_has_all_tries_again(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    await browser.sign_in(page, "alice", "guess")
    await browser.sign_in(page)
    page = await browser.get("/authorize", request(prompt="login"))
    await browser.sign_in(page, "alice", "guess")
    await browser.sign_in(page, "alice", "guess")
    assert (await browser.sign_in(page)).status == 303


async def test_what_a_person_or_client_typed_is_never_markup(at: Scene) -> None:
    attack = '"><script>alert(1)</script>'
    browser = at.browser()
    page = await browser.get("/authorize", request(login_hint=attack, state=attack))
    failed, device = await browser.sign_in(page, attack, attack), await browser.get("/device", {"user_code": attack})
    for answer in (page, failed, device):
        assert "<script" not in answer.text
        assert "&lt;script" in answer.text


async def test_pages_load_nothing_run_nothing_and_are_framed_by_nobody(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    failed = await browser.sign_in(page, "alice", "guess")
    for answer in (page, failed, await browser.get("/device"), await browser.get("/authorize")):
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "src=" not in answer.text
        assert "href=" not in answer.text


async def test_a_form_may_lead_to_the_client_and_nowhere_else(at: Scene) -> None:
    page = await at.browser().get("/authorize", web_request())
    assert "form-action 'self' https://chat.example.com;" in page.headers["Content-Security-Policy"]


async def test_every_input_has_a_label_and_a_fault_is_announced(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    failed = await browser.sign_in(page, "alice", "guess")
    for name in ("username", "password"):
        assert f'<label for="{name}">' in page.text
        assert f'id="{name}"' in page.text
    assert '<html lang="en">' in page.text
    assert 'role="alert"' in failed.text
    assert 'aria-describedby="fault"' in failed.text


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "localhost:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.:{port}", ""],
)
async def test_a_name_that_was_rebound_to_loopback_hears_nothing(at: Scene, host: str) -> None:
    sent = host.format(port=at.provider.address.port)
    for path in ("/jwks", "/authorize", "/.well-known/openid-configuration", "/nothing"):
        answer = await at.browser().get(path, Host=sent)
        assert answer.status == 421
        assert at.issuer not in answer.text
    assert (await at.call("/token", {"grant_type": "client_credentials"}, Host=sent)).status == 421


async def test_a_request_with_two_hosts_or_none_hears_nothing(at: Scene) -> None:
    own = f"Host: {at.provider.address.authority}\r\n"
    for hosts in ("", own + own, "Host: evil.example\r\n" + own):
        assert b" 200 " not in await raw(at, f"GET /jwks HTTP/1.0\r\n{hosts}\r\n")
    assert b" 200 " in await raw(at, f"GET /jwks HTTP/1.0\r\n{own}\r\n")


async def test_the_listener_is_on_loopback_only(at: Scene) -> None:
    with socket.socket() as elsewhere:
        # The port is free on every other address: a wildcard listener would hold it.
        elsewhere.bind(("127.0.0.3", at.provider.address.port))


async def raw(at: Scene, message: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", at.provider.address.port)
    writer.write(message.encode())
    try:
        return (await reader.read()).partition(b"\r\n")[0]
    finally:
        writer.close()
        await writer.wait_closed()
