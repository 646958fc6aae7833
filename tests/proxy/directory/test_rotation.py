"""What `keys rotate` may change, and that no order of deeds ever gives a unit a salt that it had before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.directory.changes import (
    Change,
    ChangeRefused,
    Deed,
    block,
    first_import,
    fresh_ring,
    grant,
    import_directory,
    latest_epoch,
    make_first_ring,
    pause_before,
    revoke,
    unblock,
)
from proxy.directory.model import directory_from_toml, group, user
from proxy.directory.removal import RemovalPolicy
from proxy.directory.rotation import pin_unit, raise_unit, rotate_ring, utc
from proxy.isolation.ring import Plan, Ring, record_name
from proxy.isolation.unit import (
    CollectionUnit,
    DeploymentUnit,
    Level,
    ProjectUnit,
    TeamUnit,
    Unit,
    UserUnit,
    WorkspaceUnit,
    above,
)
from tests.proxy.directory.ledger import Ledger

ISSUER = "https://i"
FULL = f"""
[workspaces.acme]
issuer = "{ISSUER}"
[workspaces.acme.projects.apollo]
members = ["user:alice", "group:eng"]
team = "red"
[workspaces.acme.projects.ares]
members = ["user:bob"]
[workspaces.acme.teams.red]
members = ["user:carol"]
[workspaces.acme.collections.handbook]
projects = ["apollo", "ares"]
[workspaces.labs]
issuer = "{ISSUER}"
unit = "workspace"
[workspaces.labs.projects.zeta]
members = ["user:dave"]
"""
LESS = f"""
[workspaces.acme]
issuer = "{ISSUER}"
[workspaces.acme.projects.apollo]
members = ["user:alice"]
"""
ELSEWHERE = FULL.replace(ISSUER, "https://other").replace('team = "red"', "")
DOCUMENTS = (FULL, LESS, ELSEWHERE, "[workspaces]\n")
APOLLO, ACME, LABS = ProjectUnit("acme", "apollo"), WorkspaceUnit("acme"), WorkspaceUnit("labs")
ALICE = UserUnit("acme", "apollo", ISSUER, "alice")
UNITS: tuple[Unit, ...] = (
    DeploymentUnit(),
    ACME,
    LABS,
    APOLLO,
    ProjectUnit("acme", "ares"),
    ProjectUnit("labs", "zeta"),
    TeamUnit("acme", "red"),
    CollectionUnit("acme", "handbook"),
    ALICE,
    UserUnit("labs", "zeta", ISSUER, "dave"),
)
POLICY = RemovalPolicy(Level.PROJECT)


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger()
    made.do(first_import(directory_from_toml(FULL), "k1", None))
    made.now += 1000
    return made


def refusal(ledger: Ledger, deed: Deed) -> str:
    before = ledger.records
    with pytest.raises(ChangeRefused) as refused:
        ledger.do(deed)
    assert ledger.records == before
    return str(refused.value)


# The ring.


def test_a_rotation_is_a_plan_that_begins_now(ledger: Ledger) -> None:
    change = ledger.do(rotate_ring("k2", over=86_400))
    assert ledger.ring.plan == Plan("k2", int(ledger.now), 86_400)
    assert (ledger.ring.first_key, change.raises) == ("k1", ())


def test_a_rotation_at_once_moves_everybody_at_once(ledger: Ledger) -> None:
    ledger.do(rotate_ring("k2", over=0))
    assert {ledger.used(unit)[1] for unit in UNITS} == {"k2"}
    assert (ledger.ring.plan, ledger.ring.past_keys) == (None, ("k1",))


def test_a_rotation_of_less_than_a_second_takes_one(ledger: Ledger) -> None:
    ledger.do(rotate_ring("k2", over=0.2))
    assert ledger.ring.plan is not None
    assert ledger.ring.plan.seconds == 1


def test_while_one_plan_runs_no_other_begins(ledger: Ledger) -> None:
    ledger.do(rotate_ring("k2", over=1000))
    assert "until" in refusal(ledger, rotate_ring("k3", over=1000))
    assert "--over 0s" in refusal(ledger, rotate_ring("k2", over=1000))
    assert "leaving" in refusal(ledger, rotate_ring("k1", over=0))


@pytest.mark.parametrize("key", ["k2", "k3"])
def test_a_running_plan_is_ended_at_once_and_nobody_comes_back(ledger: Ledger, key: str) -> None:
    ledger.do(rotate_ring("k2", over=1000))
    ledger.now += 500
    moved = [unit for unit in UNITS if ledger.used(unit)[1] == "k2"]
    assert 0 < len(moved) < len(UNITS)
    ledger.do(rotate_ring(key, over=0))
    assert {ledger.used(unit)[1] for unit in UNITS} == {key}


def test_a_plan_that_is_over_is_as_if_it_were_folded_in_and_the_next_rotation_folds_it(ledger: Ledger) -> None:
    ledger.do(rotate_ring("k2", over=1000))
    ledger.now += 1001
    assert "already" in refusal(ledger, rotate_ring("k2", over=1000))
    ledger.do(rotate_ring("k3", over=1000))
    assert (ledger.ring.first_key, ledger.ring.past_keys) == ("k2", ("k1",))
    assert ledger.ring.plan is not None
    assert ledger.ring.plan.next_key == "k3"


def test_the_ring_never_returns_to_a_key_that_it_left(ledger: Ledger) -> None:
    ledger.do(rotate_ring("k2", over=0))
    for over in (0, 100):
        assert "keys new" in refusal(ledger, rotate_ring("k1", over=over))
    assert "already" in refusal(ledger, rotate_ring("k2", over=0))


def test_without_a_ring_nothing_is_rotated_and_the_remedy_is_told() -> None:
    for deed in (rotate_ring("k2", over=0), raise_unit(ACME), pin_unit(ACME, "k2")):
        assert "directory import" in refusal(Ledger(), deed)


def test_two_who_rotate_at_the_same_time_never_both_win(ledger: Ledger) -> None:
    """The second decides anew on what the first has written."""
    ledger.do(rotate_ring("k2", over=10))
    refusal(ledger, rotate_ring("k3", over=10))
    assert ledger.ring.plan is not None
    assert ledger.ring.plan.next_key == "k2"


# One unit.


@pytest.mark.parametrize("unit", UNITS)
def test_a_raise_reaches_the_unit_and_all_under_it_and_nobody_else(ledger: Ledger, unit: Unit) -> None:
    before = {other: ledger.ring.epoch(other) for other in UNITS}
    assert ledger.do(raise_unit(unit)).raises == (unit,)
    raised = {other for other in UNITS if ledger.ring.epoch(other) == before[other] + 1}
    assert raised == {other for other in UNITS if unit in (other, *above(other))}


@pytest.mark.parametrize(
    "unit",
    [
        WorkspaceUnit("nope"),
        ProjectUnit("acme", "nope"),
        ProjectUnit("nope", "apollo"),
        TeamUnit("acme", "blue"),
        CollectionUnit("labs", "handbook"),
        UserUnit("acme", "nope", ISSUER, "alice"),
    ],
)
def test_a_unit_that_nobody_knows_is_refused_with_the_lists_that_name_them(ledger: Ledger, unit: Unit) -> None:
    for deed in (raise_unit(unit), pin_unit(unit, "k2")):
        told = refusal(ledger, deed)
        assert "directory show" in told
        assert "keys list" in told


def test_a_unit_that_is_only_a_tombstone_may_be_raised(ledger: Ledger) -> None:
    ledger.do(first_import(directory_from_toml(LESS), "k1", None))
    for unit in (LABS, TeamUnit("acme", "red"), UserUnit("acme", "ares", ISSUER, "anybody")):
        before = ledger.ring.epoch(unit)
        ledger.do(raise_unit(unit))
        assert ledger.ring.epoch(unit) == before + 1


def test_what_lay_under_a_workspace_that_is_gone_is_reached_by_the_workspace_only(ledger: Ledger) -> None:
    ledger.do(first_import(directory_from_toml(LESS), "k1", None))
    for unit in (ProjectUnit("labs", "zeta"), UserUnit("labs", "zeta", ISSUER, "dave")):
        assert "there is no" in refusal(ledger, raise_unit(unit))


def test_any_subject_of_a_known_project_may_be_raised_but_only_of_the_workspaces_issuer(ledger: Ledger) -> None:
    ledger.do(raise_unit(UserUnit("acme", "apollo", ISSUER, "never/seen before")))
    assert ISSUER in refusal(ledger, raise_unit(UserUnit("acme", "apollo", "https://other", "alice")))


def test_a_pinned_unit_stays_whatever_the_ring_does_until_it_is_let_go(ledger: Ledger) -> None:
    ledger.do(pin_unit(ACME, "k1"))
    ledger.do(rotate_ring("k2", over=0))
    assert {ledger.used(unit)[1] for unit in (ACME, APOLLO, ALICE)} == {"k1"}
    assert ledger.used(LABS)[1] == "k2"
    ledger.do(pin_unit(ACME, None))
    assert {ledger.used(unit)[1] for unit in (ACME, APOLLO, ALICE)} == {"k2"}
    assert "no key of its own" in refusal(ledger, pin_unit(ACME, None))


def test_a_pin_raises_unless_nothing_changes(ledger: Ledger) -> None:
    assert ledger.do(pin_unit(ACME, "k1")).raises == ()  # the ring's own key
    assert ledger.do(pin_unit(ACME, "k1")).is_empty
    assert ledger.do(pin_unit(APOLLO, "k1")).raises == ()  # that of the unit above
    assert ledger.do(pin_unit(ACME, "k2")).raises == (ACME,)
    assert ledger.do(pin_unit(APOLLO, None)).raises == (APOLLO,)
    assert ledger.do(pin_unit(ACME, None)).raises == (ACME,)


def test_a_pin_during_a_plan_raises_because_what_inherits_may_have_gone_already(ledger: Ledger) -> None:
    ledger.do(rotate_ring("k2", over=1000))
    for key in ("k1", "k2", None):
        assert ledger.do(pin_unit(ACME, key)).raises == (ACME,)


def test_a_raise_that_cannot_be_counted_is_refused(ledger: Ledger) -> None:
    records = replace(ledger.records, damaged=frozenset((record_name(APOLLO),)))
    with pytest.raises(ChangeRefused, match="cannot be read"):
        raise_unit(APOLLO)(records)
    assert raise_unit(LABS)(records).raises == (LABS,)


def test_a_moment_beyond_every_calendar_is_told_too() -> None:
    assert utc(0) == "1970-01-01T00:00:00Z"
    assert utc(1e17) == "Unix time 100000000000000000"


# Time: no epoch in use is later than the clock, so a new ring begins later than all of them.


def test_a_ring_waits_until_the_second_of_its_base_epoch_is_over() -> None:
    ledger = Ledger(now=1000.25)
    ledger.do(make_first_ring("k1"))
    assert ledger.ring.base_epoch == 1000
    assert 1001 <= ledger.now < 1001.1


def test_a_ring_of_long_ago_and_an_empty_change_wait_for_nothing(ledger: Ledger) -> None:
    records = ledger.records
    assert pause_before(Change(raises=(ACME,)), records) == 0
    assert pause_before(Change(ring=fresh_ring("k1", now=5)), records) == 0
    assert pause_before(Change(), records) == 0


def test_raises_that_overtake_the_clock_wait_a_second_each_and_no_other_deed_does() -> None:
    ledger = Ledger(now=1000.25)
    ledger.do(first_import(directory_from_toml(FULL), "k1", None))
    for _ in range(5):
        began = ledger.now
        ledger.do(raise_unit(APOLLO))
        assert ledger.now - began <= 1.1
        assert ledger.ring.epoch(APOLLO) < ledger.now
    began = ledger.now
    ledger.do(grant("acme", "apollo", user("x")))
    ledger.do(rotate_ring("k2", over=5))
    assert ledger.now == began


def test_epochs_far_ahead_of_the_clock_are_anothers_work_and_hold_no_raise_up(ledger: Ledger) -> None:
    """A raise is worth more now than after a loss; `keys list` tells of it."""
    ledger.now = ledger.ring.base_epoch - 500
    began = ledger.now
    ledger.do(raise_unit(APOLLO))
    assert ledger.now == began


def test_a_deed_that_raises_nothing_waits_for_nobodys_epoch(ledger: Ledger) -> None:
    ledger.now = ledger.ring.base_epoch + 0.25
    assert pause_before(grant("acme", "apollo", user("x"))(ledger.records), ledger.records) == 0


def test_the_latest_epoch_counts_the_units_above() -> None:
    raises = {record_name(ACME): 5, record_name(APOLLO): 7, record_name(LABS): 11, "5:bogus": 100}
    assert latest_epoch(Ring("r", "k1", 1000, raises, {})) == 1012
    assert latest_epoch(Ring("r", "k1", 1000, {}, {})) == 1000


# Whatever happens.

_UNITS = st.sampled_from(UNITS)
_KEYS = st.sampled_from(["k1", "k2", "k3", "k4"])
_MEMBERS = st.sampled_from([user("alice"), user("bob"), user("carol"), group("eng"), user("dave")])
_PROJECTS = st.sampled_from([("acme", "apollo"), ("acme", "ares"), ("labs", "zeta")])
_POLICIES = st.sampled_from([None, POLICY, RemovalPolicy(Level.WORKSPACE), RemovalPolicy(Level.DEPLOYMENT)])
_DEEDS: st.SearchStrategy[Deed] = st.one_of(
    st.builds(
        lambda text, key, policy: first_import(directory_from_toml(text), key, policy),
        st.sampled_from(DOCUMENTS),
        _KEYS,
        _POLICIES,
    ),
    st.builds(lambda where, who: grant(where[0], where[1], who), _PROJECTS, _MEMBERS),
    st.builds(lambda where, who, policy: revoke(where[0], where[1], who, policy), _PROJECTS, _MEMBERS, _POLICIES),
    st.builds(lambda who, policy: block(ISSUER, who, policy), _MEMBERS, _POLICIES),
    st.builds(lambda who: unblock(ISSUER, who), _MEMBERS),
    st.builds(raise_unit, _UNITS),
    st.builds(pin_unit, _UNITS, st.one_of(st.none(), _KEYS)),
    st.builds(lambda key, over: rotate_ring(key, over=over), _KEYS, st.sampled_from([0.0, 0.0, 3.0, 20.0])),
)
_LOSS = st.just("loss")
_TIME = st.sampled_from([0.01, 0.4, 1.0, 5.0, 30.0])


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.sampled_from([0.0, 0.25, 0.99]), st.lists(st.one_of(_DEEDS, _DEEDS, _LOSS, _TIME), max_size=25))
def test_no_order_of_deeds_losses_and_time_lowers_an_epoch_or_gives_an_old_salt_back(
    fraction: float, steps: list[Callable[..., Change] | str | float]
) -> None:
    ledger = Ledger(now=1_700_000_000 + fraction)
    ledger.do(first_import(directory_from_toml(FULL), "k1", None))
    history = {unit: [ledger.used(unit)] for unit in UNITS}
    for step in steps:
        if isinstance(step, float):
            ledger.now += step
        elif isinstance(step, str):
            ledger.lose_everything()
            ledger.do(first_import(directory_from_toml(FULL), "k1", None))
        else:
            try:
                ledger.do(step)
            except ChangeRefused:
                continue
        assert latest_epoch(ledger.ring) < ledger.now
        for unit, past in history.items():
            used = ledger.used(unit)
            if used != past[-1]:
                assert used not in past
                assert used[0] >= past[-1][0]
                past.append(used)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([100, 300, 600]), st.booleans()), max_size=8))
def test_during_a_plan_every_unit_has_one_of_two_keys_whatever_is_raised(steps: list[tuple[int, bool]]) -> None:
    ledger = Ledger()
    ledger.do(first_import(directory_from_toml(FULL), "k1", None))
    ledger.do(rotate_ring("k2", over=1000))
    keys = {unit: ["k1"] for unit in UNITS}
    for seconds, raising in steps:
        ledger.now += seconds
        if raising:
            ledger.do(raise_unit(ACME))
        for unit in UNITS:
            keys[unit].append(ledger.used(unit)[1])
    assert all(used == sorted(used) and set(used) <= {"k1", "k2"} for used in keys.values())


def test_an_import_that_brings_its_own_ring_never_replaces_one(ledger: Ledger) -> None:
    ledger.do(rotate_ring("k2", over=1000))
    ring = ledger.ring
    ledger.do(import_directory(directory_from_toml(LESS), Ring("other", "k9", 9, {}, {})))
    assert (ledger.ring.id, ledger.ring.plan, ledger.ring.first_key) == (ring.id, ring.plan, "k1")
