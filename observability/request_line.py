"""The one log line of a finished request: which fields it has, and how loud it is."""

from __future__ import annotations

from functools import lru_cache
from time import gmtime, strftime
from typing import Final

import msgspec

from observability.names import REQUEST_COMPLETED
from observability.record import Record

# Raised when a field's meaning changes; a new field is no change.
SCHEMA: int = 1


class RequestLine(msgspec.Struct, omit_defaults=True, frozen=True):
    """The fields, in the order in which one reads them. What is unknown is absent; times are milliseconds.

    Each is a number, a word of ours or a text that the record has cut to a length, so none has to be looked at again.
    `model` is one that is served; what a refused caller asked for instead is `requested_model`, his own word, where it
    is formed as a name of a model.
    """

    ts: str
    level: str
    event: str
    instance: str | None
    v: int
    request_id: str
    outcome: str
    status: int | None = None
    code: str | None = None
    reason: str | None = None
    error_type: str | None = None
    workspace: str | None = None
    project: str | None = None
    collection: str | None = None
    unit: str | None = None
    narrowed_by: tuple[str, ...] | None = None
    model: str | None = None
    requested_model: str | None = None
    method: str | None = None
    route: str | None = None
    operation: str | None = None
    stream: bool | None = None
    duration_ms: float | None = None
    ttft_ms: float | None = None
    ttft_kind: str | None = None
    ttft_visible_ms: float | None = None
    upstream_ttft_ms: float | None = None
    tpot_ms: float | None = None
    max_gap_ms: float | None = None
    held_ms: float | None = None
    events: int | None = None
    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_written_tokens: int | None = None
    tokens_known: bool | None = None
    finish_reasons: tuple[str, ...] | None = None
    response_id: str | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    engine: str | None = None
    replica: str | None = None
    salt_fingerprint: str | None = None
    salt_key_id: str | None = None
    salt_epoch: int | None = None
    issuer: str | None = None
    client: str | None = None
    client_address: str | None = None
    auth_method: str | None = None
    user_hash: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    sampled: bool | None = None
    stack: tuple[str, ...] | None = None
    auth_ms: float | None = None
    directory_ms: float | None = None
    body_ms: float | None = None
    fetch_ms: float | None = None
    scan_ms: float | None = None
    queue_ms: float | None = None
    stamp_ms: float | None = None
    connect_ms: float | None = None
    relay_ms: float | None = None


def level_of(record: Record) -> str:
    """`error` for a fault of ours, `warning` for one of the engine or a full house, `info` for the daily business."""
    if record.outcome == "gate_error":
        return "error"
    is_fault = record.status is not None and record.status >= 500
    return "info" if record.outcome in {"ok", "refused", "client_gone"} and not is_fault else "warning"


def request_line(record: Record, level: str, instance: str | None) -> RequestLine:
    """The line of a record that has ended; `instance` names the worker.

    In the order of the fields, since by their names it would take twice as long.
    """
    operation, model, stage = record.operation, record.model, record.stages.get
    (
        duration,
        first,
        visible,
        upstream,
        each,
        gap,
        held,
        relay,
        auth,
        directory,
        body,
        fetch,
        scan,
        queue,
        stamp,
        connect,
    ) = _milliseconds(
        record.duration_seconds,
        record.time_to_first_token_seconds,
        record.time_to_first_visible_seconds,
        record.upstream_time_to_first_token_seconds,
        record.seconds_per_output_token,
        record.largest_gap_seconds,
        record.held_seconds,
        record.relay_seconds,
        stage("auth"),
        stage("directory"),
        stage("body"),
        stage("fetch"),
        stage("scan"),
        stage("queue"),
        stage("stamp"),
        stage("connect"),
    )
    return RequestLine(
        _timestamp(record.wall_ns(record.ended_ns)),
        level,
        REQUEST_COMPLETED,
        instance,
        SCHEMA,
        record.request_id,
        str(record.outcome),
        record.status,
        record.refusal_code,
        record.refusal_reason or record.end_reason,
        record.error_type,
        record.workspace,
        record.project,
        record.collection,
        record.unit,
        record.narrowed_by or None,
        model,
        record.unserved_model,
        record.method,
        record.route,
        operation,
        None if operation is None else record.stream,
        duration,
        first,
        record.first_token_kind,
        visible,
        upstream,
        each,
        gap,
        held,
        record.events,
        record.prompt_tokens,
        record.reused_tokens,
        record.output_tokens,
        record.reasoning_tokens,
        record.cache_written_tokens,
        record.prompt_tokens is not None if record.sent_ns is not None else None,
        record.finish_reasons or None,
        record.response_id,
        record.bytes_received,
        record.bytes_sent,
        record.engine,
        record.replica,
        record.salt_fingerprint,
        record.salt_key_id,
        record.salt_epoch,
        record.issuer,
        record.client,
        record.client_address,
        record.auth_method,
        record.user_hash,
        record.trace_id,
        record.server_span_id,
        None if record.parent is None else f"{record.parent.span_id:016x}",
        record.sampled,
        record.stack or None,
        auth,
        directory,
        body,
        fetch,
        scan,
        queue,
        stamp,
        connect,
        relay,
    )


_SECOND_NS: Final = 1_000_000_000


def _timestamp(wall_ns: int) -> str:
    """UTC, as RFC 3339 has it, to the microsecond."""
    seconds, rest = divmod(wall_ns, _SECOND_NS)
    return f"{_second(seconds)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))


def _milliseconds(*seconds: float | None) -> list[float | None]:
    # `round` takes five times as long.
    return [None if one is None else int(one * 1e6 + 0.5) / 1e3 for one in seconds]
