"""Remembered salts are those that the ring gives, whatever happened in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.isolation.remembered import RememberedSalts
from proxy.isolation.ring import KeyRing, Plan, Ring, record_name
from proxy.isolation.salt import SaltKey
from proxy.isolation.sharing import Border, Decision, Line
from proxy.isolation.unit import Level, ProjectUnit, Unit, UserUnit, WorkspaceUnit
from proxy.kept import Kept
from proxy.refusals import SaltUnavailable

KEYS = KeyRing({key_id: SaltKey(key_id, key_id.encode() * 16) for key_id in ("k1", "k2")})
ACME, APOLLO = WorkspaceUnit("acme"), ProjectUnit("acme", "apollo")
UNITS: tuple[Unit, ...] = (ACME, APOLLO, ProjectUnit("acme", "ares"), UserUnit("acme", "apollo", "https://i", "u-1"))
STILL = Ring("r1", "k1", 1_700_000_000, {}, {})
MOVING = replace(STILL, plan=Plan("k2", 1000, 1000))
RINGS = (
    STILL,
    MOVING,
    replace(STILL, raises={record_name(APOLLO): 1}),
    replace(MOVING, keys={record_name(ACME): "k1"}),
    replace(STILL, first_key="k2"),
)


def decided(unit: Unit) -> Decision:
    return Decision(unit, Border(Level.PROJECT, Line.DEPLOYMENT))


@given(
    st.lists(st.tuples(st.sampled_from(UNITS), st.sampled_from(RINGS), st.floats(0, 3000), st.booleans()), max_size=30)
)
def test_what_is_remembered_is_what_the_ring_says_in_any_order(asked: list[tuple[Unit, Ring, float, bool]]) -> None:
    salts, decisions = RememberedSalts(KEYS), {unit: decided(unit) for unit in UNITS}
    for unit, ring, now, anew in asked:
        decision = decided(unit) if anew else decisions[unit]
        assert salts.salt(decision, ring, now) == KEYS.salt(unit, ring, now)


def test_a_salt_is_made_once() -> None:
    salts = RememberedSalts(KEYS)
    known, another = decided(APOLLO), decided(APOLLO)
    salt = salts.salt(known, STILL, 1.0)
    assert salts.salt(known, STILL, 2.0) is salts.salt(another, STILL, 2.0) is salt


def test_a_unit_on_its_way_has_each_keys_salt_in_its_own_time() -> None:
    salts = RememberedSalts(KEYS)
    moment = MOVING.moment(APOLLO, Plan("k2", 1000, 1000))
    decision = decided(APOLLO)
    before, after, again = (salts.salt(decision, MOVING, now) for now in (moment - 1, moment, moment - 1))
    assert (before.key_id, after.key_id, again.key_id) == ("k1", "k2", "k1")


def test_nothing_of_an_earlier_ring_is_given() -> None:
    salts, decision = RememberedSalts(KEYS), decided(APOLLO)
    salts.salt(decision, STILL, 1.0)
    with pytest.raises(SaltUnavailable):
        salts.salt(decision, None, 1.0)
    with pytest.raises(SaltUnavailable):
        salts.salt(decision, replace(STILL, first_key="k9"), 1.0)


def test_nothing_that_is_remembered_is_part_of_what_was_decided() -> None:
    salts, decision = RememberedSalts(KEYS), decided(APOLLO)
    before = repr(decision)
    salt = salts.salt(decision, STILL, 1.0)
    assert decision == decided(APOLLO)
    assert repr(decision) == before
    assert salt.value not in before


def test_the_memory_is_bounded() -> None:
    salts = RememberedSalts(KEYS)
    salts._kept = Kept(100)
    for number in range(200):
        salts.salt(decided(UserUnit("acme", "apollo", "https://i", f"u-{number}")), STILL, 1.0)
    assert len(salts._kept) == 100
