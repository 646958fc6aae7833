"""Every name that leaves the process: span attributes, metrics, outcomes, stages, log fields.

`saltgate.*` and `saltgate_*` are ours and stable. The HTTP names are OpenTelemetry semantic conventions 1.44, stable.
Their names for a model call, which are not, are in `genai.py`. What each measure means is told in `definitions.md`.
"""

from __future__ import annotations

from typing import Final, Literal

# How a request can end (contract section 8).
Outcome = Literal[
    "ok", "refused", "client_gone", "engine_failed", "truncated", "engine_timeout", "drained", "gate_error"
]
OUTCOMES: Final[tuple[Outcome, ...]] = (
    "ok",
    "refused",
    "client_gone",
    "engine_failed",
    "truncated",
    "engine_timeout",
    "drained",
    "gate_error",
)

# `client_stalled`: a client that took nothing was cut, which is `client_gone` as if it had left by itself.
EndReason = Literal["client_stalled"]

# The gate's own stages. `body` is the wait for the client's upload, so it is no part of Server-Timing or of TTFT;
# `relay` is from the first token read to the first token written, and the record measures it by itself.
# `fetch` is there only where images are fetched for the request, `scan` only where isolation rules look at it, `queue`
# only where the engine was full and the request waited for its turn, `connect` only where no connection to the engine
# waited for a request: it is the engine's time and the network's, so it is no part of Server-Timing, either.
Stage = Literal["auth", "directory", "body", "fetch", "scan", "queue", "stamp", "connect"]
STAGES: Final = ("auth", "directory", "body", "fetch", "scan", "queue", "stamp", "connect", "relay")
SERVER_TIMING_STAGES: Final = ("auth", "directory", "fetch", "scan", "queue", "stamp")

# Why a stream has no first token, and why a request's usage is unknown: the outcome, but for one that ended well.
WITHOUT_TOKEN_REASON: Final[dict[Outcome, str]] = {outcome: outcome for outcome in OUTCOMES} | {"ok": "empty"}
USAGE_UNKNOWN_REASON: Final[dict[Outcome, str]] = {outcome: outcome for outcome in OUTCOMES} | {"ok": "not_told"}

# What made up the first token. A chunk that holds none of these (a role, a keep-alive, usage) is not a first token.
TokenKind = Literal["content", "reasoning", "tool_call", "refusal"]
TOKEN_KINDS: Final[tuple[TokenKind, ...]] = ("content", "reasoning", "tool_call", "refusal")

# Contract section 6. Each is exported as 0 from the start, so that the first refusal is already an increase.
REFUSAL_CODES: Final = frozenset(
    {
        "invalid_request",
        "scope_required",
        "credential_required",
        "invalid_token",
        "token_expired",
        "not_a_member",
        "unit_too_wide",
        "model_not_allowed",
        "blocked",
        "endpoint_not_allowed",
        "model_not_found",
        "body_too_large",
        "unsupported_media_type",
        "rate_limited",
        "engine_failed",
        "engine_timeout",
        "directory_unavailable",
        "salt_unavailable",
        "audit_unavailable",
        "issuer_unavailable",
        "engine_unavailable",
        "engine_busy",
        "draining",
        "gate_error",
    }
)

# What the gate watches for while it relays; each is born at zero, so that the first one is an increase.
IsolationCheck = Literal["salt_in_answer"]
ISOLATION_CHECKS: Final[tuple[IsolationCheck, ...]] = ("salt_in_answer",)

# The label value of what is over a bound.
OTHER: Final = "__other__"

# Where the engine's proof stands per endpoint and replica (contract section 5).
ProofState = Literal["proven", "no cache", "failed", "unknown"]
PROOF_STATES: Final[tuple[ProofState, ...]] = ("proven", "no cache", "failed", "unknown")

# Resource attributes.
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE_ID: Final = "service.instance.id"

# HTTP attributes. A method that HTTP does not know is `_OTHER` there, and `HTTP` in a span's name.
HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"
HTTP_ROUTE: Final = "http.route"
URL_PATH: Final = "url.path"
URL_SCHEME: Final = "url.scheme"
SERVER_ADDRESS: Final = "server.address"
CLIENT_ADDRESS: Final = "client.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
HTTP_METHODS: Final = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
HTTP_METHOD_OTHER: Final = "_OTHER"

# What is answered without computing a prompt: its tokens are nobody's usage.
OPERATIONS_WITHOUT_USAGE: Final = frozenset({"count_tokens"})

# Our own attributes. Times are seconds as double.
REQUEST_ID: Final = "saltgate.request.id"
OUTCOME: Final = "saltgate.outcome"
WORKSPACE: Final = "saltgate.workspace"
PROJECT: Final = "saltgate.project"
COLLECTION: Final = "saltgate.collection"
UNIT: Final = "saltgate.unit"
# The names of the isolation rules that found something in the request, never what they found.
NARROWED_BY: Final = "saltgate.narrowed_by"
MODEL: Final = "saltgate.model"
ENGINE: Final = "saltgate.engine"
ISSUER: Final = "saltgate.issuer"
CLIENT: Final = "saltgate.client"
AUTH_METHOD: Final = "saltgate.auth.method"
REFUSAL_CODE: Final = "saltgate.refusal.code"
REFUSAL_REASON: Final = "saltgate.refusal.reason"
END_REASON: Final = "saltgate.end_reason"
SALT_FINGERPRINT: Final = "saltgate.cache_salt.fingerprint"
SALT_KEY_ID: Final = "saltgate.cache_salt.key_id"
SALT_EPOCH: Final = "saltgate.cache_salt.epoch"
PROMPT_TOKENS: Final = "saltgate.prompt_tokens"
REUSED_PROMPT_TOKENS: Final = "saltgate.reused_prompt_tokens"
OUTPUT_TOKENS: Final = "saltgate.output_tokens"
TIME_TO_FIRST_TOKEN: Final = "saltgate.time_to_first_token"  # noqa: S105 - a name
TIME_TO_FIRST_TOKEN_KIND: Final = "saltgate.time_to_first_token.kind"  # noqa: S105 - a name
TIME_TO_FIRST_VISIBLE: Final = "saltgate.time_to_first_visible"
UPSTREAM_TIME_TO_FIRST_TOKEN: Final = "saltgate.upstream_time_to_first_token"  # noqa: S105 - a name
TIME_PER_OUTPUT_TOKEN: Final = "saltgate.time_per_output_token"  # noqa: S105 - a name
LARGEST_GAP: Final = "saltgate.largest_gap"
HELD: Final = "saltgate.held"
EVENTS: Final = "saltgate.events"
BYTES_IN: Final = "saltgate.bytes_in"
BYTES_OUT: Final = "saltgate.bytes_out"
STAGE_PREFIX: Final = "saltgate.stage."
USER_HASH: Final = "user.hash"
# `failure` or `slow`: kept for that, although the trace flag sent to the engine said no; the engine has no span of it.
KEPT_FOR: Final = "saltgate.kept_for"

# Metrics (contract section 8, then what it calls per-model histograms, then the gate's own state).
REQUESTS: Final = "saltgate_requests_total"
TIME_TO_FIRST_TOKEN_SECONDS: Final = "saltgate_time_to_first_token_seconds"  # noqa: S105 - a name
PROMPT_TOKENS_TOTAL: Final = "saltgate_prompt_tokens_total"
REUSED_PROMPT_TOKENS_TOTAL: Final = "saltgate_reused_prompt_tokens_total"
REUSE_KNOWN_PROMPT_TOKENS_TOTAL: Final = "saltgate_reuse_known_prompt_tokens_total"
OUTPUT_TOKENS_TOTAL: Final = "saltgate_output_tokens_total"
REFUSALS: Final = "saltgate_refusals_total"
ACTIVE_STREAMS: Final = "saltgate_active_streams"
OVERHEAD_SECONDS: Final = "saltgate_overhead_seconds"
MODEL_DURATION_SECONDS: Final = "saltgate_request_duration_seconds"
MODEL_TIME_TO_FIRST_TOKEN_SECONDS: Final = "saltgate_model_time_to_first_token_seconds"  # noqa: S105 - a name
MODEL_UPSTREAM_TIME_TO_FIRST_TOKEN_SECONDS: Final = "saltgate_upstream_time_to_first_token_seconds"  # noqa: S105 - a name
MODEL_TIME_PER_OUTPUT_TOKEN_SECONDS: Final = "saltgate_time_per_output_token_seconds"  # noqa: S105 - a name
STREAMS_WITHOUT_TOKEN: Final = "saltgate_streams_without_token_total"  # noqa: S105 - a name
MODEL_OVERHEAD_SECONDS: Final = "saltgate_model_overhead_seconds"
MODEL_QUEUE_WAIT_SECONDS: Final = "saltgate_queue_wait_seconds"
MODEL_LARGEST_GAP_SECONDS: Final = "saltgate_largest_gap_seconds"
MODEL_INTER_CHUNK_SECONDS: Final = "saltgate_inter_chunk_seconds"
MODEL_TIME_TO_FIRST_CONTENT_SECONDS: Final = "saltgate_time_to_first_content_seconds"
USAGE_UNKNOWN: Final = "saltgate_usage_unknown_total"
REUSE_UNKNOWN: Final = "saltgate_reuse_unknown_total"
METRICS_OVERFLOW: Final = "saltgate_metrics_overflow_total"
METRICS_SCOPES: Final = "saltgate_metrics_scopes"
METRICS_SCOPES_LIMIT: Final = "saltgate_metrics_scopes_limit"
METRICS_EVICTED: Final = "saltgate_metrics_evicted_total"
TELEMETRY_DROPPED: Final = "saltgate_telemetry_dropped_total"
ENGINE_UP: Final = "saltgate_engine_up"
ENGINE_EJECTED: Final = "saltgate_engine_ejected"
ENGINE_EJECTIONS: Final = "saltgate_engine_ejections_total"
ENGINE_PROOF: Final = "saltgate_engine_proof"
ENGINE_INFO: Final = "saltgate_engine_info"
ENGINE_REQUESTS: Final = "saltgate_engine_requests"
ENGINE_REQUESTS_LIMIT: Final = "saltgate_engine_requests_limit"
ENGINE_WAITING: Final = "saltgate_engine_waiting_requests"
ENGINE_PROBES: Final = "saltgate_engine_probes_total"
ENGINE_PROBE_TOKENS: Final = "saltgate_engine_probe_prompt_tokens_total"
CONNECTIONS: Final = "saltgate_connections"
CONNECTIONS_LIMIT: Final = "saltgate_connections_limit"
CONNECTIONS_CLOSED: Final = "saltgate_connections_closed_total"
DIRECTORY_UP: Final = "saltgate_directory_up"
DIRECTORY_CONFIRMED: Final = "saltgate_directory_confirmed_timestamp_seconds"
DIRECTORY_READS: Final = "saltgate_directory_reads_total"
SCOPE_LOOKUPS: Final = "saltgate_scope_lookups_total"
TOKEN_LOOKUPS: Final = "saltgate_token_lookups_total"  # noqa: S105 - a name
JWKS_REFRESH: Final = "saltgate_jwks_refresh_total"
ISSUER_UP: Final = "saltgate_issuer_up"
INTROSPECTION_UP: Final = "saltgate_introspection_up"
ISOLATION_VIOLATIONS: Final = "saltgate_isolation_violations_total"
RULE_MATCHES: Final = "saltgate_isolation_rule_matches_total"
AUDIT_UP: Final = "saltgate_audit_up"
AUDIT_RECORDS: Final = "saltgate_audit_records_total"
AUDIT_WAITING: Final = "saltgate_audit_waiting_records"
AUDIT_FAILURES: Final = "saltgate_audit_failures_total"
AUDIT_LOST: Final = "saltgate_audit_lost_records_total"
BUILD_INFO: Final = "saltgate_build_info"
RELOAD_SUCCEEDED: Final = "saltgate_config_last_reload_successful"
CONFIGURATION_READ: Final = "saltgate_config_last_reload_success_timestamp_seconds"
WORKERS: Final = "saltgate_workers"
WORKER_DEATHS: Final = "saltgate_worker_deaths_total"
EVENT_LOOP_LAG_SECONDS: Final = "saltgate_event_loop_lag_seconds"
EVENT_LOOP_LAG_MAX_SECONDS: Final = "saltgate_event_loop_lag_max_seconds"
CERTIFICATE_EXPIRY: Final = "saltgate_tls_certificate_not_after_timestamp_seconds"
CERTIFICATE_USABLE: Final = "saltgate_tls_certificate_files_usable"

# What every process is measured by, under the names that Prometheus' own clients use.
PROCESS_CPU_SECONDS: Final = "process_cpu_seconds_total"
PROCESS_RESIDENT_BYTES: Final = "process_resident_memory_bytes"
PROCESS_OPEN_FDS: Final = "process_open_fds"
PROCESS_MAX_FDS: Final = "process_max_fds"
PROCESS_START_TIME: Final = "process_start_time_seconds"

# The one log line of a finished request; its fields are in `request_line.py`.
REQUEST_COMPLETED: Final = "request.completed"
