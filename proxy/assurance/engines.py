"""The engines of a deployment: which models they serve, what is proven of each endpoint, who may take a request.

One task per replica keeps a leash on it (`leash.py`), asks what it serves, and proves its endpoints: again and again
while something is unknown, rarely once it is proven. When the leash breaks, the verdicts are void at that moment, and
connections under way to that address are given up: what comes back may be another engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, Protocol

import structlog

from proxy.assurance.about import NOTHING_TOLD, About
from proxy.assurance.leash import Leash, leash
from proxy.assurance.media_proof import MEDIA_NOT_PROBED, prove_media
from proxy.assurance.proof import Prover, look, process_start
from proxy.assurance.verdict import DISTURBED, NOT_PROBED, Finding, Verdict
from proxy.engines.kinds import VLLM
from proxy.engines.profile import MAX_MODEL_CHARACTERS, Endpoint, Operation, Profile
from proxy.isolation.salt import SaltKey
from proxy.isolation.scope import Scope
from proxy.refusals import EndpointNotAllowed, EngineUnavailable, ModelNotAllowed, ModelNotFound
from proxy.relay.destination import Destination
from proxy.relay.leg import Question
from proxy.relay.outliers import Outliers
from proxy.relay.patience import Patience
from proxy.relay.pool import Pool
from proxy.relay.question import EngineUnreachable

# uvicorn, which serves vLLM, closes a connection that is silent for 5 s.
ASK_EVERY_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 30.0
# After a connection that held for long: it may be whole again at once.
SHORTEST_PAUSE_SECONDS: Final = 0.02
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 5.0
PROVEN_PAUSE_SECONDS: Final = 300.0
# From the start, for the first proof of an engine beside one that may take requests. A sound one's takes seconds; one
# that hangs takes minutes to fail it, and a reload is given up after READY_SECONDS of the supervisor's.
AWAITED_SECONDS: Final = 60.0
# A model's name becomes a label of metrics.
MAXIMUM_MODELS: Final = 4096

# What the verdict on the media cache is told under, beside the operations.
IMAGES: Final = "images"

_NOT_LISTED: Final = Finding(Verdict.UNKNOWN, "the engine lists no base model that it is configured to serve")

_log = structlog.get_logger("saltgate.engines")


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


class Observed(Protocol):
    """Who is told of an engine's state, for metrics. `operation` is also IMAGES, for the media cache. `probed` is told
    the tokens of each probe's prompt.
    """

    def verdict(self, engine: str, replica: str, operation: str, verdict: Verdict) -> None: ...

    def version(self, engine: str, replica: str, version: str) -> None: ...

    def probed(self, engine: str, replica: str, prompt_tokens: int) -> None: ...


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
        pools = _allowed(engine, model, endpoint, with_images=with_images)
        return Destination(engine.name, model, pools, engine.patience_with(model), engine.outliers)

    async def follow(self) -> None:
        """Ask and prove until cancelled. Raises what no engine's answer explains: then verdicts would grow old."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._wait_for_proofs(), name="wait for proofs")
            for engine in self.engines:
                for replica in engine.replicas:
                    tasks.create_task(self._watch(engine, replica), name=f"prove {replica.pool.address}")

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

    async def _watch(self, engine: Engine, replica: Replica) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE_SECONDS
        while True:
            why, began = "the connection was closed", loop.time()
            try:
                async with leash(replica.pool, lambda: self._broke(engine, replica)) as held:
                    await self._hold(engine, replica, held)
            except EngineUnreachable as error:
                why = str(error)
            replica.tried = True
            _log.warning("engine.lost", engine=engine.name, replica=str(replica.pool.address), why=why)
            if loop.time() - began > LONGEST_PAUSE_SECONDS:
                pause = SHORTEST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(max(pause * 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)

    def _broke(self, engine: Engine, replica: Replica) -> None:
        replica.suspend()
        for endpoint in engine.profile.salted:
            self._observed.verdict(engine.name, str(replica.pool.address), endpoint.operation.value, Verdict.UNKNOWN)
        if engine.profile.takes_images:
            self._observed.verdict(engine.name, str(replica.pool.address), IMAGES, Verdict.UNKNOWN)

    async def _hold(self, engine: Engine, replica: Replica, held: Leash) -> None:
        """As long as the leash holds: ask what is served, and prove. Raises EngineUnreachable where it never did."""
        self._told(engine, replica, await told_models(held))
        replica.reachable = True
        _log.info("engine.reached", engine=engine.name, replica=str(replica.pool.address))
        async with asyncio.TaskGroup() as tasks:
            proving = tasks.create_task(self._prove(engine, replica, held))
            await self._keep_asking(engine, replica, held)
            proving.cancel()

    async def _keep_asking(self, engine: Engine, replica: Replica, held: Leash) -> None:
        """Until the leash breaks. Asking is also what keeps it from being closed for silence."""
        while not held.broken.is_set():
            try:
                async with asyncio.timeout(ASK_EVERY_SECONDS):
                    await held.broken.wait()
            except TimeoutError:
                pass
            else:
                return
            try:
                await self._ask_again(engine, replica, held)
            except EngineUnreachable:
                held.let_go()
                await held.broken.wait()

    async def _ask_again(self, engine: Engine, replica: Replica, held: Leash) -> None:
        """Raises EngineUnreachable where there is no answer, or where the name leads to another engine by now."""
        self._told(engine, replica, await told_models(held))
        if await held.leads_elsewhere():
            _log.warning("engine.moved", engine=engine.name, replica=held.pool.name)
            raise EngineUnreachable(f"{held.pool.address}: the name leads elsewhere now")

    def _told(self, engine: Engine, replica: Replica, models: tuple[Model, ...]) -> None:
        if models == replica.models:
            return
        replica.models = models
        before, self._served = self._served, served_by(self.engines)
        for name, served in self._served.items():
            if served.engine is None and (name not in before or before[name].engine is not None):
                _log.error("engine.model_twice", model=name, engine=engine.name)

    async def _prove(self, engine: Engine, replica: Replica, held: Leash) -> None:
        if engine.proof == "off":
            return
        pause = FIRST_PAUSE_SECONDS
        with contextlib.suppress(EngineUnreachable):  # then everything is proven anew
            await self._recognise(engine, replica, held)
        address = str(held.pool.address)
        spent = partial(self._observed.probed, engine.name, address)
        prover = Prover(held.pool, self._key, profile=engine.profile, spent=spent)
        while True:
            try:
                await self._prove_once(engine, replica, held, prover)
            except EngineUnreachable as error:
                _log.warning("engine.probe_failed", engine=engine.name, replica=address, why=str(error))
            replica.tried = True
            done = replica.settled(engine.profile) and DISTURBED not in (*replica.findings.values(), replica.media)
            # Not in step with the other workers, whose probes would come between in the engine's counters.
            await asyncio.sleep((self._again_seconds if done else pause) * random.uniform(0.8, 1.2))  # noqa: S311
            # Probes cost the engine something, and what makes them fail for long does not go away by itself.
            pause = min(pause * 2, PROVEN_PAUSE_SECONDS)

    async def _recognise(self, engine: Engine, replica: Replica, held: Leash) -> None:
        """A connection can also break between two that live on. A process that is the same keeps its verdicts."""
        before, replica.process = replica.process, None
        suspended, replica.suspended = replica.suspended, {}
        process = await process_start(held.pool)
        if held.broken.is_set():
            return
        replica.process = process
        if process is None or process != before:
            return
        for endpoint in engine.profile.salted:
            if endpoint.operation in suspended:
                self._found(engine, replica, endpoint, suspended[endpoint.operation])

    async def _prove_once(self, engine: Engine, replica: Replica, held: Leash, prover: Prover) -> None:
        about = await look(held.pool)
        if held.broken.is_set():
            return
        self._told_about(engine, replica, about)
        model = next((m.id for m in replica.models if m.base and m.id in engine.served()), None)
        for endpoint in engine.profile.salted:
            finding = _NOT_LISTED
            if model is not None:
                finding = await prover.prove(endpoint, model, about.declared(endpoint.path))
            if held.broken.is_set():
                return
            # The process is the one that was proven: that a probe said nothing this time takes nothing back.
            if finding.verdict is Verdict.UNKNOWN and replica.finding(endpoint.operation).allows("strict"):
                continue
            self._found(engine, replica, endpoint, finding)
        if model is not None:
            await self._prove_media(engine, replica, held, model)

    async def _prove_media(self, engine: Engine, replica: Replica, held: Leash, model: str) -> None:
        endpoint = next((endpoint for endpoint in engine.profile.salted if endpoint.media is not None), None)
        if endpoint is None:
            return
        address = str(held.pool.address)
        spent = partial(self._observed.probed, engine.name, address)
        finding = await prove_media(held.pool, endpoint, model, self._key, spent=spent)
        if held.broken.is_set() or (finding.verdict is Verdict.UNKNOWN and replica.media.allows("strict")):
            return
        before, replica.media = replica.media, finding
        self._observed.verdict(engine.name, address, IMAGES, finding.verdict)
        if not _says_the_same(before, finding):
            level = _log.error if finding.verdict is Verdict.FAILED else _log.info
            level(
                "engine.media_proof",
                engine=engine.name,
                replica=address,
                verdict=finding.verdict.value,
                check=finding.check,
            )

    def _told_about(self, engine: Engine, replica: Replica, about: About) -> None:
        before, replica.about = replica.about, about
        version, address = about.version or "unknown", str(replica.pool.address)
        self._observed.version(engine.name, address, version)
        if before.version != about.version or before is NOTHING_TOLD:
            log = _log.info if about.is_tested else _log.warning
            log("engine.version", engine=engine.name, replica=address, version=version, tested=about.is_tested)

    def _found(self, engine: Engine, replica: Replica, endpoint: Endpoint, finding: Finding) -> None:
        before = replica.findings.get(endpoint.operation)
        replica.findings[endpoint.operation] = finding
        self._observed.verdict(engine.name, str(replica.pool.address), endpoint.operation.value, finding.verdict)
        if before is not None and _says_the_same(before, finding):
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


def _says_the_same(one: Finding, other: Finding) -> bool:
    """But for its numbers: each probe is of another length."""
    return one.verdict is other.verdict and _NUMBER.sub("", one.check) == _NUMBER.sub("", other.check)


_NUMBER: Final = re.compile(r"[0-9]+")


def _may_use(scope: Scope, model: Model) -> bool:
    """A project that lists models may use those; one that lists none may use every base model (contract section 4)."""
    return model.base if scope.models is None else model.id in scope.models


def _allowed(engine: Engine, model: str, endpoint: Endpoint, *, with_images: bool) -> Sequence[Pool]:
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


async def told_models(held: Leash) -> tuple[Model, ...]:
    """What the replica serves: vLLM's list names an adapter's base model as `parent`. Raises EngineUnreachable."""
    answer = await held.ask(Question.MODELS, seconds=ANSWER_SECONDS)
    where = f"{held.pool.address}: GET /v1/models"
    if answer.status != 200:
        raise EngineUnreachable(f"{where} was answered with status {answer.status}")
    try:
        listed = json.loads(answer.body)["data"]
        models = tuple(Model(entry["id"], base=entry.get("parent") is None) for entry in listed[:MAXIMUM_MODELS])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EngineUnreachable(f"{where} was answered with no model list") from error
    return tuple(model for model in models if _is_model_name(model.id))


def _is_model_name(name: object) -> bool:
    """What a client could ask for. JSON can also spell what is no text: a lone surrogate."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_MODEL_CHARACTERS:
        return False
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _not_allowed() -> ModelNotAllowed:
    return ModelNotAllowed(
        "This model is not among those that your project may use. See GET /v1/models.", param="model"
    )


def _not_found() -> ModelNotFound:
    return ModelNotFound(
        "Your project may use this model, but no engine serves it now. Ask your operator.", param="model"
    )
