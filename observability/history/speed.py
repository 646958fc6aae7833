"""How long an engine takes to compute a prompt token, as its first tokens tell. An estimate, for what reuse saved.

A stream's upstream time to first token, divided by the prompt tokens that were computed and not reused. Short prompts
say little about it, so only those count that computed 256 tokens or more; the median of a model's last 256 such streams
is taken, so that a few that queued in the engine move nothing, and there is none below 8. What reuse saved is the
reused tokens times this. It leaves out that attention makes late tokens of long prompts dearer, and a queue in the
engine that most streams wait in counts as prefill.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final

from observability.history.summary import Summary

LEAST_COMPUTED: Final = 256
LEAST_SAMPLES: Final = 8
MOST_SAMPLES: Final = 256


class PrefillSpeeds:
    """By model, for at most `most` of them: the first that come."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._samples: dict[str, deque[float]] = {}
        self._known: dict[str, float] = {}

    def note(self, summary: Summary) -> None:
        if summary.upstream_ttft is None or summary.reused_tokens is None or summary.prompt_tokens is None:
            return
        computed = summary.prompt_tokens - summary.reused_tokens
        if computed < LEAST_COMPUTED or summary.model is None:
            return
        samples = self._samples.get(summary.model)
        if samples is None:
            if len(self._samples) >= self._most:
                return
            samples = self._samples[summary.model] = deque(maxlen=MOST_SAMPLES)
        samples.append(summary.upstream_ttft / computed)
        self._known.pop(summary.model, None)

    def seconds_per_token(self, model: str) -> float | None:
        """None while there are too few samples."""
        samples = self._samples.get(model, ())
        if len(samples) < LEAST_SAMPLES:
            return None
        if model not in self._known:
            self._known[model] = median(samples)
        return self._known[model]
