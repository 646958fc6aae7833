"""Which requests' spans are exported: every failure, every slow one, and a share of the others.

The share is drawn by the trace id, before the request goes up, and is what the `sampled` flag tells the engine: with it
the engine makes a span of its own. Whether a request fails or is slow is known at its end, so of one that is only kept
for that the engine has no span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from config.settings import Telemetry
from observability.record import Record

Kept = Literal["share", "failure", "slow"]
"""Why spans are kept. `share`: by the ratio, or because a trusted caller's flag says so."""


@dataclass(frozen=True, slots=True)
class Slow:
    """From when on a request is slow, in seconds; None: never. `first_token` is for streams: the time to that, or to
    the end of one that had none. `request` is for the whole of any request.
    """

    first_token: float | None = None
    request: float | None = None


def slow(settings: Telemetry) -> Slow:
    """What the settings say of it."""
    return Slow(settings.slow_first_token or None, settings.slow_request or None)


def why_kept(record: Record, slow: Slow) -> Kept | None:
    """Why the spans of a record that has ended are exported; None: they are not."""
    if record.sampled:
        return "share"
    if is_failure(record):
        return "failure"
    return "slow" if _is_slow(record, slow) else None


def is_failure(record: Record) -> bool:
    """Whether somebody but the caller is at fault."""
    return record.outcome in _FAULTS or (record.status is not None and record.status >= _SERVER_FAULT)


ENGINE_FAULTS: Final = frozenset({"engine_failed", "truncated", "engine_timeout"})
_FAULTS: Final = ENGINE_FAULTS | {"drained", "gate_error"}
_SERVER_FAULT: Final = 500


def _is_slow(record: Record, slow: Slow) -> bool:
    if slow.request is not None and record.duration_seconds >= slow.request:
        return True
    if slow.first_token is None or record.sent_ns is None or not record.stream:
        return False
    first = record.time_to_first_token_seconds
    if first is None:
        first = record.duration_seconds - record.stages.get("body", 0.0)  # none came until then
    return first >= slow.first_token
