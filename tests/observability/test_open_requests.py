"""What a dead worker had open is told by its supervisor: each once, with what was known of it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import pytest

from observability.names import Outcome
from observability.open_requests import AREA_BYTES, SLOTS, Losses, OpenRequests, take_left_open
from observability.record import Record
from observability.totals import Bounds, Totals
from tests.observability.telling import SUBJECT, Ledger, Time, goes_up, recorder


@pytest.fixture
def memory() -> Iterator[mmap.mmap]:
    with mmap.mmap(-1, AREA_BYTES) as area:
        yield area


def left(memory: mmap.mmap) -> list[Record]:
    """The records that a supervisor makes of what is left."""
    ledger, time = Ledger(), Time(now_ns=9_000_000_000)
    totals = Totals(Bounds(), monotonic=lambda: 0.0, wall_clock=lambda: 0.0)
    Losses((ledger,), totals, monotonic_ns=time.monotonic_ns, wall_ns=time.wall_ns).tell(take_left_open(memory))
    return ledger.records


def test_a_request_that_was_open_ends_with_its_worker_and_keeps_what_was_known(memory: mmap.mmap) -> None:
    before = recorder(OpenRequests(memory), time=Time()).request(method="POST", route="/v1/chat/completions")
    goes_up(before)
    (record,) = left(memory)
    assert (record.outcome, record.error_type) == ("gate_error", "worker_killed")
    names = "request_id trace_id server_span_id client_span_id sampled started_ns started_wall_ns sent_ns method route"
    scope = "operation model stream workspace project unit engine engine_address engine_port"
    whose = "issuer subject client auth_method salt_fingerprint salt_key_id salt_epoch"
    for name in f"{names} {scope} {whose}".split():
        assert getattr(record, name) == getattr(before, name), name
    assert record.duration_seconds == pytest.approx(4.0)
    assert (record.status, record.prompt_tokens, record.first_token_ns) == (None, None, None)


@pytest.mark.parametrize("outcome", ["ok", "client_gone", "truncated"])
def test_what_has_ended_is_not_told_again(memory: mmap.mmap, outcome: Outcome) -> None:
    with recorder(OpenRequests(memory)).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        record.ended(outcome)
    assert left(memory) == []


def test_what_was_refused_before_it_went_up_was_never_open(memory: mmap.mmap) -> None:
    with recorder(OpenRequests(memory)).request(method="POST", route="/v1/x") as record:
        record.refused("not_a_member", 403)
    assert left(memory) == []


def test_what_is_left_is_told_once_and_the_next_worker_begins_with_nothing(memory: mmap.mmap) -> None:
    goes_up(recorder(OpenRequests(memory)).request(method="POST", route="/v1/x"))
    assert len(left(memory)) == 1
    assert left(memory) == []


def test_only_what_is_open_at_once_takes_places(memory: mmap.mmap) -> None:
    opened = recorder(OpenRequests(memory))
    for _ in range(3 * SLOTS):
        with opened.request(method="POST", route="/v1/x") as record:
            goes_up(record)
            record.ended("ok")
    assert memory[1024:] == bytes(AREA_BYTES - 1024)


def test_more_than_there_is_place_for_are_not_kept_and_harm_nobody(memory: mmap.mmap) -> None:
    opened = recorder(OpenRequests(memory))
    for _ in range(SLOTS + 3):
        goes_up(opened.request(method="POST", route="/v1/x"))
    assert len(take_left_open(memory)) == SLOTS


def test_very_long_names_are_not_kept(memory: mmap.mmap) -> None:
    opened = recorder(OpenRequests(memory))
    goes_up(opened.request(method="POST", route="/v1/x"), model="\u3042" * 4000)
    goes_up(opened.request(method="POST", route="/" + "x" * 2000))
    assert [one.route for one in take_left_open(memory)] == ["/v1/x"]


@pytest.mark.parametrize("garbage", [b"\x05\x00nonsense", b"\x02\x00\x91\x01", b"\xff\xff"])
def test_what_cannot_be_read_is_passed_over(memory: mmap.mmap, garbage: bytes) -> None:
    memory[1024 : 1024 + len(garbage)] = garbage
    opened = recorder(OpenRequests(memory))
    goes_up(opened.request(method="POST", route="/v1/x"))
    assert [record.subject for record in left(memory)] == [SUBJECT]
