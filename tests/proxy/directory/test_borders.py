"""Whose requests meet in a unit: what is told must be what requests do, for every caller and everything he can name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.directory.borders import project_border, project_unit, projects_by_unit
from proxy.directory.membership import Named, select_scope
from proxy.directory.model import Collection, Directory, Project, Team, Workspace, user
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.isolation.ring import Ring
from proxy.isolation.scope import WIDTH
from proxy.isolation.sharing import Line
from proxy.isolation.unit import CollectionUnit, DeploymentUnit, Level, ProjectUnit, TeamUnit, Unit, WorkspaceUnit
from proxy.refusals import Refusal

ISSUER = "https://sso.example.com"
RING = Ring(id="r", first_key="k1", base_epoch=1, raises={}, keys={})
LEVELS = st.sampled_from([None, *(level for level in Level if level is not Level.DEPLOYMENT)])
MODELS = ("tiny", "large")


def project(name: str, **more: object) -> Project:
    return Project(name, members=(user("alice"),), **more)  # type: ignore[arg-type]


def workspace(name: str, *projects: Project, unit: Level | None = None, listed: tuple[str, ...] = ()) -> Workspace:
    teams = {"red": Team("red", ())}
    collections = {"handbook": Collection("handbook", listed)}
    return Workspace(name, ISSUER, {p.name: p for p in projects}, teams, collections, unit=unit)


@st.composite
def directories(draw: st.DrawFn) -> Directory:
    spaces = []
    for name in ("acme", "globex"):
        projects = [
            project(
                each,
                team=draw(st.sampled_from([None, "red"])),
                unit=draw(LEVELS),
                model_units={model: level for model in MODELS if (level := draw(LEVELS)) is not None},
            )
            for each in ("apollo", "ares")
        ]
        listed = draw(st.sampled_from([(), ("apollo",), ("apollo", "ares")]))
        spaces.append(workspace(name, *projects, unit=draw(LEVELS), listed=listed))
    return Directory.of(spaces)


@dataclass(frozen=True)
class Asked:
    project: tuple[str, str]
    unit: Unit


def everything_asked(directory: Directory, default: Level, model: str) -> list[Asked]:
    """The units of all requests that alice can make: by the way that requests go."""
    snapshot = Snapshot(directory, {}, RING, 1)
    alice = Identity(ISSUER, "alice", frozenset(), True, 2e9)
    found = []
    for space in directory.workspaces.values():
        for name in space.projects:
            for collection, narrower in [(None, None), ("handbook", None), *((None, level) for level in WIDTH)]:
                named = Named(space.name, name, collection, narrower)
                try:
                    scope = select_scope(snapshot, alice, named, default_unit=default, default_show_reuse=True)
                    found.append(Asked((space.name, name), scope.unit(model)))
                except Refusal:
                    continue
    return found


@given(directories(), st.sampled_from(list(Level)), st.sampled_from([*MODELS, "any other"]))
@settings(max_examples=50, deadline=None)
def test_the_projects_told_for_a_unit_are_exactly_those_whose_requests_can_run_in_it(
    directory: Directory, default: Level, model: str
) -> None:
    told = projects_by_unit(directory, default, model=model)
    asked = everything_asked(directory, default, model)
    for unit in {one.unit for one in asked if not str(one.unit).startswith("user:")} | set(told):
        assert set(told.get(unit, ())) == {one.project for one in asked if one.unit == unit}


@given(directories(), st.sampled_from(list(Level)))
@settings(max_examples=25, deadline=None)
def test_without_a_model_nobody_is_left_out_who_shares_with_some_model(directory: Directory, default: Level) -> None:
    told = projects_by_unit(directory, default)
    for model in (*MODELS, "any other"):
        for unit, projects in projects_by_unit(directory, default, model=model).items():
            assert set(projects) <= set(told[unit])


def test_a_projects_border_names_its_line_and_its_unit() -> None:
    own, inherited = project("apollo", unit=Level.TEAM, team="red"), project("ares", model_units={"tiny": Level.USER})
    acme = workspace("acme", own, inherited, unit=Level.WORKSPACE)
    border = project_border(acme, own, Level.PROJECT)
    assert (border.line, project_unit(acme, own, border)) == (Line.PROJECT, TeamUnit("acme", "red"))
    border = project_border(acme, inherited, Level.PROJECT)
    assert (border.line, project_unit(acme, inherited, border)) == (Line.WORKSPACE, WorkspaceUnit("acme"))
    of_model = project_border(acme, inherited, Level.PROJECT, model="tiny")
    assert (of_model.line, project_unit(acme, inherited, of_model)) == (Line.MODEL, None)
    bare = workspace("acme", own, inherited)
    assert project_border(bare, inherited, Level.PROJECT).line is Line.DEPLOYMENT


@pytest.mark.parametrize(
    ("default", "unit", "expected"),
    [
        (Level.DEPLOYMENT, DeploymentUnit(), {("acme", "apollo"), ("acme", "ares"), ("globex", "vault")}),
        (Level.PROJECT, DeploymentUnit(), set()),
        (Level.WORKSPACE, WorkspaceUnit("acme"), {("acme", "apollo"), ("acme", "ares")}),
        (Level.TEAM, TeamUnit("acme", "red"), {("acme", "apollo")}),
        (Level.PROJECT, ProjectUnit("acme", "apollo"), {("acme", "apollo")}),
        (Level.USER, ProjectUnit("acme", "apollo"), set()),
        (Level.PROJECT, CollectionUnit("acme", "handbook"), {("acme", "apollo"), ("acme", "ares")}),
        (Level.USER, CollectionUnit("acme", "handbook"), set()),
    ],
)
def test_who_meets_in_a_unit_follows_the_policy(default: Level, unit: Unit, expected: set[tuple[str, str]]) -> None:
    acme = workspace("acme", project("apollo", team="red"), project("ares"), listed=("apollo", "ares"))
    directory = Directory.of([acme, workspace("globex", project("vault"))])
    assert set(projects_by_unit(directory, default).get(unit, ())) == expected
