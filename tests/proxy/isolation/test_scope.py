"""Contract section 5, effective unit, narrower border, collection: who shares a cache with whom."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.isolation.ring import KeyRing, Ring
from proxy.isolation.salt import SaltKey
from proxy.isolation.scope import WIDTH, Scope
from proxy.isolation.sharing import Line
from proxy.isolation.unit import CollectionUnit, Level, ProjectUnit, TeamUnit, UserUnit, level
from proxy.refusals import UnitTooWide

ALICE = Scope(
    issuer="https://sso.example.com",
    subject="u-alice",
    workspace="acme",
    project="apollo",
    team="red",
    collection=None,
    policy=Level.PROJECT,
    line=Line.DEPLOYMENT,
    model_units={},
    models=None,
    narrower=None,
    show_reuse=True,
)
OTHERS = {
    "the same person": ALICE,
    "a colleague in the project": replace(ALICE, subject="u-anton"),
    "a colleague in the team": replace(ALICE, subject="u-anton", project="ares"),
    "somebody of the workspace": replace(ALICE, subject="u-bob", project="hermes", team=None),
    "the same person in the team's other project": replace(ALICE, project="ares"),
    "the same subject at another issuer": replace(ALICE, issuer="https://login.example.org"),
    "a namesake in another workspace": replace(ALICE, workspace="globex"),
    "a stranger": replace(ALICE, subject="u-mallory", workspace="globex", project="vault", team=None),
}
# For each policy, who shares Alice's cache.
SHARES = {
    Level.DEPLOYMENT: set(OTHERS),
    Level.WORKSPACE: set(OTHERS) - {"a namesake in another workspace", "a stranger"},
    Level.TEAM: {
        "the same person",
        "a colleague in the project",
        "a colleague in the team",
        "the same person in the team's other project",
        "the same subject at another issuer",
    },
    Level.PROJECT: {"the same person", "a colleague in the project", "the same subject at another issuer"},
    Level.COLLECTION: {"the same person", "a colleague in the project", "the same subject at another issuer"},
    Level.USER: {"the same person"},
}
RING = Ring(id="r", first_key="k1", base_epoch=1, raises={}, keys={})
KEYS = KeyRing({"k1": SaltKey("k1", b"s" * 32)})


def salt(scope: Scope, model: str = "tiny") -> str:
    return KEYS.salt(scope.unit(model), RING, 0.0).value


@pytest.mark.parametrize("policy", list(Level))
@pytest.mark.parametrize("who", list(OTHERS))
def test_who_shares_a_salt_is_decided_by_the_policy_alone(policy: Level, who: str) -> None:
    own, other = replace(ALICE, policy=policy), replace(OTHERS[who], policy=policy)
    assert (salt(own) == salt(other)) == (who in SHARES[policy])


@pytest.mark.parametrize("policy", list(Level))
def test_a_collection_is_shared_across_projects_and_with_nothing_else(policy: Level) -> None:
    asked = replace(ALICE, policy=policy, collection="handbook")
    if policy is Level.USER:
        with pytest.raises(UnitTooWide):
            asked.unit("tiny")
        return
    assert asked.unit("tiny") == CollectionUnit("acme", "handbook")
    assert salt(asked) == salt(replace(asked, project="ares", subject="u-anton"))
    assert salt(asked) != salt(replace(asked, collection="manual"))
    assert salt(asked) != salt(replace(asked, workspace="globex"))
    assert salt(asked) != salt(replace(asked, collection=None))


def test_the_policy_collection_without_a_named_one_is_the_project() -> None:
    assert replace(ALICE, policy=Level.COLLECTION).unit("tiny") == ProjectUnit("acme", "apollo")


def test_the_policy_team_of_a_project_without_one_is_the_project() -> None:
    assert replace(ALICE, policy=Level.TEAM, team=None).unit("tiny") == ProjectUnit("acme", "apollo")


def test_two_projects_without_a_team_share_nothing_under_the_policy_team() -> None:
    one = replace(ALICE, policy=Level.TEAM, team=None)
    assert salt(one) != salt(replace(one, project="ares"))


def test_a_models_own_border_wins_over_the_projects_for_that_model_only() -> None:
    scope = replace(ALICE, model_units={"tiny": Level.USER})
    assert isinstance(scope.unit("tiny"), UserUnit)
    assert isinstance(scope.unit("other"), ProjectUnit)
    assert isinstance(replace(scope, policy=Level.USER, model_units={"tiny": Level.TEAM}).unit("tiny"), TeamUnit)


def test_no_collection_is_shared_for_a_model_whose_border_is_the_user() -> None:
    scope = replace(ALICE, model_units={"tiny": Level.USER}, collection="handbook")
    with pytest.raises(UnitTooWide):
        scope.unit("tiny")
    assert scope.unit("other") == CollectionUnit("acme", "handbook")


@pytest.mark.parametrize("policy", WIDTH)
@pytest.mark.parametrize("asked", WIDTH)
def test_a_caller_may_name_the_same_or_a_narrower_border_and_no_wider_one(policy: Level, asked: Level) -> None:
    scope = replace(ALICE, policy=policy, narrower=asked)
    if WIDTH.index(asked) < WIDTH.index(policy):
        with pytest.raises(UnitTooWide) as refused:
            scope.unit("tiny")
        assert (refused.value.status, refused.value.code) == (403, "unit_too_wide")
    else:
        assert level(scope.unit("tiny")) is asked


@given(st.sampled_from(list(Level)), st.sampled_from([None, *Level]), st.sampled_from([None, "red"]), st.booleans())
def test_whatever_a_caller_asks_nobody_shares_his_salt_who_did_not_under_the_policy(
    policy: Level, asked: Level | None, team: str | None, of_model: bool
) -> None:
    """But for a collection, which is the administrator's consent."""
    plain = replace(ALICE, team=team, policy=Level.USER if of_model else policy)
    plain = replace(plain, model_units={"tiny": policy} if of_model else {})
    try:
        asked_for = salt(replace(plain, narrower=asked))
    except UnitTooWide:
        return
    for other in OTHERS.values():
        same_policy = replace(other, policy=plain.policy, model_units=plain.model_units)
        if other.team is not None:
            same_policy = replace(same_policy, team=team)
        if asked_for == salt(same_policy):
            assert salt(plain) == salt(same_policy)


def test_a_team_asked_for_where_there_is_none_is_the_project() -> None:
    asked = replace(ALICE, policy=Level.WORKSPACE, team=None, narrower=Level.TEAM)
    assert asked.unit("tiny") == ProjectUnit("acme", "apollo")


def test_a_collection_is_no_rung_of_the_ladder() -> None:
    with pytest.raises(UnitTooWide):
        replace(ALICE, policy=Level.DEPLOYMENT, narrower=Level.COLLECTION).unit("tiny")


@pytest.mark.parametrize("team", ["red", None])
@pytest.mark.parametrize("content", [Level.WORKSPACE, Level.TEAM, Level.PROJECT, Level.USER])
def test_what_is_in_a_request_narrows_every_border_and_widens_none(content: Level, team: str | None) -> None:
    for policy in Level:
        for narrower in (None, *WIDTH):
            scope = replace(ALICE, policy=policy, narrower=narrower, team=team)
            try:
                without = scope.unit("tiny")
            except UnitTooWide:
                # A wider border than the policy's is refused, whatever is in the request.
                with pytest.raises(UnitTooWide):
                    scope.unit("tiny", content)
                continue
            expected = max(level(without), content, key=WIDTH.index)
            found = level(scope.unit("tiny", content))
            assert found is (Level.PROJECT if expected is Level.TEAM and team is None else expected)


def test_a_models_own_border_is_narrowed_too() -> None:
    scope = replace(ALICE, model_units={"tiny": Level.WORKSPACE})
    assert isinstance(scope.unit("tiny", Level.USER), UserUnit)
    assert isinstance(replace(scope, model_units={"tiny": Level.USER}).unit("tiny", Level.PROJECT), UserUnit)


def test_with_a_collection_named_content_narrows_to_what_lies_in_the_collection() -> None:
    asked = replace(ALICE, collection="handbook", policy=Level.WORKSPACE)
    assert asked.unit("tiny", Level.WORKSPACE) == CollectionUnit("acme", "handbook")
    # A team's projects are not all in the collection, nor the collection's all in the team.
    assert asked.unit("tiny", Level.TEAM) == ProjectUnit("acme", "apollo")
    assert asked.unit("tiny", Level.PROJECT) == ProjectUnit("acme", "apollo")
    assert asked.unit("tiny", Level.USER) == UserUnit("acme", "apollo", ALICE.issuer, ALICE.subject)
    with pytest.raises(UnitTooWide):
        replace(asked, policy=Level.USER).unit("tiny", Level.USER)
