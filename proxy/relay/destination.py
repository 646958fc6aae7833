"""Where a request may go, as its engine's proof allows, and how long to wait there."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from proxy.engines.beginning import Beginning
from proxy.relay.outliers import Outliers
from proxy.relay.patience import Patience
from proxy.relay.pool import Pool


class Destination(Struct, frozen=True):
    """The replicas of one engine that may take one request, at least one, and the engine's patience with its model.

    `outliers` is what this worker found of the engine's replicas; `caller` names whose request it is to them.
    `beginning` is how its prompt begins: None for a request that computes none, and where there is nothing to choose.
    """

    engine: str
    model: str
    pools: Sequence[Pool]
    patience: Patience
    outliers: Outliers
    caller: str = ""
    beginning: Beginning | None = None

    def __repr__(self) -> str:
        return f"Destination(engine={self.engine!r}, model={self.model!r})"  # the caller's name is in no repr
