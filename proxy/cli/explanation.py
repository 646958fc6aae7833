"""What becomes of a request, step by step, by the functions that the gateway itself goes through.

A step that fails ends the request; but what does not rest on it is still told, so that an operator sees all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from proxy.assurance.engines import Engines
from proxy.assurance.replica import Engine, served_by
from proxy.directory.borders import projects_by_unit
from proxy.directory.membership import Named, memberships
from proxy.directory.snapshot import Snapshot
from proxy.engines.profile import Operation
from proxy.gateway import Policy
from proxy.identity import Identity
from proxy.isolation.narrowing import Rule
from proxy.isolation.ring import KeyRing
from proxy.isolation.salt import Salt
from proxy.isolation.scope import Scope, narrowest
from proxy.isolation.sharing import Decision
from proxy.isolation.unit import Unit
from proxy.refusals import EngineUnavailable, Refusal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Serving:
    """The engine that would take the model, its replicas that answer, and the endpoints that carry the salt to it.

    Which of them it is proven for is known to the running gate only.
    """

    model: str
    engine: str
    proof: str
    replicas: tuple[str, ...]
    endpoints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sharing:
    """Whose requests may run in the unit: their projects, and those among them that this caller may not enter."""

    projects: tuple[tuple[str, str], ...]
    not_entered: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The rules that hold in the workspace, each with the unit that a match would give, and the narrowest of these.

    Only the running gate looks at requests: this one may match any of them, or none.
    """

    rules: tuple[tuple[str, Unit], ...]
    narrowest: Unit


@dataclass(frozen=True, slots=True)
class WithinSalt:
    """The caller is a saltgate ([[gates]]): each request has another salt, made of the unit's own and of that which it
    stamped.
    """

    epoch: int
    key_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Each step's finding, the refusal that it raised, or None where it was not reached.

    `model` is the models that the scope may use where the request names none.
    """

    identity: Identity | Refusal
    request: Named | Refusal
    directory: Snapshot | Refusal
    memberships: tuple[tuple[str, str], ...] | None = None
    scope: Scope | Refusal | None = None
    model: Serving | tuple[str, ...] | Refusal | None = None
    unit: Decision | Refusal | None = None
    sharing: Sharing | None = None
    narrowing: Narrowing | None = None
    salt: Salt | WithinSalt | Refusal | None = None

    @property
    def steps(self) -> tuple[tuple[str, object], ...]:
        """What each step found, in the order of the gate."""
        return (
            ("identity", self.identity),
            ("request", self.request),
            ("directory", self.directory),
            ("scope", self.scope),
            ("model", self.model),
            ("unit", self.unit),
            ("salt", self.salt),
        )

    @property
    def refusals(self) -> tuple[tuple[str, Refusal], ...]:
        """The steps that refuse: the first is what the caller is told, and none means that the request goes on."""
        return tuple((step, found) for step, found in self.steps if isinstance(found, Refusal))

    @property
    def not_reached(self) -> tuple[str, ...]:
        return tuple(step for step, found in self.steps if found is None)


def explain(
    identity: Identity | Refusal,
    request: Named | Refusal,
    directory: Snapshot | Refusal,
    engines: Engines,
    *,
    model: str | None,
    policy: Policy,
    rules: Sequence[Rule],
    keys: KeyRing,
    now: float,
) -> Explanation:
    """The explanation of a request for `model` at `now` (Unix seconds). `engines` know already what they serve."""
    begun = Explanation(identity=identity, request=request, directory=directory)
    if isinstance(identity, Refusal) or isinstance(directory, Refusal):
        return begun
    known = replace(begun, memberships=tuple(memberships(directory, identity)))
    if isinstance(request, Refusal):
        return known
    scope = outcome(lambda: policy.scope(directory, identity, request))
    if isinstance(scope, Refusal):
        return replace(known, scope=scope)
    scoped = replace(known, scope=scope, model=outcome(lambda: _serving(engines, scope, model)))
    decision = outcome(lambda: scope.decision(model))
    if isinstance(decision, Refusal):
        return replace(scoped, unit=decision)
    return replace(
        scoped,
        unit=decision,
        sharing=_sharing(directory, policy, decision, model, frozenset(memberships(directory, identity))),
        narrowing=_narrowing(scope, model, [rule for rule in rules if rule.holds_in(scope.workspace)]),
        salt=_salt(outcome(lambda: keys.salt(decision.unit, directory.ring, now)), from_gate=policy.is_gate(identity)),
    )


def _narrowing(scope: Scope, model: str | None, rules: Sequence[Rule]) -> Narrowing | None:
    if not rules:
        return None
    units = tuple((rule.name, scope.decision(model, rule.level).unit) for rule in rules)
    return Narrowing(units, scope.decision(model, narrowest(rule.level for rule in rules)).unit)


def _salt(salt: Salt | Refusal, *, from_gate: bool) -> Salt | WithinSalt | Refusal:
    return WithinSalt(salt.epoch, salt.key_id) if from_gate and isinstance(salt, Salt) else salt


def outcome(step: Callable[[], T]) -> T | Refusal:
    """What the step finds, or the refusal that it raises."""
    try:
        return step()
    except Refusal as refusal:
        return refusal


def _serving(engines: Engines, scope: Scope, model: str | None) -> Serving | tuple[str, ...]:
    if model is None:
        return tuple(engines.models(scope))
    engines.model(scope, model)
    try:
        engines.destination(scope, model, engines.endpoint(scope, model, Operation.CHAT))
    except EngineUnavailable as refusal:
        # No endpoint is proven here: that is for the running gate, and for `saltgate check`.
        if refusal.reason != "not_proven":
            raise
    engine = _engine_of(engines, model)
    return Serving(
        model=model,
        engine=engine.name,
        proof=engine.proof,
        replicas=tuple(str(r.pool.address) for r in engine.replicas if r.reachable and r.serves(model)),
        endpoints=tuple(f"{endpoint.method} {endpoint.path}" for endpoint in engine.profile.endpoints),
    )


def _engine_of(engines: Engines, model: str) -> Engine:
    engine = served_by(engines.engines)[model].engine
    if engine is None:
        raise AssertionError("Engines.model refuses a model that two engines serve")
    return engine


def _sharing(
    directory: Snapshot, policy: Policy, decision: Decision, model: str | None, entered: frozenset[tuple[str, str]]
) -> Sharing:
    by_unit = projects_by_unit(directory.directory, policy.unit, model=model)
    projects = by_unit.get(decision.unit, ())
    return Sharing(projects, tuple(project for project in projects if project not in entered))
