"""The invented data has the shape of the gate's own answers: what the other tests show holds for those, too."""

from __future__ import annotations

import json

import msgspec
import pytest

from observability.history.answers import Beside, Overview, Request, ScopeView, Viewer
from tests.proxy.pages import figures


@pytest.mark.parametrize("window", figures.WINDOW_SECONDS)
def test_an_overview(window: str) -> None:
    data = figures.overview(window)
    read = json.loads(msgspec.json.encode(msgspec.convert(data, Overview)))
    assert _keys(read) == _keys(data)


def test_a_scope_and_its_requests() -> None:
    data = figures.scope("globex", "code-review", "6h") or {}
    assert _keys(json.loads(msgspec.json.encode(msgspec.convert(data, ScopeView)))) == _keys(data)
    for request in data["recent"]:
        assert _keys(json.loads(msgspec.json.encode(msgspec.convert(request, Request)))) == _keys(request)


def test_what_stands_beside_them() -> None:
    data = figures.beside({"viewer": {"name": "operator"}}) or {}
    read = json.loads(msgspec.json.encode(msgspec.convert(data, Beside)))
    assert _keys(read | {"viewer": None}) == _keys(data | {"viewer": None})
    assert read["viewer"] == msgspec.to_builtins(Viewer(name="operator"))


def _keys(value: object) -> object:
    """Its shape without its values."""
    match value:
        case dict():
            return {key: _keys(each) for key, each in value.items()}
        case [first, *_]:
            return [_keys(first)]
        case _:
            return None
