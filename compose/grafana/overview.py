"""The first dashboard: is all well, how fast is it, what is reused, what fails."""

from __future__ import annotations

from typing import Final

from expressions import (
    FAILURE_STEPS,
    FIRST_TOKEN_STEPS,
    MODEL,
    NONE_STEPS,
    OBJECTIVE,
    OTHERS,
    OUTCOME_COLOURS,
    REUSE,
    REUSE_STEPS,
    SCOPE,
    failures,
    per_second,
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
    heatmap,
    label_variable,
    link,
    stat,
    table,
    timeseries,
    traces_link,
)

from observability import families

SCOPE_LINK: Final = link(
    "This scope",
    "/d/saltgate-scope?var-workspace=${__data.fields.workspace}&var-project=${__data.fields.project}&${__url_time_range}",
)
SCOPE_TRACES: Final = traces_link(
    "Its traces",
    saltgate__workspace="${__data.fields.workspace}",
    saltgate__project="${__data.fields.project}",
)


def overview() -> Json:
    """Is all well, how fast is it, what is reused, what fails."""
    variables = [
        label_variable("workspace", "Workspace", families.REQUESTS.name),
        label_variable("project", "Project", families.REQUESTS.name + '{workspace=~"$workspace"}'),
        label_variable("model", "Model", families.REQUESTS.name),
    ]
    rows = [
        Row("At a glance", _glance(), height=4),
        Row("How fast", _speed()),
        Row("What is reused", _reuse(), height=9),
        Row("What fails", _failing()),
    ]
    return dashboard(
        "saltgate", "saltgate", "What goes through the gate: speed, reuse, failures.", variables, rows, links=OTHERS
    )


def _glance() -> list[tuple[int, Json]]:
    requests = per_second(families.REQUESTS, SCOPE)
    saved = f"sum(increase({families.REUSED_PROMPT_TOKENS.name}{{{SCOPE}}}[$__range]))"
    violations = f"sum(increase({families.ISOLATION_VIOLATIONS.name}[$__range]))"
    alerts = 'count(ALERTS{alertstate="firing",severity=~"page|ticket"}) or vector(0)'
    return [
        (3, stat("Requests", families.REQUESTS.help, "reqps", Query(requests))),
        (
            3,
            stat(
                "Failures",
                "The share of requests that failed, of those neither refused nor left by their client.",
                "percentunit",
                Query(failures(SCOPE)),
                steps=FAILURE_STEPS,
                decimals=2,
            ),
        ),
        (
            3,
            stat(
                "First token, p95",
                families.TIME_TO_FIRST_TOKEN.help,
                "s",
                Query(quantile(0.95, families.TIME_TO_FIRST_TOKEN, SCOPE, "job")),
                steps=FIRST_TOKEN_STEPS,
            ),
        ),
        (3, stat("Reuse", REUSE, "percentunit", Query(reuse("", SCOPE)), steps=REUSE_STEPS, decimals=1)),
        (
            3,
            stat(
                "Prompt tokens saved",
                says(families.REUSED_PROMPT_TOKENS, "In the time shown."),
                "short",
                Query(saved, now=True),
            ),
        ),
        (
            3,
            stat(
                "Open streams",
                families.ACTIVE_STREAMS.help,
                "short",
                Query(f"sum({families.ACTIVE_STREAMS.name}{{{MODEL}}})"),
            ),
        ),
        (
            3,
            stat(
                "Border alarms",
                says(families.ISOLATION_VIOLATIONS, "In the time shown."),
                "short",
                Query(violations, now=True),
                steps=NONE_STEPS,
            ),
        ),
        (
            3,
            stat(
                "Alerts",
                "Pages and tickets that fire now; alerts.md tells the first step of each.",
                "short",
                Query(alerts, now=True),
                steps=NONE_STEPS,
            ),
        ),
    ]


def _speed() -> list[tuple[int, Json]]:
    first, upstream = families.TIME_TO_FIRST_TOKEN, families.MODEL_UPSTREAM_TIME_TO_FIRST_TOKEN
    buckets = f"sum by (le) (increase({first.name}_bucket{{{SCOPE}}}[$__rate_interval]))"
    trace = traces_link("Traces of this model", saltgate__model="${__field.labels.model}")
    return [
        (
            12,
            timeseries(
                "Time to first token",
                says(first, "The dashed line is the objective: 99 % are below. Points are traces."),
                "s",
                Query(quantile(0.5, first, SCOPE, "model"), "{{model}} p50", exemplars=True),
                Query(quantile(0.95, first, SCOPE, "model"), "{{model}} p95", exemplars=True),
                Query(quantile(0.99, first, SCOPE, "model"), "{{model}} p99", exemplars=True),
                steps=OBJECTIVE,
                links=[trace],
            ),
        ),
        (12, heatmap("Time to first token, all streams", first.help, Query(buckets, "{{le}}", form="heatmap"))),
        (
            12,
            timeseries(
                "Where the first token's time goes",
                "The p95 at the client, the p95 of the engine alone, and the p95 of the wait for a place.",
                "s",
                Query(
                    quantile(0.95, families.MODEL_TIME_TO_FIRST_TOKEN, MODEL, "model"),
                    "{{model}} at the client",
                    exemplars=True,
                ),
                Query(quantile(0.95, upstream, MODEL, "model"), "{{model}} at the engine", exemplars=True),
                Query(quantile(0.95, families.MODEL_QUEUE_WAIT, MODEL, "model"), "{{model}} waiting for a place"),
            ),
        ),
        (
            12,
            timeseries(
                "Time in the gate, by stage",
                says(families.OVERHEAD, "The p95."),
                "s",
                Query(quantile(0.95, families.MODEL_OVERHEAD, MODEL, "stage"), "{{stage}}", exemplars=True),
            ),
        ),
        (
            8,
            timeseries(
                "Time per output token",
                says(families.MODEL_TIME_PER_OUTPUT_TOKEN),
                "s",
                Query(quantile(0.5, families.MODEL_TIME_PER_OUTPUT_TOKEN, MODEL, "model"), "{{model}} p50"),
                Query(quantile(0.95, families.MODEL_TIME_PER_OUTPUT_TOKEN, MODEL, "model"), "{{model}} p95"),
            ),
        ),
        (
            8,
            timeseries(
                "Largest gap in a stream",
                families.MODEL_LARGEST_GAP.help,
                "s",
                Query(quantile(0.5, families.MODEL_LARGEST_GAP, MODEL, "model"), "{{model}} p50"),
                Query(quantile(0.95, families.MODEL_LARGEST_GAP, MODEL, "model"), "{{model}} p95"),
            ),
        ),
        (
            8,
            timeseries(
                "Share of the requests' time",
                "Seconds in the gate's own stages, and waiting for a place, of all seconds of requests.",
                "percentunit",
                Query(f"model:saltgate_gate_overhead:ratio_rate5m{{{MODEL}}}", "{{model}} in the gate"),
                Query(f"model:saltgate_queue_wait:ratio_rate5m{{{MODEL}}}", "{{model}} waiting for a place"),
            ),
        ),
    ]


def _reuse() -> list[tuple[int, Json]]:
    by_scope = "workspace, project, model"
    link_labels = {"workspace": [SCOPE_LINK, SCOPE_TRACES], "project": [SCOPE_LINK, SCOPE_TRACES]}
    columns = {
        "Requests/s": ("reqps", cell(per_second(families.REQUESTS, SCOPE, by_scope))),
        "Prompt tokens/s": ("short", cell(per_second(families.PROMPT_TOKENS, SCOPE, by_scope))),
        "Reused/s": ("short", cell(per_second(families.REUSED_PROMPT_TOKENS, SCOPE, by_scope))),
        "Reuse": ("percentunit", cell(reuse(by_scope, SCOPE))),
        "First token p95": ("s", cell(quantile(0.95, families.TIME_TO_FIRST_TOKEN, SCOPE, by_scope))),
        "Failures": ("percentunit", cell(f"scope:saltgate_failures:ratio_rate5m{{{SCOPE}}}")),
    }
    by_project = "workspace, project"
    largest = f"topk(20, {per_second(families.PROMPT_TOKENS, SCOPE, by_project)})"
    tokens = (families.PROMPT_TOKENS, families.REUSED_PROMPT_TOKENS, families.OUTPUT_TOKENS)
    return [
        (
            12,
            timeseries(
                "Reuse, the twenty largest scopes",
                REUSE,
                "percentunit",
                Query(f"{largest} * 0 + ({reuse(by_project, SCOPE)})", "{{workspace}}/{{project}}"),
                most=1,
                links=[
                    link(
                        "This scope",
                        "/d/saltgate-scope?var-workspace=${__field.labels.workspace}"
                        "&var-project=${__field.labels.project}&${__url_time_range}",
                    )
                ],
            ),
        ),
        (
            12,
            timeseries(
                "Tokens",
                "Prompt tokens, the reused ones among them, and output tokens, as the engine counted them.",
                "short",
                *(
                    Query(per_second(one, SCOPE), name)
                    for one, name in zip(tokens, ("prompt", "prompt, reused", "output"), strict=True)
                ),
            ),
        ),
        (
            24,
            table(
                "Scopes",
                "Each scope now. Its name leads to its own dashboard and to its traces.",
                columns,
                links=link_labels,
            ),
        ),
    ]


def _failing() -> list[tuple[int, Json]]:
    return [
        (
            12,
            timeseries(
                "Requests by outcome",
                families.REQUESTS.help,
                "reqps",
                Query(per_second(families.REQUESTS, SCOPE, "outcome"), "{{outcome}}"),
                stacked=True,
                colours=OUTCOME_COLOURS,
            ),
        ),
        (
            12,
            timeseries(
                "Refusals by code",
                says(families.REFUSALS, "runbook.md tells the first step of each."),
                "reqps",
                Query(f"{per_second(families.REFUSALS, '', 'code')} > 0", "{{code}}"),
                stacked=True,
            ),
        ),
        (
            12,
            timeseries(
                "Budgets that burn",
                "How many times faster than the objective allows, over an hour: above 14.4 somebody is called.",
                "none",
                Query(
                    f"model:saltgate_time_to_first_token_slow:ratio_rate1h{{{MODEL}}} / 0.01", "{{model}} first token"
                ),
                Query(f"model:saltgate_failures:ratio_rate1h{{{MODEL}}} / 0.005", "{{model}} failures"),
                steps=[Step(None, "transparent"), Step(1, "orange"), Step(14.4, "red")],
            ),
        ),
        (
            6,
            timeseries(
                "Streams without a token",
                families.STREAMS_WITHOUT_TOKEN.help,
                "reqps",
                Query(f"{per_second(families.STREAMS_WITHOUT_TOKEN, MODEL, 'reason')} > 0", "{{reason}}"),
                stacked=True,
            ),
        ),
        (
            6,
            timeseries(
                "Usage unknown",
                families.USAGE_UNKNOWN.help,
                "reqps",
                Query(f"{per_second(families.USAGE_UNKNOWN, MODEL, 'reason')} > 0", "{{reason}}"),
                stacked=True,
            ),
        ),
    ]
