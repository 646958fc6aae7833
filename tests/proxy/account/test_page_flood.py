"""A flood on pages that are open to everybody: each answer in its turn, and callers with good tokens before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.relay.pace import BURST_SECONDS, HEAD_BYTES, RATE
from tests.parts.redis_server import RedisServer
from tests.proxy.account.scene import AccountScene, account_scene

pytestmark = pytest.mark.slow

A_FLOOD = 10**9
FORM = "Content-Type: application/x-www-form-urlencoded\r\n"
PAGES = {
    "logout token": f"POST /auth/backchannel-logout HTTP/1.1\r\n{FORM}Content-Length: 14\r\n",
    "sign-in": "GET /auth/login HTTP/1.1\r\n",
    "callback": "GET /auth/callback?code=a&state=b HTTP/1.1\r\n",
    "form": f"POST /account/tokens/make HTTP/1.1\r\n{FORM}Content-Length: 14\r\n",
    "account": "GET /account HTTP/1.1\r\nAccept: text/html\r\n",
    "signed out": "GET /auth/signed-out HTTP/1.1\r\n",
}


@pytest.fixture
async def scene(redis: RedisServer, tmp_path: Path) -> AsyncIterator[AccountScene]:
    async with account_scene(redis, tmp_path) as opened:
        yield opened


async def status(scene: AccountScene, head: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.bed.port)
    try:
        body = "logout_token=a" if "POST" in head else ""
        writer.write(f"{head}Host: a\r\nConnection: close\r\n\r\n{body}".encode())
        return int((await reader.read()).split(b" ", 2)[1])
    finally:
        writer.close()


@pytest.mark.parametrize("page", PAGES)
async def test_who_visits_in_a_flood_waits_and_a_good_caller_does_not(scene: AccountScene, page: str) -> None:
    pace = scene.bed.gate.entrance.page_pace
    waiting = [asyncio.create_task(pace.turn(A_FLOOD)), asyncio.create_task(status(scene, PAGES[page]))]
    async with asyncio.timeout(10):
        while pace.waiting < 2:
            await asyncio.sleep(0.001)
    good = f"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer {scene.bed.token()}\r\n"
    assert await status(scene, good) != 401
    assert not waiting[1].done()
    pace.end()
    assert (await asyncio.gather(*waiting))[1] in {200, 303, 400}


async def test_people_can_sign_in_while_bad_tokens_flood(scene: AccountScene) -> None:
    flood = asyncio.create_task(scene.bed.gate.entrance.pace.turn(A_FLOOD))
    async with asyncio.timeout(3):
        await scene.signed_in()
    assert not flood.done()
    flood.cancel()


async def test_a_logout_is_carried_out_before_its_answers_turn(scene: AccountScene) -> None:
    his, pace = await scene.signed_in(), scene.bed.gate.entrance.page_pace
    flood = asyncio.create_task(pace.turn(A_FLOOD))
    form = {"logout_token": scene.provider.logout_token()}
    told = asyncio.create_task(scene.browser().post("/auth/backchannel-logout", form))
    async with asyncio.timeout(10):
        while pace.waiting < 2:
            await asyncio.sleep(0.001)
    assert not told.done()
    pace.end()
    assert not await scene.is_signed_in(his)
    assert (await told).status == 200
    await flood


async def test_a_hundred_visits_wait_for_nothing(scene: AccountScene) -> None:
    assert RATE * BURST_SECONDS >= 100
    assert HEAD_BYTES > 1000
    async with asyncio.timeout(4):
        assert {(await scene.browser().get("/auth/login")).status for _ in range(100)} == {303}
