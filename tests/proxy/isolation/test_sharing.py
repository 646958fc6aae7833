"""What an operator is told of a border: which line of the policy drew it, what turned it, and who shares it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from proxy.isolation.scope import Scope, border_of, model_policy, shared_unit
from proxy.isolation.sharing import Cause, Decision, Line, Turn, because, each_alone, listed, who_shares
from proxy.isolation.unit import (
    CollectionUnit,
    DeploymentUnit,
    Level,
    ProjectUnit,
    TeamUnit,
    Unit,
    UserUnit,
    WorkspaceUnit,
)
from tests.proxy.isolation.test_scope import ALICE

APART = "also people of projects that they may not enter"


def told(scope: Scope, model: str | None = "tiny") -> str:
    border = scope.decision(model).border
    return because(border, workspace=scope.workspace, project=scope.project, model=model)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (Line.DEPLOYMENT, 'the configuration has [isolation] unit = "workspace"'),
        (Line.WORKSPACE, 'workspace acme has unit = "workspace"'),
        (Line.PROJECT, 'project acme/apollo has unit = "workspace"'),
    ],
)
def test_the_line_that_decided_is_told_with_what_it_says(line: Line, words: str) -> None:
    assert told(replace(ALICE, policy=Level.WORKSPACE, line=line)) == words


def test_each_model_and_content_has_its_own_border_in_whatever_order_they_are_asked_for() -> None:
    scope = replace(ALICE, policy=Level.WORKSPACE, model_units={"tiny": Level.PROJECT})
    asked = [(model, content) for model in ("tiny", "other", None) for content in (None, Level.USER, Level.PROJECT)]
    alone = {one: replace(scope).decision(*one) for one in asked}
    known = {one: scope.decision(*one) for one in asked}
    assert known == alone
    for one, other in product(asked, asked):
        assert scope.decision(*one) is known[one]  # so that the salt which it remembers is found again
        assert scope.decision(*other) is known[other]


def test_a_models_own_border_is_told_for_that_model_only() -> None:
    scope = replace(ALICE, model_units={"tiny": Level.USER}, line=Line.WORKSPACE)
    assert told(scope) == 'project acme/apollo has model_units with "user" for model tiny'
    assert told(scope, "other") == told(scope, None) == 'workspace acme has unit = "project"'
    assert scope.decision("tiny").border.line is Line.MODEL
    assert scope.decision(None).border.line is Line.WORKSPACE


@pytest.mark.parametrize(
    ("scope", "turns", "words"),
    [
        (
            replace(ALICE, policy=Level.WORKSPACE, narrower=Level.USER),
            (Turn(Cause.CALLER, Level.USER),),
            "but the caller asks for the user",
        ),
        (
            replace(ALICE, collection="handbook"),
            (Turn(Cause.COLLECTION, Level.COLLECTION),),
            "but the request names a collection, which has a cache of its own",
        ),
        (
            replace(ALICE, policy=Level.COLLECTION),
            (Turn(Cause.NO_COLLECTION, Level.PROJECT),),
            "but the request names no collection, so it is the project",
        ),
        (
            replace(ALICE, policy=Level.TEAM, team=None),
            (Turn(Cause.NO_TEAM, Level.PROJECT),),
            "but the project has no team, so it is the project",
        ),
        (
            replace(ALICE, policy=Level.DEPLOYMENT, team=None, narrower=Level.TEAM),
            (Turn(Cause.CALLER, Level.TEAM), Turn(Cause.NO_TEAM, Level.PROJECT)),
            "but the caller asks for the team, but the project has no team, so it is the project",
        ),
        (replace(ALICE, policy=Level.TEAM, narrower=Level.TEAM), (), '[isolation] unit = "team"'),
    ],
)
def test_each_turn_from_the_policy_to_the_border_is_told(scope: Scope, turns: tuple[Turn, ...], words: str) -> None:
    assert scope.decision("tiny").border.turns == turns
    assert told(scope).endswith(words)


def test_the_unit_of_a_request_is_the_one_of_the_decision() -> None:
    scope = replace(ALICE, policy=Level.TEAM)
    decision = scope.decision("tiny")
    assert isinstance(decision, Decision)
    assert scope.unit("tiny") is not None
    assert scope.unit("tiny") == decision.unit == TeamUnit("acme", "red")


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (DeploymentUnit(), f"everybody whom this deployment serves, of every workspace, {APART}"),
        (WorkspaceUnit("acme"), f"everybody in workspace acme, {APART}"),
        (TeamUnit("acme", "red"), f"everybody in the projects of team acme/red, {APART}"),
        (ProjectUnit("acme", "apollo"), "everybody in project acme/apollo"),
        (UserUnit("acme", "apollo", "https://sso", "u-1"), "only this person in this project (acme/apollo)"),
    ],
)
def test_who_shares_is_told_in_words(unit: Unit, words: str) -> None:
    assert who_shares(unit) == words


def test_who_shares_a_collection_is_the_projects_that_it_lists() -> None:
    assert "the projects that collection acme/handbook lists" in who_shares(CollectionUnit("acme", "handbook"))


def test_under_the_user_nobody_shares() -> None:
    assert each_alone("acme", "apollo").startswith("nobody")


@pytest.mark.parametrize(("level", "team", "collection"), [(Level.USER, "red", "c"), (Level.TEAM, None, None)])
def test_a_unit_that_cannot_be_named_is_never_replaced_by_a_wider_one(
    level: Level, team: str | None, collection: str | None
) -> None:
    with pytest.raises(ValueError, match="no shared unit"):
        shared_unit(level, "acme", "apollo", team=team, collection=collection)


def test_no_model_has_no_exception() -> None:
    exceptions = {"tiny": Level.USER}
    assert model_policy(Level.TEAM, Line.PROJECT, exceptions, None) == (Level.TEAM, Line.PROJECT)
    assert model_policy(Level.TEAM, Line.PROJECT, exceptions, "tiny") == (Level.USER, Line.MODEL)


def test_a_border_knows_its_policy_however_it_was_turned() -> None:
    border = border_of(Level.COLLECTION, Line.PROJECT, team=None, collection=None, narrower=Level.USER)
    assert (border.policy, border.level) == (Level.COLLECTION, Level.USER)


def test_long_lists_are_cut_and_the_rest_is_counted() -> None:
    assert listed(["a", "b", "c"], at_most=2) == "a, b and 1 more"
    assert listed(["a", "b"], at_most=2) == "a, b"
