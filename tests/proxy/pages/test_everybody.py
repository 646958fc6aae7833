"""The pages for everybody: by keyboard, by ear, in the dark, in Japanese, on a small screen."""

from __future__ import annotations

import json
import re

import pytest

from proxy import pages
from tests.parts.chromium_profiles import Chromium
from tests.proxy.pages import figures
from tests.proxy.pages.looking import (
    BEYOND_THE_EDGE,
    CLIPPED,
    DRAWN,
    DRAWN_SCOPE,
    FAINT_TEXTS,
    NOTICE,
    SEEN_TEXTS,
    look,
    person,
)
from tests.proxy.pages.served import Desk, Json

pytestmark = pytest.mark.process

SCOPES_CAPTION = (
    "Each workspace and project with its requests, failures, first-token times, reuse, tokens saved and open streams"
)


REQUEST = (figures.scope("globex", "code-review", "1h") or {})["recent"][0]["request_id"]
RINGING = "document.querySelector('.banner.alarm') !== null"


async def test_the_whole_way_by_keyboard(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    await somebody.press("Tab")
    assert await somebody.holds() == "Skip to the content"
    assert await somebody.page.asked("document.activeElement.getBoundingClientRect().top >= 0")
    await somebody.press("Enter")
    assert await somebody.page.asked("document.activeElement.id") == "main"
    for _ in range(20):
        await somebody.press("Tab")
        if await somebody.page.asked("document.activeElement.matches('a.scope')"):
            break
    assert await somebody.holds() == "code-review"
    await somebody.press("ArrowDown")
    await somebody.press("ArrowDown")
    await somebody.press("ArrowUp")
    assert await somebody.holds() == "support-bot"
    assert await somebody.page.asked("getComputedStyle(document.activeElement.closest('tr')).outlineStyle") == "solid"
    await somebody.press("End")
    assert await somebody.holds() == (await somebody.all("a.scope"))[-1]
    await somebody.press("Home")
    assert await somebody.holds() == "code-review"
    # The whole table is one stop: the next is beyond it.
    await somebody.press("Tab")
    assert not await somebody.page.asked("document.activeElement.matches('.scopes *')")
    await somebody.press("Tab", shift=True)
    assert await somebody.holds() == "code-review"
    await somebody.press("Enter")
    await somebody.page.until(DRAWN_SCOPE)
    assert await somebody.page.asked("location.pathname") == "/scopes/globex/code-review"


async def test_slash_searches_and_escape_leaves(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    await somebody.press("/")
    assert await somebody.page.asked("document.activeElement.id") == "request-id"
    assert await somebody.page.asked("document.activeElement.value") == ""
    for key in ("a", "/", "b"):
        await (somebody.press(key) if key == "/" else somebody.type(key))
    assert await somebody.page.asked("document.activeElement.value") == "a/b"
    await somebody.press("Escape")
    assert await somebody.page.asked("document.activeElement.id") != "request-id"
    await somebody.press("/")
    wanted = (figures.scope("acme", "hermes", "1h") or {})["recent"][3]
    await somebody.type(f"  {wanted['request_id']} ")
    await somebody.press("Enter")
    await somebody.page.until("document.querySelector('.details') !== null")
    assert wanted["trace_id"] in await somebody.page.text()
    assert await somebody.page.asked("document.title") == f"{wanted['request_id']} · saltgate"
    await somebody.press("/")
    await somebody.type("../../etc/passwd?x=1#y")
    await somebody.press("Enter")
    said = "document.querySelector('#request-id').validationMessage"
    assert str(await somebody.page.asked(said)).startswith("That is no request id")
    assert await somebody.page.asked("location.pathname") == f"/requests/{wanted['request_id']}"
    await somebody.page.asked("document.querySelector('#request-id').select()")
    await somebody.type("req_0123")
    assert await somebody.page.asked(said) == ""
    await somebody.press("Enter")
    await somebody.page.until("document.querySelector('[data-notice=request_missing]') !== null")
    assert await somebody.page.asked("location.pathname") == "/requests/req_0123"


async def test_nobody_is_caught_anywhere_by_tab(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk, "/scopes/acme/apollo", DRAWN_SCOPE)
    seen, at = list[str](), ""
    for _ in range(60):
        await somebody.press("Tab")
        at = str(await somebody.page.asked("document.activeElement.outerHTML.slice(0, 200)"))
        assert await somebody.page.asked(
            "document.activeElement === document.body || document.activeElement.id === 'main' || "
            "['outlineStyle'].some((s) => getComputedStyle(document.activeElement)[s] !== 'none') || "
            "document.activeElement.matches('.segments input')"
        ), at
        if at in seen:
            break
        seen.append(at)
    assert 8 < len(seen) < 60
    assert at == seen[0] or at.startswith("<body")


async def test_dark_by_the_system_and_by_choice(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = await somebody.page.asked(paper)
    await somebody.prefers(prefers_color_scheme="dark")
    dark = await somebody.page.asked(paper)
    assert light != dark
    await somebody.page.click("#theme")  # from the system's to light
    assert await somebody.page.asked(paper) == light
    await somebody.page.click("#theme")
    assert await somebody.page.asked(paper) == dark
    await somebody.prefers(prefers_color_scheme="light")
    await somebody.page.go(desk.url)
    assert await somebody.page.asked(paper) == dark  # remembered, and there from the first paint
    await somebody.page.until(DRAWN)
    await somebody.page.click("#theme")
    assert await somebody.page.asked(paper) == light


async def test_japanese_by_the_browser_and_by_choice(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk, "/?window=6h", language="ja-JP,ja")
    assert await somebody.page.asked("document.documentElement.lang") == "ja"
    assert await somebody.see(".tile-saved dt") == "節約したプロンプトトークン"
    reused = figures.overview("6h")["total"]["reused_tokens"]
    assert await somebody.see(".tile-saved .tile-value") == f"{reused / 1e8:.3g}億"
    assert "要確認のプロジェクト\N{FULLWIDTH COLON}4 件" in await somebody.page.text()
    await somebody.page.asked(
        "const s = document.querySelector('#language'); s.value = 'en'; s.dispatchEvent(new Event('change'))"
    )
    await somebody.page.until(
        "document.documentElement.lang === 'en' && document.querySelector('.lead')?.textContent !== ''"
    )
    await somebody.page.go(desk.url)
    await somebody.page.until(DRAWN)
    assert await somebody.see(".tile-saved dt") == "Prompt tokens saved"
    french = await look(chromium, desk, language="fr-FR")
    assert await french.page.asked("document.documentElement.lang") == "en"


@pytest.mark.parametrize("language", ["en", "ja"])
@pytest.mark.parametrize(
    ("path", "until"),
    [("/", DRAWN), ("/scopes/globex/code-review", DRAWN_SCOPE), ("/requests/none", NOTICE)],
)
async def test_no_visible_word_is_outside_the_catalogues(
    chromium: Chromium, desk: Desk, language: str, path: str, until: str
) -> None:
    """Each word of the catalogue is marked; what is seen without a mark must be of the data, or part of a number."""
    source = pages.assets()[f"words.{language}.js"].body.decode()
    catalogue = json.loads(source.removeprefix("export default ").rstrip(";\n"))
    marked = {key: re.sub(r"(\{\w+\})", r"⟧\1⟦", f"⟦{text}⟧") for key, text in catalogue.items()}
    desk.assets = {f"words.{language}.js": f"export default {json.dumps(marked)};".encode()}
    somebody = await look(chromium, desk, path, until, language=language)
    if "scopes" in path:
        await somebody.page.click(".recent tbody button.open")
        await somebody.page.until("document.querySelector('.below') !== null")
    seen = [str(text) for text in await somebody.page.asked(SEEN_TEXTS)]
    assert sum("⟦" in text for text in seen) > 5
    data = {*strings(figures.overview("1h")), *strings(figures.scope("globex", "code-review", "1h"))}
    same = {"saltgate", "p50", "p95", "Asia/Tokyo", "Nov", "Dec", "M", "K", "億", "万", "年", "月", "日", "none"}
    known = re.compile("|".join(re.escape(each) for each in sorted(data | same, key=len, reverse=True)))
    outside = {known.sub("", re.sub(r"⟦[^⟧]*⟧", "", text)) for text in seen}
    assert {text for text in outside if re.search(r"[^\W\d_]", text)} == set()


def strings(data: object) -> set[str]:
    match data:
        case str():
            return {data}
        case dict():
            return {each for value in data.values() for each in strings(value)} | set(data.get("proofs", ()))
        case list():
            return {each for value in data for each in strings(value)}
        case _:
            return set()


@pytest.mark.parametrize("language", ["en", "ja"])
@pytest.mark.parametrize("width", [360, 768, 1100, 1600])
async def test_it_fits(chromium: Chromium, desk: Desk, width: int, language: str) -> None:
    somebody = await person(chromium, width=width, height=900, language=language)
    for path, until in (("/?window=24h", DRAWN), ("/scopes/globex/code-review", DRAWN_SCOPE)):
        await somebody.page.go(desk.url + path)
        await somebody.page.until(until)
        assert await somebody.page.asked("shift") < 0.01  # until here nobody has touched anything
        if "scopes" in path:
            await somebody.page.click(".recent tbody button.open")
            await somebody.page.until("document.querySelector('.below') !== null")
        assert (
            await somebody.page.asked("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            <= 0
        )
        assert await somebody.page.asked(BEYOND_THE_EDGE) == []
        assert await somebody.page.asked(CLIPPED) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_text_that_is_drawn_can_be_read(chromium: Chromium, desk: Desk, theme: str) -> None:
    def eventful(data: Json) -> Json:
        data["alarms"] = [{"check": "salt_in_answer", "count": 2, "last": data["now"]}]
        if "engines" in data:
            data["engines"][0] |= {"up": False, "proofs": {"chat": "failed"}}
        return data

    desk.change = eventful
    somebody = await person(chromium)
    await somebody.prefers(prefers_color_scheme=theme)
    for path, until in (
        ("/", DRAWN),
        ("/scopes/globex/code-review", DRAWN_SCOPE),
        (f"/requests/{REQUEST}", RINGING),
        ("/requests/x", NOTICE),
    ):
        await somebody.page.go(desk.url + path)
        await somebody.page.until(until)
        if "scopes" in path:
            await somebody.page.click(".recent tbody button.open")
        if path != "/requests/x":
            assert "Border alarm" in await somebody.see("#alarms")
        seen, faint = await somebody.page.asked(FAINT_TEXTS)
        assert seen > 5
        assert faint == []
    desk.down = True
    await somebody.page.go(desk.url)
    await somebody.page.until(NOTICE)
    assert (await somebody.page.asked(FAINT_TEXTS))[1] == []


@pytest.mark.parametrize(("path", "until"), [("/", DRAWN), ("/scopes/globex/code-review", DRAWN_SCOPE)])
async def test_whatever_can_be_used_has_a_name(chromium: Chromium, desk: Desk, path: str, until: str) -> None:
    """As a screen reader finds it: the browser's own accessibility tree."""
    somebody = await look(chromium, desk, path, until)
    tree = (await somebody.ask("Accessibility.getFullAXTree"))["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node.get("ignored") and "role" in node
    ]
    used = [
        name for role, name in named if role in {"button", "link", "searchbox", "slider", "combobox", "radio", "table"}
    ]
    assert len(used) > 10
    assert all(used)
    roles = {role for role, _ in named}
    assert {"main", "banner", "contentinfo", "search", "heading", "table", "columnheader", "rowheader"} <= roles
    if path == "/":
        assert (
            "table",
            SCOPES_CAPTION,
        ) in named


async def test_who_wants_no_motion_sees_none(chromium: Chromium, desk: Desk) -> None:
    somebody = await look(chromium, desk)
    dot = "getComputedStyle(document.querySelector('.pulse-dot')).animationName"
    assert await somebody.page.asked(dot) == "beat"
    await somebody.prefers(prefers_reduced_motion="reduce")
    assert await somebody.page.asked(dot) == "none"
