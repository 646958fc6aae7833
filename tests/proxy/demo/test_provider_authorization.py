"""The authorization code flow, and the ways to steal or forge a code (RFC 6749, 7636, 8252, 9207, 9700)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from proxy.demo.provider import SignInFailed, sign_in
from proxy.demo.provider.clients import Client, Grant
from tests.proxy.demo.provider_parts import (
    CODE_EXCHANGE,
    NATIVE_CALLBACK,
    PASSWORD,
    VERIFIER,
    WEB_CALLBACK,
    WEB_SECRET,
    Answer,
    Scene,
    request,
    scene,
    web_request,
)


@pytest.fixture
async def at() -> AsyncIterator[Scene]:
    async with scene() as running:
        yield running


async def test_a_person_signs_in_and_the_client_gets_the_code_with_its_state_and_the_issuer(at: Scene) -> None:
    browser = at.browser()
    answer = await browser.sign_in(await browser.get("/authorize", request()))
    assert answer.status == 303
    assert answer.location is not None
    assert answer.location.startswith(NATIVE_CALLBACK + "?")
    assert answer.query.keys() == {"code", "state", "iss"}
    assert (answer.query["state"], answer.query["iss"]) == ("a state & more", at.issuer)


async def test_a_code_is_exchanged_for_tokens(at: Scene) -> None:
    answer = await at.tokens()
    assert answer.status == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.document["token_type"] == "Bearer"
    assert answer.document["expires_in"] == 3600
    assert answer.document.keys() >= {"access_token", "id_token", "refresh_token", "scope"}


async def test_the_authorization_endpoint_takes_a_form_too(at: Scene) -> None:
    browser = at.browser()
    page = await browser.post("/authorize", request(), Origin="https://chat.example.com")
    assert (await browser.sign_in(page)).query["code"]


@pytest.mark.parametrize(
    "redirect_uri",
    [
        "https://evil.example/callback",
        "https://chat.example.com/callback/",
        "https://chat.example.com/callback?x=1",
        "https://chat.example.com.evil.example/callback",
        "https://chat.example.com@evil.example/callback",
        "https://CHAT.example.com/callback",
        "http://chat.example.com/callback",
        "//evil.example/callback",
        "http://127.0.0.1:49152/callback",  # any port is for public clients only
        "",
    ],
)
async def test_nothing_is_ever_sent_to_an_address_that_is_not_the_clients_own(at: Scene, redirect_uri: str) -> None:
    for broken in ({}, {"response_type": "token"}, {"code_challenge": ""}, {"prompt": "none"}):
        answer = await at.browser().get("/authorize", web_request(redirect_uri=redirect_uri, **broken))
        assert_page_without_redirect(answer)


@pytest.mark.parametrize(
    "redirect_uri",
    [
        "http://127.0.0.1:49152/callback/more",
        "http://127.0.0.1:49152/other",
        "http://127.0.0.1:49152@evil.example/callback",
        "http://127.0.0.1:49152.evil.example/callback",
        "http://127.0.0.1:/callback",
        "http://127.0.0.1:99999/callback",
        "http://127.0.0.1.evil.example:80/callback",
        "http://localhost:49152/callback",
        "https://127.0.0.1:49152/callback",
        "http://127.0.0.2:49152/callback",
        "http://127.0.0.1:49152/callback#fragment",
        "http://127.0.0.1:49152/callback\n",
    ],
)
async def test_a_native_client_may_choose_its_port_and_nothing_else(at: Scene, redirect_uri: str) -> None:
    assert_page_without_redirect(await at.browser().get("/authorize", request(redirect_uri=redirect_uri)))


@pytest.mark.parametrize("redirect_uri", ["http://127.0.0.1:1/callback", "http://[::1]:65535/callback"])
async def test_a_native_client_is_answered_at_any_port_of_loopback(at: Scene, redirect_uri: str) -> None:
    answer = await at.browser().get("/authorize", request(redirect_uri=redirect_uri))
    assert answer.status == 200
    assert answer.sign_in


async def test_an_unknown_client_is_told_on_a_page_and_nothing_of_its_request_comes_back(at: Scene) -> None:
    answer = await at.browser().get("/authorize", request(client_id="<script>", redirect_uri="https://evil.example/"))
    assert_page_without_redirect(answer)
    assert "<script>" not in answer.text
    assert "evil.example" not in answer.text


async def test_a_parameter_that_comes_twice_is_refused_without_a_redirect(at: Scene) -> None:
    twice = "&".join(f"{name}={value}" for name, value in request(state="s", nonce="n", scope="openid").items())
    answer = await at.browser().get(f"/authorize?{twice}&redirect_uri=https://evil.example/")
    assert_page_without_redirect(answer)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"code_challenge": ""}, "invalid_request"),
        ({"code_challenge": VERIFIER, "code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": ""}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": "code id_token"}, "unsupported_response_type"),
        ({"response_mode": "fragment"}, "invalid_request"),
        ({"request": "e30.e30."}, "request_not_supported"),
        ({"request_uri": "https://evil.example/request"}, "request_uri_not_supported"),
        ({"resource": "urn:other-api"}, "invalid_target"),
        ({"prompt": "none login"}, "invalid_request"),
        ({"max_age": "-1"}, "invalid_request"),
        ({"prompt": "none"}, "login_required"),
    ],
)
async def test_a_faulty_request_is_told_to_the_client_with_state_and_issuer(
    at: Scene, changed: dict[str, str], error: str
) -> None:
    answer = await at.browser().get("/authorize", request(**changed))
    assert answer.status == 303
    assert (answer.query["error"], answer.query["state"], answer.query["iss"]) == (error, "a state & more", at.issuer)
    assert "code" not in answer.query


def test_a_client_without_a_secret_cannot_be_a_service_account() -> None:
    with pytest.raises(ValueError, match="has no secret"):
        Client(id="x", grants=frozenset({Grant.CLIENT_CREDENTIALS}), audience="a")


@pytest.mark.parametrize("uri", ["https://x.example/#f", "javascript:alert(1)", "https://x.example/ ", "/callback"])
def test_a_client_cannot_register_an_address_that_is_no_plain_web_address(uri: str) -> None:
    with pytest.raises(ValueError, match="cannot be registered"):
        Client(id="x", redirect_uris=(uri,), grants=frozenset(), audience="a")


@pytest.mark.parametrize("verifier", ["x" * 43, VERIFIER[:-1], "", "short", VERIFIER + "\n", "ü" * 50])
async def test_a_code_without_its_verifier_is_worth_nothing(at: Scene, verifier: str) -> None:
    answer = await at.exchange(await at.code(), code_verifier=verifier)
    assert answer.status == 400
    assert answer.document["error"] in ("invalid_grant", "invalid_request")
    assert "access_token" not in answer.document


async def test_a_wrong_verifier_spends_the_code(at: Scene) -> None:
    code = await at.code()
    await at.exchange(code, code_verifier="x" * 43)
    assert (await at.exchange(code)).document["error"] == "invalid_grant"


async def test_a_code_used_twice_is_refused_and_revokes_what_it_brought(at: Scene) -> None:
    code = await at.code()
    first = await at.exchange(code)
    assert (await at.exchange(code)).document["error"] == "invalid_grant"
    refreshed = await refresh(at, first)
    assert refreshed.document["error"] == "invalid_grant"
    userinfo = await at.browser().get("/userinfo", Authorization=f"Bearer {first.document['access_token']}")
    assert userinfo.status == 401


async def test_a_code_used_again_long_after_still_revokes(at: Scene) -> None:
    code = await at.code()
    first = await at.exchange(code)
    at.clock.now += 1800
    await at.exchange(code)
    assert (await refresh(at, first)).document["error"] == "invalid_grant"


async def test_a_code_expires_after_a_minute(at: Scene) -> None:
    code = await at.code()
    at.clock.now += 60
    assert (await at.exchange(code)).document["error"] == "invalid_grant"


async def test_a_code_is_good_for_its_own_redirect_uri_only(at: Scene) -> None:
    answer = await at.exchange(await at.code(), redirect_uri="http://127.0.0.1:49153/callback")
    assert answer.document["error"] == "invalid_grant"


async def test_another_client_cannot_use_a_code_and_does_not_spend_it(at: Scene) -> None:
    code = await at.code()
    stolen = await at.exchange(code, client_id="chat-ui", client_secret=WEB_SECRET)
    assert stolen.document["error"] == "invalid_grant"
    assert (await at.exchange(code)).status == 200


async def test_a_code_of_a_person_who_signed_out_is_refused(at: Scene) -> None:
    browser = at.browser()
    code = await at.code(browser)
    page = await browser.get("/logout")
    await browser.post("/confirm", {"sign_in": page.sign_in, "choice": "allow"})
    assert (await at.exchange(code)).document["error"] == "invalid_grant"


async def test_the_token_endpoint_takes_no_parameter_twice_and_nothing_but_a_form(at: Scene) -> None:
    code = await at.code()
    twice = "&".join(f"{name}={value}" for name, value in {**CODE_EXCHANGE, "code": code}.items())
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    assert (await at.call("/token", f"{twice}&code={code}", **form)).document["error"] == "invalid_request"
    assert (await at.call("/token", "{}", Content_Type="application/json")).document["error"] == "invalid_request"
    assert (await at.call("/token", "code=%ff", **form)).document["error"] == "invalid_request"


async def test_the_demo_signs_a_person_in_without_a_browser(at: Scene) -> None:
    tokens = await sign_in(at.session, at.issuer, "alice", PASSWORD)
    answer = await at.browser().get("/userinfo", Authorization=f"Bearer {tokens.access_token}")
    assert answer.document["sub"] == "u-alice"
    assert tokens.access_token not in repr(tokens)


async def test_signing_in_without_a_browser_needs_the_right_password(at: Scene) -> None:
    with pytest.raises(SignInFailed):
        await sign_in(at.session, at.issuer, "alice", "guess")


async def test_a_confidential_client_gets_its_code_silently_while_the_person_is_signed_in(at: Scene) -> None:
    browser = at.browser()
    await browser.sign_in(await browser.get("/authorize", web_request()))
    answer = await browser.get("/authorize", web_request(prompt="none"))
    assert answer.location is not None
    assert answer.location.startswith(WEB_CALLBACK + "?")
    assert answer.query["code"]


async def test_a_public_client_never_gets_a_code_without_the_persons_doing(at: Scene) -> None:
    browser = at.browser()
    await browser.sign_in(await browser.get("/authorize", web_request()))
    page = await browser.get("/authorize", request())
    assert page.status == 200
    assert "Continue as Alice &lt;b&gt;" in page.text
    assert (await browser.get("/authorize", request(prompt="none"))).query["error"] == "interaction_required"
    answer = await browser.post("/confirm", {"sign_in": page.sign_in, "choice": "allow"})
    assert answer.query["code"]


@pytest.mark.parametrize("changed", [{"prompt": "login"}, {"prompt": "select_account"}, {"max_age": "10"}])
async def test_a_client_may_ask_for_a_fresh_sign_in(at: Scene, changed: dict[str, str]) -> None:
    browser = at.browser()
    await browser.sign_in(await browser.get("/authorize", web_request()))
    at.clock.now += 11
    page = await browser.get("/authorize", web_request(**changed))
    assert 'name="password"' in page.text


async def test_a_person_who_cancels_sends_the_client_access_denied(at: Scene) -> None:
    browser = at.browser()
    page = await browser.get("/authorize", request())
    answer = await browser.post("/confirm", {"sign_in": page.sign_in, "choice": "deny", "username": ""})
    assert answer.query["error"] == "access_denied"


def assert_page_without_redirect(answer: Answer) -> None:
    assert answer.status == 400
    assert answer.location is None
    assert "refresh" not in {name.lower() for name in answer.headers}
    assert "<form" not in answer.text


async def refresh(at: Scene, tokens: Answer) -> Answer:
    form = {"grant_type": "refresh_token", "client_id": "saltgate-cli"}
    return await at.call("/token", {**form, "refresh_token": str(tokens.document["refresh_token"])})
