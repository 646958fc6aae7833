"""What people and issuers change is in the audit; what gives rights waits for its line, what takes them does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from observability.audit.subjects import pseudonym
from tests.observability.audit.writing import KEY, unwritable, verdict, written
from tests.parts.redis_server import RedisServer
from tests.proxy.account.scene import account_scene
from tests.proxy.account.test_sign_out import sign_out
from tests.proxy.account.token_parts import ADMIN, ALICE, desk, id_of
from tests.proxy.test_audit import linked, settings

pytestmark = pytest.mark.slow


async def told(place: Path, event: str, times: int) -> list[dict[str, Any]]:
    """So many lines of acts."""
    async with asyncio.timeout(10):
        while len(found := [line for line in written(place) if line["event"] == event]) < times:
            await asyncio.sleep(0.01)
    return found


async def test_a_token_has_a_line_before_it_is_made_and_one_when_it_is_over(redis: RedisServer, tmp_path: Path) -> None:
    place = tmp_path / "audit"
    async with desk(redis, tmp_path, administrators=(f"user:{ADMIN}",), audit=settings(place)) as people:
        token_id = id_of(await people.made())
        begun, done = await told(place, "token.created", 2)
        alice = pseudonym(KEY, people.bed.mint.issuer, ALICE)
        assert (begun["state"], done["state"]) == ("begun", "done")
        assert begun["subject"] == begun["by"] == alice
        assert begun["token_id"] == done["token_id"] == token_id
        answer = await people.ask("POST", "/account/tokens/revoke", people.sign_in(ADMIN), {"id": token_id})
        assert answer.status == 200
        (revoked,) = await told(place, "token.revoked", 1)
    assert (revoked["token_ids"], revoked["subject"], revoked["state"]) == ([token_id], alice, "done")
    assert revoked["by"] == pseudonym(KEY, people.bed.mint.issuer, ADMIN)
    assert verdict(place).intact


async def test_while_the_audit_cannot_be_written_no_token_is_made_and_any_can_be_ended(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with desk(redis, tmp_path, audit=linked(tmp_path)) as people:
        place = tmp_path / "audit"
        token = await people.made()
        with unwritable(place):
            async with asyncio.timeout(10):
                while (state := people.bed.gate.gateway.accounting.state()) is None or state.up:
                    await asyncio.sleep(0.01)
            refused = await people.make()
            assert (refused.status, refused.code) == (503, "audit_unavailable")
            answer = await people.ask("GET", "/account/tokens", people.sign_in())
            assert [each["id"] for each in answer.document["tokens"]] == [id_of(token)]
            assert (
                await people.ask("POST", "/account/tokens/revoke", people.sign_in(), {"id": id_of(token)})
            ).status == 200
        (revoked,) = await told(place, "token.revoked", 1)
    assert revoked["token_ids"] == [id_of(token)]


async def test_sessions_that_begin_and_end_are_told(redis: RedisServer, tmp_path: Path) -> None:
    place = tmp_path / "audit"
    async with account_scene(redis, tmp_path, audit=settings(place)) as scene:
        browser = await scene.signed_in()
        (began,) = await told(place, "session.began", 1)
        await sign_out(browser)
        (ended,) = await told(place, "session.ended", 1)
    assert began["subject"] == ended["subject"]
    assert ended["count"] == 1


async def test_who_goes_to_the_administrators_pages_has_a_line_before(redis: RedisServer, tmp_path: Path) -> None:
    place = tmp_path / "audit"
    async with account_scene(redis, tmp_path, administrators=(f"user:{ALICE}",), audit=settings(place)) as scene:
        browser = await scene.signed_in()
        page = await browser.get("/account")
        assert (await browser.post("/account/admin", {"form_token": page.form_token})).status == 200
        begun, done = await told(place, "admin.ticket_made", 2)
    assert (begun["state"], done["state"]) == ("begun", "done")
    assert begun["by"] == pseudonym(KEY, scene.provider.mint.issuer, ALICE)


async def test_while_the_audit_cannot_be_written_nobody_goes_there(redis: RedisServer, tmp_path: Path) -> None:
    async with account_scene(redis, tmp_path, administrators=(f"user:{ALICE}",), audit=linked(tmp_path)) as scene:
        browser = await scene.signed_in()
        page = await browser.get("/account")
        with unwritable(tmp_path / "audit"):
            async with asyncio.timeout(10):
                while (state := scene.bed.gate.gateway.accounting.state()) is None or state.up:
                    await asyncio.sleep(0.01)
            shown = await browser.post("/account/admin", {"form_token": page.form_token})
        assert shown.status == 503
        assert "sign-in#" not in shown.text
