"""Where a request may go, as its engine's proof allows, and how long to wait there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.relay.patience import Patience
from proxy.relay.pool import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The replicas of one engine that may take one request, at least one, and the engine's patience with its model."""

    engine: str
    model: str
    pools: Sequence[Pool]
    patience: Patience
