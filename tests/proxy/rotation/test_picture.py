"""The half seconds of a run, and their picture: well-formed, on its canvas, and true to the figures."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest

from tests.proxy.rotation.picture import Curve, picture
from tests.proxy.rotation.table import Line, latest, lines
from tests.proxy.rotation.test_under_load import arrived, called, well

SVG = "{http://www.w3.org/2000/svg}"


def test_a_half_second_tells_what_was_reused_how_long_it_took_and_how_far_the_units_are() -> None:
    told = {line.at: line for line in lines(well(), before=1.0, after=1.0)}
    assert (told[-0.5].requests, told[-0.5].reuse, told[-0.5].failures) == (2, 0.0, 0)
    assert told[-0.5].median == told[-0.5].p95 == pytest.approx(0.1)
    assert told[0.5].requests == 0
    assert (told[0.5].reuse, told[0.5].p95) == (None, None)
    assert told[1.5].reuse == 32 / 80
    assert [told[at].due for at in (0.0, 0.5, 2.0, 2.5)] == [0.0, 0.5, 0.5, 1.0]
    assert [told[at].gone for at in (1.0, 1.5, 3.0, 3.5)] == [0.0, 0.5, 0.5, 1.0]
    failed = called(well(), 3, fault="503", first_token=None)
    assert [line.at for line in lines(failed, before=1.0, after=1.0) if line.failures] == [1.5]


def test_how_late_a_unit_went_is_told() -> None:
    assert latest(well()) == 0.0
    assert latest(arrived(well(), 5, salt="blue old")) == pytest.approx(1.0)


def some(reuse: Sequence[float | None], p95: float) -> list[Line]:
    return [Line(0.5 * at - 0.5, 1, share, p95, p95, 0.0, 0.0, 0) for at, share in enumerate(reuse)]


@pytest.mark.parametrize("p95", [0.0, 0.0004, 0.02, 0.7, 5.4, 999.0])
def test_it_is_well_formed_and_nothing_leaves_the_canvas(p95: float) -> None:
    curves = [Curve("planned", "a <plan>", some([1.0, None, 0.5], p95)), Curve("at-once", "b", some([0.0], p95 / 2))]
    root = ET.fromstring(picture(curves, over=0.5, title='"a" & <b>'))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert {"a <plan>", '"a" & <b>'} <= {text.text for text in root.iter(f"{SVG}text")}
    drawn = [points(curve) for curve in root.iter(f"{SVG}polyline")]
    assert [len(line) for line in drawn] == [2, 1, 3, 1]
    assert all(0 <= x <= width and 0 <= y <= height for line in drawn for x, y in line)
    (_, top), (_, middle) = drawn[0]
    ((_, bottom),) = drawn[1]
    assert middle == (top + bottom) / 2


def points(curve: ET.Element) -> list[tuple[float, float]]:
    pairs = (pair.split(",") for pair in curve.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]
