"""The engines as they are configured, their replicas, and what is known of each at this moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from proxy.assurance.about import NOTHING_TOLD, About
from proxy.assurance.media_proof import MEDIA_NOT_PROBED
from proxy.assurance.verdict import NOT_PROBED, Finding
from proxy.engines.kinds import VLLM
from proxy.engines.profile import Endpoint, Operation, Profile
from proxy.refusals import EngineUnavailable
from proxy.relay.outliers import Outliers
from proxy.relay.patience import Patience
from proxy.relay.pool import Pool


@dataclass(frozen=True, slots=True)
class Model:
    """A model that an engine serves. An adapter (LoRA) is no base model: a project must list it to use it."""

    id: str
    base: bool


class Replica:
    """One replica: its connections, its models as it last told them, and the finding for each endpoint.

    `new_pool` makes the pool anew whenever what is behind the address may have changed.
    """

    def __init__(self, new_pool: Callable[[], Pool]) -> None:
        self._new_pool = new_pool
        self.pool = new_pool()
        self.reachable = False
        # Whether it was ever asked and proven to the end, with whatever result, or could not be reached.
        self.tried = False
        self.models: tuple[Model, ...] = ()
        self.findings: dict[Operation, Finding] = {}
        self.media: Finding = MEDIA_NOT_PROBED
        # What was found before the leash broke, and of which process: valid again if it turns out to be the same.
        self.suspended: dict[Operation, Finding] = {}
        self.process: bytes | None = None
        self.about: About = NOTHING_TOLD

    def finding(self, operation: Operation) -> Finding:
        return self.findings.get(operation, NOT_PROBED)

    def lacking(
        self, operation: Operation, proof: Literal["strict", "warn", "off"], with_images: bool
    ) -> Finding | None:
        """What forbids a request here under the engine's `proof` setting; None where nothing does."""
        finding = self.findings.get(operation, NOT_PROBED)
        if not finding.allows(proof):
            return finding
        return self.media if with_images and not self.media.allows(proof) else None

    def serves(self, model: str) -> bool:
        """Whether it told of this model, or has not told yet what it serves."""
        return not self.models or any(told.id == model for told in self.models)

    def settled(self, profile: Profile) -> bool:
        """Whether every endpoint has been probed, the media cache too where images may come, and at least one endpoint
        may be used under `strict`.
        """
        probed = len(self.findings) == len(profile.salted) and not (
            profile.takes_images and self.media is MEDIA_NOT_PROBED
        )
        return probed and any(finding.allows("strict") for finding in self.findings.values())

    def may_be_used(self, proof: Literal["strict", "warn", "off"], profile: Profile) -> bool:
        """Whether it may take requests now, at one endpoint at least."""
        return self.reachable and (proof != "strict" or self.settled(profile))

    def suspend(self) -> None:
        """Nothing is known any more of what answers at this address."""
        if self.findings:
            self.suspended = dict(self.findings)
        self.findings.clear()
        self.media = MEDIA_NOT_PROBED
        self.reachable = False
        self.pool.close()
        self.pool = self._new_pool()


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine as configured, with its replicas and the profile of its kind. `models` is None where the engine
    itself is asked. `patience` is for all models but those that have their own.
    """

    name: str
    proof: Literal["strict", "warn", "off"]
    models: frozenset[str] | None
    replicas: tuple[Replica, ...]
    patience: Patience
    profile: Profile = VLLM
    model_patience: Mapping[str, Patience] = field(default_factory=dict)
    outliers: Outliers = field(default_factory=Outliers)

    def served(self) -> dict[str, Model]:
        """The models by id. What the configuration names is served, also while no replica has told of it."""
        told = {model.id: model for replica in self.replicas for model in replica.models}
        if self.models is None:
            return told
        return {model: told.get(model, Model(model, base=True)) for model in sorted(self.models)}

    @property
    def may_be_used(self) -> bool:
        """Whether a replica of it may take requests now."""
        return any(replica.may_be_used(self.proof, self.profile) for replica in self.replicas)

    @property
    def tried(self) -> bool:
        """Whether all its replicas were tried, so that no better is to be had soon by waiting for it."""
        return all(replica.tried for replica in self.replicas)

    def patience_with(self, model: str) -> Patience:
        return self.model_patience.get(model, self.patience)


@dataclass(frozen=True, slots=True)
class Served:
    """A model and the engine to ask for it; None where two engines tell of it and the configuration of neither does."""

    model: Model
    engine: Engine | None


def served_by(engines: Sequence[Engine]) -> Mapping[str, Served]:
    """All models by id. An engine that is configured to serve a model is the one that serves it."""
    found: dict[str, Served] = {}
    for engine in sorted(engines, key=lambda engine: engine.models is None):
        for model in engine.served().values():
            before = found.get(model.id)
            if before is None:
                found[model.id] = Served(model, engine)
            elif before.engine is None or before.engine.models is None:
                found[model.id] = Served(Model(model.id, base=before.model.base and model.base), None)
    return found


def pools_for(engine: Engine, model: str, endpoint: Endpoint, *, with_images: bool) -> Sequence[Pool]:
    """Where a request for the model may be sent: to the replicas that serve it and are proven at this endpoint. Raises
    EngineUnavailable where there is none, naming the check.
    """
    operation = endpoint.operation
    only = engine.replicas[0] if len(engine.replicas) == 1 else None
    if only is not None and only.reachable and only.lacking(operation, engine.proof, with_images) is None:
        return (only.pool,)  # nearly always; what follows would say the same
    serving = [replica for replica in engine.replicas if replica.serves(model)] or engine.replicas
    if endpoint.salt is None:
        allowed = list(serving)  # it computes no prompt: there is nothing to prove
    else:
        allowed = [replica for replica in serving if replica.lacking(operation, engine.proof, with_images) is None]
    reachable = [replica.pool for replica in allowed if replica.reachable]
    if reachable:
        return reachable
    if allowed:
        return [replica.pool for replica in allowed]  # the relay finds out, and says so
    if not any(replica.reachable for replica in serving):
        raise EngineUnavailable("No engine that serves this model can be reached. Try again in a moment.")
    reachable_one = next(replica for replica in serving if replica.reachable)
    lacking = reachable_one.lacking(operation, engine.proof, with_images)
    check = (lacking or reachable_one.finding(operation)).check
    raise EngineUnavailable(
        f"The engine is not proven to keep customers apart on this endpoint: {check}.", reason="not_proven"
    )
