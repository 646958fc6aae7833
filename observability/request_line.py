"""The one log line of a finished request: which fields it has, and how loud it is."""

from __future__ import annotations

from observability.record import Record

# Raised when a field's meaning changes; a new field is no change.
SCHEMA: int = 1


def level_of(record: Record) -> str:
    """`error` for a fault of ours, `warning` for one of the engine or a full house, `info` for the daily business."""
    if record.outcome == "gate_error":
        return "error"
    is_fault = record.status is not None and record.status >= 500
    return "info" if record.outcome in {"ok", "refused", "client_gone"} and not is_fault else "warning"


def fields_of(record: Record) -> dict[str, object]:
    """The fields, in the order in which one reads them. What is unknown is absent; times are milliseconds.

    `model` is one that is served; what a refused caller asked for instead is `requested_model`, his own word.
    """
    fields: dict[str, object] = {
        "v": SCHEMA,
        "request_id": record.request_id,
        "outcome": record.outcome,
        "status": record.status,
        "code": record.refusal_code,
        "reason": record.refusal_reason,
        "error_type": record.error_type,
        "workspace": record.workspace,
        "project": record.project,
        "collection": record.collection,
        "unit": record.unit,
        "narrowed_by": record.narrowed_by or None,
        "model": record.model,
        "requested_model": record.requested_model if record.model is None else None,
        "method": record.method,
        "route": record.route,
        "operation": record.operation,
        "stream": record.stream if record.operation is not None else None,
        "duration_ms": _milliseconds(record.duration_seconds),
        "ttft_ms": _milliseconds(record.time_to_first_token_seconds),
        "ttft_kind": record.first_token_kind,
        "upstream_ttft_ms": _milliseconds(record.upstream_time_to_first_token_seconds),
        "tpot_ms": _milliseconds(record.seconds_per_output_token),
        "prompt_tokens": record.prompt_tokens,
        "reused_tokens": record.reused_tokens,
        "output_tokens": record.output_tokens,
        "tokens_known": record.prompt_tokens is not None if record.sent_ns is not None else None,
        "finish_reasons": record.finish_reasons or None,
        "response_id": record.response_id,
        "bytes_out": record.bytes_sent,
        "replica": _replica(record),
        "salt_fingerprint": record.salt_fingerprint,
        "salt_key_id": record.salt_key_id,
        "salt_epoch": record.salt_epoch,
        "issuer": record.issuer,
        "client": record.client,
        "auth_method": record.auth_method,
        "trace_id": f"{record.trace_id:032x}",
        "span_id": f"{record.server_span_id:016x}",
        "sampled": record.sampled,
        "stack": record.stack or None,
    }
    for stage, seconds in record.stages.items():
        fields[f"{stage}_ms"] = _milliseconds(seconds)
    return {name: value for name, value in fields.items() if value is not None}


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _replica(record: Record) -> str | None:
    if record.engine_address is None or record.engine_port is None:
        return record.engine_address
    return f"{record.engine_address}:{record.engine_port}"
