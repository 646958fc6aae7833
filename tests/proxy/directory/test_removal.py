"""Which units a removal raises, where the policy says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.directory.changes import Change, ChangeRefused, block, first_import, grant, revoke
from proxy.directory.model import Fault, Workspace, directory_from_toml, group, user
from proxy.directory.removal import RemovalPolicy, left_units, outermost, without
from proxy.isolation.ring import record_name
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
from tests.proxy.directory.ledger import Ledger

ISSUER = "https://i"
FILE = f"""
[workspaces.acme]
issuer = "{ISSUER}"
[workspaces.acme.projects.apollo]
members = ["user:alice", "user:erin", "group:eng"]
team = "red"
[workspaces.acme.projects.ares]
members = ["user:bob"]
team = "red"
[workspaces.acme.projects.hermes]
members = ["user:alice"]
[workspaces.acme.teams.red]
members = ["user:carol", "user:erin"]
[workspaces.acme.collections.handbook]
projects = ["apollo", "hermes"]
[workspaces.labs]
issuer = "{ISSUER}"
[workspaces.labs.projects.zeta]
members = ["user:alice"]
[workspaces.other]
issuer = "https://other"
[workspaces.other.projects.p]
members = ["user:alice"]
"""
ACME, RED, HANDBOOK = WorkspaceUnit("acme"), TeamUnit("acme", "red"), CollectionUnit("acme", "handbook")
APOLLO, ARES, HERMES = (ProjectUnit("acme", name) for name in ("apollo", "ares", "hermes"))
ZETA = ProjectUnit("labs", "zeta")
POLICY = RemovalPolicy(Level.PROJECT)


def raised(before: str, after: str, policy: RemovalPolicy | None = POLICY) -> set[Unit]:
    """What an import of the second file raises after the first."""
    ledger = Ledger()
    ledger.do(first_import(directory_from_toml(before), "k1", None))
    return set(ledger.do(first_import(directory_from_toml(after), "k1", policy)).raises)


def acme(text: str = FILE) -> Workspace:
    return directory_from_toml(text).workspaces["acme"]


def revoked(project: str, member: str, policy: RemovalPolicy | None = POLICY, text: str = FILE) -> Change:
    ledger = Ledger()
    ledger.do(first_import(directory_from_toml(text), "k1", None))
    return ledger.do(revoke("acme", project, user(member), policy))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            '"user:alice", "user:erin", "group:eng"',
            '"user:erin", "group:eng"',
            {APOLLO, RED},
        ),  # still by hermes in handbook
        ('"user:alice", "user:erin", "group:eng"', '"user:alice", "user:erin"', {APOLLO, RED, HANDBOOK}),
        ('"user:carol", "user:erin"', '"user:erin"', {RED, APOLLO, ARES, HANDBOOK}),
        ('"user:carol", "user:erin"', '"user:carol"', {ARES}),  # erin stays in apollo by name, and so in team and book
        ('members = ["user:bob"]\nteam = "red"', 'members = ["user:bob"]', {ARES, RED}),  # carol and erin; the project
        ('["apollo", "hermes"]', '["apollo"]', {HANDBOOK}),
        ('["apollo", "hermes"]', '["hermes"]', {HANDBOOK}),
        ('members = ["user:bob"]', 'members = ["user:bob", "user:new"]', set()),
        ('["apollo", "hermes"]', '["apollo", "hermes", "ares"]', set()),
        ('members = ["user:bob"]\n', 'members = ["user:bob"]\nunit = "user"\n', set()),
    ],
)
def test_an_import_raises_what_somebody_leaves_and_nothing_else(old: str, new: str, expected: set[Unit]) -> None:
    assert FILE.count(old) == 1
    assert raised(FILE, FILE.replace(old, new)) == expected


def test_a_project_that_goes_is_left_by_its_team_and_collection_too() -> None:
    without_apollo = FILE.replace(
        '[workspaces.acme.projects.apollo]\nmembers = ["user:alice", "user:erin", "group:eng"]\nteam = "red"\n', ""
    ).replace('["apollo", "hermes"]', '["hermes"]')
    assert raised(FILE, without_apollo) == {APOLLO, RED, HANDBOOK}
    assert raised(FILE, without_apollo, None) == {APOLLO}


def test_a_project_that_leaves_its_team_raises_it_also_where_it_has_no_members() -> None:
    before = FILE.replace('members = ["user:bob"]\nteam = "red"', 'team = "red"')
    assert RED in raised(before, before.replace('ares]\nteam = "red"', "ares]"))


def test_without_the_policy_a_removal_raises_nothing() -> None:
    assert raised(FILE, FILE.replace('"user:carol", ', ""), None) == set()
    assert revoked("apollo", "alice", None).raises == ()


def test_a_team_is_left_by_its_members_also_while_it_has_no_project() -> None:
    before = FILE.replace('team = "red"\n', "")
    assert raised(before, before.replace('"user:carol", ', "")) == {RED}


def test_who_moves_between_projects_of_one_border_does_not_leave_it() -> None:
    before = FILE.replace('members = ["user:bob"]\n', 'members = ["user:bob"]\nunit = "workspace"\n')
    after = before.replace('["user:bob"]', "[]")
    moved = after + '[workspaces.acme.projects.nova]\nmembers = ["user:bob"]\nunit = "workspace"\n'
    assert raised(before, moved) == {ARES, RED}
    assert raised(before, after) == {ACME}


def test_a_namesake_of_another_issuer_is_another_person() -> None:
    ledger = Ledger()
    ledger.do(first_import(directory_from_toml(FILE), "k1", None))
    assert DeploymentUnit() in ledger.do(block(ISSUER, user("alice"), RemovalPolicy(Level.DEPLOYMENT))).raises


def test_a_workspace_that_goes_or_changes_its_people_is_raised_once_as_a_whole() -> None:
    assert raised(FILE, FILE.replace(f'acme]\nissuer = "{ISSUER}"', 'acme]\nissuer = "https://new"')) == {ACME}
    assert raised(FILE, "[workspaces]") == {ACME, WorkspaceUnit("labs"), WorkspaceUnit("other")}


def test_a_revocation_raises_what_the_member_leaves() -> None:
    assert set(revoked("apollo", "alice").raises) == {APOLLO, RED}
    assert revoked("apollo", "erin").raises == ()  # a member by his team still
    assert set(revoked("ares", "bob").raises) == {ARES, RED}


def test_a_member_who_stays_in_the_workspace_does_not_leave_its_border() -> None:
    text = FILE.replace(f'acme]\nissuer = "{ISSUER}"', f'acme]\nissuer = "{ISSUER}"\nunit = "workspace"')
    assert set(revoked("apollo", "alice", text=text).raises) == {APOLLO, RED}
    assert revoked("ares", "bob", text=text).raises == (ACME,)


@pytest.mark.parametrize("level", [Level.WORKSPACE, Level.DEPLOYMENT])
def test_the_deployments_own_border_counts_where_the_directory_names_none(level: Level) -> None:
    change = revoked("ares", "bob", RemovalPolicy(level))
    assert set(change.raises) == ({ACME} if level is Level.WORKSPACE else {ACME, DeploymentUnit()})


def test_who_stays_anywhere_does_not_leave_the_deployment() -> None:
    assert DeploymentUnit() not in revoked("apollo", "alice", RemovalPolicy(Level.DEPLOYMENT)).raises


def test_a_workspace_border_of_one_model_counts() -> None:
    text = FILE.replace('members = ["user:bob"]', 'members = ["user:bob"]\nmodel_units = { tiny = "workspace" }')
    assert revoked("ares", "bob", text=text).raises == (ACME,)


def test_a_border_that_narrows_is_no_removal() -> None:
    text = FILE.replace(f'acme]\nissuer = "{ISSUER}"', f'acme]\nissuer = "{ISSUER}"\nunit = "workspace"')
    assert raised(text, FILE) == set()


def test_a_removal_that_comes_with_a_narrower_border_still_counts() -> None:
    wide = FILE.replace(f'acme]\nissuer = "{ISSUER}"', f'acme]\nissuer = "{ISSUER}"\nunit = "workspace"')
    assert raised(wide, FILE.replace('["user:bob"]', "[]")) == {ACME}


def test_a_block_raises_what_the_member_shared_in_every_workspace_of_his_issuer() -> None:
    ledger = Ledger()
    ledger.do(first_import(directory_from_toml(FILE), "k1", None))
    change = ledger.do(block(ISSUER, user("alice"), POLICY))
    assert set(change.raises) == {APOLLO, HERMES, RED, HANDBOOK, ZETA}
    assert ledger.do(block(ISSUER, user("alice"), POLICY)).is_empty  # blocked already: not again
    assert set(ledger.do(block(ISSUER, group("eng"), POLICY)).raises) == {APOLLO, RED, HANDBOOK}
    assert ledger.do(block(ISSUER, user("nobody"), POLICY)).raises == ()


def test_a_block_without_the_policy_raises_nothing() -> None:
    ledger = Ledger()
    ledger.do(first_import(directory_from_toml(FILE), "k1", None))
    assert ledger.do(block(ISSUER, user("alice"))).raises == ()


def test_a_removal_does_not_wait_for_a_count_that_cannot_be_read() -> None:
    ledger = Ledger()
    ledger.do(first_import(directory_from_toml(FILE), "k1", None))
    records = replace(ledger.records, damaged=frozenset((record_name(APOLLO),)))
    for deed in (revoke("acme", "apollo", user("alice"), POLICY), block(ISSUER, user("alice"), POLICY)):
        change = deed(records)
        assert not change.is_empty
        assert change.uncounted == (APOLLO,)
        assert APOLLO not in change.raises
        assert RED in change.raises


def test_a_grant_raises_nothing_so_what_a_new_member_may_reuse_is_what_was_there() -> None:
    ledger = Ledger()
    ledger.do(first_import(directory_from_toml(FILE), "k1", None))
    assert ledger.do(grant("acme", "apollo", user("x"))).raises == ()


def test_one_deed_raises_an_epoch_by_one_at_most() -> None:
    units = (ACME, APOLLO, ZETA, APOLLO, UserUnit("acme", "apollo", ISSUER, "alice"), DeploymentUnit())
    assert outermost(units) == (ACME, ZETA, DeploymentUnit())


def test_who_is_taken_out_is_in_no_project_and_no_team() -> None:
    left = without(acme(), user("erin"))
    assert user("erin") not in set(left.members)
    assert user("carol") in set(left.members)
    assert left_units(acme(), acme(), POLICY) == ()


def test_a_record_that_cannot_be_read_stops_an_import_that_would_raise() -> None:
    """As for what vanishes: an import may be repeated when the record is mended."""
    ledger = Ledger()
    ledger.do(first_import(directory_from_toml(FILE), "k1", None))
    records = replace(ledger.records, faults=(Fault("raises", "cannot be read"),))
    less = directory_from_toml(FILE.replace('"user:carol", ', ""))
    with pytest.raises(ChangeRefused, match="raises"):
        first_import(less, "k1", POLICY)(records)
    assert not first_import(less, "k1", None)(records).raises
