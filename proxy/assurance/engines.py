"""The engines of a deployment: which models they serve, what is proven of each endpoint, who may take a request.

One task per replica asks and proves, again and again: quickly while something is unknown, rarely once it is proven, at
once when the replica was away. A replica that cannot be reached loses its verdicts: what comes back may be another
engine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Literal, Protocol, Self

import structlog

from proxy.assurance.proof import prove
from proxy.assurance.verdict import NOT_PROBED, Finding, Verdict
from proxy.engines.profile import ENDPOINTS, Endpoint, Operation
from proxy.isolation.salt import SaltKey
from proxy.isolation.scope import Scope
from proxy.refusals import EngineUnavailable, ModelNotAllowed, ModelNotFound
from proxy.relay.leg import Question
from proxy.relay.pool import Pool
from proxy.relay.question import EngineUnreachable, ask

QUESTION_SECONDS: Final = 10.0
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 15.0
PROVEN_PAUSE_SECONDS: Final = 300.0
# How often a proven replica is asked whether it is still there: a restarted engine is proven anew.
WATCH_SECONDS: Final = 5.0

_log = structlog.get_logger("saltgate.engines")


@dataclass(frozen=True, slots=True)
class Model:
    """A model that an engine serves. An adapter (LoRA) is no base model: a project must list it to use it."""

    id: str
    base: bool


class Replica:
    """One replica: its connections, its models as it last told them, and the finding for each endpoint."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.reachable = False
        self.models: tuple[Model, ...] = ()
        self.findings: dict[Operation, Finding] = {}

    def finding(self, operation: Operation) -> Finding:
        return self.findings.get(operation, NOT_PROBED)

    @property
    def settled(self) -> bool:
        """Whether every endpoint has been probed, and at least one may be used under `strict`."""
        return len(self.findings) == len(ENDPOINTS) and any(
            finding.allows("strict") for finding in self.findings.values()
        )


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine as configured, with its replicas. `models` is None where the engine itself is asked."""

    name: str
    proof: Literal["strict", "warn", "off"]
    models: frozenset[str] | None
    replicas: tuple[Replica, ...]

    def served(self) -> dict[str, Model]:
        """The models by id. What the configuration names is served, also while no replica has told of it."""
        told = {model.id: model for replica in self.replicas for model in replica.models}
        if self.models is None:
            return told
        return {model: told.get(model, Model(model, base=True)) for model in sorted(self.models)}


class Observed(Protocol):
    """Who is told of an engine's state, for metrics."""

    def __call__(self, engine: str, replica: str, operation: str, verdict: Verdict) -> None: ...


class Engines(AbstractAsyncContextManager["Engines"]):
    """See the module. Enter it to start proving; leave it to stop and to close all connections."""

    def __init__(self, engines: Sequence[Engine], key: SaltKey, observed: Observed) -> None:
        self._engines = tuple(engines)
        self._key = key
        self._observed = observed
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for engine in self._engines:
            for replica in engine.replicas:
                self._tasks.append(loop.create_task(self._watch(engine, replica), name=f"prove {replica.pool.address}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for engine in self._engines:
            for replica in engine.replicas:
                replica.pool.close()

    @property
    def engines(self) -> tuple[Engine, ...]:
        return self._engines

    @property
    def ready(self) -> bool:
        """Whether at least one replica may take requests now."""
        return any(
            replica.reachable and (engine.proof != "strict" or replica.settled)
            for engine in self._engines
            for replica in engine.replicas
        )

    def models(self) -> Sequence[Model]:
        return [model for engine in self._engines for model in engine.served().values()]

    def replicas(self, scope: Scope, model: str, operation: Operation) -> Sequence[Pool]:
        """Who may take this request, at least one.

        Raises ModelNotAllowed, the same whether or not there is such a model; ModelNotFound for a listed model that no
        engine serves; EngineUnavailable where the proof forbids it, naming the check.
        """
        engine = self._engine_of(model)
        if scope.models is None:
            if engine is None:
                self._need_answers()
            if engine is None or not engine.served()[model].base:
                raise _not_allowed()
        elif model not in scope.models:
            raise _not_allowed()
        if engine is None:
            self._need_answers()
            raise ModelNotFound(
                "Your project may use this model, but no engine serves it now. Ask your operator.", param="model"
            )
        return self._allowed(engine, operation)

    def _engine_of(self, model: str) -> Engine | None:
        return next((engine for engine in self._engines if model in engine.served()), None)

    def _need_answers(self) -> None:
        """An engine that has not told its models may serve this one: then the fault is ours."""
        for engine in self._engines:
            if engine.models is None and not engine.served():
                raise EngineUnavailable(
                    "An engine cannot be reached, so its models are not known. Try again in a moment."
                )

    def _allowed(self, engine: Engine, operation: Operation) -> Sequence[Pool]:
        allowed = [r for r in engine.replicas if r.finding(operation).allows(engine.proof)]
        reachable = [replica.pool for replica in allowed if replica.reachable]
        if reachable:
            return reachable
        if allowed:
            return [replica.pool for replica in allowed]  # the relay finds out, and says so
        check = engine.replicas[0].finding(operation).check
        raise EngineUnavailable(
            f"The engine is not proven to keep customers apart on this endpoint: {check}.", reason="not_proven"
        )

    async def _watch(self, engine: Engine, replica: Replica) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._learn(engine, replica)
            except EngineUnreachable as error:
                self._forget(engine, replica, str(error))
            if replica.reachable and (engine.proof == "off" or replica.settled):
                pause = FIRST_PAUSE_SECONDS
                await self._rest(engine, replica)
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _rest(self, engine: Engine, replica: Replica) -> None:
        """Until it is time to prove again: because much time has passed, or because the replica was away."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PROVEN_PAUSE_SECONDS
        while loop.time() < until:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                replica.models = await _ask_models(replica.pool)
            except EngineUnreachable as error:
                self._forget(engine, replica, str(error))
                return

    async def _learn(self, engine: Engine, replica: Replica) -> None:
        replica.models = await _ask_models(replica.pool)
        if not replica.reachable:
            _log.info("engine.reached", engine=engine.name, replica=str(replica.pool.address))
        replica.reachable = True
        model = next((m.id for m in replica.models if m.base and m.id in engine.served()), None)
        if engine.proof == "off" or model is None:
            return
        for endpoint in ENDPOINTS:
            self._found(engine, replica, endpoint, await prove(replica.pool, endpoint, model, self._key))

    def _found(self, engine: Engine, replica: Replica, endpoint: Endpoint, finding: Finding) -> None:
        before = replica.findings.get(endpoint.operation)
        replica.findings[endpoint.operation] = finding
        self._observed(engine.name, str(replica.pool.address), endpoint.operation.value, finding.verdict)
        if before == finding:
            return
        level = _log.error if finding.verdict is Verdict.FAILED else _log.info
        level(
            "engine.proof",
            engine=engine.name,
            replica=str(replica.pool.address),
            endpoint=endpoint.path,
            verdict=finding.verdict.value,
            check=finding.check,
        )

    def _forget(self, engine: Engine, replica: Replica, why: str) -> None:
        if replica.reachable:
            _log.warning("engine.lost", engine=engine.name, replica=str(replica.pool.address), why=why)
        replica.reachable = False
        replica.findings.clear()
        for endpoint in ENDPOINTS:
            self._observed(engine.name, str(replica.pool.address), endpoint.operation.value, Verdict.UNKNOWN)


async def _ask_models(pool: Pool) -> tuple[Model, ...]:
    """What the replica serves: vLLM's list names an adapter's base model as `parent`. Raises EngineUnreachable."""
    answer = await ask(pool, Question.MODELS, seconds=QUESTION_SECONDS)
    if answer.status != 200:
        raise EngineUnreachable(f"{pool.address}: GET /v1/models was answered with status {answer.status}")
    try:
        listed = json.loads(answer.body)["data"]
        return tuple(Model(str(entry["id"]), base=entry.get("parent") is None) for entry in listed)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineUnreachable(f"{pool.address}: GET /v1/models was answered with no model list") from error


def _not_allowed() -> ModelNotAllowed:
    return ModelNotAllowed(
        "This model is not among those that your project may use. See GET /v1/models.", param="model"
    )
