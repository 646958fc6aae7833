"""Somebody who looks at the pages: with a window of some size, a theme, a language, a time zone and a keyboard."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.parts.chromium_profiles import Chromium, Page
from tests.proxy.pages.served import Desk

# Kept before any script of the page runs.
_WATCH: Final = """
window.violations = []; window.shift = 0; window.longest = 0;
addEventListener('securitypolicyviolation', (e) => violations.push(`${e.violatedDirective} ${e.blockedURI}`));
new PerformanceObserver((list) => list.getEntries().forEach((e) => { if (!e.hadRecentInput) shift += e.value; }))
  .observe({type: 'layout-shift', buffered: true});
new PerformanceObserver((list) => list.getEntries().forEach((e) => { longest = Math.max(longest, e.duration); }))
  .observe({type: 'longtask', buffered: true});
"""
# Each text that is seen, and each name that is read out, but for what a page shows of the data and nothing else.
SEEN_TEXTS: Final = """
(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) {
    const holder = walker.currentNode.parentElement;
    if (!holder.closest('noscript, code') && holder.checkVisibility()) found.push(walker.currentNode.data);
  }
  for (const name of ['aria-label', 'placeholder', 'title', 'aria-valuetext'])
    for (const each of document.querySelectorAll(`[${name}]`)) found.push(each.getAttribute(name));
  return found;
})()
"""

# How many texts are drawn, and which of them have less than 4.5 times the contrast to what is behind (WCAG 1.4.3).
FAINT_TEXTS: Final = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const parts = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below) => [...top.slice(0, 3).map((part, at) => part * top[3] + below[at] * (1 - top[3])), 1];
  const paper = (node) => {
    if (!node) return parts(getComputedStyle(document.documentElement).colorScheme === 'dark' ? 'black' : 'white');
    const own = parts(getComputedStyle(node).backgroundColor);
    return own[3] === 1 ? own : over(own, paper(node.parentElement));
  };
  const linear = (part) => (part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [red, green, blue] = colour.slice(0, 3).map((part) => linear(part / 255));
    return .2126 * red + .7152 * green + .0722 * blue;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = new Set();
  let seen = 0;
  while (walker.nextNode()) {
    const holder = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || !holder.checkVisibility({opacityProperty: true})) continue;
    if (holder.closest('noscript, .unseen, svg, option')) continue;
    seen++;
    const below = paper(holder), ink = over(parts(getComputedStyle(holder).color), below);
    const [low, high] = [light(ink), light(below)].sort((one, other) => one - other);
    const ratio = (high + .05) / (low + .05);
    if (ratio < 4.5) found.add(`${holder.className} ${text.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return [seen, [...found]];
})()
"""

BEYOND_THE_EDGE: Final = """
[...document.querySelectorAll('main *')].filter((each) => each.checkVisibility())
  .filter((each) => !each.closest('svg, .unseen, thead'))
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.className)
"""
CLIPPED: Final = """
[...document.querySelectorAll('.tile-value')].filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.textContent)
"""

# What there is to wait for.
ROWS: Final = "document.querySelectorAll('.scopes tbody tr').length"
DRAWN: Final = f"{ROWS} > 5"
DRAWN_SCOPE: Final = "document.querySelectorAll('.recent tbody tr').length > 5"
NOTICE: Final = "document.querySelector('.notice') !== null"
UNKNOWN: Final = "\N{EN DASH}"

_KEYS: Final = {
    "Tab": ("Tab", 9), "Enter": ("Enter", 13), "Escape": ("Escape", 27), "ArrowDown": ("ArrowDown", 40),
    "ArrowUp": ("ArrowUp", 38), "ArrowLeft": ("ArrowLeft", 37), "ArrowRight": ("ArrowRight", 39),
    "Home": ("Home", 36), "End": ("End", 35), "/": ("Slash", 191), " ": ("Space", 32),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Person:
    """`page` is what he sees."""

    page: Page

    async def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        return await self.page.chromium.ask(method, self.page.session, **parameters)

    async def resize(self, width: int, height: int) -> None:
        await self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def prefers(self, **features: str) -> None:
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        await self.ask("Emulation.setEmulatedMedia", features=named)

    async def press(self, key: str, *, shift: bool = False) -> None:
        code, number = _KEYS[key]
        text = {"Enter": "\r", "/": "/", " ": " "}.get(key)
        down = {
            "type": "keyDown",
            "key": key,
            "code": code,
            "windowsVirtualKeyCode": number,
            "modifiers": 8 if shift else 0,
        }
        await self.ask("Input.dispatchKeyEvent", **(down if text is None else down | {"text": text}))
        await self.ask("Input.dispatchKeyEvent", **(down | {"type": "keyUp"}))

    async def type(self, text: str) -> None:
        await self.ask("Input.insertText", text=text)

    async def see(self, selector: str) -> str:
        """The text of the first element there, once it has one: a page is at its address before its words are."""
        text = f"document.querySelector({json.dumps(selector)})?.textContent"
        await self.page.until(text)
        return str(await self.page.asked(text))

    async def blank(self, selector: str) -> bool:
        """Whether the first element there has no text."""
        return bool(await self.page.asked(f"document.querySelector({json.dumps(selector)}).textContent === ''"))

    async def all(self, selector: str) -> list[str]:
        """The text of each element there."""
        found = await self.page.asked(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
        )
        return [str(text) for text in found]

    async def holds(self) -> str:
        """What has the focus, as a person would name it."""
        return str(
            await self.page.asked(
                "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent || "
                "document.activeElement.id || document.activeElement.tagName).trim()"
            )
        )

    async def picture(self, file: Path) -> None:
        shot = await self.ask("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """What the console said of errors, and scripts that failed."""
        said = []
        for event in self.page.chromium.events:
            match event:
                case {"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": details}}:
                    said.append(str(details))
                case {
                    "method": "Runtime.consoleAPICalled",
                    "params": {"type": "error" | "warning" | "assert", "args": given},
                }:
                    said.append(str(given))
                case {"method": "Log.entryAdded", "params": {"entry": {"level": "error" | "warning"} as entry}}:
                    said.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
                case _:
                    pass
        return said


async def person(chromium: Chromium, *, width: int = 1280, height: int = 900, language: str = "en-GB") -> Person:
    """With a browser in which nothing is remembered."""
    somebody = Person(await chromium.page())
    await somebody.ask("Runtime.enable")
    await somebody.ask("Log.enable")
    await somebody.ask("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
    agent = str((await chromium.ask("Browser.getVersion"))["userAgent"])
    await somebody.ask("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage=language)
    await somebody.ask("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
    await somebody.prefers(prefers_color_scheme="light")
    await somebody.resize(width, height)
    return somebody


async def look(chromium: Chromium, desk: Desk, path: str = "/", until: str = DRAWN, **how: Any) -> Person:
    """Somebody new at that page, when it is drawn."""
    somebody = await person(chromium, **how)
    await somebody.page.go(desk.url + path)
    await somebody.page.until(until)
    return somebody
