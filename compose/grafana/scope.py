"""The dashboard of one scope: its speed, reuse, tokens, failures, traces."""

from __future__ import annotations

from expressions import (
    FAILURE_STEPS,
    FIRST_TOKEN_STEPS,
    OBJECTIVE,
    OTHERS,
    OUTCOME_COLOURS,
    REUSE,
    REUSE_STEPS,
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
    dashboard,
    heatmap,
    label_variable,
    stat,
    timeseries,
    traces_link,
)

from observability import families


def scope() -> Json:
    """One customer's project: its speed, reuse, tokens, failures, traces."""
    variables = [
        label_variable("workspace", "Workspace", families.REQUESTS.name + '{workspace!=""}', one=True),
        label_variable("project", "Project", families.REQUESTS.name + '{workspace="$workspace"}', one=True),
        label_variable("model", "Model", families.REQUESTS.name + '{workspace="$workspace",project="$project"}'),
    ]
    here = 'workspace="$workspace",project="$project",model=~"$model"'
    trace = traces_link("Traces of this scope", saltgate__workspace="$workspace", saltgate__project="$project")
    first = families.TIME_TO_FIRST_TOKEN
    buckets = f"sum by (le) (increase({first.name}_bucket{{{here}}}[$__rate_interval]))"
    glance = [
        (4, stat("Requests", families.REQUESTS.help, "reqps", Query(per_second(families.REQUESTS, here)))),
        (
            4,
            stat(
                "Failures",
                "The share of requests that failed, of those neither refused nor left by their client.",
                "percentunit",
                Query(failures(here)),
                steps=FAILURE_STEPS,
                decimals=2,
            ),
        ),
        (
            4,
            stat(
                "First token, p50", first.help, "s", Query(quantile(0.5, first, here, "job")), steps=FIRST_TOKEN_STEPS
            ),
        ),
        (
            4,
            stat(
                "First token, p95", first.help, "s", Query(quantile(0.95, first, here, "job")), steps=FIRST_TOKEN_STEPS
            ),
        ),
        (4, stat("Reuse", REUSE, "percentunit", Query(reuse("", here)), steps=REUSE_STEPS, decimals=1)),
        (
            4,
            stat(
                "Prompt tokens saved",
                says(families.REUSED_PROMPT_TOKENS, "In the time shown."),
                "short",
                Query(f"sum(increase({families.REUSED_PROMPT_TOKENS.name}{{{here}}}[$__range]))", now=True),
            ),
        ),
    ]
    speed = [
        (
            12,
            timeseries(
                "Time to first token",
                says(first, "The dashed line is the objective. Points are traces."),
                "s",
                Query(quantile(0.5, first, here, "model"), "{{model}} p50", exemplars=True),
                Query(quantile(0.95, first, here, "model"), "{{model}} p95", exemplars=True),
                steps=OBJECTIVE,
                links=[trace],
            ),
        ),
        (12, heatmap("Time to first token, all streams", first.help, Query(buckets, "{{le}}", form="heatmap"))),
    ]
    used = [
        (
            12,
            timeseries(
                "Reuse",
                says(families.REUSED_PROMPT_TOKENS, "Beside what it was a day before."),
                "percentunit",
                Query(f"scope:saltgate_prefix_reuse:ratio_rate15m{{{here}}}", "{{model}}"),
                Query(f"scope:saltgate_prefix_reuse:ratio_rate15m{{{here}}} offset 1d", "{{model}} a day before"),
                most=1,
            ),
        ),
        (
            12,
            timeseries(
                "Tokens",
                "Prompt tokens, the reused ones among them, and output tokens, as the engine counted them.",
                "short",
                Query(per_second(families.PROMPT_TOKENS, here), "prompt"),
                Query(per_second(families.REUSED_PROMPT_TOKENS, here), "prompt, reused"),
                Query(per_second(families.OUTPUT_TOKENS, here), "output"),
            ),
        ),
        (
            12,
            timeseries(
                "Requests by outcome",
                families.REQUESTS.help,
                "reqps",
                Query(per_second(families.REQUESTS, here, "outcome"), "{{outcome}}"),
                stacked=True,
                colours=OUTCOME_COLOURS,
                links=[trace],
            ),
        ),
        (
            12,
            timeseries(
                "First token, as recorded",
                "Over 15 minutes each, for a longer look back.",
                "s",
                Query(f"scope:saltgate_time_to_first_token_seconds:p50_15m{{{here}}}", "{{model}} p50"),
                Query(f"scope:saltgate_time_to_first_token_seconds:p95_15m{{{here}}}", "{{model}} p95"),
                steps=OBJECTIVE,
            ),
        ),
    ]
    rows = [Row("At a glance", glance, height=4), Row("How fast", speed), Row("What it uses", used)]
    return dashboard(
        "saltgate-scope",
        "saltgate: a scope",
        "One workspace's project.",
        variables,
        rows,
        links=[*OTHERS, _as_dashboard_link(trace)],
    )


def _as_dashboard_link(data_link: Json) -> Json:
    return OTHERS[0] | {
        "type": "link",
        "title": data_link["title"],
        "url": data_link["url"],
        "tags": [],
        "includeVars": False,
    }
