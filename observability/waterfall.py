"""One request as a waterfall: what it waited for, one after the other, from the record's own times.

body · auth · directory · fetch · scan · queue · stamp   the gate's own stages (`names.STAGES`)
prefill   from the request sent upstream to its first token read: the engine's own queue and its prefill
relay     from the first token read to the first token written
stream    from the first token read to the last one read
answer    from the request sent upstream to the end, where there was no token: no stream, or none that spoke
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from observability.names import Stage
from observability.record import Record

Step = Literal[Stage, "prefill", "relay", "stream", "answer"]


class Bar(NamedTuple):
    """One step: when it began, counted from the request's start, and how long it took. Seconds."""

    step: Step
    begins: float
    seconds: float


def waterfall(record: Record) -> list[Bar]:
    """The steps of a record that has ended, in the order in which they began. What was not reached is absent."""
    bars = [_bar(record, name, began_ns, ended_ns) for name, began_ns, ended_ns in record.intervals]
    if record.sent_ns is not None:
        bars += _upstream(record, record.sent_ns)
    return sorted(bars, key=lambda bar: bar.begins)


def _upstream(record: Record, sent_ns: int) -> list[Bar]:
    first_ns = record.first_token_ns
    if first_ns is None:
        return [] if record.ended_ns is None else [_bar(record, "answer", sent_ns, record.ended_ns)]
    bars = [_bar(record, "prefill", sent_ns, first_ns)]
    if record.first_token_written_ns is not None:
        bars.append(_bar(record, "relay", first_ns, record.first_token_written_ns))
    if record.rhythm is not None and record.rhythm.last_ns is not None:
        bars.append(_bar(record, "stream", first_ns, record.rhythm.last_ns))
    return bars


def _bar(record: Record, step: Step, began_ns: int, ended_ns: int) -> Bar:
    return Bar(step, (began_ns - record.started_ns) / 1e9, (ended_ns - began_ns) / 1e9)
