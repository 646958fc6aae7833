"""Which replicas to leave alone for a while, because what was sent there failed. Pure: the time is handed in.

A replica that fails again and again is ejected, for longer each time, and then comes back slowly: its weight grows over
some seconds, and while it does one failure is enough to eject it again (Envoy's outlier detection and slow start). Its
proof goes on meanwhile, by connections of its own, and is not touched.

Who can make a replica fail must not be able to take it from everybody. A connection that cannot be made is nobody's
doing and counts for all. What comes after that may be the request's own doing: a connection that breaks, be it while
the request is written, an answer that is a failure (5xx), or none in time. It counts for the caller whose request it
was, and ejects the replica for that caller alone, until a second caller finds the same. Callers and not borders: one
caller may ask under several borders, and choose among them. Never counted: what the caller got wrong (4xx), a caller
who left, and "busy" (429, 503): an engine that is full is not broken, and the others would be full the sooner for
taking its share.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

FAILURES: Final = 5
FIRST_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 300.0
RETURN_SECONDS: Final = 30.0
FIRST_WEIGHT: Final = 0.1
LARGEST_SHARE: Final = 0.5
CALLERS_FOR_ALL: Final = 2
MAXIMUM_CALLERS: Final = 1024


@dataclass(slots=True)
class _Standing:
    """What is held against one replica, by everybody or by one caller. Times are seconds of one monotonic clock."""

    failures: int = 0
    ejections: int = 0
    until: float = -math.inf

    def is_out(self, now: float) -> bool:
        return now < self.until

    def weight(self, now: float) -> float:
        if self.is_out(now):
            return 0.0
        return min(1.0, FIRST_WEIGHT + (1.0 - FIRST_WEIGHT) * (now - self.until) / RETURN_SECONDS)

    def failed(self, now: float) -> bool:
        """Whether it is now to be ejected. What fails while it is out was sent before that."""
        if self.is_out(now):
            return False
        self.failures += 1
        return self.failures >= FAILURES or self.weight(now) < 1.0

    def eject(self, now: float) -> float:
        """For how many seconds: twice as many as the last time, unless that is long ago."""
        self.ejections = 1 if now - self.until > LONGEST_SECONDS else self.ejections + 1
        self.failures = 0
        seconds = min(FIRST_SECONDS * 2.0 ** (self.ejections - 1), LONGEST_SECONDS)
        self.until = now + seconds
        return seconds


class Outliers:
    """The replicas of one engine, as one worker finds them. Replicas go by their address, callers by a name
    that is theirs alone.
    """

    def __init__(self) -> None:
        self._for_all: dict[str, _Standing] = {}
        self._for_caller: OrderedDict[tuple[str, str], _Standing] = OrderedDict()
        self._out: set[str] = set()

    def weight(self, replica: str, caller: str, now: float) -> float:
        """Its share of what it would get: 0 while it is ejected for this caller, 1 when all is well."""
        if not self._for_all and not self._for_caller:
            return 1.0
        standings = (self._for_all.get(replica), self._for_caller.get((replica, caller)))
        return min((standing.weight(now) for standing in standings if standing is not None), default=1.0)

    def answered(self, replica: str, caller: str) -> None:
        """What a caller sent there went well."""
        if (standing := self._for_all.get(replica)) is not None:
            standing.failures = 0
        if (standing := self._for_caller.get((replica, caller))) is not None:
            standing.failures = 0

    def unreachable(self, replica: str, among: Collection[str], now: float) -> float | None:
        """No connection to it could be made. `among` are the replicas that could have been asked. The seconds for which
        it is ejected by this; None where it is not.
        """
        standing = self._for_all.setdefault(replica, _Standing())
        return self._eject(replica, among, now) if standing.failed(now) else None

    def failed(self, replica: str, caller: str, among: Collection[str], now: float) -> float | None:
        """What a caller sent there failed. As `unreachable`; None also where it is ejected for this caller alone."""
        standing = self._for_caller.setdefault((replica, caller), _Standing())
        self._for_caller.move_to_end((replica, caller))
        while len(self._for_caller) > MAXIMUM_CALLERS:
            self._for_caller.popitem(last=False)
        if not standing.failed(now) or not any(self.weight(one, caller, now) for one in among if one != replica):
            return None
        standing.eject(now)
        agreeing = sum(other.is_out(now) for (address, _), other in self._for_caller.items() if address == replica)
        return self._eject(replica, among, now) if agreeing >= CALLERS_FOR_ALL else None

    def ejected(self, now: float) -> frozenset[str]:
        """The replicas that are ejected for everybody."""
        return frozenset(replica for replica, standing in self._for_all.items() if standing.is_out(now))

    def returned(self, now: float) -> frozenset[str]:
        """Those whose time is over since this was asked last."""
        back = self._out - self.ejected(now)
        self._out -= back
        return frozenset(back)

    def _eject(self, replica: str, among: Collection[str], now: float) -> float | None:
        """Never the last one, and never more than a share of all: then the fault is hardly the replicas' own."""
        out = self.ejected(now)
        if replica in out or len(out) + 1 > max(1, math.floor(LARGEST_SHARE * len(among))):
            return None
        if not any(one not in out for one in among if one != replica):
            return None
        self._out.add(replica)
        return self._for_all.setdefault(replica, _Standing()).eject(now)
