"""A project and its requests, looked at in a real browser."""

from __future__ import annotations

import re

import pytest

from tests.parts.chromium_profiles import Chromium
from tests.proxy.pages import figures
from tests.proxy.pages.looking import DRAWN_SCOPE, UNKNOWN, look
from tests.proxy.pages.served import Desk, Json

pytestmark = pytest.mark.process


async def test_a_scope_shows_its_requests_as_waterfalls(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk, "/scopes/globex/code-review", DRAWN_SCOPE)
    data = figures.scope("globex", "code-review", "1h") or {}
    assert len(await somebody.all(".recent tbody tr")) == len(data["recent"])
    assert await somebody.all(".legend li") == ["Body", "Auth", "Directory", "Queue", "Stamp", "Prefill", "Stream"]
    bars = "document.querySelector('.recent tbody tr .bars').querySelectorAll('rect').length"
    assert await somebody.page.asked(bars) == len(data["recent"][0]["spans"])
    widths = "[...document.querySelectorAll('.recent .stage-prefill')].map((e) => e.getBoundingClientRect().width)"
    zoomed = await somebody.page.asked(widths)
    await somebody.page.click("#extent-whole")
    whole = await somebody.page.asked(widths)
    assert all(here < there for here, there in zip(whole, zoomed, strict=True))
    await somebody.page.click("#which-bad")
    bad = [each for each in data["recent"] if each["outcome"] != "ok"]
    assert len(await somebody.all(".recent tbody tr")) == len(bad)
    assert "ok" not in await somebody.all(".recent tbody .badge")

    await somebody.page.click("#which-all")
    failed = next(at for at, each in enumerate(data["recent"]) if each["outcome"] == "engine_timeout")
    await somebody.page.asked(f"document.querySelectorAll('.recent button.open')[{failed}].click()")
    told = await somebody.see(".below")
    assert "The engine did not answer in time." in told
    assert "The engine took too long." in told
    assert data["recent"][failed]["request_id"] in told
    assert f"Prompt tokens{UNKNOWN}" in told


async def test_newer_requests_wait_while_somebody_reads(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk, "/scopes/acme/apollo", DRAWN_SCOPE)
    await somebody.page.asked("document.querySelector('.recent button.open').click()")
    first = await somebody.see(".recent button.open")

    def newer(data: Json) -> Json:
        one = data["recent"][0]
        fresh = [{**one, "request_id": f"req_new{n}", "started": one["started"] + n} for n in (2, 1)]
        data["recent"] = [*fresh, *data["recent"]]
        return data

    desk.change = newer
    await somebody.page.until("document.querySelector('.card-head .quiet').checkVisibility()")
    assert await somebody.see(".card-head .quiet") == "Show 2 newer"
    assert await somebody.see(".recent button.open") == first
    rows = len(await somebody.all(".recent button.open"))
    await somebody.page.click(".card-head .quiet")
    assert len(await somebody.all(".recent button.open")) == rows + 2
    assert await somebody.page.asked("document.querySelector('.below') !== null")


async def test_a_chart_and_a_waterfall_are_read_by_keyboard(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk, "/scopes/globex/code-review?window=6h", DRAWN_SCOPE)
    await somebody.page.asked("document.querySelector('.chart-ttft .plot').focus()")
    now = await somebody.see(".chart-ttft .readout")
    await somebody.press("Home")
    first = await somebody.see(".chart-ttft .readout")
    await somebody.press("ArrowRight")
    second = await somebody.see(".chart-ttft .readout")
    assert len({now, first, second}) == 3
    assert re.fullmatch(r"\d\d:\d\d · p50 [\d.]+ m?s · p95 [\d.]+ m?s", second)
    assert (await somebody.see(".chart-requests .readout"))[:5] == second[:5]  # the charts share the moment
    told = "document.querySelector('.chart-ttft .plot').getAttribute('aria-valuetext')"
    assert await somebody.page.asked(told) == second
    await somebody.press("Tab")
    assert await somebody.see(".chart-ttft .readout") == now

    await somebody.page.asked("document.querySelector('.recent button.open').focus()")
    await somebody.press("ArrowDown")
    await somebody.press("Enter")
    await somebody.page.until("document.querySelector('.below .details') !== null")
    assert await somebody.page.asked("document.activeElement.getAttribute('aria-expanded')") == "true"
    await somebody.press("Enter")
    await somebody.page.until("document.querySelector('.below') === null")


async def test_times_are_those_of_the_browsers_zone(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk, "/scopes/acme/apollo?window=24h", DRAWN_SCOPE)
    assert "Times in Asia/Tokyo" in await somebody.see("#foot-facts")
    await somebody.page.asked("document.querySelector('.chart-requests .plot').focus()")
    await somebody.press("End")
    # The data's now is 10:03 UTC: 19:03 in Tokyo, in the point that began at 18:48.
    step = 1440.0
    began = int(figures.NOW // step * step) + 9 * 3600
    assert (await somebody.see(".chart-requests .readout")).startswith(
        f"{began // 3600 % 24:02}:{began // 60 % 60:02} · "
    )


async def test_an_id_is_copied(chromium: Chromium, desk: Desk) -> None:
    wanted = (figures.scope("acme", "hermes", "1h") or {})["recent"][0]["request_id"]
    somebody = await look(chromium, desk, f"/requests/{wanted}", "document.querySelector('.copy') !== null")
    await somebody.page.chromium.ask(
        "Browser.grantPermissions",
        permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
        browserContextId=somebody.page.context,
    )
    await somebody.page.click(".copy")
    await somebody.page.until(
        "document.querySelector('.copy').textContent === 'Copied' || getSelection().toString() !== ''"
    )
    copied = await somebody.page.asked("navigator.clipboard.readText().catch(() => getSelection().toString())")
    assert copied == wanted
