"""Which settings a saltgate runs with, so that a change shows, without saying what they are. Pure but for its search.

Each key has a short MAC of its value, under a key of the audit: equal values have equal ones, and nobody can try values
without that key. A secret is in it by its bytes, so that a new one shows, too.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Final

import msgspec

from config.secret import Secret
from observability.audit.chain import ChainKey
from observability.audit.files import listed

CONFIGURATION: Final = "configuration.loaded"
_DIGEST_CHARACTERS: Final = 8
_LATEST_CHAINS: Final = 64
_FIRST_LINES: Final = 4


class ConfigurationLoaded(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """The settings of a start or a reload. `changed` are the keys that differ from those of the last line like this in
    the directory; None where there is none. `keys` have their digests where anything differs, `digest` is of all.
    """

    event: str
    digest: str
    changed: tuple[str, ...] | None = None
    keys: dict[str, str] | None = None


def configuration_loaded(settings: object, key: ChainKey, before: Mapping[str, str] | None) -> ConfigurationLoaded:
    """`before` are the digests of the last one."""
    now = digests(settings, key)
    changed = None
    if before is not None:
        changed = tuple(sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name)))
    return ConfigurationLoaded(
        event=CONFIGURATION, digest=_digest(key, repr(sorted(now.items()))), changed=changed, keys=now
    )


def digests(settings: object, key: ChainKey) -> dict[str, str]:
    """Of each dotted key its digest."""
    return {name: _digest(key, value) for name, value in _leaves("", settings)}


def last_digests(directory: Path) -> dict[str, str] | None:
    """Of the last line like this; None where none of the last chains has one. Nothing of it is verified."""
    with suppress(OSError):
        chains = listed(directory).chains
        for segments in list(chains.values())[: -_LATEST_CHAINS - 1 : -1]:
            if segments[0].number == 1:
                found = _digests_in(segments[0].path)
                if found is not None:
                    return found
    return None


def _digests_in(path: Path) -> dict[str, str] | None:
    with suppress(OSError, ValueError), path.open("rb") as file:
        for _ in range(_FIRST_LINES):
            line = file.readline()
            if f'"event":"{CONFIGURATION}"'.encode() in line:
                return msgspec.json.decode(line, type=ConfigurationLoaded).keys
    return None


def _leaves(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Secret):
        yield name, f"secret {value.value!r}"
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _leaves(f"{name}.{field.name}" if name else field.name, getattr(value, field.name))
    elif isinstance(value, tuple) and any(is_dataclass(one) for one in value):
        for number, one in enumerate(value):
            yield from _leaves(f"{name}.{number}", one)
    else:
        yield name, repr(value)


def _digest(key: ChainKey, text: str) -> str:
    return hmac.digest(key.names, b"saltgate audit setting" + text.encode("utf-8", "replace"), "sha256").hex()[
        :_DIGEST_CHARACTERS
    ]
