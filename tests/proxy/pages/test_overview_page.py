"""What somebody sees of the whole gate, in a real browser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.parts.chromium_profiles import Chromium
from tests.proxy.pages import figures
from tests.proxy.pages.looking import DRAWN, ROWS, UNKNOWN, look
from tests.proxy.pages.served import Desk, Json

pytestmark = pytest.mark.process


async def test_three_seconds_tell_what_matters(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk, "/?window=6h")
    total = figures.overview("6h")["total"]
    assert await somebody.see(".lead") == "4 projects want a look."
    assert await somebody.see(".tile-border .tile-value") == "Intact"
    assert await somebody.see(".tile-saved .tile-value") == f"{total['reused_tokens'] / 1e6:.0f}M"
    assert "h" in await somebody.see(".tile-saved .tile-sub")
    assert await somebody.see(".tile-ttft .tile-value") == f"{total['ttft_p50'] * 1e3:.0f} ms"
    assert await somebody.see(".tile-reuse .tile-value") == f"{total['reuse_rate']:.0%}"
    assert await somebody.see(".tile-requests .tile-sub") == f"{total['requests']:,} in 6 hours"
    # What needs a look is first: the one that fails, and its workspace above it.
    assert (await somebody.all(".scopes tbody .scope"))[:2] == ["globex", "code-review"]
    why = await somebody.all(".scopes .why:not(:empty)")
    assert [text.split(":")[0].split(" ")[-1] for text in why] == ["fail", "fell", "Slower", "refused"]
    assert await somebody.page.asked("document.querySelectorAll('.scopes tbody path[d]').length") > 50
    assert somebody.complaints() == []
    assert await somebody.page.asked("violations") == []


async def test_a_few_requests_are_no_trend(chromium: Chromium, desk: Desk) -> None:
    """Nineteen in the last quarter: each looks as if reuse had fallen and times had risen."""
    requests = [1] * 59 + [5]
    points = {
        "requests": requests,
        "failed": [0] * 60,
        "reuse_rate": [0.8] * 45 + [0.1] * 15,
        "ttft_p50": [0.1] * 45 + [1.0] * 15,
        "ttft_p95": [0.2] * 45 + [2.0] * 15,
    }

    def few(data: Json) -> Json:
        for workspace in data["workspaces"]:
            for project in workspace["projects"]:
                project |= {"points": points, "requests": 64, "outcomes": {"ok": 64}, "reuse_rate_before": 0.7}
        return data

    desk.change = few
    somebody = await look(chromium, desk)
    assert await somebody.see(".lead") == "Nothing stands out."
    requests[-1] = 6
    await somebody.page.until("document.querySelector('.lead').textContent === '12 projects want a look.'")


async def test_new_data_shows_in_place(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    await somebody.page.until("document.querySelector('#pulse').dataset.kind === 'live'")
    await somebody.page.asked("document.querySelectorAll('.tile, .scopes tbody tr').forEach((e) => { e.same = true; })")
    await somebody.page.asked("getSelection().selectAllChildren(document.querySelector('.lead'))")

    def later(data: Json) -> Json:
        data["total"]["open_streams"] = 4321
        return data

    desk.change = later
    await somebody.page.until("document.querySelector('.tile-open .tile-value').textContent === '4,321'")
    assert await somebody.page.asked("[...document.querySelectorAll('.tile, .scopes tbody tr')].every((e) => e.same)")
    assert await somebody.page.asked("getSelection().toString()") == "4 projects want a look."
    # What did not change is not sent again.
    before = desk.unchanged
    async with asyncio.timeout(30):
        while desk.unchanged < before + 2:
            await asyncio.sleep(0.1)
    assert await somebody.page.asked("document.querySelector('#pulse').dataset.kind") == "live"


async def test_nobody_looks_so_nothing_is_asked(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    await somebody.page.asked(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    await asyncio.sleep(1)
    asked = len(desk.asked)
    await asyncio.sleep(7)  # two times as long as it asks otherwise
    assert len(desk.asked) == asked
    await somebody.page.asked("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    async with asyncio.timeout(20):
        while len(desk.asked) == asked:
            await asyncio.sleep(0.05)


async def test_what_is_unknown_is_never_a_zero(chromium: Chromium, desk: Desk) -> None:
    unknown = dict.fromkeys(("ttft_p50", "ttft_p95", "reuse_rate", "reuse_rate_before", "prefill_seconds_saved"))

    def nothing_known(data: Json) -> Json:
        for each in (data["total"], *data["workspaces"], *(p for w in data["workspaces"] for p in w["projects"])):
            each |= unknown
            each["points"] |= {name: [None] * 60 for name in ("ttft_p50", "ttft_p95", "reuse_rate")}
        data["alarms"] = data["engines"] = []
        return data

    desk.change = nothing_known
    somebody = await look(chromium, desk)
    for tile in ("ttft", "reuse", "border"):
        assert await somebody.see(f".tile-{tile} .tile-value") == UNKNOWN
    prompt = figures.overview("1h")["total"]["prompt_tokens"]
    assert await somebody.see(".tile-saved .tile-sub") == f"of {prompt / 1e6:.3g}M; prefill time not known yet"
    assert set(await somebody.all(".scopes .rate")) == {UNKNOWN}
    assert set(await somebody.all(".scopes td.c-ttft .pair > span")) == {UNKNOWN}
    assert "NaN" not in await somebody.page.text()
    assert somebody.complaints() == []


async def test_nothing_happened_yet(chromium: Chromium, desk: Desk) -> None:
    def quiet(data: Json) -> Json:
        none = figures.together([figures.figures("a", "b", 0.0, 0.0, 0.0, None, step=60.0)])
        data |= {"workspaces": [], "total": none | {"reuse_rate": None, "reuse_rate_before": None}, "refusals": []}
        return data

    desk.change = quiet
    somebody = await look(chromium, desk, until="document.querySelector('[data-notice=empty]')?.checkVisibility()")
    assert await somebody.see(".tile-saved .tile-value") == UNKNOWN
    assert await somebody.blank(".tile-saved .tile-sub")
    assert await somebody.see(".tile-open .tile-value") == "0"
    assert not await somebody.page.asked("document.querySelector('.scopes').checkVisibility()")
    assert "There were none." in await somebody.page.text()


async def test_an_alarm_cannot_be_missed(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    assert await somebody.page.asked("document.querySelector('#alarms').textContent") == ""

    def rung(data: Json) -> Json:
        data["alarms"] = [{"check": "salt_in_answer", "count": 2, "last": data["now"]}]
        return data

    desk.change = rung
    await somebody.page.until("document.querySelector('.banner.alarm') !== null")
    assert "A salt stood in an engine's answer: 2 times, last at 1 Dec" in (await somebody.see("#alarms")).replace(
        "Dec 1", "1 Dec"
    )
    assert await somebody.page.asked("document.querySelector('#alarms').getAttribute('role')") == "alert"
    assert await somebody.page.asked("document.title") == "Alarm! saltgate"
    assert await somebody.page.asked("document.querySelector('#icon').getAttribute('href')") == "/assets/icon-alarm.svg"
    assert await somebody.see(".tile-border .tile-value") == "Alarm"
    shown = "document.querySelector('.banner.alarm').getBoundingClientRect()"
    assert await somebody.page.asked(f"{shown}.top < 100 && {shown}.width > 1000")


@pytest.mark.parametrize("language", ["en", "ja"])
async def test_an_alarm_rings_on_every_page_and_until_it_is_over(chromium: Chromium, desk: Desk, language: str) -> None:
    recent = (figures.scope("acme", "apollo", "1h") or {})["recent"]
    named = {
        "/": "saltgate",
        "/scopes/acme/apollo": "acme / apollo · saltgate",
        f"/requests/{recent[0]['request_id']}": f"{recent[0]['request_id']} · saltgate",
    }
    since = desk.now

    def rung(data: Json) -> Json:
        return data | {"alarms": [{"check": "engine_proof_failed", "count": 1, "last": since}]}

    for path, title in named.items():
        desk.change, desk.now = rung, since
        somebody = await look(
            chromium, desk, path, "document.querySelector('.banner.alarm') !== null", language=language
        )
        words = {"en": ("Border alarm", "Alarm! "), "ja": ("境界アラーム", "警報 ")}[language]
        assert words[0] in await somebody.see("#alarms")
        assert await somebody.page.asked("document.title") == f"{words[1]}{title}"
        assert await somebody.page.asked("document.querySelector('.banner.alarm').getBoundingClientRect().top") < 100
        assert (
            await somebody.page.asked("document.querySelector('#icon').getAttribute('href')")
            == "/assets/icon-alarm.svg"
        )
        # A day later it has been seen, and what one reads stays where it is.
        await somebody.page.asked("document.querySelector('h1').same = true")
        desk.now = since + 86_401
        await somebody.page.until("document.querySelector('.banner.alarm') === null")
        assert await somebody.page.asked("document.title") == title
        assert await somebody.page.asked("document.querySelector('h1').same")
        assert somebody.complaints() == []


async def test_an_alarm_of_days_ago_is_told_of_quietly(chromium: Chromium, desk: Desk) -> None:
    def rung_once(data: Json) -> Json:
        data["alarms"] = [{"check": "salt_in_answer", "count": 2, "last": data["now"] - 3 * 86_400}]
        return data

    desk.change = rung_once
    somebody = await look(chromium, desk)
    assert await somebody.blank("#alarms")
    assert await somebody.see(".tile-border .tile-value") == "Intact"
    assert await somebody.see(".tile-border .tile-sub") == "3 of 3 engines up. Last alarm: Nov 28, 2026"


async def test_an_engine_that_is_not_proven_shows_at_the_border(chromium: Chromium, desk: Desk) -> None:
    def failed(data: Json) -> Json:
        data["engines"][1]["proofs"]["chat"] = "failed"
        for workspace in data["workspaces"]:
            for project in workspace["projects"]:
                project |= {"requests": 9, "outcomes": {"ok": 9}}
                project["points"] |= {"requests": [0] * 60}
        return data

    desk.change = failed
    somebody = await look(chromium, desk)
    assert await somebody.see(".tile-border .tile-value") == "Not proven"
    assert await somebody.see(".lead") == "Of some engine it is not proven that it keeps scopes apart."


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"engines": []}, "4 projects want a look."),
        ({"engines": [{"engine": "a", "replica": "b", "up": False, "proofs": {}}]}, "1 engine is down."),
        ({"ready": False, "waits_for": ["directory", "keys"]}, "Not serving yet. Waiting for: directory, keys"),
        ({"alarms": [{"check": "salt_in_answer", "count": 1, "last": None}], "ready": False}, "Border alarm"),
    ],
)
async def test_the_worst_is_said_in_one_sentence(chromium: Chromium, desk: Desk, change: Json, sentence: str) -> None:
    def changed(data: Json) -> Json:
        data["gate"] |= {name: value for name, value in change.items() if name in data["gate"]}
        return data | {name: value for name, value in change.items() if name in data}

    desk.change = changed
    somebody = await look(chromium, desk)
    assert await somebody.see(".lead") == sentence


@dataclass(frozen=True, slots=True)
class Once:
    """The same overview again and again: a thousand scopes are not made in a moment."""

    data: Json

    def overview(self, window: str) -> Json:
        return self.data

    def scope(self, workspace: str, project: str, window: str) -> Json | None:
        return None

    def request(self, request_id: str) -> Json | None:
        return None


MORE = ".card > .quiet"
NEXT, PREVIOUS = ".pages button:last-child", ".pages button:first-child"
SHOWN = ".pages [role=status]"


def rows(first: int, last: int, whole: int) -> str:
    return f"Rows {first:,}{UNKNOWN}{last:,} of {whole:,}"


async def test_two_thousand_scopes_for_a_day(chromium: Chromium, desk: Desk) -> None:
    """However many there are, a hundred rows are there at a time, and all of them can be reached."""
    desk.told = Once(figures.overview("24h", cast=figures.many(2000)))
    somebody = await look(chromium, desk, "/?window=24h")
    assert await somebody.page.asked(ROWS) == 40
    assert await somebody.see(MORE) == "Show all 2,200 rows"
    assert not await somebody.page.asked("document.querySelector('.pages').checkVisibility()")
    # A few dozen rows a frame, so that the page answers meanwhile.
    await somebody.page.asked(
        "window.made = [];"
        "new MutationObserver((list) => made.push(list.flatMap((each) => [...each.addedNodes]).length))"
        ".observe(document.querySelector('.scopes tbody'), {childList: true});"
        f"document.querySelector('{MORE}').click()"
    )
    await somebody.page.until(f"{ROWS} === 100")
    seen: set[str] = set()
    for page in range(22):
        first, last = page * 100 + 1, page * 100 + 100
        assert await somebody.see(SHOWN) == rows(first, last, 2200)
        await somebody.page.until(f"{ROWS} >= 100")
        seen |= set(await somebody.page.asked("[...document.querySelectorAll('a.scope')].map((e) => e.href)"))
        assert await somebody.page.asked(f"{ROWS} <= 101 && document.querySelectorAll('*').length < 9000")
        await somebody.page.click(NEXT)
    assert len(seen) == 2000
    assert max(await somebody.page.asked("made")) <= 40
    # It is the last page: there is nothing after it, and a reader is told so.
    assert await somebody.see(SHOWN) == rows(2101, 2200, 2200)
    assert await somebody.page.asked(f"document.querySelector('{NEXT}').ariaDisabled") == "true"
    assert await somebody.page.asked("document.querySelector('.scopes').getAttribute('aria-rowcount')") == "2201"
    # What is looked for is found among all of them.
    await somebody.page.asked(
        "const f = document.querySelector('#filter'); f.value = 'customer-042/'; f.dispatchEvent(new Event('input'))"
    )
    await somebody.page.until(f"{ROWS} === 11")
    assert await somebody.see(".card-head [role=status]") == "10 projects"
    assert not await somebody.page.asked("document.querySelector('.pages').checkVisibility()")
    assert somebody.complaints() == []


async def test_the_pages_of_the_table_are_turned_by_keyboard_and_told_to_readers(
    chromium: Chromium, desk: Desk
) -> None:
    desk.told = Once(figures.overview("24h", cast=figures.many(300)))
    somebody = await look(chromium, desk, "/?window=24h")
    await somebody.page.asked(f"document.querySelector('{MORE}').focus()")
    await somebody.press("Enter")
    await somebody.page.until(f"{ROWS} === 100")
    # On from where one was, not from the top: the last row that was there.
    assert await somebody.page.asked("document.activeElement.closest('tr').ariaRowIndex") == "41"
    await somebody.press("Tab")
    assert await somebody.holds() == "Previous"
    await somebody.press("Tab")
    assert await somebody.holds() == "Next"
    await somebody.press("Enter")
    assert await somebody.see(SHOWN) == rows(101, 200, 330)
    assert await somebody.holds() == "Next"
    index = "document.querySelectorAll('.scopes tbody tr')[1].ariaRowIndex"
    await somebody.page.until(f"{index} !== '3'")
    # A workspace whose projects began on the page before is named again, and its row says which it is.
    heads = await somebody.page.asked(
        "[...document.querySelectorAll('.scopes tbody tr')].slice(0, 2)"
        ".map((e) => [e.className, Number(e.ariaRowIndex)])"
    )
    assert heads == [["group", 101], ["member", 102]]
    await somebody.press("Tab", shift=True)
    await somebody.press("Enter")
    assert await somebody.see(SHOWN) == rows(1, 100, 330)
    tree = (await somebody.ask("Accessibility.getFullAXTree"))["nodes"]
    names = {(node["role"]["value"], node.get("name", {}).get("value")) for node in tree if not node.get("ignored")}
    assert ("navigation", "Pages of this table") in names
    # Another order begins at its first page.
    await somebody.page.click(NEXT)
    await somebody.page.click("th.c-requests button")
    assert await somebody.see(SHOWN) == rows(1, 100, 330)


async def test_rows_keep_their_places_while_somebody_is_in_them(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    await somebody.page.asked("document.querySelector('a.scope').focus()")
    order = await somebody.all(".scopes tbody .scope")

    def turned(data: Json) -> Json:
        for each in data["workspaces"]:
            each["projects"].reverse()
            for project in each["projects"]:
                project["outcomes"] = {"ok": project["requests"]}
                project["open_streams"] = 77
        return data

    desk.change = turned
    members = "[...document.querySelectorAll('.member td.c-open')]"
    await somebody.page.until(f"{members}.length > 5 && {members}.every((each) => each.textContent === '77')")
    assert await somebody.all(".scopes tbody .scope") == order
    await somebody.page.asked("document.activeElement.blur()")
    names = "[...document.querySelectorAll('.scopes tbody .scope')].map((each) => each.textContent).join()"
    await somebody.page.until(f"{names} !== {json.dumps(','.join(order))}")


@pytest.mark.parametrize("column", ["requests", "failed", "ttft", "reuse", "saved", "open"])
async def test_a_column_sorts(chromium: Chromium, desk: Desk, column: str) -> None:
    desk.cast = [(f"w{n}", "p", *figures.CAST[n][2:]) for n in range(12)]
    somebody = await look(chromium, desk)
    await somebody.page.click(f"th.c-{column} button")
    assert (
        await somebody.page.asked(f"document.querySelector('th.c-{column}').getAttribute('aria-sort')") == "descending"
    )
    value: Callable[[Json], float] = {
        "requests": lambda p: p["requests"],
        "failed": lambda p: p["outcomes"]["engine_failed"] + p["outcomes"]["truncated"],
        "ttft": lambda p: p["ttft_p95"], "reuse": lambda p: p["reuse_rate"], "saved": lambda p: p["reused_tokens"],
        "open": lambda p: p["open_streams"],
    }[column]  # fmt: skip
    data = figures.overview("1h", cast=desk.cast)["workspaces"]
    ranked = sorted(data, key=lambda w: (-value(w["projects"][0]), -w["requests"]))
    assert await somebody.all(".scopes .scope .of") == [each["workspace"] for each in ranked]


async def test_the_window_stays_from_page_to_page(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    await somebody.page.click("#window-24h")
    await somebody.page.until("document.querySelector('.tile-requests .tile-sub').textContent.endsWith('24 hours')")
    assert await somebody.page.asked("location.search") == "?window=24h"
    assert "/api/overview?window=24h" in desk.asked
    await somebody.page.until("document.querySelector('a.scope').getAttribute('href').endsWith('window=24h')")
    await somebody.page.go(desk.url)
    await somebody.page.until(DRAWN)
    assert await somebody.page.asked("document.querySelector('#window-24h').checked")
    await somebody.page.go(f"{desk.url}/?window=century")
    await somebody.page.until(DRAWN)
    assert await somebody.page.asked("document.querySelector('#window-24h').checked")
