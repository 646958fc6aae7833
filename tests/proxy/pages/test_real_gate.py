"""A whole gate of two workers with traffic, and an administrator with a real browser: the pages on their own data."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.parts.chromium_profiles import Chromium
from tests.parts.gate_bed import chat
from tests.parts.redis_server import RedisServer
from tests.proxy.pages.looking import Person, person
from tests.proxy.test_admin_pages import send, ticket
from tests.proxy.test_server import Served, serving

pytestmark = pytest.mark.process

DAY = "/?window=24h"
ROWS = "document.querySelectorAll('.scopes tbody tr').length"


async def told(somebody: Person, tile: str, figure: int) -> None:
    await somebody.page.until(f"document.querySelector('.tile-{tile} .tile-sub').textContent.startsWith('{figure} ')")


async def refused(served: Served) -> str:
    """The id of a request for somebody else's project."""
    headers = served.headers() | {"OpenAI-Project": "nowhere"}
    async with served.session.post(f"{served.url}/v1/chat/completions", json=chat(), headers=headers) as answer:
        assert answer.status == 403
        return answer.headers["X-Request-Id"]


async def asked(served: Served) -> str:
    async with served.session.post(
        f"{served.url}/v1/chat/completions", json=chat() | {"stream": True}, headers=served.headers()
    ) as answer:
        assert answer.status == 200
        await answer.read()
        return answer.headers["X-Request-Id"]


async def enter(somebody: Person, served: Served, path: str = "/") -> None:
    await somebody.page.go(f"{served.admin}/sign-in#{await ticket(served)}")
    await somebody.page.until("document.querySelector('.tile') !== null")
    if path != "/":
        await somebody.page.go(served.admin + path)


async def test_an_administrator_watches_a_gate_of_two_workers(
    redis: RedisServer, tmp_path: Path, chromium: Chromium
) -> None:
    async with serving(redis, tmp_path, workers=2) as served:
        await served.until("/readyz", 200)
        somebody = await person(chromium)

        # Nobody without a sign-in sees a figure, and the way back is kept.
        await somebody.page.go(f"{served.admin}/scopes/acme/apollo")
        await somebody.page.until("location.pathname === '/sign-in'")
        assert await somebody.see("h1") == "Sign in to saltgate's pages"

        await enter(somebody, served, DAY)
        await somebody.page.until("document.querySelector('[data-notice=empty]').checkVisibility()")
        assert await somebody.see(".lead") == "Nothing stands out."
        assert await somebody.see(".tile-border .tile-value") == "Intact"

        # What is sent shows by itself.
        await asyncio.gather(*(send(served, ("apollo", "ares")[n % 2], stream=n % 3 > 0) for n in range(40)))
        await told(somebody, "requests", 40)
        assert await somebody.page.asked(ROWS) == 3  # the workspace and its two projects
        reused = sum([(await send(served, "apollo", stream=True))["reused"] for _ in range(10)])
        assert reused > 0
        await told(somebody, "requests", 50)
        assert await somebody.see(".tile-failed .tile-value") == "0"
        denied = await refused(served)
        await told(somebody, "requests", 51)
        await somebody.page.until("document.querySelector('.tile-refused .tile-value').textContent === '1'")

        # From the overview to the project, to a request.
        await somebody.page.asked("document.querySelector('a.scope').click()")
        await somebody.page.until("document.querySelectorAll('.recent tbody tr').length >= 20")
        assert await somebody.page.asked("location.pathname") in {"/scopes/acme/apollo", "/scopes/acme/ares"}
        legend = await somebody.all(".legend li")
        assert {"Auth", "Directory", "Stamp", "Prefill", "Stream"} <= set(legend)
        assert await somebody.page.asked("document.querySelectorAll('.recent .stage-prefill').length") > 5
        wanted = await asked(served)
        await somebody.press("/")
        await somebody.type(wanted)
        await somebody.press("Enter")
        await somebody.page.until("document.querySelector('.details') !== null")
        page = await somebody.page.text()
        assert wanted in page
        assert "project:acme/apollo" in page
        assert "The whole answer reached the client." in page
        await somebody.page.go(f"{served.admin}/requests/{denied}")
        await somebody.page.until("document.querySelector('.details') !== null")
        assert "The caller is no member of what was named." in await somebody.page.text()
        assert await somebody.page.asked("violations") == []
        assert somebody.complaints() == []

        # Out again: the data is gone, and the way in is shown.
        await somebody.page.go(served.admin + DAY)
        await somebody.page.until("document.querySelector('#viewer button') !== null")
        await somebody.page.click("#viewer button")
        await somebody.page.until("location.pathname === '/sign-in'")
        await somebody.page.go(served.admin + DAY)
        await somebody.page.until("location.pathname === '/sign-in'")


async def test_the_gate_stops_while_somebody_looks(redis: RedisServer, tmp_path: Path, chromium: Chromium) -> None:
    somebody = await person(chromium)
    async with serving(redis, tmp_path) as served:
        await served.until("/readyz", 200)
        await send(served, "apollo", stream=True)
        await enter(somebody, served, DAY)
        await told(somebody, "requests", 1)
    await somebody.page.until("document.querySelector('#pulse').dataset.kind === 'stale'")
    assert (await somebody.see(".tile-requests .tile-sub")).startswith("1 ")
