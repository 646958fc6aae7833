"""What must hold of `[telemetry]`. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from config.addresses import web_address
from config.faults import Fault
from config.settings import Telemetry

MINIMUM_HASH_KEY_BYTES: Final = 32
# As `proxy.isolation.unit.NAME`: only a name that a workspace or project can have is worth writing.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def faults_of_telemetry(telemetry: Telemetry, *, issuers: Collection[str], proxies: bool) -> Iterator[Fault]:
    """The faults, in the order of the keys. `issuers` are those of [[issuers]]; `proxies` whether some are trusted."""
    yield from _endpoint(telemetry)
    key = telemetry.user_hash_key
    if key is not None and len(key.value) < MINIMUM_HASH_KEY_BYTES:
        yield Fault(
            "telemetry.user_hash_key",
            f"{key.source} holds {len(key.value)} bytes and {MINIMUM_HASH_KEY_BYTES} are needed; "
            "`saltgate keys new` makes such a secret",
        )
    yield from _scopes(telemetry)
    yield from _callers(telemetry, issuers)
    if telemetry.trusted_proxies and not proxies:
        yield Fault("telemetry.trusted_proxies", "is of those in `proxies.trusted`; list them there")


def _endpoint(telemetry: Telemetry) -> Iterator[Fault]:
    url = telemetry.otlp_endpoint
    if url is None:
        return
    try:
        web_address(url)
    except ValueError as error:
        yield Fault("telemetry.otlp_endpoint", str(error))
        return
    if "?" in url or "#" in url:
        yield Fault("telemetry.otlp_endpoint", "leave out the query and fragment")
    if not url.startswith("https:"):
        for name in ("otlp_ca", "otlp_client_cert"):
            if getattr(telemetry, name) is not None:
                yield Fault(f"telemetry.{name}", "is for an endpoint at https://")


def _scopes(telemetry: Telemetry) -> Iterator[Fault]:
    seen: dict[tuple[str, str | None], int] = {}
    for number, scope in enumerate(telemetry.scopes):
        place = f"telemetry.scopes.{number}"
        for field, name in (("workspace", scope.workspace), ("project", scope.project)):
            if name is not None and not _NAME.fullmatch(name):
                yield Fault(f"{place}.{field}", f"is no {field}'s name; those are {_NAME.pattern}")
        first = seen.setdefault((scope.workspace, scope.project), number)
        if first != number:
            yield Fault(place, f"is also at telemetry.scopes.{first}; write each scope once")


def _callers(telemetry: Telemetry, issuers: Collection[str]) -> Iterator[Fault]:
    for number, caller in enumerate(telemetry.trusted_callers):
        place = f"telemetry.trusted_callers.{number}"
        if issuers and caller.issuer not in issuers:
            yield Fault(f"{place}.issuer", "is none of [[issuers]]; write it as it stands there")
        if (caller.client is None) == (caller.subject is None):
            yield Fault(place, "write exactly one of `client` and `subject`")
