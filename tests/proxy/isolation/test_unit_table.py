"""The unit table: for each border, which two requests have one salt and which have two.

Every request goes the way of the gate: a directory file, a membership, a scope, a unit, a ring, a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pytest

from proxy.directory.membership import Named, select_scope
from proxy.directory.model import directory_from_toml
from proxy.directory.snapshot import Snapshot
from proxy.identity import Identity
from proxy.isolation.ring import KeyRing, Ring, record_name
from proxy.isolation.salt import SaltKey
from proxy.isolation.unit import Level, Unit
from proxy.refusals import UnitTooWide

ISSUER: Final = "https://sso.example.com"
KEYS: Final = KeyRing({"k1": SaltKey("k1", b"1" * 32), "k2": SaltKey("k2", b"2" * 32)})
RING: Final = Ring(id="r", first_key="k1", base_epoch=1000, raises={}, keys={})

DIRECTORY: Final = """
[workspaces.acme]
issuer = "https://sso.example.com"
[workspaces.acme.projects.apollo]
members = ["user:alice", "user:anton"]
team = "red"
model_units = { alone = "user", open = "workspace" }
[workspaces.acme.projects.ares]
members = ["user:alice", "user:bella"]
team = "red"
model_units = { alone = "user", open = "workspace" }
[workspaces.acme.projects.hermes]
members = ["user:carl"]
model_units = { alone = "user", open = "workspace" }
[workspaces.acme.teams.red]
members = []
[workspaces.acme.collections.handbook]
projects = ["apollo", "ares"]
[workspaces.acme.collections.manual]
projects = ["apollo"]
[workspaces.globex]
issuer = "https://sso.example.com"
[workspaces.globex.projects.apollo]
members = ["user:alice", "user:mallory"]
"""
SNAPSHOT: Final = Snapshot(directory_from_toml(DIRECTORY), {}, RING, 1)


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks for what; `ring` is as it is at that moment."""

    subject: str = "alice"
    project: str = "apollo"
    workspace: str = "acme"
    collection: str | None = None
    model: str = "tiny"
    ring: Ring = RING

    def unit(self, policy: Level) -> Unit:
        identity = Identity(ISSUER, self.subject, frozenset(), True, 2e9)
        named = Named(self.workspace, self.project, self.collection)
        scope = select_scope(SNAPSHOT, identity, named, default_unit=policy, default_show_reuse=True)
        return scope.unit(self.model)

    def salt(self, policy: Level) -> str:
        return KEYS.salt(self.unit(policy), self.ring, 0.0).value


ALICE: Final = Request()
ABOUT: Final = replace(ALICE, collection="handbook")
ALONE: Final = replace(ALICE, model="alone")
OPEN: Final = replace(ALICE, model="open")

D, W, T, P, C, U = (
    Level.DEPLOYMENT,
    Level.WORKSPACE,
    Level.TEAM,
    Level.PROJECT,
    Level.COLLECTION,
    Level.USER,
)
ALL: Final = frozenset(Level)
NONE: Final = frozenset[Level]()

# Two requests, and the borders under which they have one salt. Under all others they have two.
TABLE: Final[Mapping[str, tuple[Request, Request, frozenset[Level]]]] = {
    "the same person again": (ALICE, ALICE, ALL),
    "a colleague in the project": (ALICE, replace(ALICE, subject="anton"), ALL - {U}),
    "a colleague in the team": (ALICE, replace(ALICE, subject="bella", project="ares"), frozenset({D, W, T})),
    "the same person in the team's other project": (ALICE, replace(ALICE, project="ares"), frozenset({D, W, T})),
    "somebody of the workspace": (ALICE, replace(ALICE, subject="carl", project="hermes"), frozenset({D, W})),
    "a stranger": (ALICE, replace(ALICE, subject="mallory", workspace="globex"), frozenset({D})),
    "the same person in another workspace": (ALICE, replace(ALICE, workspace="globex"), frozenset({D})),
    "the same model by another name": (ALICE, replace(ALICE, model="large"), ALL),
    # A collection has a cache of its own under every border but the user's, which refuses it.
    "a colleague about the same collection": (ABOUT, replace(ABOUT, subject="anton"), ALL - {U}),
    "another project about the same collection": (ABOUT, replace(ABOUT, subject="bella", project="ares"), ALL - {U}),
    "about another collection": (ABOUT, replace(ABOUT, collection="manual"), NONE),
    "about a collection and about none": (ABOUT, ALICE, NONE),
    # A model's exception wins over every border, narrower or wider.
    "the person's model, a colleague": (ALONE, replace(ALONE, subject="anton"), NONE),
    "the person's model, the same person": (ALONE, ALONE, ALL),
    "the person's model, the person's other project": (ALONE, replace(ALONE, project="ares"), NONE),
    "the person's model and another one": (ALONE, ALICE, frozenset({U})),
    "the workspace's model, somebody of the workspace": (OPEN, replace(OPEN, subject="carl", project="hermes"), ALL),
    "the workspace's model, a stranger": (OPEN, replace(OPEN, subject="mallory", workspace="globex"), NONE),
    "the workspace's model and another one": (OPEN, ALICE, frozenset({W})),
}


@pytest.mark.parametrize("policy", list(Level), ids=lambda policy: policy.value)
@pytest.mark.parametrize("pair", TABLE)
def test_two_requests_have_one_salt_exactly_under_the_borders_of_the_table(pair: str, policy: Level) -> None:
    one, other, shared = TABLE[pair]
    if policy is Level.USER and one.collection is not None:
        with pytest.raises(UnitTooWide):
            one.salt(policy)
        return
    assert (one.salt(policy) == other.salt(policy)) == (policy in shared)


def raised(unit: Unit) -> Ring:
    return replace(RING, raises={record_name(unit): 1})


def keyed(unit: Unit) -> Ring:
    return replace(RING, keys={record_name(unit): "k2"})


@pytest.mark.parametrize("changed", [raised, keyed], ids=["epoch", "key"])
@pytest.mark.parametrize("policy", list(Level), ids=lambda policy: policy.value)
def test_a_units_own_epoch_and_key_make_another_salt_of_it_and_of_it_alone(
    policy: Level, changed: Callable[[Unit], Ring]
) -> None:
    ring = changed(ALICE.unit(policy))
    stranger = Request("mallory", workspace="globex")
    assert replace(ALICE, ring=ring).salt(policy) != ALICE.salt(policy)
    assert (replace(stranger, ring=ring).salt(policy) == stranger.salt(policy)) == (policy is not Level.DEPLOYMENT)


@pytest.mark.parametrize("policy", list(Level), ids=lambda policy: policy.value)
def test_no_two_borders_have_one_salt_for_the_same_person(policy: Level) -> None:
    """But for a border that the project cannot have: `collection` without one named is the project."""
    same = {Level.PROJECT, Level.COLLECTION}
    for other in Level:
        assert (ALICE.salt(policy) == ALICE.salt(other)) == (policy is other or {policy, other} == same)
