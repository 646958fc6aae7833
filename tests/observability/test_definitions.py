"""The page of definitions and the code say the same: no name on the page that is none, and none without its meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import observability
import proxy
from observability import genai, names
from observability.families import FAMILIES
from observability.keeping import Kept
from observability.record import Record
from observability.request_line import RequestLine
from observability.waterfall import Step

PAGE = Path(observability.__file__ or "").with_name("definitions.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, each cell as it is written."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def named(*cells: str) -> Iterator[str]:
    for cell in cells:
        yield from re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("When a request begins and ends", names.TOKEN_KINDS),
        ("The gate's own time, by stage", names.STAGES),
        ("Outcomes", names.OUTCOMES),
    ],
)
def test_each_word_of_a_closed_set_has_its_line_and_no_other_word_has_one(heading: str, words: tuple[str, ...]) -> None:
    assert sorted(name for row in table(heading) for name in named(row[0])) == sorted(words)


def test_every_span_attribute_on_the_page_is_one_and_every_measure_of_a_span_is_on_it() -> None:
    ours = {value for value in vars(names).values() if isinstance(value, str) and value.startswith("saltgate.")}
    theirs = {value for value in vars(genai).values() if isinstance(value, str)}
    theirs |= {each.usage_cache_write_input_tokens for each in genai.NAMES.values()}
    told = set(re.findall(r"`((?:saltgate|gen_ai)\.[a-z_.]+)`", PAGE)) - {names.STAGE_PREFIX + "STAGE"}
    assert told <= ours | theirs
    measures = {name for name in ours if re.search(r"time_|token|gap|held|events|bytes|kept|outcome", name)}
    assert measures - {names.TIME_TO_FIRST_TOKEN_KIND} <= told


def test_every_field_of_the_line_on_the_page_is_one_and_every_measure_of_the_line_is_on_it() -> None:
    fields = set(RequestLine.__struct_fields__)
    cells = [row[column] for heading, column in (("Times", 3), ("Tokens", 3), ("Sizes", 3)) for row in table(heading)]
    told = set(named(*cells))
    assert told <= fields
    measures = {name for name in fields if re.search(r"_ms$|tokens$|^bytes|^events$", name)}
    assert measures - told == {f"{stage}_ms" for stage in names.STAGES}


def test_every_metric_on_the_page_is_one_and_every_histogram_has_its_meaning() -> None:
    told = {match.partition("{")[0] for match in re.findall(r"`(saltgate_[a-z_{},]+)`", PAGE)}
    assert told <= set(FAMILIES)
    assert {family.name for family in FAMILIES.values() if family.kind == "histogram"} <= told


def test_every_metric_is_named_in_the_contract_or_is_one_of_a_model_alone_that_is_named_here() -> None:
    contract = Path(proxy.__file__ or "").with_name("contract.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(saltgate_[a-z_]+)[`{]", contract.partition("\n## 8. ")[2].partition("\n## 9. ")[0]))
    assert told <= set(FAMILIES)
    unnamed = {name for name in FAMILIES if name not in told and not name.startswith("process_")}
    assert {FAMILIES[name].labels[0] for name in unnamed} == {"model"}
    assert unnamed <= set(re.findall(r"`(saltgate_[a-z_]+)", PAGE))


def test_every_step_of_a_waterfall_and_every_reason_to_keep_a_trace_is_told() -> None:
    assert set(get_args(get_args(Step)[0]) or get_args(Step)) - set(named(PAGE)) == set()
    assert set(get_args(Kept)) - {"share"} - set(named(PAGE)) == set()
    assert set(get_args(names.EndReason)) - set(named(PAGE)) == set()


def test_the_measures_of_the_record_are_those_of_the_page() -> None:
    measures = [name for name in Record.__struct_fields__ if name.endswith(("_seconds", "_per_output_token"))]
    assert sorted(measures) == [
        "duration_seconds",
        "held_seconds",
        "largest_gap_seconds",
        "relay_seconds",
        "seconds_per_output_token",
        "time_to_first_chunk_seconds",
        "time_to_first_token_seconds",
        "time_to_first_visible_seconds",
        "upstream_time_to_first_token_seconds",
    ]
