"""What must never happen: an isolation check that failed, an engine whose proof failed. How often, and when last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from observability import names
from observability.history.answers import Alarm

ENGINE_PROOF_FAILED: Final = "engine_proof_failed"


class Alarms:
    """Looked at every few seconds. Times are Unix seconds."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._last: dict[str, float] = {}
        self._failed: frozenset[str] = frozenset()

    def look(self, violations: Mapping[str, int], now: float) -> None:
        """`violations` are all since the start, by check."""
        for check, count in violations.items():
            if count > self._counts[check]:
                self._counts[check] = count
                self._last[check] = now

    def proofs(self, failed: Iterable[str], now: float) -> None:
        """The endpoints of replicas whose proof has failed as of now. Each counts when it begins to be among them."""
        failed = frozenset(failed)
        self._counts[ENGINE_PROOF_FAILED] += len(failed - self._failed)
        if failed:
            self._last[ENGINE_PROOF_FAILED] = now
        self._failed = failed

    def told(self) -> tuple[Alarm, ...]:
        """Every check, also those that never failed."""
        checks = sorted({*names.ISOLATION_CHECKS, ENGINE_PROOF_FAILED, *self._counts})
        return tuple(Alarm(check, self._counts[check], self._last.get(check)) for check in checks)
