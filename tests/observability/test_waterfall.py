"""A waterfall shows when each step of a request began and how long it took."""

from __future__ import annotations

import pytest

from observability.waterfall import times_of, waterfall
from tests.observability.telling import Time, answers, goes_up, recorder, took


def test_a_stream_shows_its_stages_its_prefill_its_relay_and_its_tokens_in_order() -> None:
    time = Time()
    with recorder(time=time).request(method="POST", route="/v1/x") as record:
        time.passes(milliseconds=3)
        took(record, "auth", time, milliseconds=2)
        time.passes(milliseconds=40)
        took(record, "queue", time, milliseconds=30)
        goes_up(record)
        answers(record, time)
    bars = waterfall(times_of(record))
    assert [bar.step for bar in bars] == ["auth", "queue", "prefill", "relay", "stream"]
    begins = [0.001, 0.013, 0.043, 0.093, 0.093]
    assert [bar.begins for bar in bars] == pytest.approx(begins)
    assert [bar.seconds for bar in bars] == pytest.approx([0.002, 0.030, 0.050, 0.002, 0.300])


def test_a_refused_request_shows_how_far_it_came() -> None:
    time = Time()
    with recorder(time=time).request(method="POST", route="/v1/x") as record:
        time.passes(milliseconds=5)
        took(record, "auth", time, milliseconds=5)
        record.refused("not_a_member", 403)
    assert [bar.step for bar in waterfall(times_of(record))] == ["auth"]


def test_an_answer_without_a_token_is_one_step_from_its_sending_to_its_end() -> None:
    time = Time()
    with recorder(time=time).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        time.passes(milliseconds=70)
        record.answered(200)
        record.ended("ok")
    (bar,) = waterfall(times_of(record))
    assert bar.step == "answer"
    assert bar.seconds == pytest.approx(0.070)


def test_a_stage_that_there_was_twice_is_shown_twice_and_counts_in_all() -> None:
    time = Time()
    with recorder(time=time).request(method="POST", route="/v1/x") as record:
        for _ in range(2):
            time.passes(milliseconds=1)
            took(record, "stamp", time, milliseconds=1)
        record.refused("engine_busy", 503)
    assert [bar.begins for bar in waterfall(times_of(record))] == pytest.approx([0.0, 0.001])
    assert record.stages == {"stamp": pytest.approx(0.002)}
