"""The examples of proxy/isolation/borders.md: each configuration is loaded, and each row of its table is explained."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.isolation.unit import Level
from tests.parts.explained import Explainer
from tests.parts.tokens import IssuerServer, TokenMint

PAGE: Final = (Path(__file__).parents[3] / "proxy/isolation/borders.md").read_text()
# What no example is about.
REST: Final = """
[[engines]]
name = "main"
urls = ["{engine}"]
[directory]
file = "directory.toml"
state = "state"
[[isolation.keys]]
id = "k1"
secret = {{ file = "salt.key" }}
"""
ISSUER: Final = '[[issuers]]\nissuer = "https://sso.example.com/realms/acme"\naudiences = ["saltgate"]\n'


@dataclass(frozen=True, slots=True)
class Row:
    """What a line of a table claims."""

    subject: str
    groups: tuple[str, ...]
    words: tuple[str, ...]
    border: str
    projects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Example:
    title: str
    configuration: str
    directory: str
    rows: tuple[Row, ...]


def examples() -> list[Example]:
    sections = (section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE) if "```toml" in section)
    return [_example(section) for section in sections]


def _example(section: str) -> Example:
    blocks = dict(re.findall(r"```toml\n# (\S+)\n(.*?)```", section, re.DOTALL))
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return Example(
        section.partition("\n")[0], blocks["saltgate.toml"], blocks["directory.toml"], tuple(map(_row, lines))
    )


def _row(line: str) -> Row:
    who, asked, border, shared = (cell.strip() for cell in line.strip("|").split("|"))
    subject, *groups = re.findall(r"`([^`]+)`", who)
    return Row(
        subject,
        tuple(groups),
        tuple(asked.strip("`").split()),
        border.replace("`", ""),
        tuple(re.findall(r"`([^`]+)`", shared)),
    )


@asynccontextmanager
async def deployed(
    example: Example, folder: Path, capfd: pytest.CaptureFixture[str]
) -> AsyncIterator[tuple[Explainer, TokenMint]]:
    shape = EngineShape(models=("tiny", "large"), pace=AT_ONCE)
    async with IssuerServer(TokenMint()) as issuer, Simulator(shape) as engine:
        explainer = Explainer(folder, capfd)
        own = example.configuration + ("" if "[[issuers]]" in example.configuration else ISSUER)
        served = re.compile(r'issuer = "[^"]+"'), f'issuer = "{issuer.mint.issuer}"'
        explainer.file.write_text(served[0].sub(served[1], own) + REST.format(engine=engine.url))
        await explainer.fill(served[0].sub(served[1], example.directory))
        yield explainer, issuer.mint


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.title)
async def test_an_example_draws_the_borders_that_the_page_says(
    example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with deployed(example, tmp_path, capfd) as (explainer, mint):
        for row in example.rows:
            answer = await explainer.explain(mint.token(row.subject, row.groups), "--json", *row.words)
            assert answer.result == row.border, row
            assert answer.code == (1 if row.border[0] in "45" else 0), row
            assert tuple(answer.document["projects"] or ()) == row.projects, row  # type: ignore[arg-type]


def test_the_page_has_an_example_for_each_case_and_a_warning_for_each_that_shares() -> None:
    titles = [example.title for example in examples()]
    assert titles == [
        "Alone on one PC",
        "A small team",
        "Company documents by collection",
        "Customers and their projects",
        "One person's memory",
        "Which line wins",
        "What a caller may change",
    ]
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    warned = {section.partition("\n")[0] for section in sections if "\nBeware: " in section}
    assert set(titles) - {"Which line wins"} == warned
    assert all(len(example.rows) >= 3 for example in examples())


def test_the_page_names_every_unit() -> None:
    table = PAGE.partition("## The six units")[2].partition("## ")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [level.value for level in Level]
