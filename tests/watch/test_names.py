"""Rules and dashboards name only what saltgate exports: metrics, their labels, and values of closed sets."""

from __future__ import annotations

import re
from typing import Final

import pytest

from observability.families import FAMILIES, Family
from observability.names import (
    ISOLATION_CHECKS,
    OUTCOMES,
    PROOF_STATES,
    REFUSAL_CODES,
    STAGES,
    TOKEN_KINDS,
    USAGE_UNKNOWN_REASON,
    WITHOUT_TOKEN_REASON,
)
from proxy.relay.crowd import REASONS
from tests.watch.queries import (
    ANY,
    Query,
    Selector,
    dashboard_queries,
    filled,
    filled_in_labels,
    grouped_labels,
    recorded,
    rule_queries,
    selectors,
)

QUERIES: Final = [*rule_queries(), *dashboard_queries()]

# What Prometheus adds to each series, and what it makes itself.
TARGET_LABELS: Final = frozenset({"instance", "job"})
OF_PROMETHEUS: Final = {
    "up": frozenset[str](),
    "scrape_duration_seconds": frozenset[str](),
    "ALERTS": frozenset({"alertname", "alertstate", "severity"}).union(*(one.labels for one in FAMILIES.values())),
}
# vLLM 0.32, vllm/v1/metrics/loggers.py.
_VLLM: Final = frozenset({"engine", "model_name"})
OF_VLLM: Final = {
    "vllm:prompt_tokens_total": _VLLM,
    "vllm:generation_tokens_total": _VLLM,
    "vllm:prefix_cache_queries_total": _VLLM,
    "vllm:prefix_cache_hits_total": _VLLM,
    "vllm:num_requests_running": _VLLM,
    "vllm:num_requests_waiting": _VLLM,
    "vllm:kv_cache_usage_perc": _VLLM,
    "vllm:num_preemptions_total": _VLLM,
    "vllm:time_to_first_token_seconds_bucket": _VLLM | {"le"},
    "vllm:request_queue_time_seconds_bucket": _VLLM | {"le"},
    "vllm:request_prefill_time_seconds_bucket": _VLLM | {"le"},
}
VALUES: Final = {
    ("outcome",): OUTCOMES,
    ("stage",): STAGES,
    ("code",): tuple(REFUSAL_CODES),
    ("kind",): TOKEN_KINDS,
    ("check",): ISOLATION_CHECKS,
    ("saltgate_engine_proof", "state"): PROOF_STATES,
    ("saltgate_workers", "state"): ("serving", "retiring", "starting"),
    ("saltgate_streams_without_token_total", "reason"): tuple(WITHOUT_TOKEN_REASON.values()),
    ("saltgate_usage_unknown_total", "reason"): tuple(USAGE_UNKNOWN_REASON.values()),
    ("saltgate_connections_closed_total", "reason"): REASONS,
    ("saltgate_jwks_refresh_total", "result"): ("ok", "failed"),
    ("saltgate_directory_reads_total", "result"): ("ok", "failed"),
    ("saltgate_scope_lookups_total", "result"): ("hit", "miss"),
    ("saltgate_token_lookups_total", "result"): ("hit", "miss"),
    ("job",): ("saltgate", "vllm"),
}


def family_of(name: str) -> Family | None:
    """The family that a series' name belongs to."""
    if name in FAMILIES and FAMILIES[name].kind != "histogram":
        return FAMILIES[name]
    base, _, part = name.rpartition("_")
    found = FAMILIES.get(base)
    return found if found is not None and found.kind == "histogram" and part in ("bucket", "sum", "count") else None


def labels_of(name: str) -> frozenset[str]:
    """The labels that a series of this name can have. Raises KeyError where there is no such series."""
    family = family_of(name)
    if family is not None:
        return TARGET_LABELS | frozenset(family.labels) | ({"le"} if name.endswith("_bucket") else frozenset())
    if name in OF_PROMETHEUS:
        return TARGET_LABELS | OF_PROMETHEUS[name]
    if name in OF_VLLM:
        return TARGET_LABELS | OF_VLLM[name]
    return frozenset().union(*(labels_of(inner.name) for inner in selectors(recorded()[name])))


def known_values(selector: Selector, label: str) -> tuple[str, ...] | None:
    """The closed set that a label's value is of; None where it is of none."""
    if label == "le":
        family = family_of(selector.name)
        return None if family is None else (*(repr(float(bound)) for bound in family.buckets), "+Inf")
    return VALUES.get((selector.name, label)) or VALUES.get((label,))


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_it_asks_only_for_what_there_is(query: Query) -> None:
    expr = filled(query.expr)
    asked = selectors(expr)
    assert asked
    for selector in asked:
        assert {label for label, _, _ in selector.matchers} <= labels_of(selector.name), selector
    known = frozenset().union(*(labels_of(selector.name) for selector in asked))
    assert grouped_labels(expr) <= known
    assert filled_in_labels(query.texts) <= known


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_value_that_it_asks_for_can_occur(query: Query) -> None:
    """A renamed outcome or stage, or a bound that no bucket has, would leave an alert silent for ever."""
    for selector in selectors(filled(query.expr)):
        for label, operator, value in selector.matchers:
            known = known_values(selector, label)
            if known is None or value == ANY:
                continue
            if operator in ("=", "!="):
                assert value in known, (selector, label)
            else:
                for branch in _branches(value):
                    assert any(re.fullmatch(branch, one) for one in known), (selector, label, branch)


def _branches(pattern: str) -> list[str]:
    """`(a|b)_c` and `a|b` as the patterns that each can match by itself."""
    match = re.fullmatch(r"\(([^()]*)\)(.*)", pattern)
    return [one + match[2] for one in match[1].split("|")] if match else pattern.split("|")


@pytest.mark.parametrize(
    "expr",
    [
        "rate(saltgate_nonsense_total[5m])",
        "sum by (flavour) (saltgate_engine_up)",
        'saltgate_engine_up{flavour="sweet"}',
        "scope:saltgate_nonsense:rate5m",
        "saltgate_request_duration_seconds",
        "vllm:nonsense_total",
    ],
)
def test_the_reading_of_expressions_sees_what_does_not_exist(expr: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        test_it_asks_only_for_what_there_is(Query("made up", expr))


@pytest.mark.parametrize(
    "expr",
    [
        'saltgate_requests_total{outcome=~"ok|upstream_error"}',
        'saltgate_time_to_first_token_seconds_bucket{le="2.5"}',
        'saltgate_refusals_total{code=~"(engine|nonsense)_unavailable"}',
    ],
)
def test_the_reading_of_expressions_sees_values_that_cannot_occur(expr: str) -> None:
    with pytest.raises(AssertionError):
        test_a_value_that_it_asks_for_can_occur(Query("made up", expr))


def test_recorded_names_say_what_they_are_of() -> None:
    """LEVEL:METRIC:OPERATION, as Prometheus' own naming of recording rules has it."""
    assert all(re.fullmatch(r"(scope|model|saltgate):\w+:\w+", name) for name in recorded())
