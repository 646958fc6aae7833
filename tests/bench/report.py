"""The tables: what was measured, its ratios, and the limits beside them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench.cases import Case, Limit
from tests.bench.proxies import ENVOY, LITELLM, NGINX, SALTGATE
from tests.bench.rounds import Runs

BEGIN: Final = "<!-- make bench: begin -->"
END: Final = "<!-- make bench: end -->"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """All proxies' runs in one case, by name."""

    case: Case
    runs: Mapping[str, Runs]

    def ratio(self, name: str) -> float | None:
        """Of our cost to that proxy's; None where one of the two was not measured."""
        if SALTGATE not in self.runs or name not in self.runs:
            return None
        return self.runs[SALTGATE].cost / self.runs[name].cost


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of its own beside the cases: the value in `unit`, its limits, and a remark."""

    name: str
    value: float
    unit: str
    limit: Limit | None = None
    at_least: bool = False
    remark: str = ""

    def told(self) -> str:
        """For a terminal."""
        limit = "" if self.limit is None else f"   ({_limits(self.limit, self.unit, at_least=self.at_least)})"
        return f"{self.name}: {_number(self.value)} {self.unit}{self.verdict()}{limit}   {self.remark}".rstrip() + "\n"

    def verdict(self) -> str:
        return "" if self.limit is None else _verdict(self.value, self.limit, at_least=self.at_least)


@dataclass(slots=True)
class Report:
    """What one benchmark found. `absent` says what was left out and how to have it."""

    rounds: int
    machine: str
    cases: list[CaseResult] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def markdown(report: Report) -> str:
    """The tables as they stand in the README, without the markers."""
    parts = [_costs(report.cases)]
    if report.figures:
        parts.append(_figures(report.figures))
    parts.append(_remarks(report))
    return "\n".join(parts)


def replace_between_markers(file: Path, table: str) -> None:
    """Puts the table between the two markers of a file. Raises ValueError where it lacks one."""
    before, begin, rest = file.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{file} has no {BEGIN} … {END}")
    file.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def told(result: CaseResult) -> str:
    """One case for a terminal, while the others are still to come."""
    lines = [f"{result.case.name}, CPU µs per {result.case.unit}"]
    for name, runs in result.runs.items():
        least, most = runs.spread
        ratio = "" if name == SALTGATE else _told_ratio(result, name)
        lines.append(f"  {name:16} {runs.cost:9.1f} ({least:.1f} to {most:.1f}){ratio}{_told_disturbed(runs)}")
    return "\n".join(lines) + "\n"


def _told_ratio(result: CaseResult, name: str) -> str:
    ratio = result.ratio(name)
    if ratio is None:
        return ""
    limit = _limit(result.case, name)
    return f"   saltgate is {_number(ratio)} of it{'' if limit is None else ': ' + _against(ratio, limit)}"


def _told_disturbed(runs: Runs) -> str:
    thrown = f"   {runs.thrown_away} thrown away" if runs.thrown_away else ""
    return thrown + (f"   {runs.kept_disturbed} DISTURBED" if runs.kept_disturbed else "")


def _costs(results: Sequence[CaseResult]) -> str:
    names = _in_order(name for result in results for name in result.runs)
    compared = [name for name in (NGINX, ENVOY, LITELLM) if name in names]
    head = ["CPU µs of one process", *names, *(f"to {name}" for name in compared)]
    lines = [_row(head), _row(["---", *["--:"] * (len(head) - 1)])]
    for result in results:
        costs = [f"{result.runs[name].cost:.1f}" if name in result.runs else "" for name in names]
        lines.append(_row([result.case.name, *costs, *(_compared(result, name) for name in compared)]))
    return "\n".join(lines) + "\n"


def _compared(result: CaseResult, name: str) -> str:
    ratio, limit = result.ratio(name), _limit(result.case, name)
    if ratio is None:
        return ""
    return _number(ratio) if limit is None else _against(ratio, limit)


def _limit(case: Case, name: str) -> Limit | None:
    return {NGINX: case.to_nginx, ENVOY: case.to_envoy, LITELLM: case.to_litellm}.get(name)


def _against(ratio: float, limit: Limit) -> str:
    return f"{_number(ratio)} (≤ {_number(limit.must)} / {_number(limit.stretch)}{_verdict(ratio, limit)})"


def _verdict(value: float, limit: Limit, *, at_least: bool = False) -> str:
    """Empty where the must is kept, a star where the stretch is."""
    sign = -1 if at_least else 1
    if sign * value <= sign * limit.stretch:
        return " ★"
    return "" if sign * value <= sign * limit.must else " **missed**"


def _figures(figures: Sequence[Figure]) -> str:
    lines = [_row(["", "measured", "must / stretch", ""]), _row(["---", "--:", "--:", "---"])]
    for figure in figures:
        limit = "" if figure.limit is None else _limits(figure.limit, figure.unit, at_least=figure.at_least)
        lines.append(
            _row([figure.name, f"{_number(figure.value)} {figure.unit}{figure.verdict()}", limit, figure.remark])
        )
    return "\n".join(lines) + "\n"


def _limits(limit: Limit, unit: str, *, at_least: bool) -> str:
    return f"{'≥' if at_least else '≤'} {_number(limit.must)} / {_number(limit.stretch)} {unit}".rstrip()


def _remarks(report: Report) -> str:
    thrown = sum(runs.thrown_away for result in report.cases for runs in result.runs.values())
    disturbed = sum(runs.kept_disturbed for result in report.cases for runs in result.runs.values())
    words = (
        f"Medians of {report.rounds} interleaved rounds on {report.machine}; the gateway alone on one core, engine and "
        f"load on another. In brackets must / stretch; ★ is within the stretch. Disturbed runs thrown away: {thrown}."
    )
    if disturbed:
        words += f" Disturbed each time and kept: {disturbed}; measure again on a quiet machine."
    return " ".join([words, *(f"Left out: {remedy}." for remedy in report.absent)])


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float) -> str:
    """Three significant digits, no exponent."""
    if value == 0:
        return "0"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 3
    return f"{value:.{digits}f}"


def _in_order(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
