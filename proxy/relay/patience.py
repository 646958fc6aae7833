"""How long an exchange waits for its engine, decided without a clock of its own and without a cost per event.

The exchange has one timer. When it looks, it asks whether anything came since it looked before; nothing is noted as the
events pass. So what happened between two looks counts as having happened at the later one, and a limit is kept exactly
or up to a look too late, never too early.

What counts is what only a working engine sends: events that carry data. A comment does not, for vLLM's own keep-alive
(`--sse-keep-alive-interval`) comes from its HTTP process, and goes on while its scheduler hangs. For the same reason a
stream has begun with its first token: vLLM sends the head, and on /v1/responses the first events, before the prefill.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final, Literal, NamedTuple

KeepAlive = Literal["off", "comment", "event"]

# How often it is looked within one limit: so much of it, at most, comes on top.
_LOOKS: Final = 4
_SHORTEST_SECONDS: Final = 0.001  # the loops' clocks have no finer step


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an exchange waits, in seconds: for a connection; for the first token of a stream or the first byte of
    another answer; for the next event or byte; for the whole; and for a client that takes nothing of what waits for it.

    With `keep_alive` a client hears something at least every `keep_alive_interval` of a stream.
    """

    first_byte: float
    idle: float
    connect: float = 5.0
    total: float = inf
    stall: float = 120.0
    keep_alive: KeepAlive = "off"
    keep_alive_interval: float = 15.0
    first_look: float = field(init=False)
    """How long after the request was sent to look for the first time."""

    def __post_init__(self) -> None:
        step = min(self.first_byte, self.idle) / _LOOKS
        object.__setattr__(self, "first_look", max(min(step, self.total, self.pause), _SHORTEST_SECONDS))

    @property
    def pause(self) -> float:
        """How long a client may hear nothing: with two looks in an interval, no silence is longer than one."""
        return inf if self.keep_alive == "off" else self.keep_alive_interval / 2


class Limit(Enum):
    """Which limit an engine passed."""

    FIRST_BYTE = "first_byte"
    IDLE = "idle"
    TOTAL = "total"


class Seen(NamedTuple):
    """What there is of an answer. `progress` changes with all that shows that the engine works. `held`: the client is
    slow, so the engine is not read. `written` changes with all that the client is sent.
    """

    progress: int
    begun: bool
    held: bool
    written: int


class Look(NamedTuple):
    """What follows: it is over, or the client should hear something; and in how many seconds to look again."""

    over: Limit | None
    silent: bool
    again: float


class Watch:
    """One exchange's. All times are of one monotonic clock, in seconds."""

    __slots__ = ("_began", "_patience", "_progress", "_since", "_speak_at", "_written")

    def __init__(self, patience: Patience, now: float) -> None:
        self._patience = patience
        self._began = self._since = now
        self._progress = 0
        self._written = 0
        self._speak_at = now

    def sent(self, now: float) -> None:
        """The request is sent."""
        self._since = now
        self._speak_at = now + self._patience.pause

    def look(self, now: float, seen: Seen) -> Look:
        if seen.held or seen.progress != self._progress:
            self._progress, self._since = seen.progress, now
        limit, name = self._limit(seen.begun)
        left = self._since + limit - now
        if left <= 0:
            return Look(name, silent=False, again=0.0)
        if self._began + self._patience.total <= now:
            return Look(Limit.TOTAL, silent=False, again=0.0)
        silent = self._is_silent(now, seen.written)
        return Look(None, silent, self._again(now, left))

    def _limit(self, begun: bool) -> tuple[float, Limit]:
        patience = self._patience
        return (patience.idle, Limit.IDLE) if begun else (patience.first_byte, Limit.FIRST_BYTE)

    def _is_silent(self, now: float, written: int) -> bool:
        """Whether the client was sent nothing since it was asked before, where it is time to ask."""
        if now < self._speak_at:
            return False
        silent = written == self._written
        self._written, self._speak_at = written, now + self._patience.pause
        return silent

    def _again(self, now: float, left: float = inf) -> float:
        # The shorter of the two, as the answer may begin between two looks.
        step = min(self._patience.first_byte, self._patience.idle) / _LOOKS
        seconds = min(step, left, self._began + self._patience.total - now, self._speak_at - now)
        return max(seconds, _SHORTEST_SECONDS)
