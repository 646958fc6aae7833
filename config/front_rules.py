"""What must hold of `[[fronts]]`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from config.faults import Fault
from config.settings import FrontGate, IsolationKey, Issuer, TrustedFront

MINIMUM_SECRET_BYTES: Final = 32  # RFC 7518 section 3.2: a key of the hash's size or larger

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
# As `proxy.isolation.unit.NAME`: only a name that a workspace can have is worth writing.
_WORKSPACE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110 section 5.1
# What says something else already: a credential, a scope, a proof, how the request is to be read.
_TAKEN: Final = frozenset(
    {
        *("authorization", "x-api-key", "api-key", "dpop", "cookie"),
        *("openai-organization", "openai-project", "traceparent"),
        *("host", "connection", "content-length", "content-type", "transfer-encoding"),
    }
)


def faults_of_fronts(
    fronts: Mapping[int, TrustedFront],
    *,
    issuers: Mapping[int, Issuer],
    gates: Mapping[int, FrontGate],
    keys: Mapping[int, IsolationKey],
) -> Iterator[Fault]:
    """Every fault of the fronts, which are given, as all else, by their place in the file."""
    known = {issuer.issuer for issuer in issuers.values()}
    behind = {(gate.issuer, gate.subject): f"gates.{number}" for number, gate in gates.items()}
    salts = {key.secret.value: f"isolation.keys.{number}.secret" for number, key in keys.items()}
    names: dict[str, str] = {}
    for number, front in fronts.items():
        place = f"fronts.{number}"
        yield from _name_faults(place, front.name, names)
        if known and front.issuer not in known:
            yield Fault(f"{place}.issuer", "is none of [[issuers]]; write it as it stands there")
        yield from _subject_faults(place, front, behind)
        for position, workspace in enumerate(front.workspaces):
            if not _WORKSPACE.fullmatch(workspace):
                yield Fault(
                    f"{place}.workspaces.{position}", "is no workspace's name; those are [a-z0-9][a-z0-9._-]{0,62}"
                )
        yield from _secret_faults(place, front, salts)
        yield from _header_faults(place, front.header)


def _name_faults(place: str, name: str, names: dict[str, str]) -> Iterator[Fault]:
    if not _NAME.fullmatch(name):
        yield Fault(f"{place}.name", "write 1 to 32 of a-z 0-9 -, a letter or digit first, for example webui")
    elif (first := names.setdefault(name, f"{place}.name")) != f"{place}.name":
        yield Fault(f"{place}.name", f"is also at {first}: their people would be the same; give each front its own")


def _subject_faults(place: str, front: TrustedFront, behind: dict[tuple[str, str], str]) -> Iterator[Fault]:
    if front.subject.startswith("front:"):
        yield Fault(f"{place}.subject", "names one of a front's people; name the front's own service account")
    elif (first := behind.setdefault((front.issuer, front.subject), place)) != place:
        yield Fault(f"{place}.subject", f"is also that of {first}; give each a service account of its own")


def _secret_faults(place: str, front: TrustedFront, known: dict[bytes, str]) -> Iterator[Fault]:
    secret = front.secret
    if len(secret.value) < MINIMUM_SECRET_BYTES:
        yield Fault(
            f"{place}.secret",
            f"{secret.source} holds {len(secret.value)} bytes and {MINIMUM_SECRET_BYTES} are needed; "
            "`saltgate keys new` makes one",
        )
    elif (first := known.setdefault(secret.value, f"{place}.secret")) != f"{place}.secret":
        yield Fault(f"{place}.secret", f"is also that of {first}; a secret serves one purpose")


def _header_faults(place: str, header: str) -> Iterator[Fault]:
    if not _HEADER.fullmatch(header):
        yield Fault(f"{place}.header", "is no header's name; write for example X-OpenWebUI-User-Jwt")
    elif header.lower() in _TAKEN or header.lower().startswith("x-saltgate-"):
        yield Fault(f"{place}.header", "has a meaning of its own; write the header that holds the signed assertion")
