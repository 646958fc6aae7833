"""What must hold of `[audit]`: a key of its own for whatever is sealed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from config.faults import Fault
from config.settings import Audit, AuditKey, IsolationKey, Telemetry

LONGEST_SYNC: Final = 10.0
SMALLEST_SEGMENT: Final = 64 * 1024


def faults_of_audit(
    audit: Audit | None,
    keys: Mapping[int, AuditKey],
    isolation_keys: Mapping[int, IsolationKey],
    telemetry: Telemetry | None,
    *,
    minimum_key_bytes: int,
) -> Iterator[Fault]:
    """Every fault of the section; `keys` are those that could be read."""
    yield from _faults_of_keys(keys, isolation_keys, minimum_key_bytes)
    if audit is None:
        return
    if audit.directory is not None and not audit.keys:
        yield Fault(
            "audit.keys", "add an [[audit.keys]] table with `id` and `secret`; `saltgate keys new --out FILE` makes one"
        )
    if audit.sync_interval > LONGEST_SYNC:
        yield Fault("audit.sync_interval", 'write "10s" at most: so much is lost with the power')
    if audit.segment_size < SMALLEST_SEGMENT:
        yield Fault("audit.segment_size", 'write "64KiB" at least: each file begins and ends with lines of its own')
    if audit.retention < audit.segment_age:
        yield Fault("audit.retention", "is less than `segment_age`; a file is only removed when it is sealed")
    if audit.otlp and telemetry is not None and telemetry.otlp_endpoint is None:
        yield Fault("audit.otlp", "needs `otlp_endpoint` of [telemetry]")


def _faults_of_keys(
    keys: Mapping[int, AuditKey], isolation_keys: Mapping[int, IsolationKey], minimum_key_bytes: int
) -> Iterator[Fault]:
    salts = {key.secret.value for key in isolation_keys.values()}
    known: dict[str, int] = {}
    for number, key in keys.items():
        if len(key.secret.value) < minimum_key_bytes:
            yield Fault(
                f"audit.keys.{number}.secret",
                f"holds {len(key.secret.value)} bytes; {minimum_key_bytes} are needed; `saltgate keys new` makes one",
            )
        if key.secret.value in salts:
            yield Fault(
                f"audit.keys.{number}.secret",
                "is a key of [[isolation.keys]]; who checks the audit must not make salts",
            )
        if key.id in known:
            yield Fault(
                f"audit.keys.{number}.id", f"is also the id at audit.keys.{known[key.id]}.id; give each its own"
            )
        known.setdefault(key.id, number)
