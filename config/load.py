"""From a file and the environment to `Settings`, or every fault of them at once.

The way: read the TOML, lay the environment's overrides over it, fill in the issuers' presets, let pydantic check types
and unknown keys, then the rules between values. Types and rules are both asked in one run, so that an operator mends a
file once.
"""

from __future__ import annotations

import copy
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from config.faults import ConfigurationFaults, Fault
from config.files import read_regular
from config.overrides import overlaid, unknown_key, with_origin
from config.person import GATE_VARIABLE
from config.presets import with_presets
from config.rules import Parts, broken_rules
from config.schema import member, required_keys_of
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
    Settings,
    Telemetry,
    Tokens,
    TrustedFront,
)
from config.values import Count, Surroundings

T = TypeVar("T")

MAXIMUM_FILE_BYTES: Final = 16 * 1024 * 1024
MAXIMUM_DEPTH: Final = 32
_SETTINGS: Final = TypeAdapter(Settings)
_WORKERS: Final = TypeAdapter(Count)
_PUBLIC: Final = TypeAdapter(Public)
_ADMIN: Final = TypeAdapter(Admin)
_HISTORY: Final = TypeAdapter(History)
_ENGINE: Final = TypeAdapter(Engine)
_ISSUER: Final = TypeAdapter(Issuer)
_SESSIONS: Final = TypeAdapter(Sessions)
_DIRECTORY: Final = TypeAdapter(Directory)
_GATE: Final = TypeAdapter(FrontGate)
_FRONT: Final = TypeAdapter(TrustedFront)
_ISOLATION_KEY: Final = TypeAdapter(IsolationKey)
_ISOLATION_RULE: Final = TypeAdapter(IsolationRule)
_TELEMETRY: Final = TypeAdapter(Telemetry)
_METRICS: Final = TypeAdapter(Metrics)
_AUDIT: Final = TypeAdapter(Audit)
_AUDIT_KEY: Final = TypeAdapter(AuditKey)
_TOKENS: Final = TypeAdapter(Tokens)
_CAPACITY: Final = TypeAdapter(Capacity)
_PROXIES: Final = TypeAdapter(Proxies)
_CORS: Final = TypeAdapter(Cors)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration without faults, and what an operator should be told about it once."""

    settings: Settings
    warnings: tuple[str, ...]


def load(path: Path, environment: Mapping[str, str] | None = None) -> Loaded:
    """The configuration in `path` with the overrides of `environment`, by default the environment of this process.

    Secrets are read and paths resolved against the file's folder. Raises ConfigurationFaults with every fault that one
    run can find; nothing else is raised for what an operator wrote.
    """
    variables = dict(os.environ) if environment is None else environment
    laid = overlaid(_toml(path), variables)
    table = with_presets(laid.table)
    surroundings = Surroundings(folder=path.absolute().parent, environment=variables)
    read = _validated(_SETTINGS, table, surroundings)
    errors = tuple(map(_fault, read.errors))
    unread = {error.key for error in errors}  # whatever a rule says of these, it says of what stands in for them
    broken = (fault for fault in broken_rules(_parts(table, read.errors, surroundings)) if fault.key not in unread)
    faults = (*laid.faults, *(with_origin(fault, laid.variables) for fault in (*errors, *broken)))
    if faults or read.value is None:
        raise ConfigurationFaults(faults)
    return Loaded(read.value, tuple(_warnings(laid.others, table)))


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """A section that could be read, or why not."""

    value: T | None
    errors: tuple[ErrorDetails, ...]


def _toml(path: Path) -> dict[str, object]:
    try:
        table = tomllib.loads(read_regular(path, maximum_bytes=MAXIMUM_FILE_BYTES).decode("utf-8"))
    except OSError as error:
        message = f"cannot read it ({error.strerror}); put the configuration there, or name its file with -c"
    except UnicodeDecodeError as error:
        message = f"byte {error.start} is not UTF-8; save the file as UTF-8"
    except (ValueError, RecursionError) as error:  # too many digits or levels are no TOMLDecodeError
        message = f"is not TOML: {error}"
    else:
        if _is_shallow(table, MAXIMUM_DEPTH):
            return table
        message = f"is nested more than {MAXIMUM_DEPTH} levels deep; no key is"
    raise ConfigurationFaults([Fault(str(path), message)])


def _is_shallow(value: object, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in inner)


def _validated(adapter: TypeAdapter[T], table: object, surroundings: Surroundings) -> _Read[T]:
    try:
        return _Read(adapter.validate_python(table, extra="forbid", context=surroundings), ())
    except ValidationError as error:
        return _Read(None, tuple(error.errors(include_url=False, include_input=False)))


def _parts(table: Mapping[str, object], errors: Sequence[ErrorDetails], surroundings: Surroundings) -> Parts:
    """The sections as far as they can be read once the keys with errors are taken out."""
    rest = copy.deepcopy(dict(table))
    for error in errors:
        # What is missing cannot be taken out, and a whole item of a list fails alone.
        if error["type"] != "missing" and not (error["type"] == "dataclass_type" and isinstance(error["loc"][-1], int)):
            _take_out(rest, error["loc"])

    def one(adapter: TypeAdapter[T], part: object) -> T | None:
        return _validated(adapter, part, surroundings).value

    def several(adapter: TypeAdapter[T], part: object, **missing: object) -> dict[int, T]:
        """`missing` stands for keys that an item lacks, so that what else is wrong with it is found in the same run."""
        items = enumerate(part if isinstance(part, list) else ())
        read = {number: one(adapter, missing | item if isinstance(item, dict) else item) for number, item in items}
        return {number: item for number, item in read.items() if item is not None}

    isolation, audit = rest.get("isolation"), rest.get("audit", {})
    return Parts(
        workers=one(_WORKERS, rest.get("workers", 1)) or 0,
        public=one(_PUBLIC, rest.get("public", {})),
        admin=one(_ADMIN, rest.get("admin", {})),
        history=one(_HISTORY, rest.get("history", {})),
        engines=several(_ENGINE, rest.get("engines"), name="-", urls=["http://127.0.0.1"]),
        issuers=several(_ISSUER, rest.get("issuers"), issuer="https://issuer.invalid", audiences=["-"]),
        sessions=one(_SESSIONS, rest.get("sessions", {})),
        directory=one(_DIRECTORY, rest.get("directory")),
        capacity=one(_CAPACITY, rest.get("capacity", {})),
        keys=several(_ISOLATION_KEY, isolation.get("keys") if isinstance(isolation, dict) else None, id="-"),
        faulty_isolation_rules=frozenset(
            error["loc"][2] for error in errors if error["loc"][:2] == ("isolation", "rules") and len(error["loc"]) > 2
        ),
        isolation_rules=several(_ISOLATION_RULE, isolation.get("rules") if isinstance(isolation, dict) else None),
        telemetry=one(_TELEMETRY, rest.get("telemetry", {})),
        metrics=one(_METRICS, rest.get("metrics", {})),
        audit=one(_AUDIT, audit),
        audit_keys=several(_AUDIT_KEY, audit.get("keys") if isinstance(audit, dict) else None, id="-"),
        tokens=one(_TOKENS, rest.get("tokens", {})),
        gates=several(_GATE, rest.get("gates")),
        proxies=one(_PROXIES, rest.get("proxies", {})),
        cors=one(_CORS, rest.get("cors", {})),
        fronts=several(_FRONT, rest.get("fronts")),
    )


def _take_out(table: dict[str, object], location: Sequence[str | int]) -> None:
    """Remove the innermost key that leads to an error. Items of a list keep their places."""
    place: object = table
    holder, key = table, str(location[0])
    for part in location:
        if isinstance(place, dict) and part in place:
            holder, key = place, str(part)
            place = place[part]
        elif isinstance(place, list) and isinstance(part, int) and part < len(place):
            place = place[part]
        else:
            break
    holder.pop(key, None)


_NEEDED: Final = {
    "engines": "add an [[engines]] table with `name` and `urls`",
    "issuers": "add an [[issuers]] table with `issuer` and `audiences`; there is no mode without sign-in",
    "directory": 'add [directory] with `redis = "redis://127.0.0.1:6379/0"`, or with `file` and `state`',
    "isolation": "add [[isolation.keys]] with `id` and `secret`",
    "keys": "add an [[isolation.keys]] table with `id` and `secret`; `saltgate keys new` makes a secret",
    "audiences": "list what the issuer puts into `aud` for saltgate",
    "algorithms": 'list some, for example ["RS256", "ES256"], or leave the key out',
    "clients": "list the accepted clients, or leave the key out where any may come",
    "secret": 'write { file = "…" } or { env = "…" }',
}
_EXPECTED: Final = {
    "string_type": "write a string",
    "string_too_short": "write a string that is not empty",
    "tuple_type": "write a list",
    "int_type": "write a whole number",
    "bool_type": "write true or false",
    "dataclass_type": "write a table",
}


def _fault(error: ErrorDetails) -> Fault:
    """One of pydantic's errors in our words."""
    location = tuple(map(str, error["loc"]))
    return Fault(".".join(location), _message(error, location))


def _message(error: ErrorDetails, location: Sequence[str]) -> str:
    key = location[-1]
    match error["type"]:
        case "unexpected_keyword_argument":
            return unknown_key(key, _section(location[:-1]))
        case "missing":
            return f"is required; {_NEEDED.get(key, 'write it')}"
        case "empty":
            return f"is empty; {_NEEDED.get(key) or _item_of(_section(location[:-1]), key)}"
        case "value_error":
            return str(error["ctx"]["error"])
        case "greater_than_equal":
            return f"write a whole number, {error['ctx']['ge']} or more"
        case "literal_error":
            return f"write {error['ctx']['expected']}"
        case kind:
            return _EXPECTED.get(kind, error["msg"])


def _item_of(section: object, key: str) -> str:
    either = "" if key in required_keys_of(section) else ", or leave the key out"
    return f"write at least one item{either}"


def _section(location: Sequence[str]) -> object:
    kind: object = Settings
    for part in location:
        kind = member(kind, part)
    return kind


def _warnings(others: Sequence[str], table: object) -> Iterator[str]:
    """One line about variables that look like overrides and are none; those that a secret names are in use."""
    ignored = sorted(set(others) - {GATE_VARIABLE} - set(_variables(table)))
    if ignored:
        yield (
            f"ignored, for they override no key: {', '.join(ignored)} "
            "(an override is named SALTGATE_<SECTION>__<KEY>, for example SALTGATE_PUBLIC__LISTEN)"
        )


def _variables(part: object) -> Iterator[str]:
    """The environment variables that a table's secrets name."""
    match part:
        case {"env": str(name), **others} if not others:
            yield name
        case dict():
            for inner in part.values():
                yield from _variables(inner)
        case list():
            for inner in part:
                yield from _variables(inner)
        case _:
            pass
