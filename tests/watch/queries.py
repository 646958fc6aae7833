"""Every PromQL expression that compose/ ships, and what it names: metrics, labels, values. Without promtool."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import yaml

COMPOSE: Final = Path(__file__).parents[2] / "compose"
PROMETHEUS: Final = COMPOSE / "prometheus"
RULE_FILES: Final = (PROMETHEUS / "recording.yaml", PROMETHEUS / "alerts.yaml")
DASHBOARDS: Final = sorted((COMPOSE / "grafana" / "dashboards").glob("*.json"))

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and the texts that are filled in from its result."""

    place: str
    expr: str
    texts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.place


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric's name in an expression, and its matchers: label, operator, value."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]


@cache
def rules() -> list[Json]:
    """All rules, in the files' order."""
    documents = [yaml.safe_load(file.read_text()) for file in RULE_FILES]
    return [rule for document in documents for group in document["groups"] for rule in group["rules"]]


def recorded() -> dict[str, str]:
    """What is recorded, by name."""
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def alerts() -> dict[str, Json]:
    """The alerting rules, by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def rule_queries() -> list[Query]:
    return [
        Query(rule.get("alert") or rule["record"], rule["expr"], tuple(rule.get("annotations", {}).values()))
        for rule in rules()
    ]


def dashboard(file: Path) -> Json:
    read: Json = json.loads(file.read_text())
    return read


def panels(document: Json) -> Iterator[Json]:
    """All panels but rows, those inside collapsed rows too."""
    for panel in document["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", ())
        else:
            yield panel


def dashboard_queries() -> list[Query]:
    return [
        Query(f"{file.stem}: {panel['title']} {target['refId']}", target["expr"], (target.get("legendFormat", ""),))
        for file in DASHBOARDS
        for panel in panels(dashboard(file))
        for target in panel.get("targets", ())
    ]


def allowed_keys() -> list[str]:
    """The attributes that the collector's configuration lets through."""
    collector = yaml.safe_load((COMPOSE / "collector" / "collector.yaml").read_text())
    keys: list[str] = collector["processors"]["redaction"]["allowed_keys"]
    return keys


ANY: Final = ".*"
_WINDOWS: Final = {"__rate_interval": "5m", "__range": "1h"}


def filled(expr: str, **values: str) -> str:
    """The expression with every variable of Grafana's filled in: usual windows, `values`, else any value of a label."""
    return re.sub(r"\$(\w+)", lambda match: (_WINDOWS | values).get(match[1], ANY), expr)


_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\d[\w.]*|[a-zA-Z_][\w:]*|=~|!~|!=|\S')
_GROUPING: Final = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_WORDS: Final = frozenset({"and", "or", "unless", "bool", "offset"})


def selectors(expr: str) -> list[Selector]:
    """The metrics that an expression asks for."""
    tokens = [token for token in _TOKEN.findall(_GROUPING.sub("", expr)) if not token.startswith("[")]
    found, depth = [], 0
    for index, (token, after) in enumerate(pairwise([*tokens, ""])):
        depth += {"{": 1, "}": -1}.get(token, 0)
        if not depth and re.match(r"[a-zA-Z_]", token) and token not in _WORDS and after != "(":
            found.append(Selector(token, _matchers(tokens[index + 2 :]) if after == "{" else ()))
    return found


def _matchers(tokens: list[str]) -> tuple[tuple[str, str, str], ...]:
    inside = [token for token in tokens[: tokens.index("}")] if token != ","]
    return tuple((label, operator, value[1:-1]) for label, operator, value in zip(*[iter(inside)] * 3, strict=True))


def grouped_labels(expr: str) -> set[str]:
    """The labels in `by (…)`, `on (…)` and their like."""
    lists = (match[2] for match in _GROUPING.finditer(expr))
    return {label.strip() for names in lists for label in names.split(",") if label.strip()}


def filled_in_labels(texts: tuple[str, ...]) -> set[str]:
    """The labels whose values go into the texts: of alerts ({{ $labels.x }}) and of legends ({{x}})."""
    return {name for text in texts for name in re.findall(r"\{\{\s*(?:\$labels\.)?([a-z_]\w*)\s*\}\}", text)}
