"""What a run has measured, for the terminal and for `tests/engine/last-run.md`.

A test leaves its measurement in its report's properties, which reach the terminal also from pytest-xdist's workers.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

PROPERTY: Final = "engine measurement"
COMPARISON: Final = "comparison of choices"


@dataclass(frozen=True, slots=True)
class Row:
    """One sender of one prompt. `seconds` is each trial's time to the first token, as the client sees it."""

    prompt_tokens: int
    who: str
    seconds: tuple[float, ...]
    reused: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """The rows in the order in which they were sent, and the engine's own word for its version."""

    vllm: str
    rows: tuple[Row, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def measurement_from_json(text: str) -> Measurement:
    """What `Measurement.to_json` wrote."""
    document = json.loads(text)
    rows = (Row(r["prompt_tokens"], r["who"], tuple(r["seconds"]), r["reused"]) for r in document["rows"])
    return Measurement(document["vllm"], tuple(rows))


def measured(reporter: pytest.TerminalReporter) -> Measurement | None:
    """The measurement of this run, where its test was among those that passed."""
    found = [text for r in reporter.getreports("passed") for name, text in r.user_properties if name == PROPERTY]
    return measurement_from_json(str(found[-1])) if found else None


def comparisons(reporter: pytest.TerminalReporter) -> list[str]:
    """The tables that compare how replicas are chosen, of the tests that passed and of those that did not."""
    reports = [*reporter.getreports("passed"), *reporter.getreports("failed")]
    return [str(text) for report in reports for name, text in report.user_properties if name == COMPARISON]


def table(measurement: Measurement) -> str:
    """The rows as a Markdown table: medians."""
    head = "| prompt | who | first token | tokens reused |\n|---|---|---|---|"
    return "\n".join([head, *_lines(measurement.rows)])


def document(measurement: Measurement, reporter: pytest.TerminalReporter) -> str:
    """All of `last-run.md`: the table, what it was measured on, and how the whole run ended."""
    trials = {len(row.seconds) for row in measurement.rows}
    return f"""\
# The last run against a real vLLM

Written by `make engine ARGS="--engine-report tests/engine/last-run.md"`.

| | |
|---|---|
| date | {datetime.now(UTC):%Y-%m-%d %H:%M} UTC |
| commit | {_commit()} |
| machine | {_processor()}, {os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f}, no GPU |
| engine | vLLM {measurement.vllm} for the CPU, a random Llama of 6.3 million parameters, blocks of 128 tokens |
| trials | {"/".join(map(str, sorted(trials)))}, medians; max_tokens 4, temperature 0 |

The same text, streamed through saltgate with proof `strict`, the salt of the project. The times are the client's, from
the request to the first token.

{table(measurement)}

pytest: {_outcome(reporter)}
"""


def _lines(rows: Sequence[Row]) -> list[str]:
    lines, before = [], 0
    for row in rows:
        prompt = "" if row.prompt_tokens == before else f"{row.prompt_tokens:,} tokens"
        first = f"{statistics.median(row.seconds) * 1000:,.1f} ms"
        lines.append(f"| {prompt} | {row.who} | {first} | {row.reused:,} |")
        before = row.prompt_tokens
    return lines


def _outcome(reporter: pytest.TerminalReporter) -> str:
    parts, _ = reporter.build_summary_stats_line()
    return ", ".join(text for text, _ in parts)


def _commit() -> str:
    """What was measured: the commit, and whether the product's own code was changed since."""
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", ":/proxy", ":/config", ":/observability")
    return f"{commit}, with changes" if changed else commit


def _git(*arguments: str) -> str:
    # Without the option, `git status` may write the index.
    command = ["git", "--no-optional-locks", *arguments]
    result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else "unknown"


def _processor() -> str:
    """The processor's name as Linux tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
