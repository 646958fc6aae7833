"""A record is closed exactly once, and says nothing that it was not told."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

import pytest

from observability.names import OUTCOMES, Outcome
from observability.recorder import Recorder
from observability.rhythm import Rhythm
from tests.observability.telling import SUBJECT, Ledger, Time, answers, goes_up, recorder, took


def test_every_outcome_that_is_told_stands_and_is_observed_once() -> None:
    for outcome in OUTCOMES:
        ledger = Ledger()
        with recorder(ledger).request(method="POST", route="/v1/chat/completions") as record:
            record.ended(outcome)
        assert [record.outcome for record in ledger.records] == [outcome]


class Later:
    """What is to be called later, until the test says that it is."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def is_now(self) -> None:
        for call in (self.waiting.pop() for _ in range(len(self.waiting))):
            call()


def test_what_is_told_later_is_told_once_and_in_its_order() -> None:
    ledger, later, time = Ledger(), Later(), Time()
    gathering = Recorder([ledger], monotonic_ns=time.monotonic_ns, wall_ns=time.wall_ns, later=later)
    with gathering.request(method="POST", route="/v1/x") as one, gathering.request(method="POST", route="/v1/y") as two:
        goes_up(one)
    assert (ledger.sent_records, ledger.records, len(later.waiting)) == ([], [], 1)
    later.is_now()
    assert (ledger.sent_records, ledger.records, len(later.waiting)) == ([one], [two, one], 0)
    with gathering.request(method="POST", route="/v1/z") as three:
        pass
    assert len(later.waiting) == 1
    gathering.tell()
    later.is_now()
    assert ledger.records == [two, one, three]


def test_no_more_than_a_few_wait_to_be_told() -> None:
    ledger, later, time = Ledger(), Later(), Time()
    gathering = Recorder([ledger], monotonic_ns=time.monotonic_ns, wall_ns=time.wall_ns, later=later)
    for number in range(1, 3 * Recorder.GATHERED + 2):
        with gathering.request(method="POST", route="/v1/x"):
            pass
        assert len(ledger.records) == number - number % Recorder.GATHERED
    assert len(later.waiting) == 1
    gathering.tell()
    assert len(ledger.records) == 3 * Recorder.GATHERED + 1


def test_the_first_ending_stands() -> None:
    ledger = Ledger()
    record = recorder(ledger).request(method="POST", route="/v1/x")
    record.ended("truncated", "engine_closed")
    record.ended("client_gone")
    with pytest.raises(asyncio.CancelledError), record:
        raise asyncio.CancelledError
    assert [(r.outcome, r.error_type) for r in ledger.records] == [("truncated", "engine_closed")]


def test_a_cancelled_request_is_a_client_that_left() -> None:
    ledger = Ledger()
    with pytest.raises(asyncio.CancelledError), recorder(ledger).request(method="POST", route="/v1/x"):
        raise asyncio.CancelledError
    assert [(r.outcome, r.error_type) for r in ledger.records] == [("client_gone", None)]


def test_a_crash_is_a_gate_error_with_its_class_and_place_but_not_its_text() -> None:
    ledger = Ledger()
    with pytest.raises(ValueError, match="my secret"), recorder(ledger).request(method="POST", route="/v1/x"):
        raise ValueError("my secret prompt")
    (record,) = ledger.records
    assert (record.outcome, record.error_type) == ("gate_error", "ValueError")
    assert any("test_record.py" in line for line in record.stack)
    assert "secret" not in " ".join(record.stack)


def test_a_return_without_an_answer_is_a_gate_error() -> None:
    ledger = Ledger()
    with recorder(ledger).request(method="POST", route="/v1/x"):
        pass
    assert [(r.outcome, r.error_type) for r in ledger.records] == [("gate_error", "no_answer")]


@pytest.mark.parametrize(("status", "outcome"), [(200, "ok"), (400, "ok"), (500, "engine_failed")])
def test_an_answer_that_nobody_judged_is_judged_by_its_status(status: int, outcome: Outcome) -> None:
    ledger = Ledger()
    with recorder(ledger).request(method="POST", route="/v1/x") as record:
        record.answered(status)
    assert [r.outcome for r in ledger.records] == [outcome]


@pytest.mark.parametrize(
    ("code", "status", "outcome", "error_type"),
    [
        ("not_a_member", 403, "refused", None),
        ("directory_unavailable", 503, "refused", "directory_unavailable"),
        ("engine_failed", 502, "engine_failed", "engine_failed"),
        ("engine_timeout", 504, "engine_timeout", "engine_timeout"),
        ("gate_error", 500, "gate_error", "gate_error"),
    ],
)
def test_a_refusal_ends_the_request_and_the_engines_and_our_faults_keep_their_outcome(
    code: str, status: int, outcome: Outcome, error_type: str | None
) -> None:
    ledger = Ledger()
    with recorder(ledger).request(method="POST", route="/v1/x") as record:
        record.refused(code, status, "finer_word")
    (closed,) = ledger.records
    assert (closed.outcome, closed.error_type, closed.status) == (outcome, error_type, status)
    assert (closed.refusal_code, closed.refusal_reason) == (code, "finer_word")


def test_every_observer_is_told_though_another_one_fails() -> None:
    class Broken(Ledger):
        def finished(self, record: object) -> None:
            raise RuntimeError

    first, last = Ledger(), Ledger()
    with pytest.raises(RuntimeError), recorder(first, Broken(), last).request(method="POST", route="/v1/x") as record:
        record.ended("ok")
    assert len(first.records) == len(last.records) == 1


def test_request_and_trace_ids_are_new_for_each_request_and_well_formed() -> None:
    opened = [recorder().request(method="POST", route="/v1/x") for _ in range(100)]
    assert len({r.request_id for r in opened}) == len({r.trace_id for r in opened}) == 100
    assert all(r.request_id.startswith("req_") and len(r.request_id) == 28 for r in opened)
    version, trace_id, span_id, flags = opened[0].traceparent.split("-")
    assert (version, flags) == ("00", "01")
    assert (trace_id, span_id) == (opened[0].trace_id, opened[0].client_span_id)
    assert (len(trace_id), len(span_id)) == (32, 16)


def test_the_sampled_flag_follows_the_ratio() -> None:
    def share(ratio: float) -> float:
        one = recorder(trace_ratio=ratio)
        return sum(one.request(method="POST", route="/").sampled for _ in range(2000)) / 2000

    assert share(0.0) == 0.0
    assert share(1.0) == 1.0
    assert 0.3 < share(0.5) < 0.7
    assert recorder(trace_ratio=0.0).request(method="POST", route="/").traceparent.endswith("-00")


@pytest.mark.parametrize(
    ("traceparent", "linked"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True),
        ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes", True),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", False),
        ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", False),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", False),
        ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", False),
        ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", False),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n", False),
        ("", False),
    ],
)
def test_a_clients_trace_context_is_linked_if_valid_and_never_the_parent(traceparent: str, linked: bool) -> None:
    record = recorder().request(method="POST", route="/v1/x")
    before = record.traceparent
    record.link([traceparent])
    assert (record.linked is not None) is linked
    assert record.traceparent == before
    assert "0af7651916cd43dd" not in record.traceparent


def test_server_timing_names_the_gates_own_stages_in_milliseconds() -> None:
    time = Time()
    record = recorder(time=time).request(method="POST", route="/v1/x")
    assert record.server_timing() == ""
    took(record, "stamp", time, milliseconds=0.1)
    took(record, "auth", time, milliseconds=0.2)
    took(record, "auth", time, milliseconds=0.01)
    took(record, "directory", time, milliseconds=0.02)
    took(record, "body", time, milliseconds=1500)
    assert record.server_timing() == "auth;dur=0.21, directory;dur=0.02, stamp;dur=0.10"


def test_time_to_first_token_runs_from_the_head_to_the_written_token_without_the_upload() -> None:
    time, ledger = Time(), Ledger()
    with recorder(ledger, time=time).request(method="POST", route="/v1/x") as record:
        time.passes(milliseconds=1000)
        took(record, "body", time, milliseconds=1000)
        time.passes(milliseconds=1)
        goes_up(record)
        answers(record, time)
    (closed,) = ledger.records
    assert closed.time_to_first_token_seconds == pytest.approx(0.053)
    assert closed.upstream_time_to_first_token_seconds == pytest.approx(0.050)
    assert closed.time_to_first_chunk_seconds == pytest.approx(0.010)
    assert closed.relay_seconds == pytest.approx(0.002)
    assert closed.seconds_per_output_token == pytest.approx(0.010)
    assert closed.duration_seconds == pytest.approx(1.351)


def test_what_a_person_sees_first_has_a_time_of_its_own() -> None:
    time = Time()
    record = recorder(time=time).request(method="POST", route="/v1/x")
    time.passes(milliseconds=20)
    record.first_token("reasoning", time.monotonic_ns(), visible=False)
    record.measure()
    assert record.time_to_first_token_seconds == pytest.approx(0.020)
    assert record.time_to_first_visible_seconds is None
    time.passes(milliseconds=70)
    record.first_visible_written()
    time.passes(milliseconds=70)
    record.first_visible_written()
    record.measure()
    assert record.time_to_first_token_seconds == pytest.approx(0.020)
    assert record.time_to_first_visible_seconds == pytest.approx(0.090)


def test_the_time_per_token_ends_with_the_last_token_and_not_with_the_answer() -> None:
    time, ledger = Time(), Ledger()
    with recorder(ledger, time=time).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        answers(record, time)
        record.ended_ns = time.monotonic_ns() + 10_000_000_000
    (closed,) = ledger.records
    assert closed.seconds_per_output_token == pytest.approx(0.010)
    assert closed.largest_gap_seconds == pytest.approx(0.202)
    assert (closed.events, closed.held_seconds) == (6, 0.0)


@pytest.mark.parametrize("tokens", [None, 0, 1])
def test_there_is_no_time_per_token_below_two_tokens(tokens: int | None) -> None:
    time = Time()
    with recorder(time=time).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        answers(record, time)
        record.used(120, 96, tokens)
    assert record.seconds_per_output_token is None


def test_there_is_no_time_per_token_where_all_came_at_once() -> None:
    time = Time()
    with recorder(time=time).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        answers(record, time)
        rhythm = Rhythm()
        assert record.first_token_ns is not None
        rhythm.came(31, record.first_token_ns)
        record.streamed(rhythm, 32)
    assert record.seconds_per_output_token is None


def test_a_stream_that_waited_for_its_client_tells_nothing_of_the_engines_speed() -> None:
    time = Time()
    with recorder(time=time).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        answers(record, time)
        rhythm = record.rhythm
        assert rhythm is not None
        rhythm.hold(1_000_000_000)
        record.measure()
        assert record.seconds_per_output_token is None
        rhythm.release(3_000_000_000)
    assert record.seconds_per_output_token is None
    assert record.held_seconds == 2.0


def test_an_answer_that_is_no_stream_has_no_gaps_and_no_events() -> None:
    with recorder().request(method="POST", route="/v1/x") as record:
        record.answered(200)
    assert (record.largest_gap_seconds, record.held_seconds, record.events, record.bytes_received) == (None,) * 4


def test_only_the_first_token_is_the_first() -> None:
    time = Time()
    with recorder(time=time).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        answers(record, time)
        record.first_token("tool_call", time.monotonic_ns(), visible=True)
    assert record.first_token_kind == "content"
    assert record.time_to_first_token_seconds == pytest.approx(0.052)


def test_a_stream_without_a_token_has_no_time_to_first_token() -> None:
    time = Time()
    with recorder(time=time).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        record.first_byte()
        record.streamed(Rhythm(), 2)
    times = (record.time_to_first_token_seconds, record.relay_seconds, record.upstream_time_to_first_token_seconds)
    assert times == (None, None, None)
    assert record.time_to_first_chunk_seconds is not None


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ((10, 4, 2), (10, 4, 2)),
        ((10, None, None), (10, None, None)),
        ((10, 0, 0), (10, 0, 0)),
        ((10, 11, 2), (10, None, 2)),
        ((-1, 0, 2), (None, 0, 2)),
        ((10, -4, 1 << 70), (10, None, None)),
    ],
)
def test_a_count_that_cannot_be_true_counts_as_not_said(
    told: tuple[int, int | None, int | None], kept: tuple[int | None, int | None, int | None]
) -> None:
    record = recorder().request(method="POST", route="/v1/x")
    record.used(*told)
    assert (record.prompt_tokens, record.reused_tokens, record.output_tokens) == kept


def test_a_model_is_only_asked_for_until_it_is_known_to_be_served() -> None:
    record = recorder().request(method="POST", route="/v1/x")
    record.asked("chat", "m" * 500, stream=True)
    assert record.model is None
    record.served()
    assert record.stream
    assert record.model == "m" * 128


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("gpt-4o", "gpt-4o"),
        ("org/lora:v1.5@main+x_y", "org/lora:v1.5@main+x_y"),
        ("m" * 500, "m" * 128),
        ("Tell me of salt", None),
        ("gpt-4o\n", None),
        ("modèle", None),
        ("\ud800", None),
        ("sgp_AbCdEf0123456789", None),
        ("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln", None),
        ("sg1-k1-vGNDhPk7IIs2LU95llaQxLA6r8VYZztZihOV2DlSM4M", None),
        ("https://user:password@host/model", None),
    ],
)
def test_what_was_asked_for_in_vain_is_told_only_where_it_is_formed_as_a_name(asked: str, told: str | None) -> None:
    record = recorder().request(method="POST", route="/v1/x")
    assert record.unserved_model is None
    record.asked("chat", asked, stream=True)
    assert record.unserved_model == told
    record.served()
    assert record.unserved_model is None


def test_where_no_stream_can_be_answered_none_was_asked_for() -> None:
    record = recorder().request(method="POST", route="/v1/x")
    record.asked("embeddings", "tiny", stream=True)
    record.served(streams=False)
    assert not record.stream


def test_a_user_unit_is_kept_without_its_subject() -> None:
    record = recorder().request(method="POST", route="/v1/x")
    record.decided(f"user:acme/apollo/{SUBJECT}/more")
    assert record.unit == "user:acme/apollo"
    record.decided("collection:acme/handbook")
    assert record.unit == "collection:acme/handbook"


def test_the_repr_of_a_record_names_its_request_and_nobody() -> None:
    record = recorder().request(method="POST", route="/v1/x")
    record.identified("https://i", SUBJECT, "chat-ui", "jwt")
    assert repr(record) == f"<Record {record.request_id}>"


def test_sending_again_keeps_the_first_time_and_tells_the_observers_once() -> None:
    time, ledger = Time(), Ledger()
    with recorder(ledger, time=time).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        first = record.sent_ns
        time.passes(milliseconds=5)
        record.sent("10.0.0.8", 8001)
        record.ended("ok")
    assert len(ledger.sent_records) == 1
    assert (record.sent_ns, record.engine_address, record.engine_port) == (first, "10.0.0.8", 8001)


def test_a_method_that_http_does_not_know_is_not_recorded() -> None:
    assert recorder().request(method="sk-secret", route=None).method == "_OTHER"


def test_text_from_outside_is_cut_and_can_be_encoded() -> None:
    record = recorder().request(method="POST", route="/v1/x")
    record.streamed(None, 0, response_id="\ud800" + "x" * 500, finish_reason="stop\ud800" + "x" * 500)
    record.identified("https://i", "s", "c\udfff" * 400, "jwt")
    assert record.response_id == "?" + "x" * 127
    assert record.finish_reasons == ("stop?" + "x" * 27,)
    assert record.client is not None
    assert record.client.encode() == b"c?" * 128


def test_an_error_behind_its_end_changes_nothing_of_it() -> None:
    ledger = Ledger()

    def fails() -> None:
        with recorder(ledger).request(method="POST", route="/v1/x") as record:
            record.ended("ok")
            raise ValueError

    with pytest.raises(ValueError):
        fails()
    (closed,) = ledger.records
    assert (closed.outcome, closed.error_type, closed.stack) == ("ok", None, ())


@pytest.mark.parametrize("at", [0, 32, 48])
def test_no_id_is_zero(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """W3C Trace Context sections 3.2.2.3 and 3.2.2.4."""
    right = secrets.token_hex(5632).replace("0", "1")
    length = 32 if at == 0 else 16
    drawn = iter((right[:at] + "0" * length + right[at + length :], right))
    monkeypatch.setattr(secrets, "token_hex", lambda size: next(drawn)[: size * 2])
    record = recorder().request(method="POST", route="/v1/x")
    assert f"{record.trace_id}{record.server_span_id}{record.client_span_id}" == right[:64]
