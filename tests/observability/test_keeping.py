"""Which spans are kept: failures and slow ones always, of the others the share of their scope."""

from __future__ import annotations

import pytest

from config import settings
from observability.keeping import Slow, slow, why_kept
from observability.names import OUTCOMES, Outcome
from observability.record import Record
from observability.shares import Shares, shares
from tests.observability.telling import Time, answers, goes_up, recorder, took

FAULTS = {"engine_failed", "truncated", "engine_timeout", "drained", "gate_error"}


def ended(outcome: Outcome, *, ratio: float = 0.0, milliseconds: float = 0.0) -> Record:
    time = Time()
    with recorder(trace_ratio=ratio, time=time).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        time.passes(milliseconds=milliseconds)
        record.answered(200)
        record.ended(outcome)
    return record


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_failure_is_kept_whatever_the_share_and_the_callers_own_doing_is_not(outcome: Outcome) -> None:
    assert why_kept(ended(outcome), Slow()) == ("failure" if outcome in FAULTS else None)
    assert why_kept(ended(outcome, ratio=1.0), Slow()) == "share"


def test_our_refusals_from_500_on_are_failures_and_those_below_are_not() -> None:
    for status, kept in ((403, None), (429, None), (503, "failure")):
        with recorder(trace_ratio=0.0).request(method="POST", route="/v1/x") as record:
            record.refused("some_code", status)
        assert why_kept(record, Slow()) == kept


@pytest.mark.parametrize(("threshold", "kept"), [(0.051, "slow"), (0.052, "slow"), (0.0521, None), (None, None)])
def test_a_stream_is_slow_from_its_threshold_on(threshold: float | None, kept: str | None) -> None:
    time = Time()
    with recorder(trace_ratio=0.0, time=time).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        answers(record, time)
    assert why_kept(record, Slow(first_token=threshold)) == kept


def test_a_stream_that_never_said_a_token_is_as_slow_as_it_was_long_less_its_upload() -> None:
    time = Time()
    with recorder(trace_ratio=0.0, time=time).request(method="POST", route="/v1/x") as record:
        time.passes(milliseconds=9000)
        took(record, "body", time, milliseconds=9000)
        goes_up(record)
        time.passes(milliseconds=3000)
        record.ended("client_gone")
    assert why_kept(record, Slow(first_token=3.0)) == "slow"
    assert why_kept(record, Slow(first_token=3.1)) is None


def test_an_answer_that_is_no_stream_has_no_first_token_to_be_slow_with() -> None:
    time = Time()
    with recorder(trace_ratio=0.0, time=time).request(method="POST", route="/v1/x") as record:
        record.asked("chat", "tiny", stream=False)
        record.served()
        record.sent("10.0.0.7", 8000)
        time.passes(milliseconds=60_000)
        record.answered(200)
    assert why_kept(record, Slow(first_token=5.0)) is None
    assert why_kept(record, Slow(first_token=5.0, request=60.0)) == "slow"


def test_a_scope_has_its_own_share_and_a_project_before_its_workspace() -> None:
    drawn = Shares(0.0, {("acme", None): 1.0, ("acme", "apollo"): 0.0, ("globex", "vault"): 1.0})
    kept = {
        (workspace, project): sampled(drawn, workspace, project)
        for workspace, project in (
            ("acme", "apollo"),
            ("acme", "ares"),
            ("globex", "vault"),
            ("globex", "other"),
            ("initech", "apollo"),
        )
    }
    assert kept == {
        ("acme", "apollo"): False,
        ("acme", "ares"): True,
        ("globex", "vault"): True,
        ("globex", "other"): False,
        ("initech", "apollo"): False,
    }


def test_who_has_no_scope_has_the_share_of_all() -> None:
    assert recorder(shares=Shares(1.0, {("acme", None): 0.0})).request(method="POST", route="/v1/x").sampled


def test_the_scope_that_counts_is_the_last_that_was_confirmed() -> None:
    record = recorder(shares=Shares(0.0, {("acme", None): 1.0})).request(method="POST", route="/v1/x")
    record.scoped("acme", "apollo")
    record.scoped("globex", "vault")
    assert not record.sampled


def test_the_same_ids_are_kept_at_every_higher_ratio() -> None:
    ids = [f"{number * 0x9E3779B97F4A7C15 % (1 << 64):032x}" for number in range(1000)]
    few = {one for one in ids if Shares(0.1).hold(one)}
    many = {one for one in ids if Shares(0.5).hold(one)}
    assert few < many
    assert 50 < len(few) < 150


def test_the_settings_are_what_counts() -> None:
    written = settings.Telemetry(
        trace_ratio=0.0,
        scopes=(settings.ScopeTraces(workspace="acme", project="apollo", trace_ratio=1.0),),
        slow_first_token=0.0,
        slow_request=7.0,
    )
    assert slow(written) == Slow(first_token=None, request=7.0)
    assert shares(written).hold_in(f"{5:032x}", "acme", "apollo")
    assert not shares(written).hold_in(f"{5:032x}", "acme", "ares")


def sampled(drawn: Shares, workspace: str, project: str) -> bool:
    record = recorder(shares=drawn).request(method="POST", route="/v1/x")
    record.scoped(workspace, project)
    assert record.traceparent.endswith("-01" if record.sampled else "-00")
    return record.sampled
