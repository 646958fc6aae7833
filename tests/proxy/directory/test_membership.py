from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from proxy.directory.endings import parse_endings, record_name
from proxy.directory.membership import LISTED_AT_MOST, Named, check_member, memberships, select_scope
from proxy.directory.model import Directory, Member, Project, Workspace, directory_from_toml, user
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.identity.reasons import Reason, invalid_token
from proxy.isolation.ring import Ring
from proxy.isolation.scope import Scope
from proxy.isolation.sharing import Line
from proxy.isolation.unit import Level
from proxy.refusals import Blocked, Dialect, InvalidRequest, NotAMember, Refusal, SaltUnavailable, ScopeRequired

ACME = "https://sso.example.com/realms/acme"
GLOBEX = "https://sso.example.com/realms/globex"
RING = Ring("r", "k1", 0, {}, {})

DIRECTORY = directory_from_toml(f"""
[workspaces.acme]
issuer = "{ACME}"
unit = "team"
[workspaces.acme.projects.apollo]
members = ["user:alice", "group:eng"]
team = "red"
models = ["tiny"]
model_units = {{ tiny = "user" }}
[workspaces.acme.projects.ares]
team = "red"
[workspaces.acme.projects.hermes]
members = ["user:bob"]
unit = "user"
[workspaces.acme.teams.red]
members = ["user:carol"]
[workspaces.acme.collections.handbook]
projects = ["apollo", "ares"]

[workspaces.labs]
issuer = "{ACME}"
show_reuse = false
[workspaces.labs.projects.apollo]
members = ["user:dave", "user:carol"]
[workspaces.labs.projects.zeta]
members = ["user:dave"]

[workspaces.globex]
issuer = "{GLOBEX}"
[workspaces.globex.projects.apollo]
members = ["user:alice", "user:gina"]
""")


def snapshot(
    *, directory: Directory = DIRECTORY, blocks: Mapping[str, frozenset[Member]] | None = None, ring: Ring | None = RING
) -> Snapshot:
    return Snapshot(directory, blocks or {}, ring, 1)


def identity(subject: str, *groups: str, issuer: str = ACME, complete: bool = True) -> Identity:
    return Identity(issuer, subject, frozenset(groups), complete, 0.0)


def select(
    who: Identity,
    workspace: str | None = None,
    project: str | None = None,
    collection: str | None = None,
    narrower: Level | None = None,
    *,
    given: Snapshot | None = None,
) -> Scope:
    named = Named(workspace, project, collection, narrower)
    return select_scope(given or snapshot(), who, named, default_unit=Level.PROJECT, default_show_reuse=True)


def names(scope: Scope) -> tuple[str, str]:
    return scope.workspace, scope.project


def refusal(who: Identity, *named: str | None, given: Snapshot | None = None) -> Refusal:
    with pytest.raises(Refusal) as caught:
        select(who, *named, given=given)  # type: ignore[arg-type]
    return caught.value


def test_the_scope_says_what_the_directory_says() -> None:
    assert select(identity("alice"), "acme", "apollo") == Scope(
        issuer=ACME,
        subject="alice",
        workspace="acme",
        project="apollo",
        team="red",
        collection=None,
        policy=Level.TEAM,
        line=Line.WORKSPACE,
        model_units={"tiny": Level.USER},
        models=frozenset({"tiny"}),
        narrower=None,
        show_reuse=True,
    )


def test_the_policy_is_the_projects_else_the_workspaces_else_the_deployments() -> None:
    assert select(identity("bob"), "acme", "hermes").policy is Level.USER
    assert select(identity("carol"), "acme", "ares").policy is Level.TEAM
    assert select(identity("dave"), "labs", "zeta").policy is Level.PROJECT


def test_a_workspace_may_hide_reuse_and_otherwise_the_default_holds() -> None:
    assert select(identity("dave"), "labs", "zeta").show_reuse is False
    assert select(identity("bob"), "acme", "hermes").show_reuse is True


def test_membership_comes_by_name_by_group_and_by_team() -> None:
    assert names(select(identity("alice"), "acme", "apollo")) == ("acme", "apollo")
    assert names(select(identity("erin", "sales", "eng"), "acme", "apollo")) == ("acme", "apollo")
    assert names(select(identity("carol"), "acme", "ares")) == ("acme", "ares")


def test_a_group_named_like_a_person_is_not_that_person() -> None:
    assert isinstance(refusal(identity("eng"), "acme", "apollo"), NotAMember)
    assert isinstance(refusal(identity("x", "alice"), "acme", "apollo"), NotAMember)


def test_a_person_of_another_issuer_is_another_person() -> None:
    assert isinstance(refusal(identity("alice", issuer=GLOBEX), "acme", "apollo"), NotAMember)
    assert isinstance(refusal(identity("alice"), "globex", "apollo"), NotAMember)
    assert names(select(identity("alice", issuer=GLOBEX))) == ("globex", "apollo")


def test_only_a_project_is_the_callers_one_membership_of_that_name() -> None:
    assert names(select(identity("alice"), None, "apollo")) == ("acme", "apollo")
    assert names(select(identity("dave"), None, "apollo")) == ("labs", "apollo")
    assert isinstance(refusal(identity("carol"), None, "apollo"), ScopeRequired)
    assert isinstance(refusal(identity("alice"), None, "zeta"), NotAMember)


def test_only_a_workspace_is_the_callers_one_project_in_it() -> None:
    assert names(select(identity("carol"), "labs")) == ("labs", "apollo")
    assert isinstance(refusal(identity("dave"), "labs"), ScopeRequired)
    assert isinstance(refusal(identity("alice"), "labs"), NotAMember)


def test_nothing_named_is_the_callers_only_membership() -> None:
    assert names(select(identity("bob"))) == ("acme", "hermes")
    assert isinstance(refusal(identity("nobody")), NotAMember)


def test_several_memberships_are_listed_and_only_the_callers_own() -> None:
    answer = refusal(identity("carol"))
    assert isinstance(answer, ScopeRequired)
    assert "acme/apollo, acme/ares, labs/apollo." in answer.message
    assert "hermes" not in answer.message
    assert "globex" not in answer.message


def test_a_membership_that_comes_twice_is_one() -> None:
    both = Directory.of([Workspace("w", ACME, {"p": Project("p", (user("x"), Member("group:g")))})])
    assert names(select(identity("x", "g"), given=snapshot(directory=both))) == ("w", "p")


def test_the_list_of_memberships_is_bounded() -> None:
    many = {f"p{i:04}": Project(f"p{i:04}", (user("x"),)) for i in range(3000)}
    given = snapshot(directory=Directory.of([Workspace("w", ACME, many)]))
    message = refusal(identity("x"), given=given).message
    assert message.count("w/p") == LISTED_AT_MOST
    assert "and more" in message
    assert len(list(memberships(given, identity("x")))) == 3000


OUTSIDERS = [
    ("another's project", "acme", "hermes", None),
    ("no such project", "acme", "nope", None),
    ("no such workspace", "nope", "apollo", None),
    ("another's workspace", "globex", "apollo", None),
    ("another's workspace alone", "globex", None, None),
    ("no such workspace alone", "nope", None, None),
    ("no such project alone", None, "nope", None),
    ("another's project alone", None, "hermes", None),
    ("a name that cannot be", "ACME", "apollo", None),
    ("a name that walks", "acme", "../apollo", None),
    ("an empty name", "", "apollo", None),
    ("a very long name", "a" * 5000, None, None),
    ("control characters", "acme\r\nx", "apollo\x00", None),
    ("a surrogate", "\ud800", "apollo", None),
    ("the newline that $ forgives", "acme\n", "apollo", None),
    ("no such collection", "acme", "apollo", "nope"),
    ("a collection that is no name", "acme", "apollo", "Hand Book"),
    ("another's project with its collection", "acme", "ares", "handbook"),
]


@pytest.mark.parametrize(("case", "workspace", "project", "collection"), OUTSIDERS, ids=[o[0] for o in OUTSIDERS])
@pytest.mark.parametrize("dialect", list(Dialect))
def test_what_is_not_mine_and_what_is_not_there_answer_the_same_bytes(
    case: str, workspace: str | None, project: str | None, collection: str | None, dialect: Dialect
) -> None:
    answer = refusal(identity("alice"), workspace, project, collection)
    no_membership_at_all = refusal(identity("nobody"))
    assert isinstance(answer, NotAMember)
    assert answer.document(dialect) == no_membership_at_all.document(dialect)
    assert answer.retry_after == no_membership_at_all.retry_after


@pytest.mark.parametrize("project", ["a", "apollo", "ares", "hermer", "hermet", "z"])
@pytest.mark.parametrize("workspace", ["acme", None])
def test_a_project_whose_name_sorts_beside_mine_is_not_mine(workspace: str | None, project: str) -> None:
    assert isinstance(refusal(identity("bob"), workspace, project), NotAMember)


def test_a_collection_that_lists_the_project_is_taken() -> None:
    assert select(identity("alice"), "acme", "apollo", "handbook").collection == "handbook"


def test_a_collection_that_does_not_list_the_project_is_not_a_membership() -> None:
    assert isinstance(refusal(identity("bob"), "acme", "hermes", "handbook"), NotAMember)


def test_a_collection_together_with_a_narrower_border_is_invalid() -> None:
    with pytest.raises(InvalidRequest):
        select(identity("alice"), "acme", "apollo", "handbook", Level.USER)


def test_the_narrower_border_is_handed_on() -> None:
    assert select(identity("alice"), "acme", "apollo", narrower=Level.USER).narrower is Level.USER


@pytest.mark.parametrize("named", [(None, None), ("acme", None), (None, "apollo")])
def test_nothing_is_chosen_for_a_caller_whose_groups_are_incomplete(named: tuple[str | None, str | None]) -> None:
    answer = refusal(identity("alice", complete=False), *named)
    assert isinstance(answer, ScopeRequired)
    assert "name workspace and project" in answer.message


def test_a_caller_whose_groups_are_incomplete_may_name_both() -> None:
    assert names(select(identity("alice", complete=False), "acme", "apollo")) == ("acme", "apollo")
    assert isinstance(refusal(identity("erin", complete=False), "acme", "apollo"), NotAMember)


@pytest.mark.parametrize("named", [(None, None), ("acme", "apollo"), ("nope", "nope"), ("ACME", None)])
def test_a_blocked_person_is_refused_whatever_he_names(named: tuple[str | None, str | None]) -> None:
    given = snapshot(blocks={ACME: frozenset({user("alice")})})
    assert isinstance(refusal(identity("alice", "eng"), *named, given=given), Blocked)


def test_a_blocked_group_blocks_its_members_and_nobody_else() -> None:
    given = snapshot(blocks={ACME: frozenset({Member("group:contractors")})})
    assert isinstance(refusal(identity("alice", "contractors"), "acme", "apollo", given=given), Blocked)
    assert names(select(identity("alice", "eng"), "acme", "apollo", given=given)) == ("acme", "apollo")


def test_a_block_is_of_one_issuer() -> None:
    given = snapshot(blocks={GLOBEX: frozenset({user("alice")})})
    assert names(select(identity("alice"), "acme", "apollo", given=given)) == ("acme", "apollo")


def test_a_blocked_group_cannot_be_hidden_behind_incomplete_groups() -> None:
    given = snapshot(blocks={ACME: frozenset({Member("group:contractors")})})
    assert isinstance(refusal(identity("alice", complete=False), "acme", "apollo", given=given), Blocked)
    persons_only = snapshot(blocks={ACME: frozenset({user("mallory")})})
    assert names(select(identity("alice", complete=False), "acme", "apollo", given=persons_only)) == ("acme", "apollo")


def test_without_a_ring_nobody_is_told_that_he_is_no_member() -> None:
    emptied = snapshot(directory=Directory.of(()), ring=None)
    answer = refusal(identity("alice"), "acme", "apollo", given=emptied)
    assert isinstance(answer, SaltUnavailable)


def test_a_model_list_that_is_empty_allows_none_and_an_absent_one_is_kept_apart() -> None:
    project = DIRECTORY.workspaces["acme"].projects["ares"]
    empty = replace(DIRECTORY.workspaces["acme"], projects={"ares": replace(project, models=())})
    given = snapshot(directory=DIRECTORY.changed({"acme": empty}))
    assert select(identity("carol"), "acme", "ares", given=given).models == frozenset()
    assert select(identity("carol"), "acme", "ares").models is None


# A credential that is for some projects alone


def limited(who: Identity, *projects: str) -> Identity:
    pairs = frozenset((each.split("/")[0], each.split("/")[1]) for each in projects)
    return replace(who, token_id="t1", method="pat", projects=pairs)


def test_a_limited_credential_acts_as_its_owner_in_its_projects() -> None:
    alice = identity("alice")
    assert select(limited(alice, "acme/apollo"), "acme", "apollo") == select(alice, "acme", "apollo")


def test_a_limited_credential_is_a_member_of_nothing_else() -> None:
    carol = identity("carol")  # acme/apollo, acme/ares, labs/apollo
    only = limited(carol, "acme/ares")
    assert list(memberships(snapshot(), only)) == [("acme", "ares")]
    for named in ((None, None), ("acme", None), (None, "ares"), ("acme", "ares")):
        assert names(select(only, *named)) == ("acme", "ares")
    for named in (("acme", "apollo"), ("labs", "apollo"), ("labs", None), (None, "apollo")):
        refused = refusal(only, *named)
        nowhere = refusal(only, "nowhere", "nothing")
        assert refused.document(Dialect.OPENAI) == nowhere.document(Dialect.OPENAI)


@pytest.mark.parametrize("projects", [(), ("acme/hermes",), ("globex/apollo",), ("nowhere/nothing",)])
def test_a_limit_never_gives_a_membership(projects: tuple[str, ...]) -> None:
    only = limited(identity("alice"), *projects)
    assert list(memberships(snapshot(), only)) == []
    assert refusal(only).code == "not_a_member"
    for named in (("acme", "hermes"), ("acme", "apollo"), ("globex", "apollo")):
        assert refusal(only, *named).code == "not_a_member"


def test_a_limited_credential_does_not_choose_where_its_groups_are_unknown() -> None:
    only = limited(identity("alice", complete=False), "acme/apollo")
    assert refusal(only).code == "scope_required"
    assert names(select(only, "acme", "apollo")) == ("acme", "apollo")


def test_whether_a_choice_is_offered_depends_on_the_limit() -> None:
    two = limited(identity("carol"), "acme/ares", "labs/apollo")
    choice = refusal(two)
    assert choice.code == "scope_required"
    assert "acme/ares, labs/apollo." in choice.message
    assert "acme/apollo" not in choice.message


def test_a_member_is_told_by_check_member_as_by_a_request() -> None:
    check_member(snapshot(), identity("alice"), "acme", "apollo")
    refused = set()
    for workspace, project in (
        ("acme", "hermes"),
        ("acme", "none"),
        ("no", "no"),
        ("globex", "apollo"),
        ("A", ""),
        ("", "x"),
    ):
        with pytest.raises(NotAMember) as caught:
            check_member(snapshot(), identity("alice"), workspace, project)
        refused.add(caught.value.document(Dialect.OPENAI))
    assert refused == {refusal(identity("alice"), "acme", "hermes").document(Dialect.OPENAI)}


def test_a_revoked_token_is_refused_as_an_unknown_one_and_an_ended_sign_in_as_one() -> None:
    endings, _ = parse_endings([(record_name("token", "", "t1"), "1 2"), (record_name("session", ACME, "s1"), "1 2")])
    given = replace(snapshot(), endings=endings)
    token = refusal(limited(identity("alice"), "acme/apollo"), given=given)
    assert token.message == invalid_token(Reason.PERSONAL_UNKNOWN).message
    session = refusal(replace(identity("alice"), session="s1"), given=given)
    assert session.message == invalid_token(Reason.ENDED).message
