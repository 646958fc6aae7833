"""The dashboards: made by their generator, whole, and leading where their links say. That their expressions hold for a
real Prometheus is tried in test_prometheus.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from observability import names
from observability.families import FAMILIES
from tests.watch.queries import COMPOSE, DASHBOARDS, Json, dashboard, panels, selectors

GRAFANA: Final = COMPOSE / "grafana"
DOCUMENTS: Final = {file.stem: dashboard(file) for file in DASHBOARDS}

each_dashboard = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)


def test_they_are_what_their_generator_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, GRAFANA / "generate.py", tmp_path], check=True)
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert made == {file.name: file.read_text() for file in DASHBOARDS}, "run: make reference"


@each_dashboard
def test_a_file_is_named_for_its_dashboard_and_nobody_edits_it_in_grafana(document: Json) -> None:
    assert DOCUMENTS[document["uid"]] is document
    assert not document["editable"]
    assert document["schemaVersion"] == 39


@each_dashboard
def test_every_panel_says_what_it_shows_and_in_which_unit(document: Json) -> None:
    for panel in panels(document):
        assert re.fullmatch(r"[A-Z].+[.:]( .+\.)?", panel["description"]), panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${prom}"}
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
        if panel["type"] in ("timeseries", "stat"):
            assert panel["fieldConfig"]["defaults"]["unit"]


@each_dashboard
def test_a_panel_of_one_metric_says_what_it_is_in_the_metrics_own_words(document: Json) -> None:
    """Where a description begins as no metric's does, it tells several, or a quotient of them."""
    helps = {family.help for family in FAMILIES.values()}
    told = [panel for panel in panels(document) if any(panel["description"].startswith(text) for text in helps)]
    assert len(told) >= len(list(panels(document))) / 3


@each_dashboard
def test_no_two_panels_have_one_number_or_lie_on_each_other(document: Json) -> None:
    all_of_it = [*document["panels"], *(inner for row in document["panels"] for inner in row.get("panels", ()))]
    assert len({panel["id"] for panel in all_of_it}) == len(all_of_it)
    for one, other in combinations((panel["gridPos"] for panel in all_of_it), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in all_of_it)


@each_dashboard
def test_every_variable_that_is_used_is_there(document: Json) -> None:
    own = {variable["name"] for variable in document["templating"]["list"]}
    text = json.dumps(document)
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__range", "__all", "__data", "__field"}
    used -= {"__from", "__to", "__url_time_range"}
    assert used == own


@each_dashboard
def test_workspace_project_and_model_can_be_chosen_and_both_sources_too(document: Json) -> None:
    kinds = {variable["name"]: variable for variable in document["templating"]["list"]}
    assert kinds["prom"]["query"] == "prometheus"
    assert "traces" not in kinds or kinds["traces"]["query"] == "jaeger"
    for name in set(kinds) - {"prom", "traces"}:
        (selector,) = selectors(kinds[name]["definition"].removeprefix("label_values(").partition(",")[0].split("{")[0])
        assert name in FAMILIES[selector.name].labels or name == "instance"


def links(document: Any) -> list[str]:
    """The address of every link, wherever it stands."""
    if isinstance(document, list):
        return [url for one in document for url in links(one)]
    if not isinstance(document, dict):
        return []
    own = [document["url"]] if document.get("url") else []
    return own + [url for value in document.values() for url in links(value)]


@each_dashboard
def test_every_link_leads_to_a_dashboard_or_to_traces_by_attributes_that_spans_have(document: Json) -> None:
    found = links(document)
    for url in found:
        parts = urlsplit(url)
        asked = parse_qs(parts.query)
        if parts.path.startswith("/d/"):
            target = DOCUMENTS[parts.path.removeprefix("/d/")]
            variables = {variable["name"] for variable in target["templating"]["list"]}
            assert {name.removeprefix("var-") for name in asked if name.startswith("var-")} <= variables
        else:
            assert parts.path == "/explore"
            (query,) = json.loads(asked["panes"][0])["traces"]["queries"]
            assert query["queryType"] == "search"
            attributes = {tag.partition("=")[0] for tag in query["tags"].split()}
            assert attributes <= {names.WORKSPACE, names.PROJECT, names.MODEL}
    assert found or document["uid"] == "saltgate-health"


def test_time_to_first_token_has_its_traces_as_points() -> None:
    for uid in ("saltgate", "saltgate-scope"):
        (panel,) = (one for one in panels(DOCUMENTS[uid]) if one["title"] == "Time to first token")
        assert all(target["exemplar"] and "_bucket" in target["expr"] for target in panel["targets"])


def test_what_is_provisioned_is_what_the_dashboards_ask_for() -> None:
    sources = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "datasources.yaml").read_text())["datasources"]
    by_uid = {source["uid"]: source for source in sources}
    for document in DOCUMENTS.values():
        for variable in document["templating"]["list"]:
            if variable["type"] == "datasource":
                assert by_uid[variable["current"]["value"]]["type"] == variable["query"]
    (destination,) = by_uid["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert destination["name"] == "trace_id"
    assert by_uid[destination["datasourceUid"]]["type"] == "jaeger"
    (provider,) = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "dashboards.yaml").read_text())["providers"]
    mounts = yaml.safe_load((COMPOSE / "compose.observability.yaml").read_text())["services"]["grafana"]["volumes"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounts
