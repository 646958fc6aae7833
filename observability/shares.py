"""Which share of the traces is kept, by their ids: decided before a request goes up, and alike by all who decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from config.settings import Telemetry


class Shares:
    """`ratio` of all, or that of the scope: `scopes` has it by workspace and project, None for the whole workspace.

    The rule is that of OpenTelemetry's TraceIdRatioBased, so that who has the same ratio decides alike.
    """

    def __init__(self, ratio: float = 1.0, scopes: Mapping[tuple[str, str | None], float] | None = None) -> None:
        self._bound = _bound(ratio)
        self._bounds = {scope: _bound(each) for scope, each in (scopes or {}).items()}
        self.differ: Final = bool(self._bounds)
        """Whether some scope has a ratio of its own."""

    def hold(self, trace_id: str) -> bool:
        """`trace_id` is in 32 small hexadecimal digits, as W3C Trace Context writes it."""
        return trace_id[16:] < self._bound

    def hold_in(self, trace_id: str, workspace: str, project: str) -> bool:
        bound = self._bounds.get((workspace, project))
        if bound is None:
            bound = self._bounds.get((workspace, None), self._bound)
        return trace_id[16:] < bound


def shares(settings: Telemetry) -> Shares:
    """What the settings say of it."""
    return Shares(settings.trace_ratio, {(one.workspace, one.project): one.trace_ratio for one in settings.scopes})


_ABOVE_ALL: Final = "g"


def _bound(ratio: float) -> str:
    """What the lower half of an id is compared with, digit by digit: as the numbers compare."""
    bound = round(ratio * (1 << 64))
    return f"{bound:016x}" if bound < 1 << 64 else _ABOVE_ALL
