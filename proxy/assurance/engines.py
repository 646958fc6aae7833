"""The engines of a deployment: which models they serve, who may take a request, and whether they are ready."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from proxy.assurance.replica import Engine, Model, Replica, pools_for, served_by
from proxy.assurance.watch import PROVEN_PAUSE_SECONDS, Observed, Watch
from proxy.engines.profile import Endpoint, Operation
from proxy.isolation.salt import SaltKey
from proxy.isolation.scope import Scope
from proxy.refusals import EndpointNotAllowed, EngineUnavailable, ModelNotAllowed, ModelNotFound
from proxy.relay.destination import Destination

# From the start, for the first proof of an engine beside one that may take requests. A sound one's takes seconds; one
# that hangs takes minutes to fail it, and a reload is given up after READY_SECONDS of the supervisor's.
AWAITED_SECONDS: Final = 60.0

_log = structlog.get_logger("saltgate.engines")


class Engines:
    """See the module. `follow` keeps it true; `close` closes all connections."""

    def __init__(
        self,
        engines: Sequence[Engine],
        key: SaltKey,
        observed: Observed,
        *,
        again_seconds: float = PROVEN_PAUSE_SECONDS,
        awaited_seconds: float = AWAITED_SECONDS,
    ) -> None:
        """`again_seconds`: how often what is proven is proven again; `awaited_seconds`: how long engines that were not
        tried yet are waited for where others may take requests.
        """
        self.engines = tuple(engines)
        self._again_seconds = again_seconds
        self._awaited_seconds = awaited_seconds
        self._awaits = True
        self._key = key
        self._observed = observed
        self._served = served_by(self.engines)

    @property
    def ready(self) -> bool:
        """Whether at least one engine may take requests now, and each of the others may, too, or was tried since the
        start, or waited for long enough. So nobody is let in while the proof of his engine is under way, and an engine
        that is away, hangs, or comes again later takes no other's requests from it.
        """
        usable = [engine.may_be_used for engine in self.engines]
        if not any(usable):
            return False
        return not self._awaits or all(may or engine.tried for may, engine in zip(usable, self.engines, strict=True))

    def models(self, scope: Scope) -> Sequence[str]:
        """What this scope may use and an engine serves. Raises EngineUnavailable while no engine has told anything."""
        if not self._served:
            self._need_answers()
        return [name for name, served in self._served.items() if _may_use(scope, served.model)]

    def model(self, scope: Scope, model: str) -> None:
        """Raises ModelNotAllowed where this scope cannot use the model, the same whether or not there is one of this
        name; ModelNotFound for a listed model that no engine serves; EngineUnavailable where that is not known.
        """
        self._engine(scope, model)

    def endpoint(self, scope: Scope, model: str, operation: Operation) -> Endpoint:
        """The endpoint of the engine that serves the model. Raises as `model` does, so that only who may use the model
        learns what its engine lacks, and then EndpointNotAllowed.
        """
        engine = self._engine(scope, model)
        endpoint = engine.profile.endpoint(operation)
        if endpoint is None:
            offered = ", ".join(endpoint.path for endpoint in engine.profile.endpoints)
            raise EndpointNotAllowed(
                f"The engine of this model has no such endpoint that keeps customers apart. Use one of: {offered}.",
                param="model",
                reason="kind_lacks_endpoint",
            )
        return endpoint

    def destination(self, scope: Scope, model: str, endpoint: Endpoint, *, with_images: bool = False) -> Destination:
        """Where this request may go, which was read by the endpoint's table: one with images needs a proof of the
        engine's media cache, too.

        Raises as `endpoint` does; and EngineUnavailable where another engine serves the model by now, and where the
        proof forbids it, naming the check.
        """
        engine = self._engine(scope, model)
        if engine.profile.endpoint(endpoint.operation) is not endpoint:
            self.endpoint(scope, model, endpoint.operation)
            raise EngineUnavailable(
                "Another engine serves this model since a moment ago. Send the request again.", reason="engine_changed"
            )
        pools = pools_for(engine, model, endpoint, with_images=with_images)
        return Destination(engine.name, model, pools, engine.patience_with(model), engine.outliers)

    async def follow(self) -> None:
        """Ask and prove until cancelled. Raises what no engine's answer explains: then verdicts would grow old."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._wait_for_proofs(), name="wait for proofs")
            for engine in self.engines:
                for replica in engine.replicas:
                    watch = self._watch(engine, replica)
                    tasks.create_task(watch.follow(), name=f"prove {replica.pool.address}")

    async def _wait_for_proofs(self) -> None:
        await asyncio.sleep(self._awaited_seconds)
        self._awaits = False

    def close(self) -> None:
        for engine in self.engines:
            for replica in engine.replicas:
                replica.pool.close()

    def _engine(self, scope: Scope, model: str) -> Engine:
        served = self._served.get(model)
        if scope.models is not None and model not in scope.models:
            raise _not_allowed()
        if served is None or (scope.models is None and not served.model.base):
            self._need_answers()  # first, so that a model that is not the caller's looks like one that is not there
            raise _not_allowed() if scope.models is None else _not_found()
        if served.engine is None:
            raise EngineUnavailable(
                "Two engines serve a model of this name, so saltgate does not choose. The operator names the model "
                "under one engine's `models`.",
                reason="model_at_two_engines",
            )
        return served.engine

    def _need_answers(self) -> None:
        """An engine that has not told its models may serve this one: then the fault is ours."""
        for engine in self.engines:
            if engine.models is None and not engine.served():
                raise EngineUnavailable(
                    "An engine cannot be reached, so its models are not known. Try again in a moment.",
                    reason="models_not_told",
                )

    def _watch(self, engine: Engine, replica: Replica) -> Watch:
        told = partial(self._told, engine)
        return Watch(engine, replica, self._key, self._observed, told=told, again_seconds=self._again_seconds)

    def _told(self, engine: Engine) -> None:
        """A replica of the engine serves other models than before."""
        before, self._served = self._served, served_by(self.engines)
        for name, served in self._served.items():
            if served.engine is None and (name not in before or before[name].engine is not None):
                _log.error("engine.model_twice", model=name, engine=engine.name)


def _may_use(scope: Scope, model: Model) -> bool:
    """A project that lists models may use those; one that lists none may use every base model (contract section 4)."""
    return model.base if scope.models is None else model.id in scope.models


def _not_allowed() -> ModelNotAllowed:
    return ModelNotAllowed(
        "This model is not among those that your project may use. See GET /v1/models.", param="model"
    )


def _not_found() -> ModelNotFound:
    return ModelNotFound(
        "Your project may use this model, but no engine serves it now. Ask your operator.", param="model"
    )
