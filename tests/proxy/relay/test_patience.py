"""When a limit has passed, decided from two looks: exact in what it forgives, never early, little late."""

from __future__ import annotations

import asyncio
from math import inf
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engines.profile import Operation
from proxy.relay.alarm import Alarm
from proxy.relay.answer import Answer
from proxy.relay.exchange import Exchange
from proxy.relay.patience import Limit, Patience, Seen, Watch
from tests.observability.telling import recorder
from tests.proxy.engines.asking import body_of, stamped

NOTHING = Seen(0, begun=False, held=False, written=0)


def patience(*, total: float = inf, interval: float | None = None) -> Patience:
    return Patience(
        first_byte=100,
        idle=40,
        total=total,
        keep_alive="off" if interval is None else "comment",
        keep_alive_interval=interval or 15.0,
    )


def watch(*, sent: float = 0.0, total: float = inf, interval: float | None = None) -> Watch:
    made = Watch(patience(total=total, interval=interval), 0.0)
    made.sent(sent)
    return made


def test_an_engine_that_sends_nothing_is_over_at_the_first_limit_and_not_before() -> None:
    looked = watch()
    assert looked.look(99.9, NOTHING).over is None
    assert looked.look(100.0, NOTHING).over is Limit.FIRST_BYTE


def test_the_limits_begin_when_the_request_is_sent_but_that_of_the_whole_before() -> None:
    looked = watch(sent=50.0, total=170.0)
    assert looked.look(149.0, NOTHING).over is None
    assert looked.look(150.0, NOTHING).over is Limit.FIRST_BYTE
    assert watch(sent=80.0, total=170.0).look(170.0, NOTHING).over is Limit.TOTAL


def test_what_came_counts_from_the_look_that_saw_it() -> None:
    looked = watch()
    assert looked.look(90.0, NOTHING._replace(progress=1)).over is None
    assert looked.look(189.0, NOTHING._replace(progress=1)).over is None
    assert looked.look(190.0, NOTHING._replace(progress=1)).over is Limit.FIRST_BYTE


def test_a_running_answer_has_the_limit_between_two_events() -> None:
    looked = watch()
    running = Seen(1, begun=True, held=False, written=9)
    assert looked.look(10.0, running).over is None
    assert looked.look(49.9, running).over is None
    assert looked.look(50.0, running).over is Limit.IDLE


def test_while_the_client_is_slow_the_engine_is_not_late() -> None:
    looked = watch()
    running = Seen(1, begun=True, held=True, written=9)
    for moment in (10.0, 200.0, 400.0):
        assert looked.look(moment, running).over is None
    assert looked.look(439.0, running._replace(held=False)).over is None
    assert looked.look(440.0, running._replace(held=False)).over is Limit.IDLE


def test_the_whole_ends_also_where_all_goes_on() -> None:
    looked = watch(total=300.0)
    for moment in range(5, 300, 5):
        assert looked.look(moment, Seen(moment, begun=True, held=True, written=moment)).over is None
    assert looked.look(300.0, Seen(999, begun=True, held=True, written=999)).over is Limit.TOTAL


@given(st.lists(st.floats(0.0, 60.0), max_size=30), st.sampled_from([None, 3.0, 200.0]))
def test_an_engine_is_never_over_early_and_little_late(pauses: list[float], interval: float | None) -> None:
    """Events come after these pauses, and then nothing more."""
    times = [sum(pauses[: number + 1]) for number in range(len(pauses))]
    looked = watch(interval=interval)
    now = looked_at = 0.0
    again = patience(interval=interval).first_look
    while True:
        now += again
        came = [time for time in times if time <= now]
        look = looked.look(now, Seen(len(came), begun=bool(came), held=False, written=len(came)))
        last, limit = (came[-1], 40.0) if came else (0.0, 100.0)
        if look.over is not None:
            assert now - last >= limit
            assert now - last <= limit * 1.25 + 0.01
            return
        assert 0 < look.again <= 10.0
        again, looked_at = look.again, now
        assert looked_at - last < limit * 1.25 + 0.01


@given(st.lists(st.floats(0.0, 30.0), min_size=1, max_size=40))
def test_a_client_never_hears_nothing_for_longer_than_the_interval(pauses: list[float]) -> None:
    waits = Patience(first_byte=1e6, idle=1e6, keep_alive="event", keep_alive_interval=10.0)
    looked = Watch(waits, 0.0)
    looked.sent(0.0)
    due = waits.first_look
    heard, written, longest = 0.0, 0, 0.0
    times = [sum(pauses[: number + 1]) for number in range(len(pauses))]
    for event in times:
        while due <= event:
            if (look := looked.look(due, Seen(written, begun=True, held=False, written=written))).silent:
                longest, heard, written = max(longest, due - heard), due, written + 1
            due += look.again
        longest, heard, written = max(longest, event - heard), event, written + 1
    assert longest <= 10.0 + 0.02


def test_without_keep_alive_no_silence_is_told() -> None:
    looked = watch()
    assert not any(looked.look(moment, NOTHING).silent for moment in range(1, 100))


def test_a_client_that_was_sent_something_since_hears_nothing_of_ours() -> None:
    looked = watch(interval=10.0)
    assert not looked.look(5.0, NOTHING._replace(progress=1, written=10)).silent
    assert looked.look(10.0, NOTHING._replace(progress=1, written=10)).silent


@pytest.mark.parametrize("total", [0.0004, 0.5])
def test_it_never_looks_again_at_once(total: float) -> None:
    assert patience(total=total).first_look >= 0.001
    assert watch(total=total).look(0.0001, NOTHING).again >= 0.001


async def test_a_client_that_made_way_between_two_looks_gives_the_engine_its_time_anew() -> None:
    exchange = Exchange(
        stamped(Operation.CHAT, body_of(Operation.CHAT, stream=True)),
        cast("Answer", SilentAnswer()),
        recorder().request(method="POST", route="/v1/chat/completions"),
        Patience(first_byte=60, idle=60),
        Alarm(asyncio.get_running_loop()),
    )
    exchange.head(200, b"text/event-stream")
    before = exchange._seen
    exchange.hold()
    exchange.release()
    assert exchange._seen.progress != before.progress


class SilentAnswer:
    """An answer that nobody reads."""

    bytes_sent = 0

    def head(self, *_: object, more: bool) -> None:
        pass
