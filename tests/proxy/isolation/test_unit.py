"""Contract section 1: how units and names are written."""

from __future__ import annotations

import pytest

from proxy.isolation.unit import (
    CollectionUnit,
    DeploymentUnit,
    ProjectUnit,
    TeamUnit,
    Unit,
    UserUnit,
    WorkspaceUnit,
    is_name,
    parse_unit,
)

ISSUER = "https://sso.example.com"
WRITTEN: list[tuple[str, Unit]] = [
    ("deployment", DeploymentUnit()),
    ("workspace:acme", WorkspaceUnit("acme")),
    ("team:acme/red", TeamUnit("acme", "red")),
    ("project:acme/apollo", ProjectUnit("acme", "apollo")),
    ("collection:acme/handbook", CollectionUnit("acme", "handbook")),
    ("user:acme/apollo/u-alice", UserUnit("acme", "apollo", ISSUER, "u-alice")),
    ("user:acme/apollo/a/b:c d", UserUnit("acme", "apollo", ISSUER, "a/b:c d")),
]


@pytest.mark.parametrize(("text", "unit"), WRITTEN)
def test_a_unit_is_written_and_read_as_the_contract_spells_it(text: str, unit: Unit) -> None:
    assert str(unit) == text
    assert parse_unit(text, issuer=ISSUER) == unit


@pytest.mark.parametrize(
    "text",
    [
        "",
        "workspace",
        "workspace:",
        "workspace:acme/apollo",
        "workspace:Acme",
        "team:acme",
        "project:acme/",
        "project:acme/apollo/x",
        "project:/apollo",
        "collection:acme/hand book",
        "user:acme/apollo",
        "user:acme/apollo/",
        "deployment:acme",
        "probe:abc",
        "galaxy:acme",
        "project:acme/../globex",
        "project:acme/apollo\n",
    ],
)
def test_what_is_no_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_unit(text, issuer=ISSUER)


@pytest.mark.parametrize("name", ["a", "0", "acme", "a.b-c_d", "9lives", "a" * 63])
def test_these_are_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", "-a", ".a", "_a", "A", "ä", "a b", "a/b", "a%62", "a" * 64, "a\n", "\na", "a\0", "\uff41", "..", "a;b"]
)
def test_these_are_no_names(name: str) -> None:
    assert not is_name(name)
