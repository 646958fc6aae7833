"""Contract section 5, proof: what a probe's numbers mean. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.assurance.verdict import DISTURBED, NOT_PROBED, Finding, Reuse, Verdict, judge

TOLD = st.one_of(st.none(), st.integers(0, 5000))
REUSES = st.builds(Reuse, TOLD, TOLD, st.lists(TOLD, max_size=4).map(tuple))


def test_the_same_salt_reuses_and_the_others_do_not_is_the_proof() -> None:
    finding = judge(Reuse(0, 64, (0, 0)), prefix_caching=True)
    assert finding.verdict is Verdict.PROVEN
    assert "64" in finding.check


@pytest.mark.parametrize(
    "reuse",
    [Reuse(0, 64, (64,)), Reuse(0, 64, (0, 16)), Reuse(16, 64, (0,)), Reuse(None, None, (16,)), Reuse(16, None, ())],
)
@pytest.mark.parametrize("prefix_caching", [True, False, None])
def test_reuse_under_a_salt_that_never_was_there_is_a_failure_whatever_else_is_said(
    reuse: Reuse, prefix_caching: bool | None
) -> None:
    finding = judge(reuse, prefix_caching=prefix_caching)
    assert finding.verdict is Verdict.FAILED
    assert "cache_salt" in finding.check


def test_no_reuse_at_all_proves_nothing() -> None:
    finding = judge(Reuse(0, 0, (0, 0)), prefix_caching=None)
    assert finding.verdict is Verdict.UNKNOWN
    assert "--enable-prefix-caching" in finding.check


def test_no_reuse_with_a_cache_that_is_off_is_no_cache() -> None:
    assert judge(Reuse(0, 0, (0, 0)), prefix_caching=False).verdict is Verdict.NO_CACHE
    assert judge(Reuse(None, None, (None,)), prefix_caching=False).verdict is Verdict.NO_CACHE


def test_a_cache_that_is_said_to_be_off_and_reuses_needs_its_proof() -> None:
    assert judge(Reuse(0, 64, (0, 0)), prefix_caching=False).verdict is Verdict.PROVEN
    assert judge(Reuse(0, 64, (None,)), prefix_caching=False).verdict is Verdict.UNKNOWN


def test_numbers_that_are_not_told_are_named_with_the_remedy_of_their_place() -> None:
    assert "--enable-prompt-tokens-details" in judge(Reuse(None, None, (None,)), prefix_caching=True).check
    assert "/metrics" in judge(Reuse(None, None, (None,), "metrics"), prefix_caching=True).check


@given(REUSES, st.sampled_from([True, False, None]))
def test_nothing_less_than_the_whole_pattern_is_ever_proven(reuse: Reuse, prefix_caching: bool | None) -> None:
    whole = reuse.first == 0 and bool(reuse.same_salt) and bool(reuse.other_salts) and not any(reuse.other_salts)
    whole = whole and None not in reuse.other_salts
    assert (judge(reuse, prefix_caching=prefix_caching).verdict is Verdict.PROVEN) == whole


@pytest.mark.parametrize(
    ("verdict", "strict"), [("proven", True), ("no cache", True), ("failed", False), ("unknown", False)]
)
def test_strict_lets_the_proven_and_the_cacheless_through_and_the_other_settings_all(
    verdict: str, strict: bool
) -> None:
    finding = Finding(Verdict(verdict), "")
    assert finding.allows("strict") is strict
    assert finding.allows("warn")
    assert finding.allows("off")


def test_what_was_not_probed_or_was_disturbed_is_not_proven() -> None:
    assert not NOT_PROBED.allows("strict")
    assert not DISTURBED.allows("strict")
