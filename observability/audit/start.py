"""From the settings to an audit."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from config.settings import Audit as AuditSettings
from config.settings import Settings
from observability.audit.audit import Audit
from observability.audit.chain import ChainKey, chain_key
from observability.audit.digests import configuration_loaded, last_digests
from observability.audit.entries import content
from observability.audit.export import LogExport
from observability.audit.recovery import Journals
from observability.audit.segments import Origin
from observability.audit.writer import Writing
from observability.otlp import collector


def start_audit(
    settings: Settings,
    *,
    instance: str,
    version: str,
    slots: int,
    wall_ns: Callable[[], int],
    export: LogExport | None = None,
) -> Audit | None:
    """The audit of a worker, which begins to write; None where there is none. `slots` is how many of its requests may
    be at engines at once.
    """
    place = settings.audit
    if place.directory is None:
        return None
    directory, key = place.directory, first_key(place)

    def first() -> list[bytes]:
        return [content(configuration_loaded(settings, key, last_digests(directory)), wall_ns())]

    audit = Audit(
        directory,
        key,
        Origin(role="worker", host=socket.gethostname(), instance=instance, version=version),
        writing(place, directory, slots),
        subjects=place.subjects,
        on_failure=place.on_failure,
        wall_ns=wall_ns,
        noise=secrets.token_bytes,
        first=first,
        export=export,
    )
    audit.start()
    return audit


def start_export(
    settings: Settings, *, instance: str, version: str, monotonic: Callable[[], float]
) -> LogExport | None:
    """The lines' way to the collector, where `[audit] otlp` says so."""
    place = collector(settings.telemetry, monotonic)
    if settings.audit.directory is None or not settings.audit.otlp or place is None:
        return None
    return LogExport(place, service=settings.telemetry.service_name, instance=instance, version=version)


def writing(place: AuditSettings, directory: Path, slots: int) -> Writing:
    return Writing(
        journals=Journals(place.journal or directory, tuple(key.journals for key in keys_of(place).values())),
        slots=slots,
        gather_seconds=place.sync_interval,
        segment_bytes=place.segment_size,
        segment_seconds=place.segment_age,
        retention_seconds=place.retention,
    )


def first_key(place: AuditSettings) -> ChainKey:
    """That which seals now. There is one wherever there is a directory."""
    return chain_key(place.keys[0].id, place.keys[0].secret.value)


def keys_of(place: AuditSettings) -> Mapping[str, ChainKey]:
    """All, by their ids."""
    return {key.id: chain_key(key.id, key.secret.value) for key in place.keys}
