"""The forms that a dashboard is made of: queries, panels, rows, variables, links, as Grafana 12 reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

Json = dict[str, Any]

PROMETHEUS: Final[Json] = {"type": "prometheus", "uid": "${prom}"}
COLUMNS: Final = 24


@dataclass(frozen=True, slots=True)
class Query:
    """One expression. `exemplars` asks for the traces beside a histogram; `now` for its present value alone."""

    expr: str
    legend: str = ""
    exemplars: bool = False
    now: bool = False
    form: str = "time_series"


def cell(expr: str) -> Query:
    """A column's values now, one for each line of a table."""
    return Query(expr, now=True, form="table")


@dataclass(frozen=True, slots=True)
class Step:
    """From this value on, the colour. The first step has no value."""

    value: float | None
    colour: str


def timeseries(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    stacked: bool = False,
    most: float | None = None,
    steps: Sequence[Step] = (),
    colours: Mapping[str, str] | None = None,
    links: Sequence[Json] = (),
) -> Json:
    """Lines over time; with `steps` dashed lines at their values."""
    custom: Json = {"fillOpacity": 15, "showPoints": "never", "spanNulls": False}
    if stacked:
        custom["stacking"] = {"mode": "normal"}
    if steps:
        custom["thresholdsStyle"] = {"mode": "dashed"}
    defaults: Json = {"unit": unit, "min": 0, "custom": custom}
    if most is not None:
        defaults["max"] = most
    return _panel(
        "timeseries",
        title,
        description,
        queries,
        defaults | _thresholds(steps) | _links(links),
        overrides=[_coloured(name, colour) for name, colour in (colours or {}).items()],
        options={
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )


def stat(
    title: str, description: str, unit: str, query: Query, *, steps: Sequence[Step] = (), decimals: int | None = None
) -> Json:
    """One number, coloured by `steps`."""
    defaults: Json = {"unit": unit, "noValue": "-"}
    if decimals is not None:
        defaults["decimals"] = decimals
    return _panel(
        "stat",
        title,
        description,
        [query],
        defaults | _thresholds(steps or [Step(None, "text")]),
        options={"graphMode": "area", "colorMode": "value", "reduceOptions": {"calcs": ["lastNotNull"]}},
    )


def heatmap(title: str, description: str, query: Query) -> Json:
    """A histogram's buckets over time."""
    return _panel(
        "heatmap",
        title,
        description,
        [query],
        {},
        options={
            "calculate": False,
            "yAxis": {"unit": "s", "decimals": 2},
            "color": {"mode": "scheme", "scheme": "Blues", "steps": 64},
            "cellGap": 1,
            "tooltip": {"mode": "single", "yHistogram": True},
        },
    )


def states(title: str, description: str, names: Mapping[int, tuple[str, str]], *queries: Query) -> Json:
    """Coloured bars over time; `names` gives each value its word and colour."""
    mapped = {str(value): {"text": text, "color": colour, "index": value} for value, (text, colour) in names.items()}
    return _panel(
        "state-timeline",
        title,
        description,
        queries,
        {"mappings": [{"type": "value", "options": mapped}], "custom": {"fillOpacity": 80, "lineWidth": 0}},
        options={"showValue": "never", "rowHeight": 0.8, "legend": {"showLegend": True, "placement": "bottom"}},
    )


def table(
    title: str,
    description: str,
    columns: Mapping[str, tuple[str, Query]],
    *,
    hidden: Sequence[str] = ("Time",),
    links: Mapping[str, Sequence[Json]] | None = None,
) -> Json:
    """One line a label set. `columns` gives each query's column its head and unit; `links` stand on labels' columns."""
    queries = [query for _, query in columns.values()]
    heads = {f"Value #{ref}": head for ref, head in zip(_references(queries), columns, strict=True)}
    overrides = [_of_column(head, "unit", unit) for head, (unit, _) in columns.items()]
    overrides += [_of_column(label, "links", list(some)) for label, some in (links or {}).items()]
    panel = _panel("table", title, description, queries, {"custom": {"filterable": True}}, overrides=overrides)
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {"excludeByName": dict.fromkeys(hidden, True), "renameByName": {} if len(heads) == 1 else heads},
        },
    ]
    if len(heads) == 1:
        panel["transformations"][1]["options"]["renameByName"] = {"Value": next(iter(columns))}
    return panel


@dataclass(frozen=True, slots=True)
class Row:
    """Panels side by side, each so many columns wide, all so many units high; they wrap after 24 columns."""

    title: str
    panels: Sequence[tuple[int, Json]]
    height: int = 8
    collapsed: bool = False


def dashboard(
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Json],
    rows: Sequence[Row],
    *,
    links: Sequence[Json] = (),
    traces: bool = True,
) -> Json:
    """The whole document, its panels numbered and laid out from top to bottom. `traces`: does it lead to any?"""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["saltgate"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "links": list(links),
        "templating": {"list": [*(_DATASOURCES if traces else _DATASOURCES[:1]), *variables]},
        "panels": _laid_out(rows),
    }


def label_variable(name: str, label: str, of: str, *, one: bool = False) -> Json:
    """A choice among the values of a label of a metric; all of them by default, or exactly one."""
    ask = f"label_values({of}, {name})"
    choice: Json = (
        {"includeAll": False, "multi": False} if one else {"includeAll": True, "allValue": ".*", "multi": True}
    )
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": PROMETHEUS,
        "query": {"query": ask, "refId": name},
        "definition": ask,
        "refresh": 2,
        "sort": 1,
        **choice,
        "current": {} if one else {"text": "All", "value": "$__all"},
    }


def link(title: str, url: str) -> Json:
    """A data link, in the same tab."""
    return {"title": title, "url": url, "targetBlank": False}


def traces_link(title: str, **attributes: str) -> Json:
    """A data link to the traces with these span attributes, where Grafana explores them. `__` in a name stands for a
    dot; values may be Grafana's variables.
    """
    tags = " ".join(f"{name.replace('__', '.')}={value}" for name, value in attributes.items())
    search = {
        "refId": "A",
        "datasource": {"type": "jaeger", "uid": "${traces}"},
        "queryType": "search",
        "service": "saltgate",
        "tags": tags,
    }
    panes = {
        "traces": {"datasource": "${traces}", "queries": [search], "range": {"from": "${__from}", "to": "${__to}"}}
    }
    url = quote(json.dumps(panes, separators=(",", ":")), safe="")
    for variable in ("${traces}", "${__from}", "${__to}", *attributes.values()):
        url = url.replace(quote(variable, safe=""), variable)
    return link(title, f"/explore?schemaVersion=1&orgId=1&panes={url}")


_DATASOURCES: Final[list[Json]] = [
    {
        "name": name,
        "label": label,
        "type": "datasource",
        "query": kind,
        "current": {"text": kind.capitalize(), "value": kind},
        "hide": 0,
        "refresh": 1,
    }
    for name, label, kind in (("prom", "Metrics", "prometheus"), ("traces", "Traces", "jaeger"))
]


def _panel(
    kind: str,
    title: str,
    description: str,
    queries: Sequence[Query],
    defaults: Json,
    *,
    overrides: Sequence[Json] = (),
    options: Json | None = None,
) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": PROMETHEUS,
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options or {},
        "targets": [_target(ref, query) for ref, query in zip(_references(queries), queries, strict=True)],
    }


def _target(reference: str, query: Query) -> Json:
    target: Json = {"refId": reference, "datasource": PROMETHEUS, "expr": query.expr, "legendFormat": query.legend}
    return target | {
        "exemplar": query.exemplars,
        "instant": query.now,
        "range": not query.now,
        "format": query.form,
    }


def _references(queries: Sequence[Query]) -> list[str]:
    return [chr(ord("A") + number) for number in range(len(queries))]


def _thresholds(steps: Sequence[Step]) -> Json:
    if not steps:
        return {}
    return {
        "color": {"mode": "palette-classic"} if steps[0].colour == "transparent" else {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": [{"value": step.value, "color": step.colour} for step in steps]},
    }


def _links(links: Sequence[Json]) -> Json:
    return {"links": list(links)} if links else {}


def _coloured(name: str, colour: str) -> Json:
    return _of_column(name, "color", {"mode": "fixed", "fixedColor": colour})


def _of_column(name: str, property_id: str, value: object) -> Json:
    return {"matcher": {"id": "byName", "options": name}, "properties": [{"id": property_id, "value": value}]}


def _laid_out(rows: Sequence[Row]) -> list[Json]:
    placed: list[Json] = []
    top = 0
    for row in rows:
        head: Json = {
            "type": "row",
            "title": row.title,
            "collapsed": row.collapsed,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        }
        inside, top = _wrapped(row, top + 1)
        placed.append(head)
        if row.collapsed:
            head["panels"] = inside
        else:
            placed += inside
    numbered = [panel for one in placed for panel in (one, *one.get("panels", ()))]
    for number, panel in enumerate(numbered, 1):
        panel["id"] = number
    return placed


def _wrapped(row: Row, top: int) -> tuple[list[Json], int]:
    placed: list[Json] = []
    left = 0
    for width, panel in row.panels:
        if left + width > COLUMNS:
            left, top = 0, top + row.height
        placed.append(panel | {"gridPos": {"x": left, "y": top, "w": width, "h": row.height}})
        left += width
    return placed, top + row.height
