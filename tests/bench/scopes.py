"""What a request costs where 100,000 scopes are known and all of them ask, against 10."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.bench import gate
from tests.bench.cases import Limit
from tests.bench.load import mock_engine, run_load
from tests.bench.machine import spent
from tests.bench.report import Figure
from tests.bench.stage import Stage, tokens_of

WORKSPACES: Final = 1_000
PROJECTS: Final = 100  # of each; its one person is a member of all of them
FEW: Final = 10
_REQUESTS: Final = 10_000


def many_scopes(stage: Stage, rounds: int) -> list[Figure]:
    """Interleaved requests of two gates; each scope of both has asked before the first round."""
    few, many = stage.folder / "few", stage.folder / "many"
    _write_callers(few, stage, FEW, 1)
    _write_callers(many, stage, WORKSPACES, PROJECTS)
    with mock_engine(stage.programs, stage.folder) as engine:
        engine.set("n=200&t=0&d=0&j=0&y=0")
        directories = (_directory(stage, FEW, 1), _directory(stage, WORKSPACES, PROJECTS))
        settings = [
            gate.Setting({gate.MODEL: (engine.port,)}, directory, number)
            for number, directory in enumerate(directories, 1)
        ]
        with gate.served(stage, settings[0], "few") as small, gate.served(stage, settings[1], "many") as large:
            _ask(stage, small, few, _REQUESTS, 0)
            _ask(stage, large, many, WORKSPACES * PROJECTS, 0)
            ratios = [
                _ask(stage, large, many, _REQUESTS, _REQUESTS * turn) / _ask(stage, small, few, _REQUESTS, 0)
                for turn in range(max(rounds, 5))
            ]
    return [Figure("100,000 scopes known and asking, CPU against 10", statistics.median(ratios), "", Limit(1.05, 1.0))]


def _ask(stage: Stage, served: gate.Served, callers: Path, requests: int, first: int) -> float:
    """CPU nanoseconds per request."""
    before = spent(served.workers())
    words = ("-c", "32", "-n", str(requests), "-L", str(callers), "-O", str(first))
    run_load(stage.programs, served.port, words, seconds=300.0)
    return spent(served.workers()).since(before).cpu / requests


def _directory(stage: Stage, workspaces: int, projects: int) -> str:
    """With the project of the people of the stage: one of them asks whether the gate serves."""
    return gate.one_project(stage.mint.issuer) + "".join(_workspaces(stage.mint.issuer, workspaces, projects))


def _workspaces(issuer: str, workspaces: int, projects: int) -> Iterator[str]:
    for number in range(workspaces):
        yield f'workspaces.w{number}.issuer = "{issuer}"\n'
        for project in range(projects):
            yield f'workspaces.w{number}.projects.p{project}.members = ["user:{_subject(number)}"]\n'


def _write_callers(file: Path, stage: Stage, workspaces: int, projects: int) -> None:
    """The header lines of each scope's request, in an order in which no two of a workspace follow each other."""
    signed = tokens_of(stage.mint, [_subject(number) for number in range(workspaces)])
    lines = [
        f"Authorization: Bearer {token}\tOpenAI-Organization: w{number}\tOpenAI-Project: p{project}\n"
        for number, token in enumerate(signed)
        for project in range(projects)
    ]
    random.Random(5).shuffle(lines)
    file.write_text("".join(lines))


def _subject(number: int) -> str:
    return f"person-{number}"
