"""From the history to what the pages are given. Pure: the time, and what only workers know, are handed in."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from observability.history.answers import (
    WINDOWS,
    Alarm,
    EngineReplica,
    Figures,
    Gate,
    Model,
    Overview,
    Points,
    Project,
    Refusals,
    Request,
    RequestSpan,
    ScopeView,
    Workspace,
)
from observability.history.history import Key
from observability.history.recent import Recent
from observability.history.speed import PrefillSpeeds
from observability.history.summary import Summary
from observability.history.tally import Tally, quantile, sum_of
from observability.history.timeline import LEVELS, Timeline
from observability.names import OTHER
from observability.waterfall import waterfall

SLOTS: Final = 60
SCOPES_A_STEP: Final = 4
_LAST: Final = len(LEVELS) - 1

Open = Mapping[tuple[str, str], int]


class Past(Protocol):
    """A history, of this gate or of others."""

    @property
    def since(self) -> float: ...

    @property
    def recent(self) -> Recent: ...

    @property
    def speeds(self) -> PrefillSpeeds: ...

    def timelines(self) -> Iterator[tuple[Key, Timeline]]: ...


@dataclass(frozen=True, slots=True)
class Window:
    """The 60 newest slots of a level, as of `now`."""

    name: str
    level: int
    now: float

    @property
    def step(self) -> int:
        return LEVELS[self.level].seconds

    @property
    def newest(self) -> int:
        return int(self.now) // self.step

    @property
    def first(self) -> int:
        return self.newest - SLOTS + 1

    def before(self, timeline: Timeline) -> Tally:
        """What happened in the time of the same length before it, read from the next level where that is coarser."""
        level = min(self.level + 1, _LAST)
        seconds = LEVELS[level].seconds
        end = self.first * self.step // seconds
        begin = end - SLOTS * self.step // seconds
        return sum_of(tally for slot, tally in timeline.at(level, begin) if slot < end)


def window_of(name: str, now: float) -> Window:
    """Raises KeyError for a name that is none."""
    return Window(name, WINDOWS[name], now)


@dataclass(slots=True)
class _Group:
    """Timelines together: their sums slot by slot. `saved` None: of no model is it known how fast it prefills."""

    slots: list[Tally | None] = field(default_factory=lambda: [None] * SLOTS)
    before: Tally = field(default_factory=Tally)
    saved: float | None = None
    open_streams: int = 0

    def include(self, timeline: Timeline, window: Window, seconds_per_token: float | None) -> None:
        reused = 0
        for slot, tally in timeline.at(window.level, window.first):
            self._add(min(slot - window.first, SLOTS - 1), tally)
            reused += tally.reused
        self.before.add(window.before(timeline))
        if seconds_per_token is not None:
            self.saved = (self.saved or 0.0) + reused * seconds_per_token

    def add(self, other: _Group) -> None:
        for position, tally in enumerate(other.slots):
            if tally is not None:
                self._add(position, tally)
        self.before.add(other.before)
        self.open_streams += other.open_streams
        if other.saved is not None:
            self.saved = (self.saved or 0.0) + other.saved

    def total(self) -> Tally:
        return sum_of(tally for tally in self.slots if tally is not None)

    def figures(self, *, with_points: bool = True) -> dict[str, Any]:
        """The fields of `Figures`."""
        total = self.total()
        return {
            "requests": total.requests,
            "outcomes": total.by_outcome(),
            "open_streams": self.open_streams,
            "ttft_p50": _rounded(total.quantile(0.5)),
            "ttft_p95": _rounded(total.quantile(0.95)),
            "prompt_tokens": total.prompt,
            "reused_tokens": total.reused,
            "output_tokens": total.output,
            "reuse_rate": _rounded(total.reuse_rate),
            "reuse_rate_before": _rounded(self.before.reuse_rate),
            "prefill_seconds_saved": _rounded(self.saved),
            "points": self._points() if with_points else None,
        }

    def _points(self) -> Points:
        tallies = [_NOTHING if tally is None else tally for tally in self.slots]
        return Points(
            requests=[tally.requests for tally in tallies],
            failed=[tally.failed for tally in tallies],
            reuse_rate=[_rounded(tally.reuse_rate) for tally in tallies],
            ttft_p50=[_rounded(quantile(tally.first_tokens, 0.5)) for tally in tallies],
            ttft_p95=[_rounded(quantile(tally.first_tokens, 0.95)) for tally in tallies],
        )

    def _add(self, position: int, tally: Tally) -> None:
        known = self.slots[position]
        if known is None:
            known = self.slots[position] = Tally()
        known.add(tally)


_NOTHING: Final = Tally()


@dataclass(frozen=True, slots=True)
class Around:
    """What the workers tell now, beside the history."""

    gate: Gate
    alarms: tuple[Alarm, ...]
    engines: tuple[EngineReplica, ...]
    open_streams: Open


def overview(histories: Iterable[Past], window: Window, around: Around) -> Overview:
    """`histories` is this gate's own first, then those of others that it shows, too."""
    steps = overview_in_steps(histories, window, around)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: Overview = end.value
            return made


def overview_in_steps(histories: Iterable[Past], window: Window, around: Around) -> Generator[None, None, Overview]:
    """As `overview`, in steps of a millisecond or so: between them other work may have its turn."""
    histories = tuple(histories)
    scopes = yield from _by_scope(histories, window, around.open_streams)
    total = _Group()
    workspaces: dict[str, list[Project]] = {}
    sums: dict[str, _Group] = {}
    for number, ((workspace, project), group) in enumerate(sorted(scopes.items()), start=1):
        total.add(group)
        if workspace not in ("", OTHER):
            sums.setdefault(workspace, _Group()).add(group)
            workspaces.setdefault(workspace, []).append(Project(project=project, **group.figures()))
        if number % SCOPES_A_STEP == 0:
            yield
    listed = []
    for name, projects in workspaces.items():
        listed.append(Workspace(workspace=name, projects=projects, **sums[name].figures()))
        yield
    other, unscoped = scopes.get((OTHER, OTHER)), scopes.get(("", ""))
    return Overview(
        now=window.now,
        window=window.name,
        step=window.step,
        since=min(history.since for history in histories),
        gate=around.gate,
        total=Figures(**total.figures()),
        workspaces=listed,
        other=None if other is None else Figures(**other.figures()),
        unscoped=None if unscoped is None else Figures(**unscoped.figures(with_points=False)),
        refusals=_refusals(total.total()),
        alarms=list(around.alarms),
        engines=list(around.engines),
    )


def scope_view(
    histories: Iterable[Past], window: Window, workspace: str, project: str, open_streams: Open
) -> ScopeView | None:
    """None where nothing is known of such a scope."""
    histories = tuple(histories)
    whole, models = _Group(open_streams=open_streams.get((workspace, project), 0)), dict[str, _Group]()
    for history in histories:
        for key, timeline in history.timelines():
            if (key.workspace, key.project) == (workspace, project):
                models.setdefault(key.model, _Group()).include(timeline, window, _speed(histories, key.model))
    recent = _newest_of(histories, workspace, project)
    if not models and not recent and not whole.open_streams:
        return None
    for group in models.values():
        whole.add(group)
    return ScopeView(
        now=window.now,
        window=window.name,
        step=window.step,
        since=min(history.since for history in histories),
        workspace=workspace,
        project=project,
        models=[
            Model(model=model, **group.figures(with_points=False)) for model, group in sorted(models.items()) if model
        ],
        refusals=_refusals(whole.total()),
        recent=[request_view(summary) for summary in recent],
        **whole.figures(),
    )


def request_view(summary: Summary) -> Request:
    fields = {name: getattr(summary, name) for name in Summary.__struct_fields__ if name != "times"}
    fields["spans"] = [RequestSpan.of(bar) for bar in waterfall(summary.times)]
    fields["finish_reasons"] = list(summary.finish_reasons)
    return Request(**fields)


def found(histories: Iterable[Past], request_id: str) -> Request | None:
    for history in histories:
        summary = history.recent.find(request_id)
        if summary is not None:
            return request_view(summary)
    return None


def _by_scope(
    histories: Iterable[Past], window: Window, open_streams: Open
) -> Generator[None, None, dict[tuple[str, str], _Group]]:
    scopes = {scope: _Group(open_streams=number) for scope, number in open_streams.items() if number}
    histories = tuple(histories)
    for history in histories:
        for number, (key, timeline) in enumerate(tuple(history.timelines()), start=1):
            group = scopes.setdefault((key.workspace, key.project), _Group())
            group.include(timeline, window, _speed(histories, key.model))
            if number % SCOPES_A_STEP == 0:
                yield
    return scopes


def _speed(histories: Iterable[Past], model: str) -> float | None:
    """Of the first that knows it: this gate's own, where it does."""
    known = (history.speeds.seconds_per_token(model) for history in histories)
    return next((speed for speed in known if speed is not None), None)


def _newest_of(histories: Iterable[Past], workspace: str, project: str) -> list[Summary]:
    found = [summary for history in histories for summary in history.recent.of((workspace, project))]
    return sorted(found, key=lambda summary: summary.started + summary.duration, reverse=True)[:100]


def _refusals(tally: Tally) -> list[Refusals]:
    return [Refusals(code, count) for code, count in sorted(tally.refusals.items(), key=lambda one: (-one[1], one[0]))]


def _rounded(value: float | None) -> float | None:
    """Four digits: more than anybody reads, and a third of the bytes."""
    return None if value is None else float(f"{value:.4g}")
