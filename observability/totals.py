"""What all workers counted, added up, for as long as saltgate runs: within bounds, whatever they count.

A scope or a model that is over the bound is counted under `__other__`, so that sums over all stay right. Where the
bound is reached, one that counted nothing for a while makes room for a new one: its series end. They do not fall, and
what they held is added to no other, which would look like requests. When it comes back it begins at zero.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import add
from typing import Final, Generic, TypeVar

from observability import families
from observability.counted import Counted, Exemplar, Row, State
from observability.families import Family
from observability.label_text import label_text
from observability.layouts import LAYOUTS, MODEL, OWN, SCOPE, Labels, Layout, Number, Part
from observability.names import OTHER, OUTCOMES
from observability.naming import Naming, plain

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many scopes and models may have series of their own, and after how many idle seconds one makes room; how many
    exemplars all rows may have together, which take a third of a kilobyte each.
    """

    scopes: int = 1000
    models: int = 100
    idle_seconds: float = 3600.0
    exemplars: int = 10_000


@dataclass(slots=True)
class Total:
    """A row's numbers since `born`, Unix seconds. `shown` are its labels as they are told outside, `text` the same as
    the exposition formats write them; `exemplars` are by the place of their bucket.
    """

    labels: Labels
    shown: Labels
    text: str
    numbers: list[Number]
    born: float
    exemplars: dict[int, Exemplar] = field(default_factory=dict)


def is_there(part: Part, total: Total) -> bool:
    """Whether the row has this series. Without a model none is born: a request that ended before its model was
    confirmed has no tokens to tell.
    """
    is_born = part.is_born and not (part.needs_model and not total.labels[-1])
    return is_born or any(total.numbers[part.at : part.end])


class Totals:
    """See the module. `monotonic` are seconds, `wall_clock` Unix seconds. `bounds` may be changed at any time: a lower
    one takes effect as series become idle.
    """

    def __init__(
        self,
        bounds: Bounds,
        *,
        monotonic: Callable[[], float],
        wall_clock: Callable[[], float],
        naming: Naming = plain,
    ) -> None:
        self.bounds = bounds
        self._naming = naming
        self._monotonic = monotonic
        self._wall_clock = wall_clock
        self.born = wall_clock()
        self._scopes: _Admitted[dict[str, Total]] = _Admitted()
        self._models: _Admitted[Total] = _Admitted()
        self._own: dict[str, dict[Labels, Total]] = {key: {} for key in LAYOUTS}
        self._exemplars: OrderedDict[tuple[Labels, int], dict[int, Exemplar]] = OrderedDict()
        self.count(families.METRICS_OVERFLOW, "scope", times=0)
        self.count(families.METRICS_OVERFLOW, "model", times=0)
        self.count(families.METRICS_EVICTED, "scope", times=0)
        self.count(families.METRICS_EVICTED, "model", times=0)

    def add(self, counted: Counted) -> None:
        """What a worker told, once."""
        now = self._monotonic()
        for rows in counted.counts:
            layout = LAYOUTS[rows.layout]
            for row in rows.rows:
                total = self._total(layout, row, now)
                total.numbers = [*map(add, total.numbers, row.increases)]
                if row.exemplars:
                    self._exemplify(total, row.exemplars)

    def count(self, family: Family, *labels: str, times: float = 1) -> None:
        """One more of a family that is counted by itself."""
        self._own_total(OWN[family.name], labels).numbers[0] += times

    def counted(self, family: Family) -> dict[Labels, Number]:
        """How often each was counted, of a counter that is counted by itself; by its label values."""
        return {labels: total.numbers[0] for labels, total in self._own[OWN[family.name].key].items()}

    def rows(self, layout: Layout) -> list[Total]:
        """All rows of the layout now."""
        if layout is SCOPE:
            return [total for models in self._scopes for total in models.values()]
        if layout is MODEL:
            return list(self._models)
        return list(self._own[layout.key].values())

    def states(self) -> list[State]:
        """How full the bounds are."""
        return [
            State(families.METRICS_SCOPES.name, (), len(self._scopes)),
            State(families.METRICS_SCOPES_LIMIT.name, (), self.bounds.scopes),
        ]

    def model(self, name: str) -> str:
        """What the model is called: its own name, or `__other__`."""
        return name if self._models.knows((name,)) else OTHER

    def rename(self, naming: Naming) -> None:
        """From now on scopes are called so."""
        self._naming = naming
        for total in self.rows(SCOPE):
            total.shown = naming(total.labels)
            total.text = label_text(SCOPE.labels, total.shown)

    def _total(self, layout: Layout, row: Row, now: float) -> Total:
        if layout is SCOPE:
            return self._scope_total(row, now)
        if layout is MODEL:
            self._count_overhead(row)
            return self._model_total(row.labels, now)
        return self._own_total(layout, row.labels)

    def _scope_total(self, row: Row, now: float) -> Total:
        workspace, project, name = row.labels
        requests = sum(row.increases[: len(OUTCOMES)])
        (model,) = self._model_total((name,), now).labels
        scope: Labels = (workspace, project)
        scope = scope if self._scopes.knows(scope) else self._room_for_scope(scope, now)
        if scope == _OTHER_SCOPE:
            self.count(families.METRICS_OVERFLOW, "scope", times=requests)
        if model == OTHER:
            self.count(families.METRICS_OVERFLOW, "model", times=requests)
        models = self._scopes.find(scope, now)
        if models is None:
            models = self._scopes.keep(scope, {}, now)
        total = models.get(model)
        if total is None:
            total = models[model] = self._new(SCOPE, (*scope, model))
        return total

    def _model_total(self, labels: Labels, now: float) -> Total:
        model = labels if self._models.knows(labels) else self._room_for_model(labels, now)
        return self._models.find(model, now) or self._models.keep(model, self._new(MODEL, model), now)

    def _room_for_scope(self, scope: Labels, now: float) -> Labels:
        """The labels of a scope that has no series yet."""
        if len(self._scopes) < self.bounds.scopes:
            return scope
        if self._scopes.give_up_idle(now - self.bounds.idle_seconds) is None:
            return _OTHER_SCOPE
        self.count(families.METRICS_EVICTED, "scope")
        return scope

    def _room_for_model(self, model: Labels, now: float) -> Labels:
        """The label of a model that has no series yet. One that makes room leaves every scope."""
        if len(self._models) < self.bounds.models:
            return model
        idle = self._models.give_up_idle(now - self.bounds.idle_seconds)
        if idle is None:
            return _OTHER_MODEL
        self.count(families.METRICS_EVICTED, "model")
        for models in self._scopes:
            models.pop(idle[0], None)
        return model

    def _own_total(self, layout: Layout, labels: Labels) -> Total:
        rows = self._own[layout.key]
        total = rows.get(labels)
        if total is None:
            total = rows[labels] = self._new(layout, labels)
        return total

    def _new(self, layout: Layout, labels: Labels) -> Total:
        shown = self._naming(labels) if layout is SCOPE else labels
        return Total(labels, shown, label_text(layout.labels, shown), layout.zeros(), self._wall_clock())

    def _count_overhead(self, row: Row) -> None:
        """Over all models, the gate's time by stage is the sum of the models'."""
        for part in _OVERHEAD:
            total = self._own_total(OWN[families.OVERHEAD.name], part.own)
            total.numbers = [*map(add, total.numbers, row.increases[part.at : part.end])]

    def _exemplify(self, total: Total, exemplars: Iterable[Exemplar]) -> None:
        """The newest of each bucket, and of all together the newest."""
        for one in exemplars:
            known = total.exemplars.get(one.at)
            if known is not None and known.time >= one.time:
                continue
            total.exemplars[one.at] = one
            key = (total.labels, one.at)
            self._exemplars[key] = total.exemplars
            self._exemplars.move_to_end(key)
            if len(self._exemplars) > self.bounds.exemplars:
                (_, at), holder = self._exemplars.popitem(last=False)
                holder.pop(at, None)


_OVERHEAD: Final = MODEL.of(families.MODEL_OVERHEAD)
_OTHER_SCOPE: Final = (OTHER, OTHER)
_OTHER_MODEL: Final = (OTHER,)
_APART: Final = frozenset({("", ""), ("",), _OTHER_SCOPE, _OTHER_MODEL})


@dataclass(slots=True)
class _Entry(Generic[V]):
    value: V
    active: float


class _Admitted(Generic[V]):
    """What has series of its own, the longest idle first. Those of nobody and of all others are apart: they count for
    no bound and are never given up.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Labels, _Entry[V]] = OrderedDict()
        self._apart: dict[Labels, V] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[V]:
        yield from self._apart.values()
        for entry in self._entries.values():
            yield entry.value

    def knows(self, key: Labels) -> bool:
        return key in self._entries or key in _APART

    def find(self, key: Labels, now: float) -> V | None:
        """What it has, if it is there; it is active now."""
        entry = self._entries.get(key)
        if entry is None:
            return self._apart.get(key)
        entry.active = now
        self._entries.move_to_end(key)
        return entry.value

    def keep(self, key: Labels, value: V, now: float) -> V:
        if key in _APART:
            self._apart[key] = value
        else:
            self._entries[key] = _Entry(value, now)
        return value

    def give_up_idle(self, since: float) -> Labels | None:
        """The one that was idle longest, given up, if it was so since then."""
        if not self._entries:
            return None
        key, entry = next(iter(self._entries.items()))
        if entry.active > since:
            return None
        del self._entries[key]
        return key
