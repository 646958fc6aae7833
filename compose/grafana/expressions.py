"""The PromQL that dashboards share, their thresholds and colours, and what a metric is in its own words."""

from __future__ import annotations

from typing import Final

from panels import Step

from observability import families
from observability.families import Family

SCOPE: Final = 'workspace=~"$workspace",project=~"$project",model=~"$model"'
MODEL: Final = 'model=~"$model"'
FAILED: Final = 'outcome=~"engine_failed|engine_timeout|truncated|gate_error"'
ASKED: Final = 'outcome!~"client_gone|refused"'
OWN_STAGES: Final = 'stage=~"auth|directory|scan|stamp|relay"'
OBJECTIVE: Final = [Step(None, "transparent"), Step(2.56, "orange")]
OUTCOME_COLOURS: Final = {
    "ok": "green",
    "refused": "yellow",
    "client_gone": "blue",
    "drained": "purple",
    "engine_failed": "red",
    "engine_timeout": "dark-red",
    "truncated": "orange",
    "gate_error": "dark-purple",
}


def says(family: Family, *more: str) -> str:
    """What the metric is, in its own words, then what this panel adds."""
    return " ".join((family.help, *more))


def quantile(q: float, family: Family, matchers: str, by: str) -> str:
    buckets = f"{family.name}_bucket{{{matchers}}}" if matchers else f"{family.name}_bucket"
    return f"histogram_quantile({q}, sum by ({by}, le) (rate({buckets}[$__rate_interval])))"


def reuse(by: str, matchers: str) -> str:
    """The share of prompt tokens that were reused, where the engine told that: a quotient of sums."""
    group = f" by ({by})" if by else ""
    reused = f"sum{group} (rate({families.REUSED_PROMPT_TOKENS.name}{{{matchers}}}[$__rate_interval]))"
    known = f"sum{group} (rate({families.REUSE_KNOWN_PROMPT_TOKENS.name}{{{matchers}}}[$__rate_interval]))"
    return f"{reused} / ({known} > 0)"


def failures(matchers: str) -> str:
    failed = f"sum(rate({families.REQUESTS.name}{{{matchers},{FAILED}}}[$__rate_interval]))"
    return (
        f"({failed} or vector(0)) / (sum(rate({families.REQUESTS.name}{{{matchers},{ASKED}}}[$__rate_interval])) > 0)"
    )


def per_second(family: Family, matchers: str, by: str = "") -> str:
    group = f" by ({by})" if by else ""
    braces = f"{{{matchers}}}" if matchers else ""
    return f"sum{group} (rate({family.name}{braces}[$__rate_interval]))"


REUSE: Final = (
    "The share of prompt tokens that the engine took from its prefix cache, over requests of which it told that: "
    "a quotient of sums, never a mean of ratios."
)
REUSE_STEPS: Final = [Step(None, "text"), Step(0.2, "green")]
FAILURE_STEPS: Final = [Step(None, "green"), Step(0.005, "orange"), Step(0.072, "red")]
FIRST_TOKEN_STEPS: Final = [Step(None, "green"), Step(2.56, "orange"), Step(10.24, "red")]
NONE_STEPS: Final = [Step(None, "green"), Step(1, "red")]

OTHERS: Final = [
    {
        "type": "dashboards",
        "tags": ["saltgate"],
        "asDropdown": False,
        "title": "",
        "keepTime": True,
        "includeVars": True,
        "icon": "external link",
        "targetBlank": False,
        "url": "",
        "tooltip": "",
    }
]
