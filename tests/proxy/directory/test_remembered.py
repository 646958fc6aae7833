"""Remembered scopes are those that the directory gives now."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from proxy.directory import remembered
from proxy.directory.endings import Ending, Endings, record_name
from proxy.directory.membership import Named, select_scope
from proxy.directory.model import directory_from_toml, user
from proxy.directory.remembered import RememberedScopes
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.isolation.ring import Ring
from proxy.isolation.unit import Level
from proxy.kept import Kept
from proxy.refusals import Blocked, InvalidToken, NotAMember

ISSUER = "https://sso.example.com"
ALICE = Identity(ISSUER, "alice", frozenset({"eng"}), True, 9e9, session="s-1")
APOLLO = Named("acme", "apollo")
DIRECTORY = """
[workspaces.acme]
issuer = "https://sso.example.com"
[workspaces.acme.projects.apollo]
members = ["group:eng"]
[workspaces.acme.projects.ares]
members = ["user:bob"]
"""
SNAPSHOT = Snapshot(directory_from_toml(DIRECTORY), {}, Ring("r", "k1", 1, {}, {}), 1)


def scopes() -> RememberedScopes:
    return RememberedScopes(partial(select_scope, default_unit=Level.PROJECT, default_show_reuse=True))


def test_a_scope_is_selected_once_for_equal_callers() -> None:
    known = scopes()
    assert known.scope(SNAPSHOT, ALICE, APOLLO) is known.scope(SNAPSHOT, replace(ALICE), Named("acme", "apollo"))


@pytest.mark.parametrize(
    ("identity", "named"),
    [
        (replace(ALICE, subject="mallory", groups=frozenset()), APOLLO),
        (replace(ALICE, groups=frozenset()), APOLLO),
        (replace(ALICE, issuer="https://other.example.com"), APOLLO),
        (ALICE, Named("acme", "ares")),
    ],
)
def test_nobody_gets_what_is_remembered_for_another(identity: Identity, named: Named) -> None:
    known = scopes()
    known.scope(SNAPSHOT, ALICE, APOLLO)
    with pytest.raises(NotAMember):
        known.scope(SNAPSHOT, identity, named)


def test_a_narrower_wish_is_a_scope_of_its_own() -> None:
    known = scopes()
    known.scope(SNAPSHOT, ALICE, APOLLO)
    assert known.scope(SNAPSHOT, ALICE, APOLLO._replace(narrower=Level.USER)).narrower is Level.USER


@pytest.mark.parametrize(
    ("later", "refusal"),
    [
        (replace(SNAPSHOT, blocks={ISSUER: frozenset({user("alice")})}), Blocked),
        (replace(SNAPSHOT, directory=directory_from_toml("[workspaces]")), NotAMember),
        (
            replace(
                SNAPSHOT,
                endings=Endings({record_name("session", ISSUER, "s-1"): Ending("session", ISSUER, "s-1", 1, 2)}),
            ),
            InvalidToken,
        ),
    ],
)
def test_a_later_snapshot_forgets_what_the_one_before_allowed(later: Snapshot, refusal: type[Exception]) -> None:
    known = scopes()
    known.scope(SNAPSHOT, ALICE, APOLLO)
    with pytest.raises(refusal):
        known.scope(later, ALICE, APOLLO)
    assert known.scope(SNAPSHOT, ALICE, APOLLO).project == "apollo"


def test_the_memory_is_bounded() -> None:
    known = scopes()
    known._kept = Kept(100)
    for number in range(200):
        known.scope(SNAPSHOT, replace(ALICE, subject=f"u-{number}"), APOLLO)
    assert len(known._kept) == 100
    assert known._groups == 100 * len(ALICE.groups)


def test_callers_of_many_groups_are_bounded_together() -> None:
    """A token lives for minutes, the directory stays the same for days: what is remembered is mostly over."""
    known = scopes()
    groups = {f"g-{number}" for number in range(1000)}
    for number in range(2 * remembered.GROUPS // len(groups)):
        token = replace(ALICE, groups=frozenset({"eng", *groups}), expires_at=float(number))
        assert known.scope(SNAPSHOT, token, APOLLO) is known.scope(SNAPSHOT, replace(token), APOLLO)
        assert sum(len(identity.groups) for identity, _ in known._kept._values) <= remembered.GROUPS
