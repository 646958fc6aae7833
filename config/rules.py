"""What must hold between the values of a configuration (contract section 3). Pure.

Each rule looks at the sections that could be read on their own, so that one broken section hides nothing about the
others. A rule yields its faults with the remedy, and never repeats a value that may hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from config.addresses import (
    TcpAddress,
    UnixAddress,
    is_loopback_host,
    listen_address,
    upstream_address,
    web_address,
)
from config.audit_rules import faults_of_audit
from config.browser_rules import faults_of_cors
from config.capacity_rules import faults_of_capacity
from config.faults import Fault
from config.front_rules import faults_of_fronts
from config.history_rules import faults_of_admin_url, faults_of_history
from config.introspection_rules import faults_of_introspection
from config.isolation_rules import faults_of_rules
from config.login_rules import faults_of_logins, faults_of_sessions
from config.media_hosts import media_host, media_private_host
from config.metrics_rules import faults_of_metrics
from config.presets import CLIENTS_REQUIRED
from config.proxy_rules import faults_of_proxies
from config.secret import Secret
from config.settings import (
    Admin,
    Audit,
    AuditKey,
    Capacity,
    Cors,
    Directory,
    Engine,
    FrontGate,
    History,
    IsolationKey,
    IsolationRule,
    Issuer,
    Metrics,
    Proxies,
    Public,
    Sessions,
    Telemetry,
    Tokens,
    TrustedFront,
)
from config.telemetry_rules import faults_of_telemetry
from config.timeout_rules import faults_of_model_timeouts
from config.token_rules import faults_of_administrators, faults_of_tokens

MINIMUM_KEY_BYTES: Final = 32
MAXIMUM_LEEWAY: Final = 300.0
ALGORITHMS: Final = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
)

_HEADER_SECRET: Final = re.compile(rb"[!-~]+")
_REDIS: Final = re.compile(r"rediss?://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[0-9]{0,5})?")
_REDIS_SOCKET: Final = re.compile(r"unix:///[^?#@]+(\?db=[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The sections of a configuration that could be read; None and left out are those that could not."""

    workers: int
    public: Public | None
    admin: Admin | None
    history: History | None
    engines: Mapping[int, Engine]
    issuers: Mapping[int, Issuer]
    sessions: Sessions | None
    directory: Directory | None
    capacity: Capacity | None
    keys: Mapping[int, IsolationKey]
    isolation_rules: Mapping[int, IsolationRule]
    faulty_isolation_rules: Collection[int | str]  # Those of them in which something could not be read.
    telemetry: Telemetry | None
    metrics: Metrics | None
    audit: Audit | None
    audit_keys: Mapping[int, AuditKey]
    tokens: Tokens | None
    gates: Mapping[int, FrontGate]
    proxies: Proxies | None
    cors: Cors | None
    fronts: Mapping[int, TrustedFront]


def broken_rules(parts: Parts) -> tuple[Fault, ...]:
    """Every fault in what could be read, in the order of the reference."""
    return tuple(fault for rule in _RULES for fault in rule(parts))


def _public_listen(parts: Parts) -> Iterator[Fault]:
    if parts.public is not None and isinstance(_listen(parts.public.listen), str):
        yield Fault("public.listen", f"{_listen(parts.public.listen)}, or unix:/path")


def _public_url(parts: Parts) -> Iterator[Fault]:
    if parts.public is None:
        return
    if parts.public.url is None:
        listen = _listen(parts.public.listen)
        if not isinstance(listen, str) and not _is_loopback(listen):
            yield Fault(
                "public.url", "is required unless `listen` is loopback; write the https:// address that clients use"
            )
        return
    try:
        address = web_address(parts.public.url)
    except ValueError as error:
        yield Fault("public.url", str(error))
        return
    if address.path or "?" in parts.public.url or "#" in parts.public.url:
        yield Fault("public.url", "write scheme, host and port only, without a path or query")
    if address.scheme != "https" and not is_loopback_host(address.hostname):
        yield Fault("public.url", "must be https:// unless the host is loopback; tokens travel there")


def _admin_listen(parts: Parts) -> Iterator[Fault]:
    if parts.admin is None:
        return
    listen = _listen(parts.admin.listen)
    if not isinstance(listen, TcpAddress):
        yield Fault("admin.listen", "write an address and a port, for example 127.0.0.1:9080")
    elif not listen.is_loopback and parts.admin.metrics_token is None:
        yield Fault("admin.metrics_token", "is required off loopback; set it, or listen on 127.0.0.1")
    yield from _header_secret("admin.metrics_token", parts.admin.metrics_token)


def _admin_url(parts: Parts) -> Iterator[Fault]:
    if parts.admin is not None and parts.admin.url is not None:
        yield from faults_of_admin_url(parts.admin.url)


def _history(parts: Parts) -> Iterator[Fault]:
    if parts.history is not None:
        yield from faults_of_history(parts.history, parts.directory)


def _listeners_apart(parts: Parts) -> Iterator[Fault]:
    if parts.public is None or parts.admin is None:
        return
    public, admin = _listen(parts.public.listen), _listen(parts.admin.listen)
    if isinstance(public, TcpAddress) and isinstance(admin, TcpAddress) and _overlap(public, admin):
        yield Fault("admin.listen", "is the address of public.listen; health and metrics need a port of their own")


def _overlap(one: TcpAddress, other: TcpAddress) -> bool:
    hosts = {one.host.lower(), other.host.lower()}
    return one.port == other.port != 0 and (len(hosts) == 1 or not hosts.isdisjoint({"0.0.0.0", "::"}))


def _engine_addresses(parts: Parts) -> Iterator[Fault]:
    for number, engine in parts.engines.items():
        for position, url in enumerate(engine.urls):
            try:
                upstream_address(url)
            except ValueError as error:
                yield Fault(f"engines.{number}.urls.{position}", str(error))


def _engine_proof(parts: Parts) -> Iterator[Fault]:
    for number, engine in parts.engines.items():
        if engine.proof == "off" and not all(map(_is_local_engine, engine.urls)):
            yield Fault(
                f"engines.{number}.proof",
                '"off" is only for engines on loopback or a Unix socket; write "strict" or "warn"',
            )


def _engine_media(parts: Parts) -> Iterator[Fault]:
    for number, engine in parts.engines.items():
        if engine.media and engine.kind != "vllm":
            yield Fault(f"engines.{number}.media", 'is for kind "vllm" only; of others no separation is known')
        elif engine.media and engine.proof != "strict":
            yield Fault(f"engines.{number}.media", 'needs an engine that is proven; let proof be "strict"')


def _engine_media_hosts(parts: Parts) -> Iterator[Fault]:
    for number, engine in parts.engines.items():
        lists = {
            f"engines.{number}.media_hosts": (engine.media_hosts, media_host),
            f"engines.{number}.media_private_hosts": (engine.media_private_hosts, media_private_host),
        }
        named: list[tuple[str, str]] = []
        for key, (written, parse) in lists.items():
            if written is not None and not engine.media:
                yield Fault(key, "needs `media = true`; without it no images may come at all")
            for position, text in enumerate(written or ()):
                named.append((f"{key}.{position}", text))
                try:
                    parse(text)
                except ValueError as error:
                    yield Fault(f"{key}.{position}", str(error))
        for key, first in _repeated(iter(named)):
            yield Fault(key, f"is also at {first}; write each host once")
        if engine.media_private_ca is not None and engine.media_private_hosts is None:
            yield Fault(f"engines.{number}.media_private_ca", "goes with `media_private_hosts` only; leave it out")


def _is_local_engine(url: str) -> bool:
    try:
        address = upstream_address(url)
    except ValueError:
        return False
    return isinstance(address, UnixAddress) or is_loopback_host(address.hostname)


def _engine_keys(parts: Parts) -> Iterator[Fault]:
    for number, engine in parts.engines.items():
        yield from _header_secret(f"engines.{number}.api_key", engine.api_key)


def _engine_names(parts: Parts) -> Iterator[Fault]:
    names = ((f"engines.{number}.name", engine.name) for number, engine in parts.engines.items())
    for key, first in _repeated(names):
        yield Fault(key, f"is also the name at {first}; give each engine its own")


def _one_engine_per_model(parts: Parts) -> Iterator[Fault]:
    models = (
        (f"engines.{number}.models.{position}", model)
        for number, engine in parts.engines.items()
        for position, model in enumerate(engine.models or ())
    )
    for key, first in _repeated(models):
        yield Fault(key, f"is also at {first}; name each model once, and write replicas under one engine's `urls`")


def _model_timeouts(parts: Parts) -> Iterator[Fault]:
    for number, engine in parts.engines.items():
        yield from faults_of_model_timeouts(f"engines.{number}", engine)


def _capacity(parts: Parts) -> Iterator[Fault]:
    yield from faults_of_capacity(parts.workers, parts.capacity, parts.engines)


def _issuer_addresses(parts: Parts) -> Iterator[Fault]:
    for number, issuer in parts.issuers.items():
        yield from _trusted_address(f"issuers.{number}.issuer", issuer.issuer)
        # RFC 8414 section 2: an issuer identifier has no query or fragment.
        if "?" in issuer.issuer or "#" in issuer.issuer:
            yield Fault(
                f"issuers.{number}.issuer", "leave out the query and fragment; write it as the tokens' `iss` has it"
            )
        if issuer.jwks_uri is not None:
            yield from _trusted_address(f"issuers.{number}.jwks_uri", issuer.jwks_uri)
            if "#" in issuer.jwks_uri:
                yield Fault(f"issuers.{number}.jwks_uri", "leave out the fragment")


def _trusted_address(key: str, url: str) -> Iterator[Fault]:
    try:
        address = web_address(url)
    except ValueError as error:
        yield Fault(key, str(error))
        return
    if address.scheme != "https" and not is_loopback_host(address.hostname):
        yield Fault(
            key, "must be https:// unless the host is loopback; whoever can change the answer can sign in as anybody"
        )


def _local_issuer(parts: Parts) -> Iterator[Fault]:
    for number, issuer in parts.issuers.items():
        if issuer.kind != "local":
            continue
        if not _is_loopback_url(issuer.issuer):
            yield Fault(f"issuers.{number}.issuer", 'kind "local" is for this machine only; write a loopback address')
        if parts.public is not None and not _is_loopback(_listen(parts.public.listen)):
            yield Fault(f"issuers.{number}.kind", '"local" is for this machine only; let public.listen be loopback too')


def _issuer_algorithms(parts: Parts) -> Iterator[Fault]:
    for number, issuer in parts.issuers.items():
        for position, algorithm in enumerate(issuer.algorithms):
            key = f"issuers.{number}.algorithms.{position}"
            if algorithm.upper().startswith("HS"):
                yield Fault(key, "is symmetric: whoever can check a token could make one; use RS256 or ES256")
            elif algorithm not in ALGORITHMS:
                yield Fault(key, f"is not accepted; write some of {', '.join(sorted(ALGORITHMS))}")


def _issuer_clients(parts: Parts) -> Iterator[Fault]:
    for number, issuer in parts.issuers.items():
        if issuer.clients is None and issuer.kind in CLIENTS_REQUIRED:
            yield Fault(
                f"issuers.{number}.clients",
                f"is required for {issuer.kind}, whose access tokens look like ID tokens; list the accepted clients",
            )
        for position, audience in enumerate(issuer.audiences):
            if audience in (issuer.clients or ()):
                yield Fault(
                    f"issuers.{number}.audiences.{position}",
                    "is also in `clients`: that client's ID tokens would pass; give saltgate an audience of its own",
                )


def _issuer_logins(parts: Parts) -> Iterator[Fault]:
    yield from faults_of_logins(parts.issuers, parts.directory)


def _sessions(parts: Parts) -> Iterator[Fault]:
    if parts.sessions is not None:
        yield from faults_of_sessions(parts.sessions)


def _issuer_introspection(parts: Parts) -> Iterator[Fault]:
    for number, issuer in parts.issuers.items():
        if issuer.introspection is None:
            continue
        key = f"issuers.{number}.introspection"
        yield from faults_of_introspection(key, issuer, issuer.introspection, ALGORITHMS - {"EdDSA"})
        yield from _header_secret(f"{key}.client_secret", issuer.introspection.client_secret)
        if issuer.introspection.endpoint is not None:
            yield from _trusted_address(f"{key}.endpoint", issuer.introspection.endpoint)


def _issuer_leeway(parts: Parts) -> Iterator[Fault]:
    for number, issuer in parts.issuers.items():
        # RFC 7519 section 4.1.4: "usually no more than a few minutes".
        if issuer.leeway > MAXIMUM_LEEWAY:
            yield Fault(f"issuers.{number}.leeway", 'is for clocks that differ, at most "5m"; set the clocks instead')


def _issuer_once(parts: Parts) -> Iterator[Fault]:
    issuers = ((f"issuers.{number}.issuer", issuer.issuer) for number, issuer in parts.issuers.items())
    for key, first in _repeated(issuers):
        yield Fault(key, f"is also at {first}; write each issuer once, with all its audiences")


def _directory_place(parts: Parts) -> Iterator[Fault]:
    directory = parts.directory
    if directory is None:
        return
    if (directory.redis is None) == (directory.file is None):
        yield Fault(
            "directory", "write exactly one of `redis` (redis://host:6379/0) and `file` (one machine, no Redis)"
        )
    if directory.file is not None and directory.state is None:
        yield Fault("directory.state", "is required with `file`; name a folder that saltgate may write to")
    if directory.file is None and directory.state is not None:
        yield Fault("directory.state", "goes with `file` only; Redis keeps its own state, so leave it out")


def _directory_redis(parts: Parts) -> Iterator[Fault]:
    url = parts.directory.redis if parts.directory is not None else None
    if url is None:
        return
    if "@" in url:
        yield Fault("directory.redis", "leave out the user and password; use `username` and `password`")
    elif "?" in url and not url.startswith("unix://"):
        # redis-py takes options from there, ssl_cert_reqs=none and ssl_check_hostname=false among them.
        yield Fault(
            "directory.redis",
            "leave out everything from `?` on: certificates are always checked; `ca`, `client_cert`, `username` and "
            "`password` are keys of their own",
        )
    elif not (_REDIS.fullmatch(url) or _REDIS_SOCKET.fullmatch(url)):
        yield Fault(
            "directory.redis", "write redis://host:port/number, rediss://host:port/number or unix:///path?db=number"
        )


def _gates(parts: Parts) -> Iterator[Fault]:
    """A subject is one issuer's: under another name of it nobody would be a gate, and its borders would be lost."""
    known = {issuer.issuer for issuer in parts.issuers.values()}
    for number, gate in parts.gates.items():
        if parts.issuers and gate.issuer not in known:
            yield Fault(f"gates.{number}.issuer", "is none of [[issuers]]; write it as it stands there")


def _fronts(parts: Parts) -> Iterator[Fault]:
    yield from faults_of_fronts(parts.fronts, issuers=parts.issuers, gates=parts.gates, keys=parts.keys)


def _isolation_keys(parts: Parts) -> Iterator[Fault]:
    for number, key in parts.keys.items():
        if len(key.secret.value) < MINIMUM_KEY_BYTES:
            yield Fault(
                f"isolation.keys.{number}.secret",
                f"{key.secret.source} holds {len(key.secret.value)} bytes and {MINIMUM_KEY_BYTES} are needed; "
                "`saltgate keys new` makes one",
            )


def _isolation_key_ids(parts: Parts) -> Iterator[Fault]:
    for key, first in _repeated((f"isolation.keys.{number}.id", key.id) for number, key in parts.keys.items()):
        yield Fault(key, f"is also at {first}; a new secret needs a new id")


def _isolation_rules(parts: Parts) -> Iterator[Fault]:
    yield from faults_of_rules(parts.isolation_rules, parts.faulty_isolation_rules)


def _telemetry(parts: Parts) -> Iterator[Fault]:
    if parts.telemetry is not None:
        known = {issuer.issuer for issuer in parts.issuers.values()}
        proxies = parts.proxies is None or bool(parts.proxies.trusted)
        yield from faults_of_telemetry(parts.telemetry, issuers=known, proxies=proxies)


def _metrics(parts: Parts) -> Iterator[Fault]:
    if parts.metrics is not None:
        yield from faults_of_metrics(parts.metrics, parts.keys, parts.telemetry)


def _audit(parts: Parts) -> Iterator[Fault]:
    yield from faults_of_audit(
        parts.audit, parts.audit_keys, parts.keys, parts.telemetry, minimum_key_bytes=MINIMUM_KEY_BYTES
    )


def _administrators(parts: Parts) -> Iterator[Fault]:
    if parts.admin is not None:
        known = {issuer.issuer for issuer in parts.issuers.values()}
        yield from faults_of_administrators(parts.admin.administrators, known)


def _tokens(parts: Parts) -> Iterator[Fault]:
    if parts.tokens is not None:
        yield from faults_of_tokens(parts.tokens)


def _proxies(parts: Parts) -> Iterator[Fault]:
    if parts.proxies is not None:
        yield from faults_of_proxies(parts.proxies)


def _cors(parts: Parts) -> Iterator[Fault]:
    if parts.cors is not None:
        yield from faults_of_cors(parts.cors)


_RULES: Final[tuple[Callable[[Parts], Iterator[Fault]], ...]] = (
    _public_listen,
    _public_url,
    _admin_listen,
    _admin_url,
    _listeners_apart,
    _history,
    _engine_addresses,
    _engine_proof,
    _engine_media,
    _engine_media_hosts,
    _engine_keys,
    _engine_names,
    _one_engine_per_model,
    _model_timeouts,
    _capacity,
    _issuer_addresses,
    _local_issuer,
    _issuer_algorithms,
    _issuer_clients,
    _issuer_logins,
    _issuer_introspection,
    _issuer_leeway,
    _issuer_once,
    _sessions,
    _directory_place,
    _directory_redis,
    _isolation_keys,
    _isolation_key_ids,
    _gates,
    _fronts,
    _isolation_rules,
    _telemetry,
    _metrics,
    _audit,
    _administrators,
    _tokens,
    _proxies,
    _cors,
)


def _listen(text: str) -> TcpAddress | UnixAddress | str:
    """The address, or what is wrong with it."""
    try:
        return listen_address(text)
    except ValueError as error:
        return str(error)


def _is_loopback(listen: TcpAddress | UnixAddress | str) -> bool:
    return isinstance(listen, TcpAddress) and listen.is_loopback


def _is_loopback_url(url: str) -> bool:
    try:
        return is_loopback_host(web_address(url).hostname)
    except ValueError:
        return False


def _header_secret(key: str, secret: Secret | None) -> Iterator[Fault]:
    """A secret that travels in a header must be one word of visible ASCII (RFC 9110 section 5.5)."""
    if secret is not None and not _HEADER_SECRET.fullmatch(secret.value):
        yield Fault(key, f"{secret.source} holds spaces, line breaks or other bytes that no bearer token may have")


def _repeated(named: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The key of each value that was there before, with the key where it stood first."""
    first: dict[str, str] = {}
    for key, value in named:
        if value in first:
            yield key, first[value]
        first.setdefault(value, key)
