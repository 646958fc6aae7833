"""All of what happened lately, within its bounds."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from observability.history.recent import Recent
from observability.history.speed import PrefillSpeeds
from observability.history.summary import Summary
from observability.history.timeline import Timeline
from observability.names import OTHER

# Who was idle for so long may make room for a scope that is new.
IDLE_SECONDS: Final = 900.0
MOST_MODELS: Final = 100
OF_SCOPE: Final = 100
MOST_OUTGOING: Final = 1000
# How many timelines are looked through for old slots with each request that is counted.
_TRIM_EVERY: Final = 4096


class Key(NamedTuple):
    """Whose timeline it is. Empty: not confirmed, or not known yet; `OTHER`: beyond the bound."""

    workspace: str
    project: str
    model: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """`scopes` are pairs of a scope and a model that have a timeline of their own, `recent` single requests in all.
    `kept`: somebody empties `History.outbox`.
    """

    scopes: int
    recent: int
    kept: bool = False


class History:
    """See the module. `since` is from when on there is anything, Unix seconds.

    A scope beyond the bound takes the place of the one that was idle the longest, if that was for a quarter of an hour;
    else it counts as `OTHER`. What was counted of one that gives way goes to `OTHER`, too: sums stay right.
    """

    def __init__(self, bounds: Bounds, *, since: float) -> None:
        self.bounds = bounds
        self.since = since
        self.speeds = PrefillSpeeds(MOST_MODELS)
        self.recent = Recent(most=bounds.recent, of_scope=OF_SCOPE, scopes=bounds.scopes)
        # Those that are to be kept elsewhere, too; of very many the last.
        self.outbox: deque[Summary] = deque(maxlen=MOST_OUTGOING if bounds.kept else 0)
        self._timelines: OrderedDict[Key, Timeline] = OrderedDict()
        self._beyond: dict[Key, Timeline] = {}
        self._counted = 0

    def add(self, summary: Summary, now: float) -> None:
        """A request that has ended, as of now."""
        self._timeline(_key(summary), now).count(summary, now)
        self.speeds.note(summary)
        self.recent.add(summary)
        self.outbox.append(summary)
        self._counted += 1
        if self._counted % _TRIM_EVERY == 0:
            self._trim(now)

    def timelines(self) -> Iterator[tuple[Key, Timeline]]:
        """Those within the bound, then `OTHER`."""
        yield from self._timelines.items()
        yield from self._beyond.items()

    def __len__(self) -> int:
        return len(self._timelines)

    def _timeline(self, key: Key, now: float) -> Timeline:
        known = self._timelines.get(key)
        if known is not None:
            self._timelines.move_to_end(key)
            return known
        if len(self._timelines) >= self.bounds.scopes and not self._make_room(now):
            return self._other(key.model)
        made = self._timelines[key] = Timeline()
        return made

    def _make_room(self, now: float) -> bool:
        idle, timeline = next(iter(self._timelines.items()))
        if now - timeline.touched < IDLE_SECONDS:
            return False
        del self._timelines[idle]
        timeline.trim(now)
        self._other(idle.model).absorb(timeline)
        return True

    def _other(self, model: str) -> Timeline:
        key = Key(OTHER, OTHER, model)
        if key not in self._beyond and len(self._beyond) >= MOST_MODELS:
            key = Key(OTHER, OTHER, OTHER)
        return self._beyond.setdefault(key, Timeline())

    def _trim(self, now: float) -> None:
        for _, timeline in self.timelines():
            timeline.trim(now)


def _key(summary: Summary) -> Key:
    return Key(summary.workspace or "", summary.project or "", summary.model or "")
