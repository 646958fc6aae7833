"""Why there may be nothing to see, and what must never be done with what there is."""

from __future__ import annotations

import pytest

from tests.parts.chromium_profiles import Chromium
from tests.proxy.pages import figures
from tests.proxy.pages.looking import DRAWN, DRAWN_SCOPE, NOTICE, look
from tests.proxy.pages.served import Desk, Json

pytestmark = pytest.mark.process


async def test_the_page_is_there_before_the_data(chromium: Chromium, desk: Desk) -> None:
    desk.open.clear()
    somebody = await look(chromium, desk, until="document.querySelectorAll('.tile').length === 8")
    assert await somebody.see(".tile-saved dt") == "Prompt tokens saved"
    assert await somebody.see("#pulse-text") == "Loading"
    at = "JSON.stringify([...document.querySelectorAll('.bar, .tile, .card h2')].map((e) => e.getBoundingClientRect()))"
    before = await somebody.page.asked(at)
    desk.open.set()
    await somebody.page.until(DRAWN)
    assert await somebody.page.asked(at) == before
    assert await somebody.page.asked("shift") < 0.01


@pytest.mark.parametrize(
    ("status", "body", "notice"),
    [
        (401, {"error": {"code": "sign_in_required"}, "sign_in": "/sign-in"}, "signed_out"),
        (401, {"error": {"code": "sign_in_required"}, "sign_in": None}, "signed_out"),
        (401, {"sign_in": "//evil.example/"}, "signed_out"),
        (401, {"sign_in": "/\\evil.example/"}, "signed_out"),
        (401, {"sign_in": "javascript:alert(1)"}, "signed_out"),
        (403, {"error": {"code": "not_an_administrator"}}, "forbidden"),
        (503, {"error": {"code": "cannot_check"}}, "error"),
        (500, {}, "error"),
    ],
)
async def test_why_there_is_nothing_to_see(
    chromium: Chromium, desk: Desk, status: int, body: Json, notice: str
) -> None:
    desk.refusal = (status, body)
    somebody = await look(chromium, desk, "/?window=15m", f"document.querySelector('[data-notice={notice}]') !== null")
    links = await somebody.page.asked("[...document.querySelectorAll('.notice a')].map((e) => e.getAttribute('href'))")
    assert links == (["/sign-in?return_to=%2F%3Fwindow%3D15m"] if body.get("sign_in") == "/sign-in" else [])
    assert not await somebody.page.asked("document.querySelector('.content').checkVisibility()")
    desk.refusal = None
    await somebody.page.until(f"{DRAWN} && document.querySelector('.notice:not(.content .notice)') === null")
    assert await somebody.page.asked("document.querySelector('.content').checkVisibility()")


async def test_the_session_ends_while_one_looks(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    desk.refusal = (401, {"sign_in": "/sign-in"})
    await somebody.page.until("document.querySelector('[data-notice=signed_out]') !== null")
    assert not await somebody.page.asked("document.querySelector('.content').checkVisibility()")


async def test_old_data_says_how_old_it_is(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    desk.down = True
    await somebody.page.until("document.querySelector('#pulse').dataset.kind === 'stale'")
    await somebody.page.until("/No data for [0-9]+ s/.test(document.querySelector('#trouble').textContent)")
    assert await somebody.page.asked(DRAWN)  # what was there is still there
    desk.down = False
    await somebody.page.until("document.querySelector('#trouble').textContent === ''")


async def test_the_key_of_the_sign_in_goes_with_each_question(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    assert set(desk.keys) == {""}
    await somebody.page.asked("localStorage.setItem('saltgate-key', 'k-1')")
    desk.keys.clear()
    await somebody.page.go(desk.url)
    await somebody.page.until(DRAWN)
    assert set(desk.keys) == {"k-1"}


async def test_all_pages_come_from_here_and_break_no_policy(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    for path, there in (
        ("/scopes/acme/hermes", DRAWN_SCOPE),
        ("/requests/nothing", NOTICE),
        ("/", DRAWN),
    ):
        await somebody.page.go(desk.url + path)
        await somebody.page.until(there)
        loaded = await somebody.page.asked("performance.getEntriesByType('resource').map((e) => e.name)")
        assert all(address.startswith(desk.url) for address in loaded)
        assert await somebody.page.asked("violations") == []
    assert [said for said in somebody.complaints() if "404" not in said] == []


@pytest.mark.parametrize("language", ["en", "ja"])
@pytest.mark.parametrize(("path", "until"), [("/", DRAWN), ("/scopes/acme/hermes", DRAWN_SCOPE)])
async def test_a_page_is_small(chromium: Chromium, desk: Desk, path: str, until: str, language: str) -> None:
    """All that it loads but the data, uncompressed."""
    somebody = await look(chromium, desk, path, until, language=language)
    loaded = "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
    size = f"{loaded}.filter((e) => !e.name.includes('/api/')).reduce((sum, e) => sum + e.encodedBodySize, 0)"
    assert 60_000 < await somebody.page.asked(size) < 100 * 1024


async def test_the_policy_would_stop_what_a_script_wrote_as_markup(chromium: Chromium, desk: Desk) -> None:
    """So that the test above means something: the same page, and one who tries."""
    somebody = await look(chromium, desk)
    tried = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'written'; } catch (e) { return e.name; } })()"
    assert await somebody.page.asked(tried) == "TypeError"
    await somebody.page.asked(
        "document.body.append(Object.assign(document.createElement('style'), {textContent: 'p{}'}))"
    )
    await somebody.page.until("violations.some((each) => each.startsWith('style-src'))")


async def test_markup_in_names_stays_text(chromium: Chromium, desk: Desk) -> None:
    """No name can hold this (contract section 1); if one did, it would be seen, not run."""
    evil = "<img src=x onerror=\"document.title='run'\">{count}$&"
    desk.cast = [(f"{evil}{n}", evil, *figures.CAST[n][2:]) for n in range(7)]

    def spoiled(data: Json) -> Json:
        for key in ("models", "refusals", "engines", "alarms", "recent"):
            for each in data.get(key, ()):
                each |= {
                    name: evil
                    for name in ("model", "code", "engine", "replica", "unit", "refusal_code", "operation", "ttft_kind")
                    if name in each
                }
        if "gate" in data:
            data["gate"]["version"] = data["gate"]["kept_in"] = evil
            data["viewer"] = {"name": evil, "sign_out": "javascript:alert(1)", "form_token": evil}
            data["engines"][0]["proofs"] = {evil: evil, "constructor": "constructor"}
        data["alarms"] = [{"check": evil, "count": 1, "last": None}, {"check": "constructor", "count": 1, "last": None}]
        return data

    desk.change = spoiled
    somebody = await look(chromium, desk)
    assert evil in await somebody.see("a.scope .of ~ .slash + *, a.scope")
    assert evil in await somebody.see(".viewer-name")
    assert await somebody.page.asked("document.querySelector('.viewer form') === null")
    await somebody.page.asked("document.querySelector('a.scope').click()")
    await somebody.page.until(DRAWN_SCOPE)
    assert evil in await somebody.see("#alarms")
    await somebody.page.click(".recent tbody tr")
    await somebody.page.until("document.querySelector('.below') !== null")
    assert evil in await somebody.page.text()
    assert await somebody.page.asked("document.querySelectorAll('img').length") == 0
    assert "run" not in await somebody.page.asked("document.title.replace(/.*/, (t) => t === 'run' ? t : '')")
    assert await somebody.page.asked("violations") == []
    assert somebody.complaints() == []
