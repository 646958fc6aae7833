"""One finished request, as a worker tells it to the supervisor. It names no person and holds nothing of the prompt."""

from __future__ import annotations

import msgspec

from observability.names import OPERATIONS_WITHOUT_USAGE
from observability.record import Record
from observability.waterfall import Times, times_of


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """One request: the fields of `answers.Request`, and at last what its spans are made of when somebody looks. New
    fields come last and have a default: a worker and its supervisor may be of different versions.

    Times are Unix seconds, durations seconds. None is unknown, never zero. What a caller only claimed is not in it:
    `workspace` and `project` were confirmed, `model` is one that an engine serves.
    """

    request_id: str
    trace_id: str
    started: float
    workspace: str | None
    project: str | None
    unit: str | None
    model: str | None
    operation: str | None
    stream: bool
    outcome: str
    status: int | None
    refusal_code: str | None
    error_type: str | None
    engine: str | None
    salt_fingerprint: str | None
    salt_epoch: int | None
    duration: float
    ttft: float | None
    ttft_kind: str | None
    upstream_ttft: float | None
    largest_gap: float | None
    prompt_tokens: int | None
    reused_tokens: int | None
    output_tokens: int | None
    finish_reasons: tuple[str, ...]
    times: Times


def summary_of(record: Record) -> Summary:
    """The summary of a record that has ended."""
    # As in the metrics: the count of `count_tokens` is nobody's usage.
    has_usage = record.operation not in OPERATIONS_WITHOUT_USAGE
    return Summary(
        record.request_id,
        record.trace_id,
        record.started_wall_ns / 1e9,
        record.workspace,
        record.project,
        record.unit,
        record.model,
        record.operation,
        record.stream,
        str(record.outcome),
        record.status,
        record.refusal_code,
        record.error_type,
        record.replica,
        record.salt_fingerprint,
        record.salt_epoch,
        record.duration_seconds,
        record.time_to_first_token_seconds if record.stream else None,
        record.first_token_kind if record.stream else None,
        record.upstream_time_to_first_token_seconds if record.stream else None,
        record.largest_gap_seconds,
        record.prompt_tokens if has_usage else None,
        record.reused_tokens if has_usage else None,
        record.output_tokens if has_usage else None,
        record.finish_reasons,
        times_of(record),
    )
