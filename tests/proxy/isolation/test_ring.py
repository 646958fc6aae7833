"""Contract section 7: epochs add up from the units above, a unit uses its nearest key, and nothing is guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.isolation.ring import KeyRing, Plan, Ring, record_name, unit_fields
from proxy.isolation.salt import SaltKey
from proxy.isolation.unit import (
    CollectionUnit,
    DeploymentUnit,
    ProjectUnit,
    TeamUnit,
    Unit,
    UserUnit,
    WorkspaceUnit,
    above,
    fields,
    unit_of,
)
from proxy.refusals import SaltUnavailable
from tests.proxy.isolation.test_salt import TEXTS

WORKSPACE = WorkspaceUnit("acme")
TEAM = TeamUnit("acme", "red")
PROJECT = ProjectUnit("acme", "apollo")
COLLECTION = CollectionUnit("acme", "handbook")
ALICE = UserUnit("acme", "apollo", "https://sso.example.com", "u-alice")
UNITS: tuple[Unit, ...] = (DeploymentUnit(), WORKSPACE, TEAM, PROJECT, COLLECTION, ALICE)

NOW = 5000.0
EMPTY = Ring(id="r", first_key="k1", base_epoch=1000, raises={}, keys={})
KEYS = KeyRing({key_id: SaltKey(key_id, key_id.encode() * 16) for key_id in ("k1", "k2", "k3")})


def raised(**by_unit: int) -> Ring:
    named: dict[str, Unit] = {"workspace": WORKSPACE, "team": TEAM, "project": PROJECT}
    named |= {"collection": COLLECTION, "alice": ALICE}
    return replace(EMPTY, raises={record_name(named[name]): count for name, count in by_unit.items()})


def test_without_raises_every_unit_has_the_base_epoch() -> None:
    assert {EMPTY.epoch(unit) for unit in UNITS} == {1000}


@pytest.mark.parametrize(
    ("raise_of", "reached"),
    [
        ("workspace", (WORKSPACE, TEAM, PROJECT, COLLECTION, ALICE)),
        ("project", (PROJECT, ALICE)),
        ("team", (TEAM,)),
        ("collection", (COLLECTION,)),
        ("alice", (ALICE,)),
    ],
)
def test_a_raise_reaches_the_unit_and_those_below_it_and_no_other(raise_of: str, reached: tuple[Unit, ...]) -> None:
    ring = raised(**{raise_of: 1})
    assert {unit for unit in UNITS if ring.epoch(unit) == 1001} == set(reached)
    assert {unit for unit in UNITS if ring.epoch(unit) == 1000} == set(UNITS) - set(reached)


def test_the_raises_of_all_units_above_add_up() -> None:
    assert raised(workspace=1, project=20, alice=300, team=4000).epoch(ALICE) == 1321


def test_a_raise_of_one_workspace_reaches_no_other_one() -> None:
    ring = raised(workspace=5)
    assert ring.epoch(ProjectUnit("globex", "apollo")) == 1000
    assert ring.epoch(WorkspaceUnit("acm")) == 1000


@given(st.dictionaries(st.sampled_from(["workspace", "team", "project", "collection", "alice"]), st.integers(0, 9)))
def test_one_more_raise_anywhere_lowers_no_epoch(raises: dict[str, int]) -> None:
    before, after = raised(**raises), raised(**(raises | {"workspace": raises.get("workspace", 0) + 1}))
    assert all(after.epoch(unit) >= before.epoch(unit) for unit in UNITS)


def test_a_tombstone_counts_so_a_unit_that_comes_back_has_a_new_salt() -> None:
    """A deleted unit leaves a raise under its name; the same name imported again finds it."""
    assert KEYS.salt(PROJECT, raised(project=1), NOW).value != KEYS.salt(PROJECT, EMPTY, NOW).value


def test_a_ring_made_later_never_gives_an_old_salt_again() -> None:
    lost = raised(project=3)
    anew = replace(EMPTY, base_epoch=2000)
    assert anew.epoch(PROJECT) > lost.epoch(PROJECT)
    assert KEYS.salt(PROJECT, anew, NOW).value != KEYS.salt(PROJECT, lost, NOW).value


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, {"k1": UNITS}),
        ({PROJECT: "k2"}, {"k2": (PROJECT, ALICE)}),
        ({WORKSPACE: "k2"}, {"k2": (WORKSPACE, TEAM, PROJECT, COLLECTION, ALICE), "k1": (DeploymentUnit(),)}),
        ({WORKSPACE: "k2", PROJECT: "k3"}, {"k3": (PROJECT, ALICE), "k2": (WORKSPACE, TEAM, COLLECTION)}),
        ({ALICE: "k2", PROJECT: "k3"}, {"k2": (ALICE,), "k3": (PROJECT,)}),
        ({TEAM: "k2"}, {"k2": (TEAM,), "k1": (PROJECT, ALICE, WORKSPACE)}),
    ],
)
def test_a_unit_uses_its_own_key_else_that_of_the_nearest_unit_above_else_the_rings_first(
    own: dict[Unit, str], expected: dict[str, tuple[Unit, ...]]
) -> None:
    ring = replace(EMPTY, keys={record_name(unit): key_id for unit, key_id in own.items()})
    for key_id, units in expected.items():
        assert {KEYS.salt(unit, ring, NOW).key_id for unit in units} == {key_id}


def test_without_a_ring_there_is_no_salt() -> None:
    with pytest.raises(SaltUnavailable) as refused:
        KEYS.salt(PROJECT, None, NOW)
    assert refused.value.reason == "ring_missing"
    assert "saltgate directory import" in refused.value.message


@pytest.mark.parametrize("ring", [replace(EMPTY, first_key="k9"), replace(EMPTY, keys={record_name(WORKSPACE): "k9"})])
def test_a_key_that_the_configuration_lacks_is_never_replaced_by_another(ring: Ring) -> None:
    with pytest.raises(SaltUnavailable) as refused:
        KEYS.salt(PROJECT, ring, NOW)
    assert refused.value.reason == "key_missing"


def test_a_missing_key_refuses_only_the_units_that_use_it() -> None:
    ring = replace(EMPTY, keys={record_name(PROJECT): "k9"})
    assert KEYS.salt(TEAM, ring, NOW).key_id == "k1"


def test_a_key_ring_does_not_show_its_secrets() -> None:
    assert "k1k1" not in f"{KEYS} {KEYS!r}"


PLAN = Plan("k2", start=10_000, seconds=1_000)
MOVING = replace(EMPTY, plan=PLAN)
MANY: tuple[Unit, ...] = tuple(ProjectUnit(f"w{i % 40}", f"p{i}") for i in range(2000))


def test_a_plan_moves_nothing_before_its_start_and_everything_by_its_end() -> None:
    assert {MOVING.key_id(unit, 9_999.9) for unit in (*UNITS, *MANY)} == {"k1"}
    assert {MOVING.key_id(unit, PLAN.end) for unit in (*UNITS, *MANY)} == {"k2"}
    assert {MOVING.key_id(unit, 1e12) for unit in (*UNITS, *MANY)} == {"k2"}


@given(st.sampled_from(UNITS), st.lists(st.floats(9_000, 12_000), min_size=2))
def test_a_unit_moves_once_and_never_back_and_has_one_of_two_keys_all_the_time(unit: Unit, times: list[float]) -> None:
    used = [MOVING.key_id(unit, now) for now in sorted(times)]
    assert used == sorted(used)
    assert set(used) <= {"k1", "k2"}
    moment = MOVING.moment(unit, PLAN)
    assert PLAN.start <= moment <= PLAN.end
    assert all(key == ("k1" if now < moment else "k2") for key, now in zip(used, sorted(times), strict=True))


def test_a_plan_moves_its_units_evenly() -> None:
    for tenth in range(1, 10):
        moved = sum(MOVING.key_id(unit, PLAN.start + tenth * PLAN.seconds / 10) == "k2" for unit in MANY)
        assert abs(moved / len(MANY) - tenth / 10) < 0.05


def test_every_machine_gives_a_unit_the_same_moment() -> None:
    """The function is public (salt.md): a vector, so that no version moves a unit that has moved back."""
    assert MOVING.moment(PROJECT, PLAN) == pytest.approx(10_000 + 1_000 * 0.8160553053825268)


def test_another_ring_and_another_key_give_a_unit_another_moment() -> None:
    moments = [MOVING.moment(PROJECT, PLAN), replace(MOVING, id="other").moment(PROJECT, PLAN)]
    moments.append(MOVING.moment(PROJECT, replace(PLAN, next_key="k3")))
    assert len(set(moments)) == 3


def test_a_raise_changes_no_moment() -> None:
    raised_ring = replace(MOVING, raises={record_name(PROJECT): 7})
    assert raised_ring.moment(PROJECT, PLAN) == MOVING.moment(PROJECT, PLAN)


def test_who_has_a_key_of_his_own_or_above_stays_out_of_the_plan() -> None:
    ring = replace(MOVING, keys={record_name(WORKSPACE): "k3"})
    assert {ring.key_id(unit, now) for unit in (WORKSPACE, TEAM, ALICE) for now in (0.0, PLAN.end)} == {"k3"}
    assert ring.key_id(DeploymentUnit(), PLAN.end) == "k2"


@given(st.floats(0, 30_000))
def test_a_ring_whose_plan_is_over_reads_as_if_the_new_key_were_its_first(now: float) -> None:
    settled = MOVING.settled(now)
    assert (settled.plan is None) == (now >= PLAN.end)
    assert [settled.key_id(unit, now) for unit in UNITS] == [MOVING.key_id(unit, now) for unit in UNITS]
    if settled.plan is None:
        assert (settled.first_key, settled.past_keys) == ("k2", ("k1",))


def test_a_ring_that_turns_remembers_every_key_it_left() -> None:
    assert EMPTY.turned_to("k2").past_keys == ("k1",)
    assert MOVING.turned_to("k2").past_keys == ("k1",)
    assert MOVING.turned_to("k3").past_keys == ("k1", "k2")
    assert MOVING.turned_to("k3").turned_to("k4").past_keys == ("k1", "k2", "k3")


def test_during_a_plan_a_missing_key_refuses_only_the_units_that_use_it() -> None:
    keys = KeyRing({"k1": KEYS.keys["k1"]})
    middle = PLAN.start + PLAN.seconds / 2
    for unit in MANY[:200]:
        if MOVING.key_id(unit, middle) == "k1":
            assert keys.salt(unit, MOVING, middle).key_id == "k1"
        else:
            with pytest.raises(SaltUnavailable):
                keys.salt(unit, MOVING, middle)


@pytest.mark.parametrize("unit", UNITS)
def test_a_record_name_gives_its_unit_back(unit: Unit) -> None:
    assert unit_of(unit_fields(record_name(unit))) == unit


@pytest.mark.parametrize(
    "parts", [(), ("probe", "x"), ("workspace",), ("workspace", "A"), ("deployment", "x"), ("project", "acme", "../x")]
)
def test_what_are_no_units_fields_is_no_unit(parts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError):
        unit_of(parts)


@given(
    st.sampled_from([WorkspaceUnit, TeamUnit, ProjectUnit, CollectionUnit, UserUnit]),
    st.sampled_from([WorkspaceUnit, TeamUnit, ProjectUnit, CollectionUnit, UserUnit]),
    st.lists(TEXTS, min_size=4, max_size=4),
    st.lists(TEXTS, min_size=4, max_size=4),
)
def test_no_two_units_share_a_record(one: type[Unit], other: type[Unit], names: list[str], others: list[str]) -> None:
    def made(kind: type[Unit], texts: list[str]) -> Unit:
        count = {WorkspaceUnit: 1, UserUnit: 4}.get(kind, 2)
        return kind(*texts[:count])

    left, right = made(one, names), made(other, others)
    assert (record_name(left) == record_name(right)) == (left == right)


def test_the_units_above_are_those_that_the_contract_names() -> None:
    assert [above(unit) for unit in UNITS] == [
        (),
        (),
        (WORKSPACE,),
        (WORKSPACE,),
        (WORKSPACE,),
        (PROJECT, WORKSPACE),
    ]
    assert {fields(unit)[0] for unit in UNITS} == {"deployment", "workspace", "team", "project", "collection", "user"}
