"""The device authorization grant (RFC 8628)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from proxy.demo.provider.clients import Grant
from tests.proxy.demo.provider_parts import WEB_SECRET, Answer, Browser, Scene, request, scene


@pytest.fixture
async def at() -> AsyncIterator[Scene]:
    async with scene() as running:
        yield running


async def test_a_device_gets_tokens_after_the_person_allowed_it(at: Scene) -> None:
    device, browser = await start(at), at.browser()
    assert (await poll(at, device)).document["error"] == "authorization_pending"
    page = await type_code(browser, device)
    assert str(device.document["user_code"]) in page.text
    assert "saltgate-cli" in page.text
    done = await browser.sign_in(page)
    assert "The device may go on" in done.text
    at.clock.now += 5
    tokens = await poll(at, device)
    assert tokens.status == 200
    assert tokens.document.keys() >= {"access_token", "refresh_token", "id_token"}


async def test_the_answer_holds_what_rfc_8628_asks_for(at: Scene) -> None:
    device = await start(at)
    page = f"{at.issuer}/device"
    assert device.document["verification_uri"] == page
    assert device.document["verification_uri_complete"] == f"{page}?user_code={device.document['user_code']}"
    assert (device.document["expires_in"], device.document["interval"]) == (600, 5)
    assert re.fullmatch("[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}", str(device.document["user_code"]))
    assert device.headers["Cache-Control"] == "no-store"


async def test_the_link_with_the_code_still_asks_the_person(at: Scene) -> None:
    device = await start(at)
    browser = at.browser()
    page = await browser.get("/device", {"user_code": str(device.document["user_code"])})
    assert f'value="{device.document["user_code"]}"' in page.text
    assert (await poll(at, device)).document["error"] == "authorization_pending"


async def test_the_code_may_be_typed_in_any_case_with_or_without_the_dash(at: Scene) -> None:
    code = str((await start(at)).document["user_code"])
    for typed in (code.lower(), code.replace("-", ""), f" {code.replace('-', ' ')} "):
        assert (await at.browser().post("/device", {"user_code": typed})).status == 200


async def test_a_person_who_is_signed_in_is_still_asked(at: Scene) -> None:
    device, browser = await start(at), at.browser()
    await browser.sign_in(await browser.get("/authorize", request()))
    page = await type_code(browser, device)
    assert "If somebody sent you here, cancel." in page.text
    assert (await poll(at, device)).document["error"] == "authorization_pending"
    await browser.post("/confirm", {"sign_in": page.sign_in, "choice": "allow"})
    at.clock.now += 5
    assert (await poll(at, device)).status == 200


async def test_a_person_may_refuse(at: Scene) -> None:
    device, browser = await start(at), at.browser()
    page = await type_code(browser, device)
    refused = await browser.post("/confirm", {"sign_in": page.sign_in, "choice": "deny"})
    assert "The device was refused" in refused.text
    assert (await poll(at, device)).document["error"] == "access_denied"


async def test_polling_too_fast_is_slowed_down_by_five_seconds_each_time(at: Scene) -> None:
    device = await start(at)
    assert (await poll(at, device)).document["error"] == "authorization_pending"
    at.clock.now += 4.9
    assert (await poll(at, device)).document["error"] == "slow_down"
    at.clock.now += 9.9
    assert (await poll(at, device)).document["error"] == "slow_down"
    at.clock.now += 15
    assert (await poll(at, device)).document["error"] == "authorization_pending"


async def test_polling_too_fast_brings_no_tokens_even_when_allowed(at: Scene) -> None:
    device, browser = await start(at), at.browser()
    await poll(at, device)
    await browser.sign_in(await type_code(browser, device))
    at.clock.now += 1
    assert (await poll(at, device)).document["error"] == "slow_down"


async def test_a_device_code_expires(at: Scene) -> None:
    device, browser = await start(at), at.browser()
    page = await type_code(browser, device)
    at.clock.now += 599
    assert (await poll(at, device)).document["error"] == "authorization_pending"
    at.clock.now += 1
    assert (await poll(at, device)).document["error"] == "expired_token"
    assert (await type_code(at.browser(), device)).status == 403
    assert (await browser.sign_in(page)).status == 403


async def test_a_device_code_is_good_once(at: Scene) -> None:
    device, browser = await start(at), at.browser()
    await browser.sign_in(await type_code(browser, device))
    assert (await poll(at, device)).status == 200
    at.clock.now += 5
    assert (await poll(at, device)).document["error"] == "invalid_grant"
    assert (await type_code(at.browser(), device)).status == 403


async def test_a_device_is_answered_once(at: Scene) -> None:
    device, first, second = await start(at), at.browser(), at.browser()
    pages = await type_code(first, device), await type_code(second, device)
    await first.post("/confirm", {"sign_in": pages[0].sign_in, "choice": "deny"})
    late = await second.sign_in(pages[1], "bob", "bob knows that")
    assert "stopped waiting" in late.text
    assert (await poll(at, device)).document["error"] == "access_denied"


async def test_another_client_cannot_use_a_device_code(at: Scene) -> None:
    device, browser = await start(at), at.browser()
    await browser.sign_in(await type_code(browser, device))
    form = {"grant_type": Grant.DEVICE_CODE.value, "device_code": str(device.document["device_code"])}
    assert (await at.call("/token", {**form, "client_id": "television"})).document["error"] == "invalid_grant"
    assert (await poll(at, device)).status == 200


async def test_a_client_without_the_device_grant_cannot_start_or_end_one(at: Scene) -> None:
    device = await start(at)
    form = {"grant_type": Grant.DEVICE_CODE.value, "device_code": str(device.document["device_code"])}
    web = {"client_id": "chat-ui", "client_secret": WEB_SECRET}
    assert (await at.call("/token", {**form, **web})).document["error"] == "unauthorized_client"
    assert (await at.call("/device_authorization", web)).document["error"] == "unauthorized_client"


async def test_an_unknown_device_code_is_refused(at: Scene) -> None:
    form = {"grant_type": Grant.DEVICE_CODE.value, "client_id": "saltgate-cli", "device_code": "unknown"}
    assert (await at.call("/token", form)).document["error"] == "invalid_grant"


async def test_codes_cannot_be_guessed_at_will(at: Scene) -> None:
    device = await start(at)
    answers = [await at.browser().post("/device", {"user_code": "BBBB-BBBB"}) for _ in range(4)]
    assert [answer.status for answer in answers] == [403, 403, 403, 429]
    assert (await type_code(at.browser(), device)).status == 429


async def start(at: Scene) -> Answer:
    return await at.call("/device_authorization", {"client_id": "saltgate-cli", "scope": "openid groups"})


async def type_code(browser: Browser, device: Answer) -> Answer:
    return await browser.post("/device", {"user_code": str(device.document["user_code"])})


async def poll(at: Scene, device: Answer) -> Answer:
    code = str(device.document["device_code"])
    form = {"grant_type": Grant.DEVICE_CODE.value, "client_id": "saltgate-cli", "device_code": code}
    return await at.call("/token", form)
