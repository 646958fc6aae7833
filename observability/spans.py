"""The two spans of a request: SERVER, as the client saw it, and CLIENT, the model call. Made at the end, all at once.

A span is never open while somebody waits: the record holds the times and the ids, which went upstream long before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    set_span_in_context,
)

from observability import genai, names
from observability.keeping import ENGINE_FAULTS, Kept, is_failure
from observability.record import Record
from observability.trace_context import TraceContext

Attribute = str | bool | int | float | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SpanText:
    """What a span says beside its ids and times. `failed` is the status Error; otherwise it stays unset."""

    name: str
    attributes: Mapping[str, Attribute]
    failed: bool


class PresetIds(IdGenerator):
    """Hands out the ids that the record fixed at its start. Set and used without an await between."""

    def __init__(self) -> None:
        self.trace_id = 0
        self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


@dataclass(frozen=True, slots=True)
class Wording:
    """What the settings say of how spans are written. `providers` are the engines' kinds, by their names."""

    genai: genai.Conventions = "1.41"
    providers: Mapping[str, str] = field(default_factory=dict)


def server_span(record: Record, kept: Kept) -> SpanText:
    """The SERVER span. HTTP conventions: a 4xx is the caller's, so no error; nor is a caller who left."""
    failed = is_failure(record)
    attributes = {
        names.HTTP_REQUEST_METHOD: record.method,
        names.CLIENT_ADDRESS: record.client_address,
        names.USER_HASH: record.user_hash,
        names.URL_SCHEME: record.url_scheme,
        names.HTTP_ROUTE: record.route,
        names.URL_PATH: _path(record),
        names.HTTP_RESPONSE_STATUS_CODE: record.status,
        names.ERROR_TYPE: record.error_type if failed else None,
        **_common(record),
        names.MODEL: record.model,
        names.PROMPT_TOKENS: record.prompt_tokens,
        names.REUSED_PROMPT_TOKENS: record.reused_tokens,
        names.OUTPUT_TOKENS: record.output_tokens,
        names.ISSUER: record.issuer,
        names.CLIENT: record.client,
        names.AUTH_METHOD: record.auth_method,
        names.REFUSAL_CODE: record.refusal_code,
        names.REFUSAL_REASON: record.refusal_reason,
        names.END_REASON: record.end_reason,
        names.BYTES_IN: record.bytes_received,
        names.BYTES_OUT: record.bytes_sent,
        names.KEPT_FOR: None if kept == "share" else kept,
        **{names.STAGE_PREFIX + stage: seconds for stage, seconds in record.stages.items()},
        names.STAGE_PREFIX + "relay": record.relay_seconds,
    }
    method = "HTTP" if record.method == names.HTTP_METHOD_OTHER else record.method
    name = method if record.route is None else f"{method} {record.route}"
    return SpanText(name=name, attributes=_known(attributes), failed=failed)


def client_span(record: Record, wording: Wording) -> SpanText:
    """The CLIENT span. An error where the engine was at fault, or said no: a call that we or the client cut is none."""
    error = _call_error(record)
    operation = None if record.operation is None else genai.OPERATIONS.get(record.operation, record.operation)
    provider = wording.providers.get(record.engine or "", genai.PROVIDER)
    attributes = {
        genai.OPERATION_NAME: operation,
        genai.PROVIDER_NAME: provider,
        genai.REQUEST_MODEL: record.model,
        genai.REQUEST_STREAM: record.stream,
        genai.RESPONSE_ID: record.response_id,
        genai.RESPONSE_FINISH_REASONS: record.finish_reasons or None,
        genai.RESPONSE_TIME_TO_FIRST_CHUNK: record.time_to_first_chunk_seconds if record.stream else None,
        genai.USAGE_INPUT_TOKENS: record.prompt_tokens,
        genai.USAGE_CACHE_READ_INPUT_TOKENS: record.reused_tokens,
        genai.NAMES[wording.genai].usage_cache_write_input_tokens: record.cache_written_tokens,
        genai.USAGE_OUTPUT_TOKENS: record.output_tokens,
        genai.USAGE_REASONING_OUTPUT_TOKENS: record.reasoning_tokens,
        names.SERVER_ADDRESS: record.engine_address,
        names.SERVER_PORT: record.engine_port,
        names.ERROR_TYPE: error,
        **_common(record),
        names.ENGINE: record.engine,
        names.UPSTREAM_TIME_TO_FIRST_TOKEN: record.upstream_time_to_first_token_seconds,
        names.TIME_PER_OUTPUT_TOKEN: record.seconds_per_output_token,
        names.LARGEST_GAP: record.largest_gap_seconds,
        names.HELD: record.held_seconds,
        names.EVENTS: record.events,
    }
    name = " ".join(word for word in (operation, record.model) if word)
    return SpanText(name=name or provider, attributes=_known(attributes), failed=error is not None)


def write_spans(record: Record, kept: Kept, wording: Wording, tracer: Tracer, ids: PresetIds) -> None:
    """Starts and ends both spans at the record's own times; the CLIENT span only if the request went up."""
    ids.trace_id, ids.span_id = int(record.trace_id, 16), int(record.server_span_id, 16)
    text = server_span(record, kept)
    server = tracer.start_span(
        text.name,
        context=_context(record),
        kind=SpanKind.SERVER,
        attributes=text.attributes,
        links=_links(record),
        start_time=record.started_wall_ns,
    )
    end = record.wall_ns(record.ended_ns)
    if record.sent_ns is not None:
        ids.span_id = int(record.client_span_id, 16)
        call = client_span(record, wording)
        client = tracer.start_span(
            call.name,
            context=set_span_in_context(server, Context()),
            kind=SpanKind.CLIENT,
            attributes=call.attributes,
            start_time=record.wall_ns(record.sent_ns),
        )
        if call.failed:
            client.set_status(Status(StatusCode.ERROR))
        client.end(end)
    if text.failed:
        server.set_status(Status(StatusCode.ERROR))
    server.end(end)


def _call_error(record: Record) -> str | None:
    """HTTP conventions: to who called, a 4xx is an error as a 5xx is, whosever fault it was."""
    if record.outcome in ENGINE_FAULTS:
        return record.error_type
    return None if record.engine_status is None else str(record.engine_status)


def _common(record: Record) -> dict[str, Attribute | None]:
    return {
        names.REQUEST_ID: record.request_id,
        names.OUTCOME: record.outcome,
        names.WORKSPACE: record.workspace,
        names.PROJECT: record.project,
        names.COLLECTION: record.collection,
        names.UNIT: record.unit,
        names.NARROWED_BY: record.narrowed_by or None,
        names.SALT_FINGERPRINT: record.salt_fingerprint,
        names.SALT_KEY_ID: record.salt_key_id,
        names.SALT_EPOCH: record.salt_epoch,
        names.TIME_TO_FIRST_TOKEN: record.time_to_first_token_seconds if record.stream else None,
        names.TIME_TO_FIRST_TOKEN_KIND: record.first_token_kind if record.stream else None,
        names.TIME_TO_FIRST_VISIBLE: record.time_to_first_visible_seconds if record.stream else None,
    }


def _path(record: Record) -> str | None:
    """The path as sent, put together from what was confirmed; absent while it would hold only a claim."""
    if record.route is None or record.workspace is None or record.project is None:
        return record.route if record.route is not None and "{" not in record.route else None
    path = record.route.replace("{workspace}", record.workspace).replace("{project}", record.project)
    return None if "{" in path else path


def _context(record: Record) -> Context:
    """That of a trusted caller's span, else an empty one: then the SERVER span is the root of a trace of its own."""
    if record.parent is None:
        return Context()
    state = TraceState.from_header([record.tracestate]) if record.tracestate else None
    return set_span_in_context(NonRecordingSpan(_span_context(record.parent, state)), Context())


def _links(record: Record) -> list[Link]:
    return [] if record.linked is None else [Link(_span_context(record.linked))]


def _span_context(named: TraceContext, state: TraceState | None = None) -> SpanContext:
    return SpanContext(
        named.trace_id, named.span_id, is_remote=True, trace_flags=TraceFlags(named.flags), trace_state=state
    )


def _known(attributes: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    return {name: value for name, value in attributes.items() if value is not None}
