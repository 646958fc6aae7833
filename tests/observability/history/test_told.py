from __future__ import annotations

import msgspec

from observability.history.alarms import ENGINE_PROOF_FAILED, Alarms
from observability.history.told import MOST_AT_ONCE, Ended, Told
from observability.names import Stage
from observability.record import Record
from observability.recorder import Recorder
from observability.rhythm import Rhythm
from observability.waterfall import waterfall
from tests.observability.history.summaries import summary

SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 50 * SECOND

    def __call__(self) -> int:
        return self.now


def recording(ended: Ended) -> tuple[Recorder, Clock]:
    clock = Clock()
    return Recorder((ended,), monotonic_ns=clock, wall_ns=lambda: 1_700_000_000 * SECOND), clock


def refused(recorder: Recorder) -> None:
    with recorder.request(method="POST", route=None) as record:
        record.refused("invalid_token", 401)


def stage(record: Record, clock: Clock, name: Stage) -> None:
    began = clock.now
    clock.now += SECOND // 1000
    record.stage(name, began)


def streamed(recorder: Recorder, clock: Clock) -> Record:
    with recorder.request(method="POST", route="/v1/chat/completions") as record:
        record.identified("https://i", "u-alice-0001", "chat-ui", "jwt")
        stage(record, clock, "auth")
        record.scoped("acme", "apollo")
        record.decided("user:acme/apollo/u-alice-0001")
        stage(record, clock, "directory")
        stage(record, clock, "stamp")
        record.asked("chat", "tiny", True)
        record.served()
        record.stamped("baa6d2677094", "k1", 3)
        clock.now += SECOND // 100
        record.sent("127.0.0.1", 8000)
        clock.now += SECOND
        record.first_token("content", clock.now, visible=True)
        rhythm = Rhythm()
        rhythm.came(1, clock.now)
        clock.now += SECOND
        rhythm.came(1, clock.now)
        record.streamed(rhythm, 2, finish_reason="stop")
        clock.now += SECOND
        record.used(1000, 600, 20)
    return record


def test_a_summary_says_what_happened_and_names_nobody() -> None:
    ended = Ended()
    record = streamed(*recording(ended))
    (told,) = ended.take()
    assert told.request_id == record.request_id
    assert told.unit == "user:acme/apollo"
    assert (told.started, told.duration, told.ttft, told.upstream_ttft) == (1_700_000_000.0, 3.013, 1.013, 1.0)
    assert told.largest_gap == 1.0
    assert (told.prompt_tokens, told.reused_tokens, told.output_tokens) == (1000, 600, 20)
    assert (told.engine, told.salt_fingerprint, told.salt_epoch) == ("127.0.0.1:8000", "baa6d2677094", 3)
    assert [(bar.step, round(bar.begins, 3), round(bar.seconds, 3)) for bar in waterfall(told.times)] == [
        ("auth", 0.0, 0.001),
        ("directory", 0.001, 0.001),
        ("stamp", 0.002, 0.001),
        ("prefill", 0.013, 1.0),
        ("relay", 1.013, 0.0),
        ("stream", 1.013, 1.0),
    ]
    assert b"alice" not in msgspec.msgpack.encode(told)


def test_tokens_that_were_only_counted_are_nobodys_usage() -> None:
    ended = Ended()
    recorder, _ = recording(ended)
    with recorder.request(method="POST", route="/v1/messages/count_tokens") as record:
        record.scoped("acme", "apollo")
        record.asked("count_tokens", "tiny", False)
        record.served(streams=False)
        record.sent("127.0.0.1", 8000)
        record.used(50, None, None)
        record.answered(200)
    (told,) = ended.take()
    assert (told.prompt_tokens, told.ttft, [bar.step for bar in waterfall(told.times)]) == (None, None, ["answer"])


def test_pages_of_our_own_are_left_out_and_refusals_are_not() -> None:
    ended = Ended()
    recorder, _ = recording(ended)
    for _ in range(200):
        with recorder.request(method="GET", route="/account") as record:
            record.answered(200)
    refused(recorder)
    assert [told.refusal_code for told in ended.take()] == ["invalid_token"]
    assert ended.take() == ()


def test_a_burst_is_told_in_batches_and_what_does_not_fit_is_counted() -> None:
    ended = Ended(most=MOST_AT_ONCE + 10)
    recorder, _ = recording(ended)
    for _ in range(MOST_AT_ONCE + 15):
        refused(recorder)
    assert [len(ended.take()) for _ in range(3)] == [MOST_AT_ONCE, 10, 0]
    assert ended.dropped == 5


def test_what_a_newer_worker_adds_is_passed_over() -> None:
    """A reload starts workers of the code that is installed by then; the supervisor's stays."""
    line = msgspec.msgpack.decode(msgspec.msgpack.encode(summary()))
    newer = {"summaries": [[*line, "new"]], "open_streams": None, "dropped": 0, "also": 1}
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(newer), type=Told)
    assert [one.model for one in told.summaries] == ["tiny"]


def test_an_alarm_says_how_often_and_when_last() -> None:
    alarms = Alarms()
    assert [(one.check, one.count, one.last) for one in alarms.told()] == [
        (ENGINE_PROOF_FAILED, 0, None),
        ("salt_in_answer", 0, None),
    ]
    alarms.look({"salt_in_answer": 1}, 10.0)
    alarms.look({"salt_in_answer": 1}, 20.0)
    alarms.look({"salt_in_answer": 2}, 30.0)
    alarms.look({}, 35.0)
    alarms.proofs({"main a chat"}, 40.0)
    alarms.proofs({"main a chat", "main b chat"}, 50.0)
    alarms.proofs((), 60.0)
    assert [(one.check, one.count, one.last) for one in alarms.told()] == [
        (ENGINE_PROOF_FAILED, 2, 50.0),
        ("salt_in_answer", 2, 30.0),
    ]
