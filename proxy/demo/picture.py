"""The scene's table as a picture (SVG): a bar for each time to the first token, grey where the prompt was reused."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from proxy.demo.scene import Row

_WIDTH: Final = 860
_ROW: Final = 34
_TOP: Final = 76
_BARS_AT: Final = 330
_BAR_PIXELS: Final = 300

_STYLE: Final = """\
text { font: 14px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 18px; font-weight: 600 }
.quiet { fill: #59636e }
.paper { fill: #ffffff }
.cold { fill: #bc4c00 }
.warm { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .quiet { fill: #9198a1 } .paper { fill: #0d1117 } .cold { fill: #db6d28 } .warm { fill: #3fb950 }
}"""


def picture(rows: Sequence[Row], *, title: str) -> str:
    """An SVG document that reads in light and dark. `title` says where the rows were measured."""
    longest = max(row.seconds for row in rows)
    height = _TOP + _ROW * len(rows) + 40
    lines = [_row(row, _TOP + _ROW * number, longest) for number, row in enumerate(rows)]
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" role="img">
<title>{escape(title)}</title>
<style>
{_STYLE}
</style>
<rect class="paper" width="{_WIDTH}" height="{height}" rx="8"/>
<text class="title" x="20" y="32">The same text, sent by four hands</text>
<text class="quiet" x="20" y="54">{escape(title)}</text>
{chr(10).join(lines)}
<text class="quiet" x="20" y="{height - 16}">Who shares a project shares the cache; a stranger does not.</text>
</svg>
"""


def _row(row: Row, top: int, longest: float) -> str:
    bar = max(round(_BAR_PIXELS * row.seconds / longest), 2)
    kind = "warm" if row.reused else "cold"
    reused = "reuse not told" if row.reused is None else f"{row.reused:,} of {row.prompt_tokens:,} tokens reused"
    middle = top + 19
    return f"""\
<text x="20" y="{middle}">{escape(row.who)}</text>
<rect class="{kind}" x="{_BARS_AT}" y="{top + 4}" width="{bar}" height="20" rx="3"/>
<text x="{_BARS_AT + bar + 8}" y="{middle}">{row.seconds * 1000:,.0f} ms<tspan class="quiet" dx="8">{reused}</tspan></text>"""
