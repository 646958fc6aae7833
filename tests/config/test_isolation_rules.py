"""`[[isolation.rules]]`: what may be written, and every fault with its key and its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.expressions import MAXIMUM_PATTERN_CHARACTERS, operators_expression
from config.isolation_rules import MAXIMUM_PATTERNS, MAXIMUM_RULES, MAXIMUM_WORD_CHARACTERS, MAXIMUM_WORDS
from config.settings import IsolationRule
from tests.config.configuration import SALT_SECRET, changed, faults, loaded

RULE = {"name": "patients", "words": ["Müller"]}
assert SALT_SECRET


def test_a_rule_loads_with_what_is_left_out_filled_in(tmp_path: Path) -> None:
    isolation = loaded(tmp_path, changed("isolation.rules", [RULE])).settings.isolation
    assert isolation.rules == (IsolationRule(name="patients", words=("Müller",), unit="user"),)
    assert isolation.scan_limit == 1024 * 1024
    written = {"name": "all", "workspaces": ["acme"], "words": ["a b"], "patterns": ["x+"], "unit": "team"}
    written["sets"] = ["secrets", "personal-data"]
    (rule,) = loaded(tmp_path, changed("isolation.rules", [written])).settings.isolation.rules
    assert (rule.sets, rule.unit, rule.workspaces) == (("secrets", "personal-data"), "team", ("acme",))


@pytest.mark.parametrize(
    ("rules", "key", "message"),
    [
        ([{"words": ["x"]}], "isolation.rules.0.name", "required"),
        ([{"name": "empty"}], "isolation.rules.0", "at least one"),
        ([RULE | {"words": []}], "isolation.rules.0.words", "is empty"),
        ([RULE | {"words": [""]}], "isolation.rules.0.words.0", "not empty"),
        ([RULE | {"words": ["--"]}], "isolation.rules.0.words.0", "no letter or digit"),
        ([RULE | {"words": ["ok", "x" * (MAXIMUM_WORD_CHARACTERS + 1)]}], "isolation.rules.0.words.1", "longer"),
        ([RULE | {"words": ["x"] * (MAXIMUM_WORDS + 1)}], "isolation.rules.0.words", "more than"),
        ([RULE | {"words": "falcon"}], "isolation.rules.0.words", "list"),
        ([RULE | {"name": "Patients"}], "isolation.rules.0.name", "a-z 0-9 -"),
        ([RULE | {"name": "__over_limit__"}], "isolation.rules.0.name", "a-z 0-9 -"),
        ([RULE | {"name": "a" * 33}], "isolation.rules.0.name", "1 to 32"),
        ([RULE | {"name": "a\n"}], "isolation.rules.0.name", "a-z 0-9 -"),
        ([RULE, RULE], "isolation.rules.1.name", "isolation.rules.0.name"),
        ([RULE | {"workspaces": []}], "isolation.rules.0.workspaces", "is empty"),
        ([RULE | {"workspaces": ["acme", "Acme"]}], "isolation.rules.0.workspaces.1", "no workspace"),
        ([RULE | {"sets": ["secret"]}], "isolation.rules.0.sets.0", "'personal-data' or 'secrets'"),
        ([RULE | {"unit": "deployment"}], "isolation.rules.0.unit", "'user'"),
        ([RULE | {"unit": "collection"}], "isolation.rules.0.unit", "'user'"),
        ([RULE | {"word": ["x"]}], "isolation.rules.0.word", "words"),
        ([RULE | {"patterns": ["("]}], "isolation.rules.0.patterns.0", "missing )"),
        ([RULE | {"patterns": ["ok", "(?<=a)b"]}], "isolation.rules.0.patterns.1", "invalid perl operator"),
        ([RULE | {"patterns": [r"(a)\1"]}], "isolation.rules.0.patterns.0", "invalid escape"),
        ([RULE | {"patterns": ["x*"]}], "isolation.rules.0.patterns.0", "no character"),
        ([RULE | {"patterns": [r"\b"]}], "isolation.rules.0.patterns.0", "no character"),
        ([RULE | {"patterns": ["^"]}], "isolation.rules.0.patterns.0", "no character"),
        ([RULE | {"patterns": ["a|$"]}], "isolation.rules.0.patterns.0", "no character"),
        ([RULE | {"patterns": [r"\Aa"]}], "isolation.rules.0.patterns.0", "ends of a line"),
        ([RULE | {"patterns": [r"a\\\z"]}], "isolation.rules.0.patterns.0", "ends of a line"),
        ([RULE | {"patterns": [r"\pL{40}"]}], "isolation.rules.0.patterns.0", "too large"),
        ([RULE | {"patterns": ["(a{500}){500}"]}], "isolation.rules.0.patterns.0", "invalid repetition"),
        ([RULE | {"patterns": ["x" * (MAXIMUM_PATTERN_CHARACTERS + 1)]}], "isolation.rules.0.patterns.0", "longer"),
        ([RULE | {"patterns": ["x"] * (MAXIMUM_PATTERNS + 1)}], "isolation.rules", "patterns together"),
        ([RULE | {"name": f"r{n}"} for n in range(MAXIMUM_RULES + 1)], "isolation.rules", "more than"),
    ],
)
def test_a_fault_is_told_with_its_key_and_remedy(tmp_path: Path, rules: object, key: str, message: str) -> None:
    found = faults(tmp_path, changed("isolation.rules", rules))
    assert set(found) == {key}
    assert message in found[key]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    table = changed("isolation.rules", [{"name": "A", "patterns": ["(", "x*"]}, RULE | {"wrong": 1}, {"name": "b"}])
    isolation = table["isolation"]
    assert isinstance(isolation, dict)
    isolation["scan_limit"] = "1GiB"
    isolation["keys"] = []
    assert set(faults(tmp_path, table)) == {
        "isolation.rules.0.name",
        "isolation.rules.0.patterns.0",
        "isolation.rules.0.patterns.1",
        "isolation.rules.1.wrong",
        "isolation.rules.2",
        "isolation.scan_limit",
        "isolation.keys",
    }


@pytest.mark.parametrize("written", ["0", "9MiB", "8388609", "lots", -1, True])
def test_the_limit_of_a_scan_is_a_size_of_up_to_8_mib(tmp_path: Path, written: object) -> None:
    assert set(faults(tmp_path, changed("isolation.scan_limit", written))) == {"isolation.scan_limit"}


@pytest.mark.parametrize(
    "pattern", ["a", "^a$", r"\\A", r"a\\z", "[A]", "(?i)x", "x{3,}", r"\bMRN-[0-9]{6}\b", r"\pL+"]
)
def test_a_usable_pattern_is_used(pattern: str) -> None:
    operators_expression(pattern)
