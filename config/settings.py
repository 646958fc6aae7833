"""What an operator may say: the whole configuration as one frozen value (contract section 3).

The comment on a field is its reference documentation: `config/reference.md` is generated from this file. Standard library
only; `load.py` checks and fills these, so whoever holds a `Settings` holds a configuration without faults. Durations are
seconds as float, sizes are bytes as int; both are written with a unit in the file (`"30s"`, `"32MiB"`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from config.secret import SecretSource

UnitName = Literal["deployment", "workspace", "team", "project", "collection", "user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The certificate of a listener."""

    certificate: Path  # PEM file: the certificate, then its chain.
    key: SecretSource  # PEM of the private key.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """The certificate that saltgate shows to a server that asks for one (mutual TLS)."""

    certificate: Path  # PEM file: the certificate, then its chain.
    key: SecretSource  # PEM of the private key.


@dataclass(frozen=True, slots=True, kw_only=True)
class Public:
    """What people and programs reach."""

    listen: str = "127.0.0.1:8080"  # Address and port, or unix:/path.
    url: str | None = None  # The address that clients use; every absolute URL comes from it, never from Host. Required unless `listen` is loopback.
    max_body: int = 32 * 1024 * 1024  # Size. A larger request body is refused with 413.
    tls: Tls | None = None  # Terminates TLS here.


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """Health and metrics, one listener for all workers. Never public."""

    listen: str = "127.0.0.1:9080"  # Address and port.
    metrics_token: SecretSource | None = None  # Bearer token for /metrics. Required unless `listen` is loopback.


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine, in one or more replicas."""

    name: str  # The engine's name in logs and metrics.
    kind: Literal["vllm"] = "vllm"  # Which profile of endpoints and fields holds.
    urls: tuple[str, ...]  # The replicas: http://…, https://…, or unix:/path.
    models: tuple[str, ...] | None = None  # The models that it serves; asked of the engine where absent. One model at two engines is a fault.
    api_key: SecretSource | None = None  # Sent as bearer token to the engine; never the client's.
    proof: Literal["strict", "warn", "off"] = "strict"  # What to do with an endpoint that is not proven to separate by salt: refuse, relay and warn, or never probe (loopback and unix only).
    ca: Path | None = None  # PEM file of a private authority.
    client_cert: ClientCertificate | None = None  # Shown to the engine.


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """One OpenID Provider whose access tokens are accepted."""

    issuer: str  # The issuer identifier, compared byte for byte. https, or http on loopback.
    kind: Literal["generic", "rfc9068", "keycloak", "entra", "okta", "auth0", "authentik", "dex", "google", "local"] = "generic"  # A preset for the keys below; each can be set on its own.
    audiences: tuple[str, ...]  # At least one of them must be in the token's `aud`.
    clients: tuple[str, ...] | None = None  # The accepted clients (azp, client_id, cid, appid). Absent: any. Required for authentik and dex.
    algorithms: tuple[str, ...] = ("RS256", "ES256")  # The accepted signature algorithms, asymmetric only.
    token_types: tuple[str, ...] = ("at+jwt",)  # The accepted header `typ`, "" for none sent.
    jwks_uri: str | None = None  # Where the keys are; from discovery where absent.
    subject: tuple[str, ...] = ("sub",)  # Path of the claim that names the caller, a list of literal names.
    groups: tuple[str, ...] | None = ("groups",)  # Path of the claim that lists the groups. Absent in the preset `google`.
    leeway: float = 30.0  # Duration. How far clocks may differ.
    allow_id_token_claims: bool = False  # Whether nonce, at_hash and c_hash are tolerated in access tokens, as Dex and Authentik send them.
    payload_type: str | None = None  # The required payload `typ` (Keycloak: Bearer).
    max_lifetime: float = 25 * 3600.0  # Duration. A token with a longer life between iat and exp is refused.
    ca: Path | None = None  # PEM file of a private authority.
    client_cert: ClientCertificate | None = None  # Shown to the issuer.


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """Where memberships live. Exactly one of `redis` and `file`."""

    redis: str | None = None  # redis://, rediss://, unix://.
    file: Path | None = None  # A directory file, for one machine without Redis.
    state: Path | None = None  # With `file`: the folder where the salt ring, raises and blocks live.
    max_stale: float = 300.0  # Duration. How long known memberships serve while the directory cannot be confirmed.
    ca: Path | None = None  # PEM file of a private authority.
    client_cert: ClientCertificate | None = None  # Shown to Redis.


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationKey:
    """One key of the ring."""

    id: str  # [A-Za-z0-9_-]{1,32}; part of the salt, so public.
    secret: SecretSource  # 32 bytes or more.


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """The border and its keys."""

    unit: UnitName = "project"  # The default border.
    show_reuse: bool = True  # May clients see how many of their prompt tokens were reused?
    keys: tuple[IsolationKey, ...]  # The first is current; the others stay for units that still use them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What happens to open requests at SIGTERM."""

    limit: float = 300.0  # Duration. Open streams may finish that long; then they end with an error event.


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long saltgate waits, and for what."""

    connect: float = 5.0  # Duration. A connection to an engine.
    first_byte: float = 600.0  # Duration. From the request to the first byte of an answer: long prompts queue and prefill.
    idle: float = 300.0  # Duration. Between two reads of a running answer.
    stall: float = 120.0  # Duration. A client that takes nothing that long while bytes wait for it is cut.
    request: float = 60.0  # Duration. A client's request, head and body, must have arrived by then.


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """OpenTelemetry. Without an endpoint nothing is exported; metrics are always at /metrics."""

    otlp_endpoint: str | None = None  # OTLP/HTTP base address, for example http://127.0.0.1:4318.
    otlp_headers: SecretSource | None = None  # Lines of `name: value`, sent with each export.
    service_name: str = "saltgate"  # Resource attribute service.name.
    trace_ratio: float = 1.0  # The share of ordinary requests whose trace is kept, 0 to 1; failed ones always are.


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Log lines on standard output."""

    format: Literal["json", "human"] = "json"  # One JSON object a line, or text for people.
    level: Literal["debug", "info", "warning", "error"] = "info"  # The least level that is written.


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole configuration."""

    workers: int = 1  # Processes that share the public port; 0 = one per core.
    public: Public = field(default_factory=Public)
    admin: Admin = field(default_factory=Admin)
    engines: tuple[Engine, ...]
    issuers: tuple[Issuer, ...]
    directory: Directory
    isolation: Isolation
    drain: Drain = field(default_factory=Drain)
    timeouts: Timeouts = field(default_factory=Timeouts)
    telemetry: Telemetry = field(default_factory=Telemetry)
    logs: Logs = field(default_factory=Logs)
