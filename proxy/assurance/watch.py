"""One task per replica: it keeps a leash on it (`leash.py`), asks what it serves, and proves its endpoints: again and
again while something is unknown, rarely once it is proven.

When the leash breaks, the verdicts are void at that moment, and connections under way to that address are given up:
what comes back may be another engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import structlog

from proxy.assurance.about import NOTHING_TOLD, About
from proxy.assurance.leash import Leash, leash
from proxy.assurance.media_proof import prove_media
from proxy.assurance.proof import Prover, look, process_start
from proxy.assurance.replica import Engine, Model, Replica
from proxy.assurance.verdict import DISTURBED, Finding, Verdict
from proxy.engines.profile import MAX_MODEL_CHARACTERS, Endpoint
from proxy.isolation.salt import SaltKey
from proxy.relay.leg import Question
from proxy.relay.question import EngineUnreachable

# uvicorn, which serves vLLM, closes a connection that is silent for 5 s.
ASK_EVERY_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 30.0
# After a connection that held for long: it may be whole again at once.
SHORTEST_PAUSE_SECONDS: Final = 0.02
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 5.0
PROVEN_PAUSE_SECONDS: Final = 300.0
# A model's name becomes a label of metrics.
MAXIMUM_MODELS: Final = 4096

# What the verdict on the media cache is told under, beside the operations.
IMAGES: Final = "images"

_NOT_LISTED: Final = Finding(Verdict.UNKNOWN, "the engine lists no base model that it is configured to serve")

_log = structlog.get_logger("saltgate.engines")


class Observed(Protocol):
    """Who is told of an engine's state, for metrics. `operation` is also IMAGES, for the media cache. `probed` is told
    the tokens of each probe's prompt.
    """

    def verdict(self, engine: str, replica: str, operation: str, verdict: Verdict) -> None: ...

    def version(self, engine: str, replica: str, version: str) -> None: ...

    def probed(self, engine: str, replica: str, prompt_tokens: int) -> None: ...


class Watch:
    """See the module. `told` is called when the replica serves other models than before; `again_seconds` is how often
    what is proven is proven again.
    """

    def __init__(
        self,
        engine: Engine,
        replica: Replica,
        key: SaltKey,
        observed: Observed,
        *,
        told: Callable[[], None],
        again_seconds: float = PROVEN_PAUSE_SECONDS,
    ) -> None:
        self._engine = engine
        self._replica = replica
        self._key = key
        self._observed = observed
        self._told = told
        self._again_seconds = again_seconds

    async def follow(self) -> None:
        """Until cancelled. Raises what no engine's answer explains: then verdicts would grow old."""
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE_SECONDS
        while True:
            why, began = "the connection was closed", loop.time()
            try:
                async with leash(self._replica.pool, self._broke) as held:
                    await self._hold(held)
            except EngineUnreachable as error:
                why = str(error)
            self._replica.tried = True
            _log.warning("engine.lost", engine=self._engine.name, replica=self._address, why=why)
            if loop.time() - began > LONGEST_PAUSE_SECONDS:
                pause = SHORTEST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(max(pause * 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)

    def _broke(self) -> None:
        self._replica.suspend()
        for endpoint in self._engine.profile.salted:
            self._tell(endpoint.operation.value, Verdict.UNKNOWN)
        if self._engine.profile.takes_images:
            self._tell(IMAGES, Verdict.UNKNOWN)

    async def _hold(self, held: Leash) -> None:
        """As long as the leash holds: ask what is served, and prove. Raises EngineUnreachable where it never did."""
        self._told_models(await told_models(held))
        self._replica.reachable = True
        _log.info("engine.reached", engine=self._engine.name, replica=self._address)
        async with asyncio.TaskGroup() as tasks:
            proving = tasks.create_task(self._prove(held))
            await self._keep_asking(held)
            proving.cancel()

    async def _keep_asking(self, held: Leash) -> None:
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
                await self._ask_again(held)
            except EngineUnreachable:
                held.let_go()
                await held.broken.wait()

    async def _ask_again(self, held: Leash) -> None:
        """Raises EngineUnreachable where there is no answer, or where the name leads to another engine by now."""
        self._told_models(await told_models(held))
        if await held.leads_elsewhere():
            _log.warning("engine.moved", engine=self._engine.name, replica=held.pool.name)
            raise EngineUnreachable(f"{held.pool.address}: the name leads elsewhere now")

    def _told_models(self, models: tuple[Model, ...]) -> None:
        if models != self._replica.models:
            self._replica.models = models
            self._told()

    async def _prove(self, held: Leash) -> None:
        if self._engine.proof == "off":
            return
        pause = FIRST_PAUSE_SECONDS
        with contextlib.suppress(EngineUnreachable):  # then everything is proven anew
            await self._recognise(held)
        address = self._address
        spent = partial(self._observed.probed, self._engine.name, address)
        prover = Prover(held.pool, self._key, profile=self._engine.profile, spent=spent)
        while True:
            try:
                await self.prove_once(held, prover)
            except EngineUnreachable as error:
                _log.warning("engine.probe_failed", engine=self._engine.name, replica=address, why=str(error))
            self._replica.tried = True
            # Not in step with the other workers, whose probes would come between in the engine's counters.
            await asyncio.sleep((self._again_seconds if self._is_done else pause) * random.uniform(0.8, 1.2))  # noqa: S311
            # Probes cost the engine something, and what makes them fail for long does not go away by itself.
            pause = min(pause * 2, PROVEN_PAUSE_SECONDS)

    @property
    def _is_done(self) -> bool:
        """Whether another proof soon would tell nothing new."""
        found = (*self._replica.findings.values(), self._replica.media)
        return self._replica.settled(self._engine.profile) and DISTURBED not in found

    async def _recognise(self, held: Leash) -> None:
        """A connection can also break between two that live on. A process that is the same keeps its verdicts."""
        before, self._replica.process = self._replica.process, None
        suspended, self._replica.suspended = self._replica.suspended, {}
        process = await process_start(held.pool)
        if held.broken.is_set():
            return
        self._replica.process = process
        if process is None or process != before:
            return
        for endpoint in self._engine.profile.salted:
            if endpoint.operation in suspended:
                self._found(endpoint, suspended[endpoint.operation])

    async def prove_once(self, held: Leash, prover: Prover) -> None:
        """All endpoints, and the media cache where images may come. Raises EngineUnreachable."""
        about = await look(held.pool)
        if held.broken.is_set():
            return
        self._told_about(about)
        model = next((m.id for m in self._replica.models if m.base and m.id in self._engine.served()), None)
        for endpoint in self._engine.profile.salted:
            finding = _NOT_LISTED
            if model is not None:
                finding = await prover.prove(endpoint, model, about.declared(endpoint.path))
            if held.broken.is_set():
                return
            # The process is the one that was proven: that a probe said nothing this time takes nothing back.
            if finding.verdict is Verdict.UNKNOWN and self._replica.finding(endpoint.operation).allows("strict"):
                continue
            self._found(endpoint, finding)
        if model is not None:
            await self._prove_media(held, model)

    async def _prove_media(self, held: Leash, model: str) -> None:
        endpoint = next((endpoint for endpoint in self._engine.profile.salted if endpoint.media is not None), None)
        if endpoint is None:
            return
        address = self._address
        spent = partial(self._observed.probed, self._engine.name, address)
        finding = await prove_media(held.pool, endpoint, model, self._key, spent=spent)
        if held.broken.is_set() or (finding.verdict is Verdict.UNKNOWN and self._replica.media.allows("strict")):
            return
        before, self._replica.media = self._replica.media, finding
        self._tell(IMAGES, finding.verdict)
        if not _says_the_same(before, finding):
            level = _log.error if finding.verdict is Verdict.FAILED else _log.info
            level(
                "engine.media_proof",
                engine=self._engine.name,
                replica=address,
                verdict=finding.verdict.value,
                check=finding.check,
            )

    def _told_about(self, about: About) -> None:
        before, self._replica.about = self._replica.about, about
        version, address = about.version or "unknown", self._address
        self._observed.version(self._engine.name, address, version)
        if before.version != about.version or before is NOTHING_TOLD:
            log = _log.info if about.is_tested else _log.warning
            log("engine.version", engine=self._engine.name, replica=address, version=version, tested=about.is_tested)

    def _found(self, endpoint: Endpoint, finding: Finding) -> None:
        before = self._replica.findings.get(endpoint.operation)
        self._replica.findings[endpoint.operation] = finding
        self._tell(endpoint.operation.value, finding.verdict)
        if before is not None and _says_the_same(before, finding):
            return
        level = _log.error if finding.verdict is Verdict.FAILED else _log.info
        level(
            "engine.proof",
            engine=self._engine.name,
            replica=self._address,
            endpoint=endpoint.path,
            verdict=finding.verdict.value,
            check=finding.check,
        )

    @property
    def _address(self) -> str:
        return str(self._replica.pool.address)

    def _tell(self, operation: str, verdict: Verdict) -> None:
        self._observed.verdict(self._engine.name, self._address, operation, verdict)


def _says_the_same(one: Finding, other: Finding) -> bool:
    """But for its numbers: each probe is of another length."""
    return one.verdict is other.verdict and _NUMBER.sub("", one.check) == _NUMBER.sub("", other.check)


_NUMBER: Final = re.compile(r"[0-9]+")


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
