"""The rules: promtool takes them, each alert is tried to fire and to stay silent, and the list for people agrees."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.watch.queries import COMPOSE, PROMETHEUS, RULE_FILES, Json, alerts

TESTS: Final = sorted((PROMETHEUS / "tests").glob("*.yaml"))
LIST: Final = (COMPOSE / "alerts.md").read_text()


def promtool(*arguments: object) -> None:
    """Fails with what promtool says."""
    found = shutil.which("promtool")
    if found is None:
        pytest.fail("promtool is missing: sh .ci/prometheus (Debian's package prometheus)")
    done = subprocess.run([found, *map(str, arguments)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
def test_promtool_takes_rules_and_configuration() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", *RULE_FILES)
    promtool("check", "config", "--syntax-only", PROMETHEUS / "prometheus.yaml")


@pytest.mark.process
@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_alerts_fire_and_stay_silent_as_they_should(file: Path) -> None:
    promtool("test", "rules", file)


def test_every_test_evaluates_what_is_recorded_before_the_alerts() -> None:
    """promtool evaluates groups in no order of its own: a boundary would be met a minute sooner or later by chance."""
    order = [group["name"] for file in RULE_FILES for group in yaml.safe_load(file.read_text())["groups"]]
    for file in TESTS:
        assert yaml.safe_load(file.read_text())["group_eval_order"] == order


def tried(file: Path) -> tuple[set[str], set[str]]:
    """The alerts that are seen firing in this file, and those seen silent in a test that is named after them."""
    fire: set[str] = set()
    silent: set[str] = set()
    for test in yaml.safe_load(file.read_text())["tests"]:
        about = {name for name in alerts() if re.search(rf"\b{name}", test["name"])}
        for check in test["promql_expr_test"]:
            firing = set(re.findall(r'alertname="(\w+)"', str(check["exp_samples"])))
            fire |= firing
            silent |= about - firing
    return fire, silent


def test_each_alert_is_seen_firing_and_seen_silent() -> None:
    files = [tried(file) for file in TESTS]
    fire, silent = (set().union(*sets) for sets in zip(*files, strict=True))
    assert fire == set(alerts())
    assert silent == set(alerts())


@pytest.mark.parametrize("rule", alerts().values(), ids=alerts())
def test_an_alert_says_what_is_wrong_how_grave_it_is_and_where_the_first_step_stands(rule: Json) -> None:
    assert set(rule["labels"]) == {"severity"}
    assert rule["labels"]["severity"] in ("page", "ticket", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"alerts.md#{rule['alert'].lower()}"
    assert len(rule["annotations"]["summary"]) < 140


def sections() -> dict[str, str]:
    """The list's sections, by the alert's name."""
    parts = re.split(r"^### (\w+)\n", LIST, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_list_has_every_alert_in_the_rules_order_and_no_other() -> None:
    assert list(sections()) == list(alerts())


@pytest.mark.parametrize("name", alerts())
def test_a_section_says_severity_meaning_causes_first_step_and_when_it_is_good_again(name: str) -> None:
    text = sections()[name]
    assert re.match(rf"{alerts()[name]['labels']['severity']}\. \S", text)
    assert re.findall(r"^- ([^:]+): \S", text, flags=re.MULTILINE) == ["Likely", "First step", "Good again"]


def anchors(text: str) -> set[str]:
    """The anchors that headings have on GitHub and GitLab."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_of_the_list_leads_somewhere() -> None:
    for target, _, anchor in re.findall(r"\]\(([^)#]*)(#([^)]*))?\)", LIST):
        file = COMPOSE / target if target else COMPOSE / "alerts.md"
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), anchor
