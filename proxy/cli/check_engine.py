"""What `saltgate check` finds out about one replica of an engine, in words that an operator can act on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Final

from config.addresses import UnixAddress, is_loopback_host, upstream_address
from config.client_tls import client_context
from config.settings import Engine as EngineSettings
from proxy.assurance.media_proof import prove_media
from proxy.assurance.outside import Outside, seen_from_outside
from proxy.assurance.proof import Prover
from proxy.assurance.replica import Engine, Replica
from proxy.assurance.verdict import DISTURBED, Finding, Verdict
from proxy.assurance.watch import IMAGES
from proxy.cli.engine_models import MODELS_SECONDS, ask_models
from proxy.cli.engine_words import TRIED, engine_words
from proxy.cli.lines import Level, Line
from proxy.engines.profile import Endpoint, Operation
from proxy.isolation.salt import SaltKey
from proxy.relay.pool import Pool
from proxy.relay.question import EngineUnreachable

# For all endpoints of one replica. A long probe on a small machine takes seconds.
PROOF_SECONDS: Final = 180.0


async def replica_lines(
    engine: Engine, replica: Replica, settings: EngineSettings, url: str, key: SaltKey
) -> AsyncIterator[Line]:
    part = f"engine {engine.name} {url}"
    for warning in _engine_warnings(settings, url):
        yield Line(Level.WARNING, part, "", warning)
    try:
        await ask_models(replica)
    except EngineUnreachable as error:
        remedy = f"Is it running, is it {engine.profile.title}, does it need an `api_key`?"
        yield Line(Level.FAULT, part, "", f"{error}. {remedy}")
        return
    names = [model.id for model in replica.models]
    yield Line(Level.OK, part, "models", ", ".join(names) or "none")
    for missing in sorted((engine.models or frozenset()) - set(names)):
        yield Line(Level.FAULT, part, "models", f"it is configured to serve {missing} and does not list it")
    base = next((model.id for model in replica.models if model.base and model.id in engine.served()), None)
    if base is None:
        yield Line(Level.FAULT, part, "models", "it lists no base model that it is configured to serve")
    try:
        outside = await _outside(replica.pool, settings)
    except EngineUnreachable as error:
        yield Line(Level.FAULT, part, "", f"it went away while it was asked: {error}")
        return
    for line in engine_words(part, url, outside):
        yield line
    if base is not None and engine.proof != "off":
        async for line in _proofs(part, engine, replica, base, key, outside):
            yield line


def _engine_warnings(settings: EngineSettings, url: str) -> Iterator[str]:
    address = upstream_address(url)
    if not isinstance(address, UnixAddress) and address.scheme == "http" and not is_loopback_host(address.hostname):
        yield (
            "prompts and answers travel unprotected, and whoever reaches this address passes by saltgate: "
            "let the engine listen on a private network only, and use https://"
        )
    if settings.proof == "off":
        yield 'proof = "off": nothing is proven, and saltgate would not notice an engine that mixes customers'
    if settings.proof == "warn":
        yield 'proof = "warn": requests go also to endpoints that are not proven to keep customers apart'


async def _outside(pool: Pool, settings: EngineSettings) -> Outside:
    """Raises EngineUnreachable."""
    tls = None if pool.address.tls is None else client_context(settings.ca, None)
    stranger = Pool(replace(pool.address, api_key=None, tls=tls), connect_seconds=MODELS_SECONDS)
    try:
        return await seen_from_outside(pool, stranger)
    finally:
        stranger.close()


async def _proofs(
    part: str, engine: Engine, replica: Replica, model: str, key: SaltKey, outside: Outside
) -> AsyncIterator[Line]:
    """The endpoints one after the other: what an engine counts is counted for all of them together."""
    usable = False
    prover = Prover(replica.pool, key, profile=engine.profile, spent=lambda _: None)
    try:
        async with asyncio.timeout(PROOF_SECONDS):
            for endpoint in engine.profile.salted:
                finding = await prover.prove(endpoint, model, outside.about.declared(endpoint.path))
                usable |= finding.is_served and finding.allows(engine.proof)
                yield _proof(part, engine, endpoint, finding, outside)
                if endpoint.media is not None:
                    yield _media_proof(part, await prove_media(replica.pool, endpoint, model, key))
    except EngineUnreachable as error:
        yield Line(Level.FAULT, part, "", f"it went away while it was asked: {error}")
        return
    except TimeoutError:
        yield Line(Level.FAULT, part, "", f"its endpoints could not be proven within {PROOF_SECONDS:g} s")
        return
    if not usable:
        yield Line(Level.FAULT, part, "", "no endpoint of it may be used, so saltgate never gets ready with it alone")


def _proof(part: str, engine: Engine, endpoint: Endpoint, finding: Finding, outside: Outside) -> Line:
    message = f"{finding.verdict.value}. {finding.check[0].upper()}{finding.check[1:]}"
    if finding.verdict is Verdict.FAILED:
        message += f". {_FAILED_GATE if outside.is_saltgate else _FAILED}"
    if finding.verdict is Verdict.PROVEN:
        level = Level.OK
    elif finding.verdict is Verdict.NO_CACHE:
        level = Level.NOTE
    elif outside.is_saltgate and endpoint.operation is Operation.EMBEDDINGS and finding.verdict is Verdict.UNKNOWN:
        level, message = (
            Level.NOTE,
            "not proven, so not used: its answers tell no reuse, and another saltgate no counts",
        )
    elif not finding.is_served:
        level, message = Level.NOTE, "the engine does not serve it with this model"
    elif engine.proof == "warn" or finding == DISTURBED or not finding.is_provable:
        level = Level.WARNING
    else:
        level = Level.FAULT
    return Line(level, part, endpoint.path, message)


def _media_proof(part: str, finding: Finding) -> Line:
    message = f"{finding.verdict.value}. {finding.check[0].upper()}{finding.check[1:]}"
    if finding.verdict is Verdict.PROVEN:
        return Line(Level.OK, part, IMAGES, message)
    level = Level.WARNING if finding == DISTURBED else Level.FAULT
    return Line(level, part, IMAGES, f"{message}. No request with an image goes there")


_FAILED: Final = (
    f"{TRIED[0].upper()}{TRIED[1:]}; a router between that drops cache_salt, or an external cache that ignores it, "
    "does this, too. Under strict no request goes there"
)
_FAILED_GATE: Final = (
    "It is a saltgate that does not know this one: name the caller of this `api_key` under its [[gates]], or all "
    "customers of this gate are one there. Under strict no request goes there"
)
