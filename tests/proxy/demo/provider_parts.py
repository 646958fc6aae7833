"""What the provider's tests share: a clock that tests turn, a browser that follows nothing by itself, a client."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from urllib.parse import parse_qsl, urlsplit

from aiohttp import ClientResponse, ClientSession, DummyCookieJar
from authlib.oauth2.rfc7636 import create_s256_code_challenge  # type: ignore[import-untyped]

from proxy.demo.provider import (
    Client,
    Grant,
    Lifetimes,
    LoopbackAddress,
    Person,
    Provider,
    command_line_client,
    open_provider,
)
from proxy.demo.provider.keys import SigningKeys, new_keys
from proxy.demo.provider.people import Attempts, PasswordHash

VERIFIER = "correct-horse-battery-staple-correct-horse-battery"
NATIVE_CALLBACK = "http://127.0.0.1:49152/callback"
WEB_CALLBACK = "https://chat.example.com/callback"
WEB_SIGNED_OUT = "https://chat.example.com/bye"
PASSWORD = "alice knows this"
WEB_SECRET = "a secret: with a colon, ünd more %"


class Clock:
    """Unix seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@cache
def keys() -> SigningKeys:
    return new_keys()


def quick_hash(password: str) -> PasswordHash:
    """A hash that is checked in no time; what the program makes itself costs 50 ms a check."""
    return PasswordHash(2, 1, 1, b"salt", hashlib.scrypt(password.encode(), salt=b"salt", n=2, r=1, p=1, dklen=32))


@cache
def people() -> tuple[Person, ...]:
    return (
        Person("u-alice", "alice", quick_hash(PASSWORD), "Alice <b>", frozenset({"eng", "all"})),
        Person("u-bob", "bob", quick_hash("bob knows that"), "Bob", frozenset()),
    )


def clients() -> tuple[Client, ...]:
    person_grants = frozenset({Grant.AUTHORIZATION_CODE, Grant.REFRESH_TOKEN})
    return (
        command_line_client("saltgate"),
        Client(
            id="chat-ui",
            secret=WEB_SECRET,
            redirect_uris=(WEB_CALLBACK, "http://127.0.0.1/callback"),
            post_logout_redirect_uris=(WEB_SIGNED_OUT,),
            grants=person_grants,
            audience="saltgate",
            algorithm="ES256",
        ),
        Client(id="television", grants=frozenset({Grant.DEVICE_CODE}), audience="saltgate"),
        Client(
            id="batch",
            secret="batch-secret",
            grants=frozenset({Grant.CLIENT_CREDENTIALS}),
            audience="saltgate",
            groups=frozenset({"robots"}),
        ),
    )


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str
    headers: Mapping[str, str]
    document: Mapping[str, object]

    @property
    def location(self) -> str | None:
        return self.headers.get("Location")

    @property
    def sign_in(self) -> str:
        """The value that the page's form carries."""
        hidden = re.search(r'name="sign_in" value="([^"]+)"', self.text)
        assert hidden is not None, self.text
        return unescape(hidden[1])

    @property
    def query(self) -> Mapping[str, str]:
        """What a redirect brings to the client."""
        assert self.location is not None, self.text
        return dict(parse_qsl(urlsplit(self.location).query))


@dataclass(slots=True)
class Browser:
    """One person's browser: it keeps cookies, and shows each answer before it goes on."""

    session: ClientSession
    issuer: str
    cookies: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, params: Mapping[str, str] | None = None, **headers: str) -> Answer:
        sent = {**self._cookie(), **_names(headers)}
        url = f"{self.issuer}{path}"
        async with self.session.get(url, params=params, headers=sent, allow_redirects=False) as response:
            return await self._answer(response)

    async def post(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        sent = {"Origin": self.issuer, **self._cookie(), **_names(headers)}
        url = f"{self.issuer}{path}"
        async with self.session.post(url, data=form, headers=sent, allow_redirects=False) as response:
            return await self._answer(response)

    async def sign_in(self, page: Answer, username: str = "alice", password: str = PASSWORD) -> Answer:
        return await self.post("/sign-in", {"sign_in": page.sign_in, "username": username, "password": password})

    def _cookie(self) -> dict[str, str]:
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}

    async def _answer(self, response: ClientResponse) -> Answer:
        self.cookies |= {name: morsel.value for name, morsel in response.cookies.items()}
        return await _read(response)


@dataclass(slots=True)
class Scene:
    """A running provider, its clock, and who talks to it."""

    provider: Provider
    clock: Clock
    session: ClientSession

    @property
    def issuer(self) -> str:
        return self.provider.issuer

    def browser(self) -> Browser:
        return Browser(self.session, self.issuer)

    async def call(self, path: str, form: Mapping[str, str] | str, **headers: str) -> Answer:
        """What a program posts to the provider."""
        async with self.session.post(f"{self.issuer}{path}", data=form, headers=_names(headers)) as response:
            return await _read(response)

    async def code(self, browser: Browser | None = None, **changed: str) -> str:
        """A fresh authorization code of alice."""
        browser = browser or self.browser()
        page = await browser.get("/authorize", request(**changed))
        return (await browser.sign_in(page)).query["code"]

    async def exchange(self, code: str, **changed: str) -> Answer:
        return await self.call("/token", without_empty({**CODE_EXCHANGE, "code": code, **changed}))

    async def tokens(self, **changed: str) -> Answer:
        return await self.exchange(await self.code(None, **changed))


CODE_EXCHANGE = {
    "grant_type": "authorization_code",
    "client_id": "saltgate-cli",
    "redirect_uri": NATIVE_CALLBACK,
    "code_verifier": VERIFIER,
}


def request(**changed: str) -> dict[str, str]:
    """A sound authorization request of the native client; an empty value leaves a parameter out."""
    sound = {
        "response_type": "code",
        "client_id": "saltgate-cli",
        "redirect_uri": NATIVE_CALLBACK,
        "scope": "openid profile groups",
        "state": "a state & more",
        "nonce": "a nonce",
        "code_challenge": create_s256_code_challenge(VERIFIER),
        "code_challenge_method": "S256",
    }
    return without_empty({**sound, **changed})


def web_request(**changed: str) -> dict[str, str]:
    """A sound authorization request of the client that has a secret."""
    return request(**{"client_id": "chat-ui", "redirect_uri": WEB_CALLBACK, **changed})


def without_empty(form: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in form.items() if value}


@asynccontextmanager
async def scene(*, lifetimes: Lifetimes | None = None) -> AsyncIterator[Scene]:
    clock, address = Clock(), LoopbackAddress("127.0.0.1", 0)
    known = people()
    async with (
        open_provider(
            address,
            people=known,
            clients=clients(),
            keys=keys(),
            clock=clock,
            lifetimes=lifetimes,
            attempts=Attempts(per_username=3, overall=6),
        ) as provider,
        ClientSession(cookie_jar=DummyCookieJar()) as session,
    ):
        yield Scene(provider, clock, session)


def _names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


async def _read(response: ClientResponse) -> Answer:
    text = await response.text()
    document = await response.json() if response.content_type == "application/json" else {}
    return Answer(response.status, text, response.headers.copy(), document)
