"""What callers say of their traces is taken as W3C Trace Context has it, or not at all."""

from __future__ import annotations

import pytest

from observability.record import Record
from observability.shares import Shares
from observability.trace_context import TraceContext, trace_context, trace_state
from tests.observability.telling import recorder

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def opened(*, ratio: float = 0.0) -> Record:
    return recorder(trace_ratio=ratio).request(method="POST", route="/v1/x")


def test_a_traceparent_is_its_ids_and_its_flags() -> None:
    assert trace_context([THEIRS]) == TraceContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, 1)


@pytest.mark.parametrize("lines", [[], [THEIRS, THEIRS], [THEIRS + "," + THEIRS], [" " + THEIRS], [THEIRS + " "]])
def test_what_is_not_exactly_one_says_nothing(lines: list[str]) -> None:
    assert trace_context(lines) is None


@pytest.mark.parametrize(
    ("lines", "passed"),
    [
        (["a=1"], "a=1"),
        (["a=1,b=2", "c=3"], "a=1,b=2,c=3"),
        (["a=1 , b=2"], "a=1 , b=2"),
        (["a=1,,b=2"], "a=1,,b=2"),
        (["a=1", ""], "a=1,"),
        (["tenant@vendor=x y"], "tenant@vendor=x y"),
        (["a=" + "v" * 256], "a=" + "v" * 256),
        ([",".join(f"k{number}=v" for number in range(32))], ",".join(f"k{number}=v" for number in range(32))),
        ([], ""),
        ([""], ""),
        ([" , ,"], ""),
        (["a=1,a=2"], ""),
        (["A=1"], ""),
        (["a"], ""),
        (["a=b=c"], ""),
        (["a="], ""),
        (["=b"], ""),
        (["a=1\x7f"], ""),
        (["a=\u00e9"], ""),
        (["a=" + "v" * 257], ""),
        (["a=1\r\nx-injected: y"], ""),
        (["a=1\ny"], ""),
        ([",".join(f"k{number}=v" for number in range(33))], ""),
        (["a=" + "v" * 250, "b=" + "v" * 250, "c=" + "v" * 20], ""),
    ],
)
def test_a_tracestate_is_passed_on_as_it_is_or_not_at_all(lines: list[str], passed: str) -> None:
    assert trace_state(lines) == passed


def test_a_trusted_callers_trace_goes_on_with_his_decision_and_his_state() -> None:
    record = opened(ratio=0.0)
    record.link([THEIRS])
    record.continue_trace(["vendor=1"])
    assert record.traceparent == f"00-0af7651916cd43dd8448eb211c80319c-{record.client_span_id}-01"
    assert record.tracestate == "vendor=1"
    assert (record.linked, record.parent) == (None, trace_context([THEIRS]))


def test_who_does_not_record_his_trace_is_not_recorded_here_either() -> None:
    record = opened(ratio=1.0)
    record.link([THEIRS[:-1] + "0"])
    record.continue_trace([])
    assert record.traceparent.endswith("-00")
    assert not record.sampled


@pytest.mark.parametrize(("theirs", "ours"), [("02", "02"), ("03", "03"), ("ff", "03"), ("fc", "00")])
def test_only_flags_that_have_a_meaning_are_passed_on(theirs: str, ours: str) -> None:
    record = opened()
    record.link([THEIRS[:-2] + theirs])
    record.continue_trace([])
    assert record.traceparent.endswith("-" + ours)


def test_a_scopes_share_says_nothing_of_a_trace_that_goes_on() -> None:
    record = recorder(shares=Shares(1.0, {("acme", None): 0.0})).request(method="POST", route="/v1/x")
    record.link([THEIRS])
    record.continue_trace([])
    record.scoped("acme", "apollo")
    assert record.sampled


@pytest.mark.parametrize("lines", [[], ["garbage"], [THEIRS, THEIRS]])
def test_where_no_trace_is_named_none_goes_on_and_no_state_is_passed(lines: list[str]) -> None:
    record = opened(ratio=1.0)
    before = record.traceparent
    record.link(lines)
    record.continue_trace(["vendor=1"])
    assert (record.traceparent, record.tracestate, record.parent) == (before, "", None)


def test_the_state_of_a_trace_that_does_not_go_on_is_not_passed() -> None:
    record = opened()
    record.link([THEIRS])
    assert record.tracestate == ""
    assert "0af7651916cd43dd" not in record.traceparent
