"""From the settings to the parts of a worker that hold no connection yet: what they may do, and how much of it."""

from __future__ import annotations

import dataclasses
import math
import ssl
import time
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from config.addresses import UnixAddress, upstream_address
from config.client_tls import client_context
from config.settings import Engine as EngineSettings
from config.settings import EngineTimeouts, Settings, Timeouts
from proxy.assurance.replica import Engine, Replica
from proxy.capacity.places import Capacity, Limits
from proxy.capacity.shares import Share
from proxy.certificates import client_certificates
from proxy.cross_origin import CrossOrigin
from proxy.descriptors import connections_possible
from proxy.engines.kinds import image_origins, profile_of
from proxy.entrance import Face
from proxy.gateway import Policy
from proxy.isolation.narrowing import Rule, isolation_rule
from proxy.isolation.ring import KeyRing
from proxy.isolation.salt import SaltKey
from proxy.isolation.unit import Level
from proxy.peers import ClientAddresses, trusted_proxies
from proxy.reception import native_sign_ins, public_url
from proxy.relay.crowd import Crowd
from proxy.relay.front import MOST_CONNECTIONS
from proxy.relay.lookup import Lookup
from proxy.relay.patience import Patience
from proxy.relay.pool import Address, Pool

_log = structlog.get_logger("saltgate.gate")


def key_ring(settings: Settings) -> KeyRing:
    return KeyRing({key.id: SaltKey(key.id, key.secret.value) for key in settings.isolation.keys})


def isolation_rules(settings: Settings) -> tuple[Rule, ...]:
    """What makes a request's border narrower by its content, ready to look."""
    return tuple(
        isolation_rule(
            written.name,
            workspaces=written.workspaces,
            words=written.words or (),
            patterns=written.patterns or (),
            sets=written.sets or (),
            level=Level(written.unit),
        )
        for written in settings.isolation.rules
    )


def policy(settings: Settings) -> Policy:
    return Policy(
        unit=Level(settings.isolation.unit),
        show_reuse=settings.isolation.show_reuse,
        maximum_body_bytes=settings.public.max_body,
        request_seconds=settings.timeouts.request,
        certificates=client_certificates(settings.public.tls, settings.proxies),
        gates=frozenset((gate.issuer, gate.subject) for gate in settings.gates),
    )


def client_addresses(settings: Settings) -> ClientAddresses:
    """Who is believed about where clients are."""
    return ClientAddresses(trusted_proxies(settings.proxies), settings.proxies.client_address_header)


def capacity(settings: Settings, share: Share) -> Capacity:
    """The places at the engines, as many as one worker has of them."""
    engines = {
        engine.name: Limits(
            requests=engine.capacity.requests,
            waiting=share.part(engine.capacity.waiting),
            waiting_bytes=share.part(engine.capacity.waiting_bytes),
            wait_seconds=engine.capacity.wait,
            share=share,
        )
        for engine in settings.engines
    }
    return Capacity(share.of(settings.capacity.requests), engines, clock=time.monotonic)


def connections(settings: Settings, share: Share) -> Crowd:
    """The client connections that one worker may have."""
    wanted, of_one = settings.capacity.connections, settings.capacity.connections_per_address
    possible = connections_possible()
    most = min(MOST_CONNECTIONS if wanted is None else share.of(wanted), possible)
    if wanted is not None and share.of(wanted) > possible:
        _log.warning("connections.limited", possible=possible, remedy="raise the limit of open files (ulimit -n)")
    return Crowd(
        most,
        of_one_address=max(most * 3 // 4, 1) if of_one is None else share.of(of_one),
        trusted=trusted_proxies(settings.proxies),
    )


def face(settings: Settings) -> Face:
    """What everybody may know of the deployment."""
    return Face(
        url=public_url(settings),
        issuers=tuple(issuer.issuer for issuer in settings.issuers),
        native_sign_ins=native_sign_ins(settings),
        cross_origin=CrossOrigin(frozenset(settings.cors.origins)) if settings.cors.origins else None,
    )


def image_tls(engines: tuple[EngineSettings, ...]) -> dict[Path | None, ssl.SSLContext]:
    """The contexts of the hosts that images are fetched from, by the file of their authority; None is the system's."""
    found = [place for engine in engines if (place := image_origins(engine)) is not None]
    files = {origin.ca for place in found for origin in place.origins.values()}
    return {file: client_context(file, None) for file in files}


def configured_engine(engine: EngineSettings, timeouts: Timeouts, lookup: Lookup | None = None) -> Engine:
    """The engine with its replicas, none of which has been asked yet. `lookup` is the system's unless it is given."""
    return Engine(
        name=engine.name,
        proof=engine.proof,
        models=None if engine.models is None else frozenset(engine.models),
        replicas=tuple(
            Replica(
                partial(
                    Pool,
                    _address(engine, url),
                    connect_seconds=timeouts.connect,
                    age_seconds=engine.connection_age,
                    lookup=lookup,
                )
            )
            for url in engine.urls
        ),
        patience=patience_of(timeouts, engine.timeouts),
        model_patience={
            model: patience_of(timeouts, engine.timeouts, own) for own in engine.model_timeouts for model in own.models
        },
        profile=profile_of(engine),
    )


def patience_of(timeouts: Timeouts, *nearer: EngineTimeouts) -> Patience:
    """The patience that `timeouts` give, where no time of `nearer` takes its place; the last of these is nearest."""
    for own in nearer:
        timeouts = dataclasses.replace(timeouts, **_written(own))
    return Patience(
        connect=timeouts.connect,
        first_byte=timeouts.first_byte,
        idle=timeouts.idle,
        total=timeouts.total or math.inf,
        stall=timeouts.stall,
        keep_alive=timeouts.keep_alive,
        keep_alive_interval=timeouts.keep_alive_interval,
    )


def _written(own: EngineTimeouts) -> dict[str, Any]:
    times = {field.name: getattr(own, field.name) for field in dataclasses.fields(EngineTimeouts)}
    return {name: time for name, time in times.items() if time is not None}


def _address(engine: EngineSettings, url: str) -> Address:
    api_key = None if engine.api_key is None else engine.api_key.value
    parts = upstream_address(url)
    if isinstance(parts, UnixAddress):
        return Address(host="localhost", port=0, unix=parts.path, api_key=api_key)
    tls = client_context(engine.ca, engine.client_cert) if parts.scheme == "https" else None
    port = parts.port or (443 if tls is not None else 80)
    return Address(host=parts.hostname or "", port=port, tls=tls, api_key=api_key)
