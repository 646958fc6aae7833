"""A gate where people sign in with a browser: a real Redis, a provider that signs really, saltgate's own listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from config.secret import Secret
from config.settings import Issuer, Login
from tests.parts.gate_bed import GateBed, gate_bed
from tests.parts.openid_provider import CLIENT, Browser, OpenIdProvider
from tests.parts.redis_server import RedisServer

LOGIN = Login(client_id=CLIENT, client_secret=Secret(b"s3cret: with more", "test"))
NO_ENGINE = "http://127.0.0.1:9"


@dataclass(slots=True)
class AccountScene:
    """`other` is a second issuer where people sign in, where there is one."""

    bed: GateBed
    provider: OpenIdProvider
    session: aiohttp.ClientSession
    other: OpenIdProvider | None = None

    def browser(self) -> Browser:
        return Browser(self.session, self.bed.url, self.bed.settings.public.url or "")

    async def signed_in(self) -> Browser:
        browser = self.browser()
        shown = await browser.sign_in(self.provider)
        assert shown.status == 303, shown.text
        return browser

    async def is_signed_in(self, browser: Browser) -> bool:
        shown = await browser.get("/account")
        assert shown.status in {200, 303}, shown.text
        return shown.status == 200

    async def refusal(self) -> str:
        """The reason of the last refusal, as the log has it."""
        async with asyncio.timeout(5):
            while True:
                found = [line for line in self.bed.lines() if line.get("outcome") == "refused"]
                if found:
                    return str(found[-1].get("reason"))
                await asyncio.sleep(0.005)

    async def status_of(self, token: str) -> int:
        """What the gate says to a program with this token; there is no engine, so 401 tells apart."""
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.get(f"{self.bed.url}/w/acme/p/apollo/v1/models", headers=headers) as answer:
            return answer.status


@asynccontextmanager
async def account_scene(
    redis: RedisServer, folder: Path, *, two_issuers: bool = False, login: Login = LOGIN, **more: object
) -> AsyncIterator[AccountScene]:
    provider, other = OpenIdProvider(), OpenIdProvider()
    async with other, aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        others: tuple[Issuer, ...] = ()
        if two_issuers:
            others = (Issuer(issuer=other.mint.issuer, audiences=("saltgate",), login=LOGIN),)
        async with gate_bed(
            redis.settings(),
            [NO_ENGINE],
            folder,
            ready=False,
            issuer_server=provider,
            login=login,
            issuers=others,
            models=("tiny",),
            **more,  # type: ignore[arg-type]
        ) as bed:
            async with asyncio.timeout(20):
                while not (bed.gate.view.ready and all(issuer.ready for issuer in bed.gate.reception.issuers.issuers)):
                    await asyncio.sleep(0.005)
            yield AccountScene(bed, provider, session, other if two_issuers else None)
