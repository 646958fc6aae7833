"""JSON inside a string of JSON: what its escapes stand for, level by level."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# JSON in a string in JSON: as deep as tools nest it. Each pass undoes one level.
ESCAPE_LEVELS: Final = 3

_ESCAPE: Final = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|(["\\/bfnrt]))')
_SHORT_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": " ", "n": "\n", "r": "\n", "t": "\t"}


def levels(text: str) -> Iterator[str]:
    """The text as it is; then with one level of escapes less at a time, as long as there are any.

    Each of them, because what is undone too often hides what it was before: `falcon\\u0061` becomes `falcona`.
    """
    yield text
    for _ in range(ESCAPE_LEVELS):
        if "\\" not in text:
            return
        fewer = _ESCAPE.sub(_character, text)
        if fewer == text:
            return
        text = _whole_characters(fewer)
        yield text


def _character(escape: re.Match[str]) -> str:
    code, short = escape.groups()
    return _SHORT_ESCAPES[short] if code is None else chr(int(code, 16))


def _whole_characters(text: str) -> str:
    """Two surrogates in a row are one character; one alone is none, and could not be encoded."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
