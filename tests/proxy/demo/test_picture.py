"""The picture of the scene: whatever the rows hold, it is well-formed, complete, and nothing lies on anything else."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from proxy.demo.picture import picture
from proxy.demo.scene import Row

SVG = "{http://www.w3.org/2000/svg}"
CHARACTER = 8.5  # pixels; no common sans-serif font is wider at 14 px

PUBLISHED = (
    Row("medium", "Alice sends it", 0.2788, 15_840, 0),
    Row("medium", "Carol, her colleague, sends the same", 0.0736, 15_840, 15_840),
    Row("long", "Bob (globex/hermes), a stranger", 0.5171, 31_680, 0),
    Row("long", "Bob sends it again", 0.0887, 31_680, None),
)
EXTREME = (
    Row("<&>", "Somebody with a name & a <title> that goes on " * 4, 123_456.7, 10_000_000, 9_999_999),
    Row("x" * 200, "", 0.0, 0, 0),
)
NOTHING = (Row("p", "w", 0.0, 0, None),)


@pytest.mark.parametrize("rows", [PUBLISHED, EXTREME, NOTHING])
def test_it_is_well_formed_and_holds_every_row(rows: tuple[Row, ...]) -> None:
    root = ET.fromstring(picture(rows, title='a <title> & "more"'))
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert 'a <title> & "more"' in texts
    for row in rows:
        assert row.who in texts
        assert f"{row.prompt} prompt" in texts
        assert f"{row.seconds * 1000:,.1f} ms" in texts
        assert row.reused is None or f"{row.reused:,} of {row.prompt_tokens:,} tokens reused" in texts
    assert texts.count("reuse not told") == sum(row.reused is None for row in rows)


@pytest.mark.parametrize("rows", [PUBLISHED, EXTREME, NOTHING])
def test_nothing_leaves_the_canvas_or_lies_on_anything_else(rows: tuple[Row, ...]) -> None:
    root = ET.fromstring(picture(rows, title="somewhere " * 50))
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    lines: dict[int, list[tuple[float, float]]] = {}
    for element in root:
        if element.tag not in (f"{SVG}text", f"{SVG}rect") or element.get("class") == "paper":
            continue
        left, right, bottom = extent(element)
        assert 0 <= left <= right <= width
        assert 0 < bottom < height
        lines.setdefault(bottom, []).append((left, right))
    assert all(later - earlier >= 20 for earlier, later in pairwise(sorted(lines)))
    for extents in lines.values():
        assert all(one[1] <= other[0] for one, other in pairwise(sorted(extents)))


def test_a_bar_is_as_long_as_its_time_and_coloured_by_reuse() -> None:
    root = ET.fromstring(picture(PUBLISHED, title="t"))
    bars = [element for element in root.iter(f"{SVG}rect") if element.get("class") != "paper"]
    assert [bar.get("class") for bar in bars] == ["cold", "warm", "cold", "cold"]
    longest = max(int(bar.attrib["width"]) for bar in bars)
    for bar, row in zip(bars, PUBLISHED, strict=True):
        assert int(bar.attrib["width"]) == pytest.approx(longest * row.seconds / 0.5171, abs=1)


def extent(element: ET.Element) -> tuple[float, float, int]:
    """Left, right, and the baseline of a text or of the text beside a bar."""
    at, y = float(element.attrib["x"]), int(element.attrib["y"])
    if element.tag == f"{SVG}rect":
        return at, at + float(element.attrib["width"]), y + 15
    wide = 11.0 if element.get("class") == "title" else CHARACTER
    long = float(element.get("textLength", len(element.text or "") * wide))
    return (at - long, at, y) if element.get("text-anchor") == "end" else (at, at + long, y)
