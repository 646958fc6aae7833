"""Two rotations under the same load as a picture (SVG): how much is reused, and how long the first token takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from tests.proxy.rotation.table import STEP_SECONDS, Line

_WIDTH: Final = 720
_LEFT: Final = 64
_RIGHT: Final = _WIDTH - 20
_STYLE: Final = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.quiet { fill: #59636e }
.paper { fill: #ffffff }
.time { fill: #f0f3f6 }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round }
.planned { stroke: #1a7f37 }
.at-once { stroke: #bc4c00 }
text.planned { stroke: none; fill: #1a7f37; font-weight: 600 }
text.at-once { stroke: none; fill: #bc4c00; font-weight: 600 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .quiet { fill: #9198a1 }
  .paper { fill: #0d1117 }
  .time { fill: #161b22 }
  .grid { stroke: #3d444d }
  .planned { stroke: #3fb950 }
  .at-once { stroke: #db6d28 }
  text.planned { fill: #3fb950 }
  text.at-once { fill: #db6d28 }
}"""


@dataclass(frozen=True, slots=True)
class Curve:
    """One rotation. `kind` is its class in the picture: planned or at-once."""

    kind: str
    name: str
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class _Panel:
    """A field of the picture from `top` to `bottom`, in pixels, whose values go from 0 to `most`."""

    top: int
    bottom: int
    most: float

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * min(value, self.most) / self.most


@dataclass(frozen=True, slots=True)
class _Axis:
    """Seconds from the order, along the width."""

    first: float
    last: float

    def x(self, seconds: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (seconds - self.first) / (self.last - self.first)


def picture(curves: Sequence[Curve], *, over: float, title: str) -> str:
    """An SVG document that reads in light and dark. The plan's `over` seconds are shaded; `title` says what was asked
    of what.
    """
    all_lines = [line for curve in curves for line in curve.lines]
    axis = _Axis(min(line.at for line in all_lines), max(line.at for line in all_lines) + STEP_SECONDS)
    reuse = _Panel(104, 224, 1.0)
    wait = _Panel(264, 384, _rounded_up(max((line.p95 or 0.0 for line in all_lines), default=0.0)))
    drawn = [
        *_field(reuse, axis, over, "Prompt tokens reused", [(share, f"{share:.0%}") for share in (0.0, 0.5, 1.0)]),
        *(_curve(curve.kind, axis, reuse, [(line.at, line.reuse) for line in curve.lines]) for curve in curves),
        *_field(wait, axis, over, "Time to the first token, 95th percentile", _seconds_marks(wait.most)),
        *(_curve(curve.kind, axis, wait, [(line.at, line.p95) for line in curve.lines]) for curve in curves),
        *_seconds_below(axis, wait.bottom + 18),
    ]
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="436" viewBox="0 0 {_WIDTH} 436" role="img">
<title>{escape(title)}</title>
<style>
{_STYLE}
</style>
<rect class="paper" width="{_WIDTH}" height="436" rx="8"/>
{_text(20, 28, "A rotation to a new key under load", kind="title")}
{_text(20, 48, title, kind="quiet")}
{chr(10).join(_legend(curves))}
{chr(10).join(drawn)}
{_text(_LEFT, 424, "seconds since the rotation was ordered; shaded: the time of the plan", kind="quiet")}
</svg>
"""


def _legend(curves: Sequence[Curve]) -> Iterator[str]:
    left = 20
    for curve in curves:
        yield _text(left, 70, curve.name, kind=curve.kind)
        left += 8 * len(curve.name) + 24


def _field(panel: _Panel, axis: _Axis, over: float, name: str, marks: Sequence[tuple[float, str]]) -> Iterator[str]:
    left, width, height = axis.x(0.0), axis.x(over) - axis.x(0.0), panel.bottom - panel.top
    yield f'<rect class="time" x="{left:.1f}" y="{panel.top}" width="{width:.1f}" height="{height}"/>'
    yield _text(_LEFT, panel.top - 8, name)
    for value, told in marks:
        y = panel.y(value)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_RIGHT}" y2="{y:.1f}"/>'
        yield _text(_LEFT - 6, y + 4, told, kind="quiet", at_right=True)


def _curve(kind: str, axis: _Axis, panel: _Panel, values: Sequence[tuple[float, float | None]]) -> str:
    """A point in the middle of each half second; where nothing came, the line goes straight on to the next."""
    points = [f"{axis.x(at + STEP_SECONDS / 2):.1f},{panel.y(value):.1f}" for at, value in values if value is not None]
    return f'<polyline class="curve {kind}" points="{" ".join(points)}"/>'


def _seconds_marks(most: float) -> list[tuple[float, str]]:
    return [(most * part, f"{most * part:g} s") for part in (0.0, 0.5, 1.0)]


def _seconds_below(axis: _Axis, y: float) -> Iterator[str]:
    step = 5 if axis.last - axis.first > 12 else 1
    for seconds in range(math.ceil(axis.first / step) * step, math.floor(axis.last) + 1, step):
        yield f'<text class="quiet" x="{axis.x(seconds):.1f}" y="{y}" text-anchor="middle">{seconds}</text>'


def _rounded_up(value: float) -> float:
    """The next of 1, 2, 3, 4, 6, 8 and 10 at its power of ten."""
    power = 10.0 ** math.floor(math.log10(max(value, 0.001)))
    return next(round(power * step, 6) for step in (1, 2, 3, 4, 6, 8, 10) if power * step >= value)


def _text(x: float, y: float, text: str, *, kind: str = "", at_right: bool = False) -> str:
    attributes = f' class="{kind}"' if kind else ""
    attributes += ' text-anchor="end"' if at_right else ""
    return f'<text{attributes} x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>'
