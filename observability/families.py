"""The metric families: name, kind, labels, buckets, and how the values of several workers become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from observability import names
from observability.rhythm import GAP_BUCKETS

Kind = Literal["counter", "gauge", "histogram", "info"]
# How workers' values of one series become one. "Is it up?" is as good as the worst worker's answer.
Merge = Literal["sum", "min", "max"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family. `buckets` are upper bounds in seconds, rising, without +Inf; histograms only."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    merge: Merge = "sum"

    @property
    def width(self) -> int:
        """How many numbers a series has: one, or a count for each bucket, the count above them all, and the sum."""
        return len(self.buckets) + 2 if self.kind == "histogram" else 1


# Few, because each scope has them; a service level objective must be one of these bounds.
SCOPE_BUCKETS: Final = (0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24)
# The GenAI semantic conventions' bounds for durations of a model call.
MODEL_BUCKETS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
# The same for time per output token, and two below, for small models.
TOKEN_BUCKETS: Final = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
STAGE_BUCKETS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

_SCOPE: Final = ("workspace", "project", "model")

REQUESTS: Final = Family(
    names.REQUESTS, "counter", "Requests by how they ended. Empty labels: ended before they were confirmed.",
    (*_SCOPE, "outcome"),
)  # fmt: skip
TIME_TO_FIRST_TOKEN: Final = Family(
    names.TIME_TO_FIRST_TOKEN_SECONDS, "histogram",
    "From the request's head to its first token written to the client, less the upload. Streams with a token only.",
    _SCOPE, SCOPE_BUCKETS,
)  # fmt: skip
PROMPT_TOKENS: Final = Family(
    names.PROMPT_TOKENS_TOTAL, "counter", "Prompt tokens as the engine counted them, reused ones included.", _SCOPE
)
REUSED_PROMPT_TOKENS: Final = Family(
    names.REUSED_PROMPT_TOKENS_TOTAL, "counter", "Prompt tokens that the engine took from its prefix cache.", _SCOPE
)
REUSE_KNOWN_PROMPT_TOKENS: Final = Family(
    names.REUSE_KNOWN_PROMPT_TOKENS_TOTAL, "counter",
    "Prompt tokens of requests whose reused ones the engine told: what those are a share of.", _SCOPE,
)  # fmt: skip
OUTPUT_TOKENS: Final = Family(names.OUTPUT_TOKENS_TOTAL, "counter", "Output tokens as the engine counted them.", _SCOPE)
REFUSALS: Final = Family(names.REFUSALS, "counter", "Refusals by code.", ("code",))
ACTIVE_STREAMS: Final = Family(names.ACTIVE_STREAMS, "gauge", "Streams that are open at an engine now.", ("model",))
OVERHEAD: Final = Family(
    names.OVERHEAD_SECONDS, "histogram",
    "Time in the gate by stage. body is the wait for the client's upload, relay from first token read to written.",
    ("stage",), STAGE_BUCKETS,
)  # fmt: skip
MODEL_DURATION: Final = Family(
    names.MODEL_DURATION_SECONDS, "histogram", "Whole requests that went up to an engine, to their last byte.",
    ("model", "outcome"), MODEL_BUCKETS,
)  # fmt: skip
MODEL_TIME_TO_FIRST_TOKEN: Final = Family(
    names.MODEL_TIME_TO_FIRST_TOKEN_SECONDS, "histogram",
    "As saltgate_time_to_first_token_seconds, by model and kind of token.", ("model", "kind"), MODEL_BUCKETS,
)  # fmt: skip
MODEL_UPSTREAM_TIME_TO_FIRST_TOKEN: Final = Family(
    names.MODEL_UPSTREAM_TIME_TO_FIRST_TOKEN_SECONDS, "histogram",
    "From the request sent to the engine to the first token read from it.", ("model",), MODEL_BUCKETS,
)  # fmt: skip
MODEL_TIME_PER_OUTPUT_TOKEN: Final = Family(
    names.MODEL_TIME_PER_OUTPUT_TOKEN_SECONDS, "histogram",
    "Mean time per output token after the first, a value a stream.", ("model",), TOKEN_BUCKETS,
)  # fmt: skip
MODEL_OVERHEAD: Final = Family(
    names.MODEL_OVERHEAD_SECONDS, "histogram",
    "As saltgate_overhead_seconds, by model too. Without a model: requests that ended before theirs was confirmed.",
    ("model", "stage"), STAGE_BUCKETS,
)  # fmt: skip
MODEL_QUEUE_WAIT: Final = Family(
    names.MODEL_QUEUE_WAIT_SECONDS, "histogram",
    "How long requests waited for a place at a full engine. Those that found one at once are not in it.",
    ("model",), MODEL_BUCKETS,
)  # fmt: skip
MODEL_INTER_CHUNK: Final = Family(
    names.MODEL_INTER_CHUNK_SECONDS, "histogram",
    "Time between two events of a stream that bear a token, as read from the engine. An event may hold several tokens.",
    ("model",), GAP_BUCKETS,
)  # fmt: skip
MODEL_LARGEST_GAP: Final = Family(
    names.MODEL_LARGEST_GAP_SECONDS, "histogram",
    "The largest of those times, a value a stream. Not in it: the engine was not read while the client took nothing.",
    ("model",), GAP_BUCKETS,
)  # fmt: skip
MODEL_TIME_TO_FIRST_CONTENT: Final = Family(
    names.MODEL_TIME_TO_FIRST_CONTENT_SECONDS, "histogram",
    "As saltgate_model_time_to_first_token_seconds, but to what people see: no reasoning.",
    ("model",), MODEL_BUCKETS,
)  # fmt: skip
STREAMS_WITHOUT_TOKEN: Final = Family(
    names.STREAMS_WITHOUT_TOKEN, "counter",
    "Streams without a token: empty ones that ended well, else by how they ended before one was written, or went up.",
    ("model", "reason"),
)  # fmt: skip
USAGE_UNKNOWN: Final = Family(
    names.USAGE_UNKNOWN, "counter",
    "Requests whose tokens are unknown: not_told by an engine that answered to the end, else by how they ended.",
    ("model", "reason"),
)  # fmt: skip
REUSE_UNKNOWN: Final = Family(
    names.REUSE_UNKNOWN, "counter", "Requests whose prompt tokens were told, but not how many were reused.", ("model",)
)
METRICS_OVERFLOW: Final = Family(
    names.METRICS_OVERFLOW, "counter", "Requests counted under __other__, because a bound on labels was reached.",
    ("label",),
)  # fmt: skip
METRICS_SCOPES: Final = Family(names.METRICS_SCOPES, "gauge", "Scopes that have series of their own now.")
METRICS_SCOPES_LIMIT: Final = Family(names.METRICS_SCOPES_LIMIT, "gauge", "How many may have them.")
METRICS_EVICTED: Final = Family(
    names.METRICS_EVICTED, "counter", "Scopes and models, long idle, whose series ended for another's sake.",
    ("label",),
)  # fmt: skip
TELEMETRY_DROPPED: Final = Family(
    names.TELEMETRY_DROPPED, "counter",
    "Spans and log lines lost, because nobody took them in time; metrics: exports that the collector did not take.",
    ("signal",),
)  # fmt: skip
ENGINE_UP: Final = Family(
    names.ENGINE_UP, "gauge", "Whether the replica may be used (1) or not (0), as the worst worker sees it.",
    ("engine", "replica"), merge="min",
)  # fmt: skip
ENGINE_EJECTED: Final = Family(
    names.ENGINE_EJECTED, "gauge", "How many workers leave the replica alone now: what they sent there failed.",
    ("engine", "replica"),
)  # fmt: skip
ENGINE_EJECTIONS: Final = Family(
    names.ENGINE_EJECTIONS, "counter", "How often a worker began to leave the replica alone.",
    ("engine", "replica"),
)  # fmt: skip
ENGINE_PROOF: Final = Family(
    names.ENGINE_PROOF, "gauge", "How many workers hold this proof state of the endpoint; of images: its media cache.",
    ("engine", "replica", "endpoint", "state"),
)  # fmt: skip
ENGINE_INFO: Final = Family(
    names.ENGINE_INFO, "info", "The version that the replica tells.", ("engine", "replica", "version"), merge="min",
)  # fmt: skip
ENGINE_REQUESTS: Final = Family(
    names.ENGINE_REQUESTS, "gauge", "Requests that have a place at the engine now.", ("engine",)
)
ENGINE_REQUESTS_LIMIT: Final = Family(
    names.ENGINE_REQUESTS_LIMIT, "gauge", "How many may have one, with the replicas that may be used now.", ("engine",)
)
ENGINE_WAITING: Final = Family(
    names.ENGINE_WAITING, "gauge", "Requests that wait for a place at the engine now.", ("engine",)
)
ENGINE_PROBES: Final = Family(
    names.ENGINE_PROBES, "counter", "Requests sent to prove the replica; in no other count.", ("engine", "replica")
)
ENGINE_PROBE_TOKENS: Final = Family(
    names.ENGINE_PROBE_TOKENS, "counter", "Prompt tokens of the requests sent to prove the replica.",
    ("engine", "replica"),
)  # fmt: skip
CONNECTIONS: Final = Family(names.CONNECTIONS, "gauge", "Client connections that are open now.")
CONNECTIONS_LIMIT: Final = Family(names.CONNECTIONS_LIMIT, "gauge", "How many there may be.")
CONNECTIONS_CLOSED: Final = Family(
    names.CONNECTIONS_CLOSED, "counter",
    "Closed because there were too many: new ones, in all or of one address, and idle ones that made room.",
    ("reason",),
)  # fmt: skip
DIRECTORY_UP: Final = Family(
    names.DIRECTORY_UP, "gauge", "Whether the directory is confirmed (1) or away (0), as the worst worker sees it.",
    merge="min",
)  # fmt: skip
DIRECTORY_CONFIRMED: Final = Family(
    names.DIRECTORY_CONFIRMED, "gauge", "When the directory was last confirmed, Unix seconds, of the worst worker.",
    merge="min",
)  # fmt: skip
DIRECTORY_READS: Final = Family(
    names.DIRECTORY_READS,
    "counter",
    "ok: a worker read the whole directory, at its start or after a change; failed: it could not ask.",
    ("result",),
)
SCOPE_LOOKUPS: Final = Family(
    names.SCOPE_LOOKUPS, "counter", "Look-ups of a scope: remembered (hit), or selected from the directory (miss).",
    ("result",),
)  # fmt: skip
TOKEN_LOOKUPS: Final = Family(
    names.TOKEN_LOOKUPS, "counter", "Signed tokens of requests: verified a moment ago (hit), or verified now (miss).",
    ("result",),
)  # fmt: skip
JWKS_REFRESH: Final = Family(
    names.JWKS_REFRESH, "counter", "Fetches of an issuer's keys by a worker, by result: ok or failed.",
    ("issuer", "result"),
)  # fmt: skip
ISSUER_UP: Final = Family(
    names.ISSUER_UP, "gauge", "Whether the issuer's keys are at hand (1) or not (0), as the worst worker sees it.",
    ("issuer",), merge="min",
)  # fmt: skip
INTROSPECTION_UP: Final = Family(
    names.INTROSPECTION_UP, "gauge",
    "Whether the issuer answers about opaque tokens (1) or not (0), as the worst worker sees it.",
    ("issuer",), merge="min",
)  # fmt: skip
ISOLATION_VIOLATIONS: Final = Family(
    names.ISOLATION_VIOLATIONS, "counter", "Isolation checks that failed: an alarm, never expected.", ("check",)
)
RULE_MATCHES: Final = Family(
    names.RULE_MATCHES, "counter",
    "Requests in which an isolation rule found something. With underscores: those that no rule could look at.",
    ("rule",),
)  # fmt: skip
AUDIT_UP: Final = Family(
    names.AUDIT_UP, "gauge", "Whether the audit is written (1) or not (0), as the worst worker sees it.", merge="min"
)
AUDIT_RECORDS: Final = Family(names.AUDIT_RECORDS, "counter", "Records of the audit that are on disk.")
AUDIT_WAITING: Final = Family(names.AUDIT_WAITING, "gauge", "Records of the audit that are not on disk yet.")
AUDIT_FAILURES: Final = Family(names.AUDIT_FAILURES, "counter", "Times that the audit could not be written.")
AUDIT_LOST: Final = Family(names.AUDIT_LOST, "counter", "Records of the audit that are lost.")
BUILD_INFO: Final = Family(names.BUILD_INFO, "info", "The version that runs.", ("version",), merge="min")
RELOAD_SUCCEEDED: Final = Family(
    names.RELOAD_SUCCEEDED, "gauge", "Whether the last reload took over (1) or changed nothing (0)."
)
CONFIGURATION_READ: Final = Family(
    names.CONFIGURATION_READ, "gauge", "When the configuration that is in force was read, Unix seconds."
)
WORKERS: Final = Family(
    names.WORKERS, "gauge", "Worker processes: serving, retiring after a reload, starting before one.",
    ("state",),
)  # fmt: skip
WORKER_DEATHS: Final = Family(
    names.WORKER_DEATHS, "counter", "Worker processes that ended without being told to, each replaced by another."
)
CERTIFICATE_EXPIRY: Final = Family(
    names.CERTIFICATE_EXPIRY, "gauge",
    "When the first certificate of the chain that the public listener shows ends, Unix seconds, of the worst worker.",
    merge="min",
)  # fmt: skip
CERTIFICATE_USABLE: Final = Family(
    names.CERTIFICATE_USABLE, "gauge",
    "Whether the public listener's files are what it shows (1), or cannot be used (0), as the worst worker sees it.",
    merge="min",
)  # fmt: skip
EVENT_LOOP_LAG: Final = Family(
    names.EVENT_LOOP_LAG_SECONDS, "histogram",
    "How late a worker's event loop comes to what is due, looked at ten times a second. Streams wait as long.",
    (), STAGE_BUCKETS,
)  # fmt: skip
EVENT_LOOP_LAG_MAX: Final = Family(
    names.EVENT_LOOP_LAG_MAX_SECONDS, "gauge", "The latest that any worker's event loop was within about a minute.",
    merge="max",
)  # fmt: skip
PROCESS_CPU: Final = Family(names.PROCESS_CPU_SECONDS, "counter", "User and system CPU time.", ("process",))
PROCESS_RESIDENT: Final = Family(
    names.PROCESS_RESIDENT_BYTES, "gauge", "Resident memory; what processes share counts in each.", ("process",)
)
PROCESS_OPEN_FDS: Final = Family(names.PROCESS_OPEN_FDS, "gauge", "Open file descriptors.", ("process",))
PROCESS_MAX_FDS: Final = Family(
    names.PROCESS_MAX_FDS, "gauge", "How many file descriptors a process may have.", ("process",), merge="min"
)
PROCESS_START: Final = Family(
    names.PROCESS_START_TIME, "gauge", "When the process began, Unix seconds; the oldest of that name.",
    ("process",), merge="min",
)  # fmt: skip

FAMILIES: Final[dict[str, Family]] = {
    family.name: family
    for family in (
        REQUESTS, TIME_TO_FIRST_TOKEN, PROMPT_TOKENS, REUSED_PROMPT_TOKENS, REUSE_KNOWN_PROMPT_TOKENS, OUTPUT_TOKENS,
        REFUSALS, ACTIVE_STREAMS, OVERHEAD, MODEL_DURATION, MODEL_TIME_TO_FIRST_TOKEN,
        MODEL_UPSTREAM_TIME_TO_FIRST_TOKEN,
        MODEL_TIME_PER_OUTPUT_TOKEN, MODEL_OVERHEAD, MODEL_QUEUE_WAIT, MODEL_INTER_CHUNK, MODEL_LARGEST_GAP,
        MODEL_TIME_TO_FIRST_CONTENT,
        STREAMS_WITHOUT_TOKEN, USAGE_UNKNOWN, REUSE_UNKNOWN, METRICS_OVERFLOW,
        METRICS_SCOPES, METRICS_SCOPES_LIMIT, METRICS_EVICTED, TELEMETRY_DROPPED,
        ENGINE_UP, ENGINE_EJECTED, ENGINE_EJECTIONS, ENGINE_PROOF, ENGINE_INFO,
        ENGINE_REQUESTS, ENGINE_REQUESTS_LIMIT, ENGINE_WAITING, ENGINE_PROBES, ENGINE_PROBE_TOKENS,
        CONNECTIONS, CONNECTIONS_LIMIT, CONNECTIONS_CLOSED,
        DIRECTORY_UP, DIRECTORY_CONFIRMED, DIRECTORY_READS, SCOPE_LOOKUPS, TOKEN_LOOKUPS, JWKS_REFRESH,
        ISSUER_UP, INTROSPECTION_UP,
        AUDIT_UP, AUDIT_RECORDS, AUDIT_WAITING, AUDIT_FAILURES, AUDIT_LOST,
        ISOLATION_VIOLATIONS, RULE_MATCHES, BUILD_INFO, RELOAD_SUCCEEDED, CONFIGURATION_READ, WORKERS, WORKER_DEATHS,
        CERTIFICATE_EXPIRY, CERTIFICATE_USABLE, EVENT_LOOP_LAG, EVENT_LOOP_LAG_MAX,
        PROCESS_CPU, PROCESS_RESIDENT, PROCESS_OPEN_FDS, PROCESS_MAX_FDS, PROCESS_START,
    )
}  # fmt: skip
