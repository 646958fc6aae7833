"""What the supervisor knows of a configuration; the settings themselves are bytes to it, which only workers open.

So that a worker of newly installed code gets settings of the same code, though its supervisor is older.
"""

from __future__ import annotations

import pickle

import msgspec

from config.addresses import UnixAddress, listen_address, origin_of
from config.settings import Admin, Settings
from proxy.tls import Pair


class OtlpPlan(msgspec.Struct, frozen=True):
    """Where metrics are sent, as `observability.otlp.collector_at` takes it, how often, and whose they are called."""

    endpoint: str
    headers: bytes | None
    ca: str | None
    interval_seconds: float
    service_name: str
    certificate: str | None = None  # the file of what is shown to the collector, and its key
    key: bytes | None = None

    def __repr__(self) -> str:
        return f"OtlpPlan(endpoint={self.endpoint!r})"  # the rest holds keys


class MetricsPlan(msgspec.Struct, frozen=True):
    """What the supervisor does with what its workers count. `pseudonym_key` None: scopes go by their names."""

    most_scopes: int = 1000
    most_models: int = 100
    idle_seconds: float = 3600.0
    pseudonym_key: bytes | None = None
    otlp: OtlpPlan | None = None

    def __repr__(self) -> str:
        return f"MetricsPlan(most_scopes={self.most_scopes})"  # the rest may hold secrets


class Plan(msgspec.Struct, frozen=True):
    """A configuration without faults. `fixed` is what only a restart can change, by its dotted key, to be compared.

    `admin_origin` is where administrators open the pages, None where they cannot; `admin_keys` open their tickets, that
    of the current isolation key first. `scopes`, `recent` and `kept` are `[history]`.

    It may come from a process of newer code: a field that is added later has a default.
    """

    public: str
    admin: str
    workers: int
    drain_seconds: float
    metrics_token: bytes | None
    fixed: dict[str, str]
    packed: bytes
    metrics: MetricsPlan = MetricsPlan()
    admin_origin: str | None = None
    admin_keys: tuple[bytes, ...] = ()
    scopes: int = 500
    recent: int = 10_000
    kept: bool = False

    def __repr__(self) -> str:
        return f"Plan(public={self.public!r}, admin={self.admin!r}, workers={self.workers})"  # the rest holds secrets


class Reading(msgspec.Struct, frozen=True):
    """What came of reading a configuration: a plan, or each fault as key and message. `warnings` are for a person."""

    plan: Plan | None
    faults: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]


def admin_origin(admin: Admin) -> str | None:
    """As browsers write it (RFC 6454 section 6.2). Off loopback only `[admin] url` says it."""
    if admin.url is not None:
        return origin_of(admin.url)
    address = listen_address(admin.listen)
    if isinstance(address, UnixAddress) or not address.is_loopback:
        return None
    return origin_of(f"http://{f'[{address.host}]' if ':' in address.host else address.host}:{address.port}")


def pack(settings: Settings, pair: Pair | None) -> bytes:
    """`pair` is that of the listener as it was read together with the settings."""
    return pickle.dumps((settings, pair))


def unpack(packed: bytes) -> tuple[Settings, Pair | None]:
    """What `pack` packed. It comes from a process of our own over a pipe of our own: a copy, not a protocol."""
    settings, pair = pickle.loads(packed)  # noqa: S301
    assert isinstance(settings, Settings)
    return settings, pair
