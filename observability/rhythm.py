"""When the tokens of one stream came: kept by the stream itself, given to the metrics once, at its end."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

# Upper bounds of the gaps between two events, in seconds, rising: those of time per output token, and long stalls.
GAP_BUCKETS: Final = (
    0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
_GAP_BUCKETS_NS: Final = tuple(round(bound * 1e9) for bound in GAP_BUCKETS)


class Rhythm:
    """The times of the events that bear a token, in nanoseconds of the record's clock.

    A gap is the time between one such event and the next, as they came from the engine. An event is no token: an engine
    may put several into one. Events that came in one read came at once, so the gaps between them are 0. `gaps` counts
    them by `GAP_BUCKETS` and, last, those above; `gaps_ns` is their sum and `largest_gap_ns` the largest. While the
    client took nothing the engine was not read: the gap in which that began is none of the engine's and is left out;
    `held_ns` is how long that was.
    """

    __slots__ = ("_held_from_ns", "_since_ns", "gaps", "gaps_ns", "held_ns", "largest_gap_ns", "last_ns")

    def __init__(self) -> None:
        self.last_ns: int | None = None
        self.gaps = [0] * (len(GAP_BUCKETS) + 1)
        self.gaps_ns = 0
        self.largest_gap_ns = 0
        self.held_ns = 0
        self._since_ns: int | None = None  # where the next gap begins
        self._held_from_ns: int | None = None

    def came(self, events: int, received_ns: int) -> None:
        """So many more events that bear a token, in one read."""
        since = self._since_ns
        self.last_ns = self._since_ns = received_ns
        if events > 1:
            self.gaps[0] += events - 1
        if since is None:
            return
        gap = received_ns - since
        self.gaps[bisect_left(_GAP_BUCKETS_NS, gap)] += 1
        self.gaps_ns += gap
        if gap > self.largest_gap_ns:
            self.largest_gap_ns = gap

    def hold(self, now_ns: int) -> None:
        """The client takes nothing, so the engine is not read from now on."""
        if self._held_from_ns is None:
            self._held_from_ns = now_ns
        self._since_ns = None

    def release(self, now_ns: int) -> None:
        """It is read again; also told at the end of a stream that was held until then."""
        if self._held_from_ns is not None:
            self.held_ns += now_ns - self._held_from_ns
            self._held_from_ns = None
        self._since_ns = None

    @property
    def largest_gap_seconds(self) -> float | None:
        """Absent where there were no two events."""
        return self.largest_gap_ns / 1e9 if any(self.gaps) else None

    @property
    def is_of_engine(self) -> bool:
        """Whether the engine was read all the time, so that the times are its own."""
        return self.held_ns == 0 and self._held_from_ns is None
