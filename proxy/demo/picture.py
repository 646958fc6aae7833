"""The scene's table as a picture (SVG): a bar for each time to the first token, green where the prompt was reused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from proxy.demo.scene import Row

_WIDTH: Final = 920
_MARGIN: Final = 20
_TOP: Final = 72
_LINE: Final = 32
_GAP: Final = 12
_BOTTOM: Final = 48
# A character of the widest font that a viewer may choose, at the size of _STYLE.
_CHARACTER: Final = 8.5
_TITLE_CHARACTER: Final = 11.0


@dataclass(frozen=True, slots=True)
class _Column:
    """A column from `left` to `right`, in pixels."""

    left: int
    right: int

    @property
    def width(self) -> int:
        return self.right - self.left


_WHOLE: Final = _Column(_MARGIN, _WIDTH - _MARGIN)
_WHO: Final = _Column(_MARGIN, 330)
_BAR: Final = _Column(340, 540)
_TIME: Final = _Column(545, 640)
_REUSED: Final = _Column(655, _WIDTH - _MARGIN)

_STYLE: Final = """\
text { font: 14px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 18px; font-weight: 600 }
.prompt { font-weight: 600 }
.quiet { fill: #59636e }
.paper { fill: #ffffff }
.cold { fill: #bc4c00 }
.warm { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .quiet { fill: #9198a1 }
  .paper { fill: #0d1117 }
  .cold { fill: #db6d28 }
  .warm { fill: #3fb950 }
}"""


def picture(rows: Sequence[Row], *, title: str) -> str:
    """An SVG document that reads in light and dark, of one row or more. `title` says where they were measured."""
    longest = max(row.seconds for row in rows)
    lines: list[str] = []
    top = _TOP
    for prompt, group in itertools.groupby(rows, key=lambda row: row.prompt):
        lines.append(_text(_WHOLE, top + 19, f"{prompt} prompt", kind="prompt"))
        top += _LINE
        for row in group:
            lines += _row(row, top, longest)
            top += _LINE
        top += _GAP
    height = top + _BOTTOM
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" role="img">
<title>{escape(title)}</title>
<style>
{_STYLE}
</style>
<rect class="paper" width="{_WIDTH}" height="{height}" rx="8"/>
{_text(_WHOLE, 32, "The same text, sent four times: time to the first token", kind="title")}
{_text(_WHOLE, 54, title, kind="quiet")}
{chr(10).join(lines)}
{_text(_WHOLE, height - 20, "Who shares a project shares the cache; a stranger does not.", kind="quiet")}
</svg>
"""


def _row(row: Row, top: int, longest: float) -> Iterator[str]:
    bar = max(round(_BAR.width * row.seconds / (longest or 1.0)), 2)
    colour = "warm" if row.reused else "cold"
    reused = "reuse not told" if row.reused is None else f"{row.reused:,} of {row.prompt_tokens:,} tokens reused"
    yield _text(_WHO, top + 19, row.who)
    yield f'<rect class="{colour}" x="{_BAR.left}" y="{top + 4}" width="{bar}" height="20" rx="3"/>'
    yield _text(_TIME, top + 19, f"{row.seconds * 1000:,.1f} ms", at_right=True)
    yield _text(_REUSED, top + 19, reused, kind="quiet")


def _text(column: _Column, baseline: int, text: str, *, kind: str = "", at_right: bool = False) -> str:
    """The text in its column. One that might be too long for it is made narrower, never cut."""
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' x="{column.right}" text-anchor="end"' if at_right else f' x="{column.left}"'
    if len(text) * (_TITLE_CHARACTER if kind == "title" else _CHARACTER) > column.width:
        attributes += f' textLength="{column.width}" lengthAdjust="spacingAndGlyphs"'
    return f'<text{attributes} y="{baseline}">{escape(text)}</text>'
