"""The sums of some requests, and the histogram of their times to first token. Tallies add up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, exp, log
from typing import Final, TypeVar

import msgspec

from observability.history.summary import Summary
from observability.names import OUTCOMES

# Each bucket ends 10 % above where it begins, so the middle of it is at most 5 % from what was measured.
_RATIO: Final = 1.1
_LOG_RATIO: Final = log(_RATIO)
_LOWEST_SECONDS: Final = 1e-4
_HIGHEST_BUCKET: Final = 200  # 5 hours
_POSITIONS: Final = {outcome: position for position, outcome in enumerate(OUTCOMES)}
FAILED: Final = ("engine_failed", "truncated", "engine_timeout", "drained", "gate_error")
_FAILED_POSITIONS: Final = tuple(_POSITIONS[outcome] for outcome in FAILED)


class _Packed(msgspec.Struct, array_like=True):
    outcomes: tuple[int, ...]
    prompt: int
    known_prompt: int
    reused: int
    output: int
    refusals: dict[str, int]
    first_tokens: dict[int, int]


_Key = TypeVar("_Key")

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Packed)


class Tally:
    """`prompt`, `reused` and `output` are tokens; `known_prompt` those prompt tokens of which it is known how many were
    reused. `first_tokens` counts times to first token by bucket.
    """

    __slots__ = ("first_tokens", "known_prompt", "outcomes", "output", "prompt", "refusals", "reused")

    def __init__(self) -> None:
        self.outcomes = [0] * len(OUTCOMES)
        self.prompt = 0
        self.known_prompt = 0
        self.reused = 0
        self.output = 0
        self.refusals: dict[str, int] = {}
        self.first_tokens: dict[int, int] = {}

    @property
    def requests(self) -> int:
        return sum(self.outcomes)

    @property
    def failed(self) -> int:
        return sum(self.outcomes[position] for position in _FAILED_POSITIONS)

    @property
    def reuse_rate(self) -> float | None:
        """Reused tokens of the prompt tokens of which that is known."""
        return self.reused / self.known_prompt if self.known_prompt else None

    def by_outcome(self) -> dict[str, int]:
        return {outcome: count for outcome, count in zip(OUTCOMES, self.outcomes, strict=True) if count}

    def quantile(self, share: float) -> float | None:
        """The time to first token that this share of the streams did not exceed, within 5 %; None without any."""
        return quantile(self.first_tokens, share)

    def count(self, summary: Summary) -> None:
        """One more request. An outcome of another version counts as a fault of the gate."""
        self.outcomes[_POSITIONS.get(summary.outcome, _UNKNOWN)] += 1  # type: ignore[call-overload]
        if summary.refusal_code is not None:
            self.refusals[summary.refusal_code] = self.refusals.get(summary.refusal_code, 0) + 1
        if summary.ttft is not None:
            bucket = bucket_of(summary.ttft)
            self.first_tokens[bucket] = self.first_tokens.get(bucket, 0) + 1
        if summary.prompt_tokens is not None:
            self.prompt += summary.prompt_tokens
            self.output += summary.output_tokens or 0
            if summary.reused_tokens is not None:
                self.known_prompt += summary.prompt_tokens
                self.reused += summary.reused_tokens

    def add(self, other: Tally) -> None:
        """The other's requests, too."""
        self.outcomes = [mine + yours for mine, yours in zip(self.outcomes, other.outcomes, strict=True)]
        self.prompt += other.prompt
        self.known_prompt += other.known_prompt
        self.reused += other.reused
        self.output += other.output
        _add_counts(self.refusals, other.refusals)
        _add_counts(self.first_tokens, other.first_tokens)

    def pack(self) -> bytes:
        """Some 30 bytes, and 2 more for each bucket that was hit."""
        return _ENCODER.encode(
            _Packed(
                tuple(self.outcomes),
                self.prompt,
                self.known_prompt,
                self.reused,
                self.output,
                self.refusals,
                self.first_tokens,
            )
        )

    @classmethod
    def unpack(cls, packed: bytes) -> Tally:
        """What `pack` packed. Raises ValueError for anything else."""
        data = _DECODER.decode(packed)
        if len(data.outcomes) != len(OUTCOMES):
            raise ValueError("no tally of this version")
        tally = cls()
        tally.outcomes = list(data.outcomes)
        tally.prompt, tally.known_prompt = data.prompt, data.known_prompt
        tally.reused, tally.output = data.reused, data.output
        tally.refusals, tally.first_tokens = data.refusals, data.first_tokens
        return tally


_UNKNOWN: Final = _POSITIONS["gate_error"]


def sum_of(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.add(tally)
    return total


def bucket_of(seconds: float) -> int:
    """Which bucket of the histogram a time is in."""
    if seconds <= _LOWEST_SECONDS:
        return 0
    return min(ceil(log(seconds / _LOWEST_SECONDS) / _LOG_RATIO), _HIGHEST_BUCKET)


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """As `Tally.quantile`: the geometric middle of the bucket in which that rank is."""
    total = sum(counts.values())
    if not total:
        return None
    rank = max(ceil(share * total), 1)
    for bucket in sorted(counts):
        rank -= counts[bucket]
        if rank <= 0:
            return _LOWEST_SECONDS * exp((bucket - 0.5) * _LOG_RATIO)
    raise AssertionError("no rank is above the number of all")


def _add_counts(mine: dict[_Key, int], yours: Mapping[_Key, int]) -> None:
    for key, count in yours.items():
        mine[key] = mine.get(key, 0) + count
