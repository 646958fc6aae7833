"""The tables (report.py)."""

from pathlib import Path

import pytest

from tests.bench.cases import Case, Limit, Load
from tests.bench.report import BEGIN, END, CaseResult, Figure, Report, markdown, replace_between_markers, told
from tests.bench.rounds import Run, Runs

CASE = Case("small request", "request", Load((), 1), Load((), 1), "", Limit(5.0, 4.0), Limit(1.0, 0.8))


def cost(value: float, thrown_away: int = 0, kept_disturbed: int = 0) -> Runs:
    return Runs([Run(value, None, 0.0)], thrown_away, kept_disturbed)


def result(**costs: float) -> CaseResult:
    return CaseResult(CASE, {name: cost(value) for name, value in costs.items()})


def report(*results: CaseResult) -> Report:
    return Report(3, "a machine", list(results))


def test_a_ratio_within_the_must_is_told_with_both_limits() -> None:
    assert "| 4.50 (≤ 5.00 / 4.00) |" in markdown(report(result(saltgate=45, nginx=10)))


def test_a_ratio_within_the_stretch_has_a_star() -> None:
    assert "| 4.00 (≤ 5.00 / 4.00 ★) |" in markdown(report(result(saltgate=40, nginx=10)))


def test_a_missed_must_is_said() -> None:
    assert "| 5.10 (≤ 5.00 / 4.00 **missed**) |" in markdown(report(result(saltgate=51, nginx=10)))


def test_a_ratio_to_envoy_has_limits_of_its_own() -> None:
    assert "| 0.90 (≤ 1.00 / 0.80) |" in markdown(report(result(saltgate=45, Envoy=50)))


def test_what_was_not_measured_has_no_column() -> None:
    assert "Envoy" not in markdown(report(result(saltgate=45, nginx=10)))


def test_what_was_left_out_is_said_with_its_remedy() -> None:
    found = report(result(saltgate=45))
    found.absent.append("LiteLLM: make litellm")
    assert "Left out: LiteLLM: make litellm." in markdown(found)


def test_disturbed_runs_are_counted() -> None:
    found = report(CaseResult(CASE, {"saltgate": cost(45, thrown_away=2), "nginx": cost(10, 3, 1)}))
    assert "thrown away: 5." in markdown(found)
    assert "kept: 1;" in markdown(found)


def test_a_figure_that_must_be_large_is_judged_the_other_way_round() -> None:
    found = report()
    found.figures += [
        Figure("spread", 0.41, "of the streams", Limit(0.4, 0.45), at_least=True),
        Figure("memory", 26.0, "KB", Limit(25, 20)),
    ]
    assert "| spread | 0.41 of the streams | ≥ 0.40 / 0.45 of the streams |" in markdown(found)
    assert "| memory | 26.0 KB **missed** | ≤ 25.0 / 20.0 KB |" in markdown(found)


def test_one_case_is_told_while_the_others_are_to_come() -> None:
    assert "nginx                 10.0 (10.0 to 10.0)   saltgate is 4.50 of it" in told(result(saltgate=45, nginx=10))


def test_the_table_replaces_what_stands_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    replace_between_markers(page, "new")
    replace_between_markers(page, "newer")
    assert page.read_text() == f"before\n{BEGIN}\nnewer\n{END}\nafter\n"


@pytest.mark.parametrize("text", ["nothing", f"only {BEGIN}", f"only {END}"])
def test_a_page_without_both_markers_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    page = tmp_path / "README.md"
    page.write_text(text)
    with pytest.raises(ValueError, match="has no"):
        replace_between_markers(page, "new")
    assert page.read_text() == text
