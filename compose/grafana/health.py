"""The dashboard of the engines, the parts and the gate itself."""

from __future__ import annotations

from typing import Final

from expressions import (
    MODEL,
    OTHERS,
    quantile,
    reuse,
    says,
)
from panels import (
    Json,
    Query,
    Row,
    Step,
    cell,
    dashboard,
    label_variable,
    stat,
    states,
    table,
    timeseries,
)

from observability import families
from observability.families import Family

PROOF: Final = {0: ("proven", "green"), 1: ("no cache", "blue"), 2: ("unknown", "orange"), 3: ("failed", "red")}
UP: Final = {0: ("no", "red"), 1: ("yes", "green")}


def health() -> Json:
    """The engines, the parts and the gate itself."""
    variables = [
        label_variable("instance", "saltgate", families.BUILD_INFO.name),
        label_variable("model", "Model", families.REQUESTS.name),
    ]
    rows = [
        Row("Alerts", [(24, _firing())], height=6),
        Row("Is everything there?", _parts(), height=7),
        Row("Engines, as saltgate sees them", _engines()),
        Row("Engines, as they say themselves (with the job vllm)", _vllm(), collapsed=True),
        Row("Workers", _workers()),
        Row("What is told", _told()),
    ]
    return dashboard(
        "saltgate-health",
        "saltgate: engines and gate",
        "Engines, directory, issuers, workers, telemetry.",
        variables,
        rows,
        links=OTHERS,
        traces=False,
    )


HERE: Final = 'instance=~"$instance"'


def here(family: Family, matchers: str = "") -> str:
    return f"{family.name}{{{HERE}{',' if matchers else ''}{matchers}}}"


def here_rate(family: Family, by: str, matchers: str = "") -> str:
    return f"sum by ({by}) (rate({here(family, matchers)}[$__rate_interval]))"


def _firing() -> Json:
    labels = "alertname, severity, instance, engine, replica, workspace, project, model"
    firing = f'max by ({labels}) (ALERTS{{alertstate="firing"}})'
    return table(
        "Firing now",
        "What each means and the first step stand in alerts.md.",
        {"Fires": ("none", cell(firing))},
        hidden=("Time", "Value"),
    )


def _parts() -> list[tuple[int, Json]]:
    proof = f"max by (engine, replica, endpoint) ({' or '.join(_proof_state(value) for value in PROOF)})"
    return [
        (
            12,
            states(
                "Engines, directory, issuers",
                "Whether each may be used, as the worst worker sees it.",
                UP,
                Query(f"min by (engine, replica) ({here(families.ENGINE_UP)})", "{{engine}} {{replica}}"),
                Query(f"min({here(families.DIRECTORY_UP)})", "directory"),
                Query(f"min by (issuer) ({here(families.ISSUER_UP)})", "{{issuer}}"),
                Query(f"min by (issuer) ({here(families.INTROSPECTION_UP)})", "{{issuer}} introspection"),
                Query(f"min({here(families.RELOAD_SUCCEEDED)})", "configuration"),
                Query(f"min({here(families.CERTIFICATE_USABLE)})", "certificate"),
                Query(f"min({here(families.AUDIT_UP)})", "audit"),
            ),
        ),
        (
            12,
            states(
                "Separation by salt, proven",
                says(families.ENGINE_PROOF, "The worst of them."),
                PROOF,
                Query(proof, "{{replica}} {{endpoint}}"),
            ),
        ),
    ]


def _proof_state(value: int) -> str:
    matchers = f'state="{PROOF[value][0]}"'
    return f"({here(families.ENGINE_PROOF, matchers)} > bool 0) * {value}"


def _engines() -> list[tuple[int, Json]]:
    return [
        (
            8,
            timeseries(
                "Places",
                "Requests that have a place at the engine, and how many may have one.",
                "short",
                Query(f"sum by (engine) ({here(families.ENGINE_REQUESTS)})", "{{engine}}"),
                Query(f"sum by (engine) ({here(families.ENGINE_REQUESTS_LIMIT)})", "{{engine}} limit"),
            ),
        ),
        (
            8,
            timeseries(
                "Waiting for a place",
                families.ENGINE_WAITING.help,
                "short",
                Query(f"sum by (engine) ({here(families.ENGINE_WAITING)})", "{{engine}}"),
            ),
        ),
        (
            8,
            timeseries(
                "Open streams",
                families.ACTIVE_STREAMS.help,
                "short",
                Query(f"sum by (model) ({here(families.ACTIVE_STREAMS, MODEL)})", "{{model}}"),
            ),
        ),
        (
            8,
            timeseries(
                "Replicas left alone",
                says(families.ENGINE_EJECTED, "And how often that began, in 5 minutes."),
                "short",
                Query(f"sum by (engine, replica) ({here(families.ENGINE_EJECTED)})", "{{replica}} now"),
                Query(
                    f"sum by (engine, replica) (increase({here(families.ENGINE_EJECTIONS)}[5m]))", "{{replica}} began"
                ),
            ),
        ),
        (
            8,
            timeseries(
                "Proof's own requests",
                families.ENGINE_PROBES.help,
                "reqps",
                Query(here_rate(families.ENGINE_PROBES, "engine, replica"), "{{replica}}"),
            ),
        ),
        (
            8,
            table(
                "Versions",
                families.ENGINE_INFO.help,
                {
                    "Is": (
                        "none",
                        cell(f"max by (engine, replica, version) ({here(families.ENGINE_INFO)})"),
                    )
                },
                hidden=("Time", "Value"),
            ),
        ),
    ]


def _vllm() -> list[tuple[int, Json]]:
    engine = 'job="vllm"'
    hits = f"sum(rate(vllm:prefix_cache_hits_total{{{engine}}}[$__rate_interval]))"
    queries = f"sum(rate(vllm:prefix_cache_queries_total{{{engine}}}[$__rate_interval]))"
    waited = f"sum by (instance, le) (rate(vllm:request_queue_time_seconds_bucket{{{engine}}}[$__rate_interval]))"
    first = f"sum by (instance, le) (rate(vllm:time_to_first_token_seconds_bucket{{{engine}}}[$__rate_interval]))"
    prefill = f"sum by (instance, le) (rate(vllm:request_prefill_time_seconds_bucket{{{engine}}}[$__rate_interval]))"
    return [
        (
            8,
            timeseries(
                "Running and waiting",
                "Requests inside the engine.",
                "short",
                Query(f"sum by (instance) (vllm:num_requests_running{{{engine}}})", "{{instance}} running"),
                Query(f"sum by (instance) (vllm:num_requests_waiting{{{engine}}})", "{{instance}} waiting"),
            ),
        ),
        (
            8,
            timeseries(
                "KV cache in use",
                "The share of its blocks.",
                "percentunit",
                Query(f"max by (instance) (vllm:kv_cache_usage_perc{{{engine}}})", "{{instance}}"),
                most=1,
            ),
        ),
        (
            8,
            timeseries(
                "Preemptions",
                "Requests that the engine put back for want of KV memory.",
                "short",
                Query(f"sum by (instance) (increase(vllm:num_preemptions_total{{{engine}}}[5m]))", "{{instance}}"),
            ),
        ),
        (
            8,
            timeseries(
                "Reuse, engine and gate",
                "The engine counts its proofs and requests whose clients left, too.",
                "percentunit",
                Query(f"{hits} / ({queries} > 0)", "as the engines count"),
                Query(reuse("", 'workspace=~".*"'), "as saltgate counts"),
                most=1,
            ),
        ),
        (
            8,
            timeseries(
                "Prompt tokens that did not come through saltgate",
                "In half an hour; recording.yaml tells what is taken off.",
                "short",
                Query("saltgate:unexplained_prompt_tokens:increase30m", "unexplained"),
                Query("saltgate:prompt_tokens:increase30m", "through saltgate"),
                Query("saltgate:probe_prompt_tokens:increase30m", "proofs"),
                Query("saltgate:untold_prompt_tokens:increase30m", "clients left"),
            ),
        ),
        (
            8,
            timeseries(
                "Inside the engine, p95",
                "The engine's own time to first token, its queue and its prefill.",
                "s",
                Query(f"histogram_quantile(0.95, {first})", "{{instance}} first token"),
                Query(f"histogram_quantile(0.95, {waited})", "{{instance}} queue"),
                Query(f"histogram_quantile(0.95, {prefill})", "{{instance}} prefill"),
            ),
        ),
    ]


def _workers() -> list[tuple[int, Json]]:
    lag = families.EVENT_LOOP_LAG
    share = "sum by (instance) (rate({0}[$__rate_interval])) / (sum by (instance) (rate({1}[$__rate_interval])) > 0)"
    scopes, tokens = families.SCOPE_LOOKUPS, families.TOKEN_LOOKUPS
    return [
        (
            8,
            timeseries(
                "Workers",
                families.WORKERS.help,
                "short",
                Query(f"sum by (state) ({here(families.WORKERS)})", "{{state}}"),
                stacked=True,
            ),
        ),
        (
            8,
            timeseries(
                "Workers that died",
                families.WORKER_DEATHS.help,
                "short",
                Query(f"sum by (instance) (increase({here(families.WORKER_DEATHS)}[15m]))", "{{instance}}"),
            ),
        ),
        (
            8,
            timeseries(
                "Event loop lag",
                lag.help,
                "s",
                Query(quantile(0.99, lag, HERE, "instance"), "{{instance}} p99"),
                Query(here(families.EVENT_LOOP_LAG_MAX), "{{instance}} latest"),
            ),
        ),
        (
            8,
            timeseries(
                "CPU",
                "CPU seconds a second: 1 is a core.",
                "none",
                Query(here_rate(families.PROCESS_CPU, "instance, process"), "{{instance}} {{process}}"),
            ),
        ),
        (
            8,
            timeseries(
                "Memory",
                families.PROCESS_RESIDENT.help,
                "bytes",
                Query(here(families.PROCESS_RESIDENT), "{{instance}} {{process}}"),
            ),
        ),
        (
            8,
            timeseries(
                "Connections",
                "Client connections that are open, and how many there may be.",
                "short",
                Query(here(families.CONNECTIONS), "{{instance}}"),
                Query(here(families.CONNECTIONS_LIMIT), "{{instance}} limit"),
            ),
        ),
        (
            8,
            timeseries(
                "Connections closed",
                families.CONNECTIONS_CLOSED.help,
                "short",
                Query(f"sum by (reason) (increase({here(families.CONNECTIONS_CLOSED)}[5m]))", "{{reason}}"),
            ),
        ),
        (
            8,
            timeseries(
                "Open files",
                families.PROCESS_OPEN_FDS.help,
                "short",
                Query(here(families.PROCESS_OPEN_FDS), "{{instance}} {{process}}"),
            ),
        ),
        (
            8,
            timeseries(
                "Remembered",
                "The share of requests whose token and whose scope were remembered.",
                "percentunit",
                Query(share.format(here(tokens, 'result="hit"'), here(tokens)), "{{instance}} token"),
                Query(share.format(here(scopes, 'result="hit"'), here(scopes)), "{{instance}} scope"),
                most=1,
            ),
        ),
    ]


def _told() -> list[tuple[int, Json]]:
    ends = f"min by (instance) ({here(families.CERTIFICATE_EXPIRY)}) - time()"
    confirmed = f"time() - min by (instance) ({here(families.DIRECTORY_CONFIRMED)})"
    return [
        (
            8,
            timeseries(
                "Audit",
                "Records that are not on disk yet, and in 5 minutes: failures to write, and records that are lost.",
                "short",
                Query(f"sum by (instance) ({here(families.AUDIT_WAITING)})", "{{instance}} waiting"),
                Query(f"sum by (instance) (increase({here(families.AUDIT_FAILURES)}[5m]))", "{{instance}} failures"),
                Query(f"sum by (instance) (increase({here(families.AUDIT_LOST)}[5m]))", "{{instance}} lost"),
            ),
        ),
        (
            8,
            timeseries(
                "Fetches of issuers' keys, readings of the directory",
                "In 5 minutes, by result.",
                "short",
                Query(
                    f"sum by (issuer, result) (increase({here(families.JWKS_REFRESH)}[5m]))", "{{issuer}} {{result}}"
                ),
                Query(f"sum by (result) (increase({here(families.DIRECTORY_READS)}[5m]))", "directory {{result}}"),
            ),
        ),
        (
            8,
            timeseries(
                "Directory confirmed",
                "Seconds since its last confirmation, of the worst worker.",
                "s",
                Query(confirmed, "{{instance}}"),
                steps=[Step(None, "transparent"), Step(1, "orange")],
            ),
        ),
        (
            8,
            timeseries(
                "Telemetry dropped",
                families.TELEMETRY_DROPPED.help,
                "short",
                Query(f"sum by (signal) (increase({here(families.TELEMETRY_DROPPED)}[5m]))", "{{signal}}"),
            ),
        ),
        (
            8,
            timeseries(
                "Scopes with series of their own",
                says(families.METRICS_SCOPES, "Beside how many may, and how many are counted together."),
                "short",
                Query(f"sum by (instance) ({here(families.METRICS_SCOPES)})", "{{instance}}"),
                Query(f"sum by (instance) ({here(families.METRICS_SCOPES_LIMIT)})", "{{instance}} limit"),
                Query(
                    f"sum by (label) (increase({here(families.METRICS_OVERFLOW)}[5m]))",
                    "requests under __other__ ({{label}})",
                ),
            ),
        ),
        (
            8,
            timeseries(
                "Border alarms and rules",
                "Isolation checks that failed, and requests in which an isolation rule found something, in 5 minutes.",
                "short",
                Query(f"sum by (check) (increase({here(families.ISOLATION_VIOLATIONS)}[5m]))", "{{check}}"),
                Query(f"sum by (rule) (increase({here(families.RULE_MATCHES)}[5m]))", "rule {{rule}}"),
            ),
        ),
        (
            8,
            stat(
                "Certificate ends in",
                families.CERTIFICATE_EXPIRY.help,
                "s",
                Query(ends, "{{instance}}", now=True),
                steps=[Step(None, "red"), Step(86400, "orange"), Step(7 * 86400, "green")],
            ),
        ),
    ]
