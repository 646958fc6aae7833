"""What must hold of `[metrics]`: bounds that a scrape can bear, and pseudonyms that nobody can try out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from config.faults import Fault
from config.settings import IsolationKey, Metrics, Telemetry

MOST_SCOPES: Final = 100_000
MOST_MODELS: Final = 10_000
MINIMUM_PSEUDONYM_KEY_BYTES: Final = 32
MINIMUM_INTERVAL: Final = 1.0


def faults_of_metrics(
    metrics: Metrics, keys: Mapping[int, IsolationKey], telemetry: Telemetry | None
) -> Iterator[Fault]:
    """Every fault of the section; `keys` are the salt keys."""
    if metrics.otlp and telemetry is not None and telemetry.otlp_endpoint is None:
        yield Fault("metrics.otlp", "needs `otlp_endpoint` under [telemetry]; write where the collector is")
    if metrics.otlp_interval < MINIMUM_INTERVAL:
        yield Fault("metrics.otlp_interval", 'write at least "1s": each export holds all metrics')
    if metrics.max_scopes > MOST_SCOPES:
        yield Fault("metrics.max_scopes", f"write {MOST_SCOPES} at most: each scope has 16 series a model")
    if metrics.max_models > MOST_MODELS:
        yield Fault("metrics.max_models", f"write {MOST_MODELS} at most: each model has hundreds of series")
    key = metrics.pseudonym_key
    if metrics.scope_labels == "plain":
        if key is not None:
            yield Fault("metrics.pseudonym_key", 'goes with scope_labels = "pseudonymous"; write that, or leave it out')
    elif key is None:
        yield Fault("metrics.pseudonym_key", "is required with pseudonymous labels; `saltgate keys new` makes a secret")
    elif len(key.value) < MINIMUM_PSEUDONYM_KEY_BYTES:
        yield Fault("metrics.pseudonym_key", "has less than 32 bytes; `saltgate keys new` makes a secret")
    elif any(key.value == salt.secret.value for salt in keys.values()):
        yield Fault("metrics.pseudonym_key", "is a salt key, too; `saltgate keys new` makes another secret")
