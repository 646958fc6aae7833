"""Reads a configuration whole, before anything of it is served: at the start, and at each reload in a fresh process.

A reload's process has the code that its workers will have, so that what it finds sound is sound to them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from config.faults import ConfigurationFaults, Fault
from config.load import load
from config.settings import Metrics, Settings, Telemetry
from proxy.engines.kinds import faulty_fields
from proxy.identity.client_authentication import faulty_client_keys
from proxy.plan import MetricsPlan, OtlpPlan, Plan, Reading, admin_origin, pack
from proxy.ticket import ticket_key
from proxy.tls import faulty_certificates, read_pair


def main() -> None:
    """The process's entry: the configuration's path is its argument, the reading goes to standard output."""
    sys.stdout.buffer.write(msgspec.msgpack.encode(read_configuration(Path(sys.argv[1]))[0]))


def read_configuration(path: Path) -> tuple[Reading, Settings | None]:
    """What stands in `path`, checked as far as it can be checked without asking anybody."""
    try:
        loaded = load(path)
    except ConfigurationFaults as faults:
        return _faulty(faults.faults, ()), None
    settings = loaded.settings
    faults_found = (*faulty_certificates(settings), *faulty_fields(settings), *faulty_client_keys(settings))
    if faults_found:
        return _faulty(faults_found, loaded.warnings), settings
    return Reading(_plan(settings), (), loaded.warnings), settings


def _faulty(faults: tuple[Fault, ...], warnings: tuple[str, ...]) -> Reading:
    return Reading(None, tuple((fault.key, fault.message) for fault in faults), warnings)


def _plan(settings: Settings) -> Plan:
    token = settings.admin.metrics_token
    return Plan(
        public=settings.public.listen,
        admin=settings.admin.listen,
        workers=settings.workers,
        drain_seconds=settings.drain.limit,
        metrics_token=None if token is None else token.value,
        fixed=dict(_fixed(settings)),
        packed=pack(settings, None if settings.public.tls is None else read_pair(settings.public.tls)),
        admin_origin=admin_origin(settings.admin),
        admin_keys=tuple(ticket_key(key.secret.value) for key in settings.isolation.keys),
        scopes=settings.history.scopes,
        recent=settings.history.recent,
        kept=settings.history.redis,
        metrics=_metrics_plan(settings.metrics, settings.telemetry),
    )


def _metrics_plan(metrics: Metrics, telemetry: Telemetry) -> MetricsPlan:
    return MetricsPlan(
        most_scopes=metrics.max_scopes,
        most_models=metrics.max_models,
        idle_seconds=metrics.idle,
        pseudonym_key=None if metrics.pseudonym_key is None else metrics.pseudonym_key.value,
        otlp=_otlp_plan(telemetry, metrics.otlp_interval) if metrics.otlp else None,
    )


def _otlp_plan(telemetry: Telemetry, interval: float) -> OtlpPlan | None:
    if telemetry.otlp_endpoint is None:
        return None
    shown = telemetry.otlp_client_cert
    return OtlpPlan(
        endpoint=telemetry.otlp_endpoint,
        headers=None if telemetry.otlp_headers is None else telemetry.otlp_headers.value,
        ca=None if telemetry.otlp_ca is None else str(telemetry.otlp_ca),
        interval_seconds=interval,
        service_name=telemetry.service_name,
        certificate=None if shown is None else str(shown.certificate),
        key=None if shown is None else shown.key.value,
    )


def _fixed(settings: Settings) -> Iterator[tuple[str, str]]:
    """What the supervisor itself holds open."""
    yield "public.listen", settings.public.listen
    yield "admin.listen", settings.admin.listen
    yield "history", f"{settings.history.scopes} {settings.history.recent} {settings.history.redis}"
    yield "logs", f"{settings.logs.format} {settings.logs.level}"
    local = [issuer for issuer in settings.issuers if issuer.kind == "local"]
    places = [f"{issuer.issuer} {issuer.audiences[0]} {settings.directory.state}" for issuer in local]
    yield 'issuers of kind "local"', "\n".join(places)
