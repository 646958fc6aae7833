"""One request as a waterfall: what it waited for, one after the other, from the record's own times.

body · auth · directory · fetch · scan · queue · stamp · connect   the gate's own stages (`names.STAGES`)
prefill   from the request sent upstream to its first token read: the engine's own queue and its prefill
relay     from the first token read to the first token written
stream    from the first token read to the last one read
answer    from the request sent upstream to the end, where there was no token: no stream, or none that spoke
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

from observability.names import Stage
from observability.record import Record

Step = Literal[Stage, "prefill", "relay", "stream", "answer"]


class Bar(NamedTuple):
    """One step: when it began, counted from the request's start, and how long it took. Seconds."""

    step: Step
    begins: float
    seconds: float


class Times(NamedTuple):
    """All that a waterfall is made of: nanoseconds of the record's clock. What was not reached is None.

    `intervals` are the stages, each with its begin and its end; `last_token` is when the last token was read.
    """

    started: int
    sent: int | None
    first_token: int | None
    first_token_written: int | None
    last_token: int | None
    ended: int | None
    intervals: Sequence[tuple[str, int, int]]


def times_of(record: Record) -> Times:
    return Times(
        record.started_ns,
        record.sent_ns,
        record.first_token_ns,
        record.first_token_written_ns,
        None if record.rhythm is None else record.rhythm.last_ns,
        record.ended_ns,
        record.intervals,
    )


def waterfall(times: Times) -> list[Bar]:
    """The steps of a record that has ended, in the order in which they began. What was not reached is absent."""
    bars = [_bar(times, name, began, ended) for name, began, ended in times.intervals]
    if times.sent is not None:
        bars += _upstream(times, times.sent)
    return sorted(bars, key=lambda bar: bar.begins)


def _upstream(times: Times, sent: int) -> list[Bar]:
    first = times.first_token
    if first is None:
        return [] if times.ended is None else [_bar(times, "answer", sent, times.ended)]
    bars = [_bar(times, "prefill", sent, first)]
    if times.first_token_written is not None:
        bars.append(_bar(times, "relay", first, times.first_token_written))
    if times.last_token is not None:
        bars.append(_bar(times, "stream", first, times.last_token))
    return bars


def _bar(times: Times, step: str, began: int, ended: int) -> Bar:
    return Bar(cast("Step", step), (began - times.started) / 1e9, (ended - began) / 1e9)
