"""What a person may recognise a browser of his by: "Firefox on Linux". Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# The first that is named counts: each of them also names those below.
_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def browser_word(headers: Iterable[tuple[str, str]]) -> str:
    """Of a fixed set of words, whatever was sent."""
    sent = next((value for name, value in headers if name.lower() == "user-agent"), "")
    browser = _named(sent, _BROWSERS)
    system = _named(sent, _SYSTEMS)
    return f"{browser or 'A browser'} on {system}" if system else browser or "A browser"


def _named(sent: str, words: Iterable[tuple[str, str]]) -> str | None:
    return next((word for mark, word in words if mark in sent), None)
