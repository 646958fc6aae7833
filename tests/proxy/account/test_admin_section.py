"""The way to the administrators' pages: from the account of an administrator, and for how long a worker says yes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import msgspec
import pytest

from proxy.directory.changes import block, end
from proxy.directory.endings import Ending
from proxy.directory.model import user
from proxy.plan import admin_origin
from proxy.questions import HowIsIt, Judged, MayLook, Status, WhoLooks
from proxy.ticket import Ticket, opened, ticket_key
from tests.parts.gate_bed import KEY
from tests.parts.openid_provider import Browser
from tests.parts.redis_server import RedisServer
from tests.proxy.account.scene import AccountScene, account_scene

pytestmark = pytest.mark.slow

TO_ADMIN = "/account/admin"
ALICE, BOB = "user:u-alice-0001", {"sub": "u-bob-0002", "name": "Bob"}


@pytest.fixture
async def scene(redis: RedisServer, tmp_path: Path) -> AsyncIterator[AccountScene]:
    async with account_scene(redis, tmp_path, administrators=(ALICE, "group:admins")) as made:
        yield made


def origin(scene: AccountScene) -> str:
    found = admin_origin(scene.bed.settings.admin)
    assert found is not None
    return found


async def ticket(scene: AccountScene, browser: Browser) -> Ticket:
    page = await browser.get("/account")
    shown = await browser.post(TO_ADMIN, {"form_token": page.form_token})
    assert shown.status == 200
    assert shown.headers["Cache-Control"] == "no-store"
    found = re.search(r'href="([^"#]+)/sign-in#([A-Za-z0-9_-]+)"', shown.text)
    assert found is not None, shown.text
    assert unescape(found[1]) == origin(scene)
    now = scene.bed.gate.gateway.wall_clock()
    made = opened(found[2], [ticket_key(KEY.value)], audience=origin(scene), now=now)
    assert made is not None
    return made


async def judged(scene: AccountScene, made: Ticket) -> Judged:
    question = MayLook(made.holder.identity, made.holder.session)
    answer = await scene.bed.gate.answer(msgspec.msgpack.encode(question))
    return msgspec.msgpack.decode(answer, type=Judged)


async def test_an_administrator_is_led_there_and_may_look(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    page = await browser.get("/account")
    assert f'action="{TO_ADMIN}"' in page.text
    made = await ticket(scene, browser)
    assert (await judged(scene, made)) == Judged("yes", "u-alice-0001")


async def test_nobody_else_is(scene: AccountScene) -> None:
    scene.provider.person = dict(BOB)
    bob = await scene.signed_in()
    page = await bob.get("/account")
    assert TO_ADMIN not in page.text
    assert (await bob.post(TO_ADMIN, {"form_token": page.form_token})).status == 403
    scene.provider.person = {**BOB, "groups": ["admins"]}
    admin = await scene.signed_in()
    assert (await judged(scene, await ticket(scene, admin))).verdict == "yes"


async def test_no_page_elsewhere_gets_a_ticket(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    page = await browser.get("/account")
    elsewhere = ("Origin", "https://attacker.example")
    assert (await browser.post(TO_ADMIN, {"form_token": page.form_token}, elsewhere)).status == 400
    assert (await browser.post(TO_ADMIN, {"form_token": "x"})).status == 400
    assert (await scene.browser().post(TO_ADMIN, {"form_token": page.form_token})).status == 400
    assert (await browser.get(TO_ADMIN)).status in (404, 405)


async def test_who_is_blocked_may_look_no_more(scene: AccountScene) -> None:
    made = await ticket(scene, await scene.signed_in())
    await scene.bed.change(block(scene.provider.mint.issuer, user("u-alice-0001")))
    await scene.bed.gate.view.confirm()
    assert (await judged(scene, made)).verdict == "no"


async def test_who_signs_out_may_look_no_more(scene: AccountScene) -> None:
    browser = await scene.signed_in()
    made = await ticket(scene, browser)
    page = await browser.get("/account")
    await browser.post("/auth/logout", {"form_token": page.form_token})
    assert (await judged(scene, made)).verdict == "nobody"


async def test_whose_session_was_ended_at_the_issuer_may_look_no_more(scene: AccountScene) -> None:
    made = await ticket(scene, await scene.signed_in())
    now = int(scene.bed.gate.gateway.wall_clock())
    ending = Ending("subject", scene.provider.mint.issuer, "u-alice-0001", at=now + 1, until=now + 3600)
    await scene.bed.change(end(ending))
    await scene.bed.gate.view.confirm()
    assert (await judged(scene, made)).verdict == "nobody"


async def test_a_session_that_never_was_is_nobodys(scene: AccountScene) -> None:
    made = await ticket(scene, await scene.signed_in())
    answer = await scene.bed.gate.answer(msgspec.msgpack.encode(MayLook(made.holder.identity, "0" * 64)))
    assert msgspec.msgpack.decode(answer, type=Judged).verdict == "nobody"


async def test_a_token_of_an_administrator_may_look_and_no_other(scene: AccountScene) -> None:
    async def who(*headers: tuple[str, str]) -> str:
        answer = await scene.bed.gate.answer(msgspec.msgpack.encode(WhoLooks(headers, "/api/overview")))
        return msgspec.msgpack.decode(answer, type=Judged).verdict

    assert await who(("Authorization", f"Bearer {scene.bed.token('u-alice-0001')}")) == "yes"
    assert await who(("Authorization", f"Bearer {scene.bed.token('u-bob-0002')}")) == "no"
    assert await who(("Authorization", "Bearer x.y.z")) == "nobody"
    assert await who() == "nobody"


async def test_a_question_of_another_version_is_answered_with_nothing(scene: AccountScene) -> None:
    assert await scene.bed.gate.answer(b"") == b""
    assert await scene.bed.gate.answer(msgspec.msgpack.encode({"type": "WhatIsNew"})) == b""
    status = msgspec.msgpack.decode(await scene.bed.gate.answer(msgspec.msgpack.encode(HowIsIt())), type=Status)
    assert "engines" in status.waits_for
    assert [one.engine for one in status.replicas] == ["main"]
