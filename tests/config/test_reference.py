"""The reference page is made from the settings, and says every key."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest

from config import settings
from config.generate_reference import REFERENCE, reference

SECTIONS = [kind for kind in vars(settings).values() if dataclasses.is_dataclass(kind) and isinstance(kind, type)]


def test_the_reference_is_fresh() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference(), "run: python -m config.generate_reference"


@cache
def page() -> str:
    return reference()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_key_stands_in_the_reference_with_a_meaning(section: type) -> None:
    lines = page().splitlines()
    for field in dataclasses.fields(section):
        rows = [line for line in lines if line.startswith(f"| `{field.name}` |")]
        headings = [line for line in lines if line.startswith("## ") and f"{field.name}]" in line]
        assert headings or rows, field.name
        assert all(len(row.split(" | ")[-1].removesuffix(" |")) > 5 for row in rows), field.name


def test_a_default_below_a_second_is_told_as_the_file_would_have_it() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `sync_interval` |")]
    assert settings.Audit.__dataclass_fields__["sync_interval"].default == 0.05
    assert [row.split(" | ")[2] for row in rows] == ['`"50ms"`']
