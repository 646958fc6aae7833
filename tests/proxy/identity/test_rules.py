"""`proxy/identity/rules.md` says which test shows which rule: each of them is there, and no rule is without one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.proxy.identity.test_corpus import RIGHT, WRONG

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests" / "proxy"
CORPUS = "identity/test_corpus.py"
CASES = {case.name for case in WRONG} | {case.name for case in RIGHT}
# What this table answers for; the page says why the others are not in it.
NUMBERED = {*range(1, 76)} - {38, 52}


@dataclass(frozen=True)
class Row:
    rule: str
    forbidden: str
    tests: str


def rows() -> list[Row]:
    lines = (ROOT / "proxy" / "identity" / "rules.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [Row(*row) for row in cells if row[0] != "rule" and not row[0].startswith("---")]


def named_tests(row: Row) -> Iterator[tuple[str, str]]:
    """(file, function) of each test that the row names."""
    yield from re.findall(r"([\w/]+\.py)::(\w+)", row.tests)


def named_cases(row: Row) -> list[str]:
    return re.findall(r"\[([^\]]+)\]", row.tests)


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.rule)
def test_every_test_that_a_rule_names_is_there(row: Row) -> None:
    assert row.forbidden
    missing = [f"{file}::{name}" for file, name in named_tests(row) if name not in functions(file)]
    missing += [f"[{case}]" for case in named_cases(row) if case not in CASES]
    assert not missing
    assert list(named_tests(row)) or named_cases(row)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.rule)
def test_every_word_of_a_row_is_a_test_or_a_case(row: Row) -> None:
    """What is neither would look like a proof and be none."""
    rest = re.sub(r"\[[^\]]+\]|[\w/]+\.py::test_\w+", "", row.tests).replace(CORPUS, "")
    assert not rest.strip(" ,;")


def test_every_rule_that_the_table_answers_for_has_its_row() -> None:
    numbers = [int(row.rule) for row in rows() if row.rule.isdecimal()]
    assert sorted(numbers) == sorted(NUMBERED)


def test_the_corpus_is_as_large_as_was_promised() -> None:
    assert len(WRONG) >= 150
    assert len(RIGHT) >= 40
    assert len(CASES) == len(WRONG) + len(RIGHT), "a name comes twice"


def test_a_row_for_a_test_that_is_not_there_would_fail() -> None:
    row = Row("0", "nothing", f"{CORPUS} [no such token], identity/test_keys.py::test_nothing_of_this_name")
    with pytest.raises(AssertionError):
        test_every_test_that_a_rule_names_is_there(row)
