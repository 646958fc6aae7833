"""The browser's answer: only to our question, only from whom we asked, once, and not for ever."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
import pytest

from proxy.cli.sign_in import SignInFailed
from proxy.cli.sign_in.issuer import discover
from proxy.cli.sign_in.loopback import Attempt, BrowserSignIn, sign_in_by_browser
from proxy.cli.sign_in.web import Web, open_web
from tests.parts.tokens import ABSENT
from tests.proxy.cli.sign_in.rogue import CLIENT, SECRETS, Rogue

Answer = dict[str, str]


@pytest.fixture
async def rogue() -> AsyncIterator[Rogue]:
    async with Rogue() as running:
        yield running


@pytest.fixture
async def asking() -> AsyncIterator[Web]:
    async with open_web(seconds=2) as opened:
        yield opened


class Browser:
    """It knocks at the listener with each of the queries that `bend` makes of the good answer."""

    def __init__(self, rogue: Rogue, *bends: Callable[[Answer], object], host: str | None = None) -> None:
        self.rogue = rogue
        self.bends = bends
        self.host = host
        self.request: Answer = {}
        self.statuses: list[int] = []
        self.pages: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.task: asyncio.Task[None] | None = None

    def open(self, address: str) -> None:
        self.request = dict(parse_qsl(urlsplit(address).query))
        self.task = asyncio.get_running_loop().create_task(self._knock())

    async def _knock(self) -> None:
        redirect_uri = self.request["redirect_uri"]
        async with aiohttp.ClientSession() as session:
            for bend in self.bends:
                answer = {"code": SECRETS[2], "state": self.request["state"], "iss": self.rogue.url}
                bent = bend(answer)
                address = bent if isinstance(bent, str) else f"{redirect_uri}?{urlencode(answer)}"
                headers = {} if self.host is None else {"Host": self.host}
                try:
                    async with session.get(address, headers=headers) as response:
                        self.statuses.append(response.status)
                        self.headers.append(response.headers)
                        self.pages.append(await response.text())
                except aiohttp.ClientConnectionError:
                    self.statuses.append(0)


def good(_: Answer) -> None:
    """As it came."""


async def signed_in(rogue: Rogue, asking: Web, browser: Browser, *, seconds: float = 5.0) -> BrowserSignIn:
    try:
        endpoints = await discover(asking, rogue.url)
        return await sign_in_by_browser(asking, endpoints, rogue.sign_in, browser.open, seconds=seconds)
    finally:
        if browser.task is not None:
            await browser.task


async def test_the_answer_to_our_question_brings_the_tokens(rogue: Rogue, asking: Web) -> None:
    browser = Browser(rogue, good)
    brought = await signed_in(rogue, asking, browser)
    assert brought.nonce == browser.request["nonce"]
    (form,) = rogue.forms("/token")
    challenge = urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
    assert browser.request | {"state": "", "nonce": ""} == {
        "response_type": "code",
        "client_id": CLIENT,
        "redirect_uri": form["redirect_uri"],
        "scope": "openid offline_access",
        "state": "",
        "nonce": "",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": "urn:llm",
        "prompt": "consent",
    }
    assert urlsplit(form["redirect_uri"]).hostname == "127.0.0.1"
    assert (form["grant_type"], form["code"]) == ("authorization_code", SECRETS[2])
    assert browser.statuses == [200]
    assert "You may close this window" in browser.pages[0]
    assert SECRETS[2] not in browser.pages[0]


async def test_the_page_loads_nothing_and_tells_nobody(rogue: Rogue, asking: Web) -> None:
    browser = Browser(rogue, good)
    await signed_in(rogue, asking, browser)
    (headers,) = browser.headers
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"


def other_state(answer: Answer) -> None:
    answer["state"] = "another"


def no_state(answer: Answer) -> None:
    del answer["state"]


async def test_what_does_not_answer_our_question_changes_nothing(rogue: Rogue, asking: Web) -> None:
    def twice(answer: Answer) -> str:
        return f"{browser.request['redirect_uri']}?{urlencode(answer)}&code=another"

    def elsewhere(answer: Answer) -> str:
        return browser.request["redirect_uri"].replace("/callback", "/other") + f"?{urlencode(answer)}"

    def many(answer: Answer) -> str:
        return browser.request["redirect_uri"] + "?" + "&".join(f"a{n}=1" for n in range(500))

    def odd(answer: Answer) -> str:
        return browser.request["redirect_uri"] + "?state=%ff%fe&code=x"

    browser = Browser(rogue, other_state, no_state, twice, elsewhere, many, odd, good)
    await signed_in(rogue, asking, browser)
    assert browser.statuses == [400, 400, 400, 404, 400, 400, 200]
    assert len(rogue.forms("/token")) == 1


async def test_a_page_under_another_name_is_not_heard(rogue: Rogue, asking: Web) -> None:
    browser = Browser(rogue, good, host="evil.example")
    with pytest.raises(SignInFailed, match="in time"):
        await signed_in(rogue, asking, browser, seconds=0.3)
    assert browser.statuses == [404]
    assert not rogue.forms("/token")


def other_issuer(answer: Answer) -> None:
    answer["iss"] = "https://evil.example"


def no_issuer(answer: Answer) -> None:
    del answer["iss"]


@pytest.mark.parametrize("bend", [other_issuer, no_issuer])
async def test_an_answer_of_another_issuer_ends_it_and_its_code_goes_nowhere(
    rogue: Rogue, asking: Web, bend: Callable[[Answer], None]
) -> None:
    with pytest.raises(SignInFailed, match="another issuer"):
        await signed_in(rogue, asking, Browser(rogue, bend))
    assert not rogue.forms("/token")


async def test_an_issuer_that_never_names_itself_may_go_on_so_but_not_be_another(rogue: Rogue, asking: Web) -> None:
    rogue.discovery["authorization_response_iss_parameter_supported"] = ABSENT
    await signed_in(rogue, asking, Browser(rogue, no_issuer))
    with pytest.raises(SignInFailed, match="another issuer"):
        await signed_in(rogue, asking, Browser(rogue, other_issuer))


def denied(answer: Answer) -> None:
    del answer["code"]
    answer |= {"error": "access_denied\x1b[2J", "error_description": "secret words"}


async def test_a_no_is_told_in_words_that_cannot_draw_on_the_terminal(rogue: Rogue, asking: Web) -> None:
    with pytest.raises(SignInFailed, match="access_denied") as failed:
        await signed_in(rogue, asking, Browser(rogue, denied))
    assert str(failed.value).isprintable()
    assert "secret words" not in str(failed.value)


def no_code(answer: Answer) -> None:
    answer["code"] = ""


async def test_an_answer_without_a_code_is_none(rogue: Rogue, asking: Web) -> None:
    with pytest.raises(SignInFailed, match="without a code"):
        await signed_in(rogue, asking, Browser(rogue, no_code))


async def test_the_listener_hears_one_answer_and_is_gone(rogue: Rogue, asking: Web) -> None:
    browser = Browser(rogue, good)
    await signed_in(rogue, asking, browser)
    late = Browser(rogue, good)
    late.request = browser.request
    await late._knock()
    assert late.statuses == [0]


async def test_nobody_is_waited_for_for_ever(rogue: Rogue, asking: Web) -> None:
    browser = Browser(rogue)
    with pytest.raises(SignInFailed, match="in time"):
        await signed_in(rogue, asking, browser, seconds=0.1)
    late = Browser(rogue, good)
    late.request = browser.request
    await late._knock()
    assert late.statuses == [0]


async def test_an_issuer_without_pages_is_told_so(rogue: Rogue, asking: Web) -> None:
    rogue.discovery["authorization_endpoint"] = ABSENT
    with pytest.raises(SignInFailed, match="--device"):
        await signed_in(rogue, asking, Browser(rogue, good))


def test_an_attempt_is_never_the_same_twice_nor_in_a_representation() -> None:
    one, other = Attempt(), Attempt()
    assert {one.state, one.nonce, one.verifier}.isdisjoint({other.state, other.nonce, other.verifier})
    assert min(len(one.state), len(one.nonce), len(one.verifier)) >= 43
    assert not any(secret in repr(one) for secret in (one.state, one.nonce, one.verifier))
