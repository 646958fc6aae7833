"""The metric families: name, kind, labels, buckets, and how the values of several workers become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from observability import names

Kind = Literal["counter", "gauge", "histogram", "info"]
# How workers' values of one series become one. A gauge "is it up?" is as good as the worst worker's answer.
Merge = Literal["sum", "min"]


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
OUTPUT_TOKENS: Final = Family(names.OUTPUT_TOKENS_TOTAL, "counter", "Output tokens as the engine counted them.", _SCOPE)
REFUSALS: Final = Family(names.REFUSALS, "counter", "Refusals by code.", ("code",))
ACTIVE_STREAMS: Final = Family(names.ACTIVE_STREAMS, "gauge", "Streams that are open at an engine now.", ("model",))
OVERHEAD: Final = Family(
    names.OVERHEAD_SECONDS, "histogram",
    "Time in the gate by stage. body is the wait for the client's upload, relay from first token read to written.",
    ("stage",), STAGE_BUCKETS,
)  # fmt: skip
MODEL_DURATION: Final = Family(
    names.MODEL_DURATION_SECONDS, "histogram", "Whole requests, to their last byte.",
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
STREAMS_WITHOUT_TOKEN: Final = Family(
    names.STREAMS_WITHOUT_TOKEN, "counter", "Streams that ended before a token was written.", ("model", "outcome")
)
USAGE_UNKNOWN: Final = Family(
    names.USAGE_UNKNOWN, "counter", "Requests sent to an engine whose tokens were never told.", ("model",)
)
REUSE_UNKNOWN: Final = Family(
    names.REUSE_UNKNOWN, "counter", "Requests whose prompt tokens were told, but not how many were reused.", ("model",)
)
METRICS_OVERFLOW: Final = Family(
    names.METRICS_OVERFLOW, "counter", "Requests counted under __other__, because a bound on labels was reached.",
    ("label",),
)  # fmt: skip
TELEMETRY_DROPPED: Final = Family(
    names.TELEMETRY_DROPPED, "counter", "Spans and log lines lost, because nobody took them in time.", ("signal",)
)
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
BUILD_INFO: Final = Family(names.BUILD_INFO, "info", "The version that runs.", ("version",), merge="min")
RELOAD_SUCCEEDED: Final = Family(
    names.RELOAD_SUCCEEDED, "gauge", "Whether the last reload took over (1) or changed nothing (0)."
)
CONFIGURATION_READ: Final = Family(
    names.CONFIGURATION_READ, "gauge", "When the configuration that is in force was read, Unix seconds."
)
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

FAMILIES: Final[dict[str, Family]] = {
    family.name: family
    for family in (
        REQUESTS, TIME_TO_FIRST_TOKEN, PROMPT_TOKENS, REUSED_PROMPT_TOKENS, OUTPUT_TOKENS, REFUSALS, ACTIVE_STREAMS,
        OVERHEAD, MODEL_DURATION, MODEL_TIME_TO_FIRST_TOKEN, MODEL_UPSTREAM_TIME_TO_FIRST_TOKEN,
        MODEL_TIME_PER_OUTPUT_TOKEN, STREAMS_WITHOUT_TOKEN, USAGE_UNKNOWN, REUSE_UNKNOWN, METRICS_OVERFLOW,
        TELEMETRY_DROPPED, ENGINE_UP, ENGINE_EJECTED, ENGINE_EJECTIONS, ENGINE_PROOF, ENGINE_INFO,
        ENGINE_REQUESTS, ENGINE_REQUESTS_LIMIT, ENGINE_WAITING, ENGINE_PROBES, ENGINE_PROBE_TOKENS,
        CONNECTIONS, CONNECTIONS_LIMIT, CONNECTIONS_CLOSED,
        DIRECTORY_UP, DIRECTORY_CONFIRMED, ISSUER_UP, INTROSPECTION_UP,
        ISOLATION_VIOLATIONS, RULE_MATCHES, BUILD_INFO, RELOAD_SUCCEEDED, CONFIGURATION_READ, WORKER_DEATHS,
        CERTIFICATE_EXPIRY, CERTIFICATE_USABLE,
    )
}  # fmt: skip
