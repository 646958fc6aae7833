"""What a worker's parts are like, kept true in its metrics and told in its log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from observability import families
from observability.metrics import Metrics
from observability.names import ProofState
from proxy.assurance.verdict import Verdict
from proxy.gate import Gate

# How often the parts are looked at.
LOOK_SECONDS: Final = 1.0

_log = structlog.get_logger("saltgate.gate")


@dataclass(frozen=True, slots=True)
class Observed:
    """What the engines' proof tells, into the metrics."""

    metrics: Metrics

    def verdict(self, engine: str, replica: str, operation: str, verdict: Verdict) -> None:
        self.metrics.engine_proof(engine, replica, operation, _PROOF_STATES[verdict])

    def version(self, engine: str, replica: str, version: str) -> None:
        self.metrics.engine_version(engine, replica, version)

    def probed(self, engine: str, replica: str, prompt_tokens: int) -> None:
        self.metrics.engine_probed(engine, replica, prompt_tokens)


_PROOF_STATES: Final[dict[Verdict, ProofState]] = {
    Verdict.PROVEN: "proven",
    Verdict.NO_CACHE: "no cache",
    Verdict.FAILED: "failed",
    Verdict.UNKNOWN: "unknown",
}


async def tell_ready(waits_for: Callable[[], tuple[str, ...]], *, every: float = LOOK_SECONDS) -> None:
    """Say when it becomes ready, and when it is so no more and for what. That it is not yet, at its start, is no news.
    Endless.
    """
    known: tuple[str, ...] | None = None  # until it was ready once
    while True:
        waits = waits_for()
        if not waits and known != ():
            _log.info("gate.ready")
        elif waits and known is not None and waits != known:
            _log.warning("gate.not_ready", waits_for=waits)
        if known is not None or not waits:
            known = waits
        await asyncio.sleep(every)


async def tell_states(gate: Gate) -> None:
    """Keep the gauges of issuers, directory and engines true, and say when a salt key is lacking."""
    lacking: tuple[str, ...] = ()
    while True:
        before, lacking = lacking, gate.lacking_keys()
        if lacking and lacking != before:
            _log.error("salt_key_missing", key_ids=lacking, remedy="add it under [[isolation.keys]]")
        for issuer in gate.reception.issuers.issuers:
            gate.metrics.issuer_up(issuer.rules.issuer, issuer.ready)
            gate.metrics.jwks_refreshed(issuer.rules.issuer, fetched=issuer.fetched, failed=issuer.not_fetched)
        for introspector in gate.reception.opaque.introspectors:
            gate.metrics.introspection_up(introspector.rules.issuer, introspector.ready)
        again = gate.gateway.admissions.hits  # both at once
        tokens, scopes = gate.reception.issuers, gate.gateway.admissions.scopes
        gate.metrics.lookups(families.TOKEN_LOOKUPS, hits=again + tokens.hits, misses=tokens.misses)
        gate.metrics.lookups(families.SCOPE_LOOKUPS, hits=again + scopes.hits, misses=scopes.misses)
        gate.metrics.directory_up(not gate.view.away)
        gate.metrics.directory_read(read=gate.view.reads, failed=gate.view.failures)
        age = gate.view.confirmed_age
        if age is not None:
            gate.metrics.directory_confirmed(time.time() - age)
        for engine in gate.engines.engines:
            ejected = engine.outliers.ejected(time.monotonic())
            usable = sum(replica.reachable and replica.pool.name not in ejected for replica in engine.replicas)
            gate.gateway.entries.capacity.at(engine.name).usable(usable)
            for replica in engine.replicas:
                gate.metrics.engine_up(engine.name, replica.pool.name, replica.reachable)
                gate.metrics.engine_ejected(engine.name, replica.pool.name, replica.pool.name in ejected)
            for name in sorted(engine.outliers.returned(time.monotonic())):
                _log.info("engine.returned", engine=engine.name, replica=name)
        await asyncio.sleep(LOOK_SECONDS)
