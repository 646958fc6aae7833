"""The account of people and that of programs: one page, told apart by what is shown; one note of who signed in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.parts.openid_provider import ALICE
from tests.parts.redis_server import RedisServer
from tests.proxy.account.scene import AccountScene, account_scene


@pytest.fixture
async def scene(redis: RedisServer, tmp_path: Path) -> AsyncIterator[AccountScene]:
    async with account_scene(redis, tmp_path) as opened:
        yield opened


async def test_a_program_gets_json_and_a_browser_the_page(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    assert (await browser.get("/account")).headers["Content-Type"].startswith("text/html")
    bearer = ("Authorization", f"Bearer {scene.bed.token('u-bob-0002')}")
    shown = await browser.get("/account", bearer)
    # The token says who it is, whatever cookie comes with it.
    assert json.loads(shown.text)["identity"]["subject"] == "u-bob-0002"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/account/tokens"), ("POST", "/account/tokens"), ("POST", "/account/tokens/revoke-all")],
)
async def test_a_cookie_makes_and_ends_no_personal_tokens_for_programs(
    scene: AccountScene, method: str, path: str
) -> None:
    browser = await scene.signed_in()
    body = json.dumps({"name": "stolen"}).encode()
    shown = await (
        browser.get(path) if method == "GET" else browser.post(path, body, ("Content-Type", "application/json"))
    )
    assert shown.status == 401


async def test_a_sign_in_tells_personal_tokens_of_the_groups(scene: AccountScene, redis: RedisServer) -> None:
    scene.provider.person = {**ALICE, "groups": ["eng", "brand-new"]}
    await scene.signed_in()
    kept = redis.command("GET", f"{{saltgate}}:1:login:{scene.provider.mint.issuer} u-alice-0001")
    assert b"brand-new" in kept
