"""What the environment replaces in the file (contract section 3): `SALTGATE_<SECTION>__<KEY>`, list items by index.

The type of the addressed key decides how a value is read: text stays text also where it looks like a number or a date,
everything else is TOML. So `SALTGATE_ISOLATION__KEYS__0__ID=2026-11-01` is an id and no date.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from config.faults import Fault
from config.schema import is_list, is_text, keys_of, member
from config.settings import Settings

PREFIX: Final = "SALTGATE_"

_NAME: Final = re.compile(r"SALTGATE_((?:[A-Z0-9]+(?:_[A-Z0-9]+)*)(?:__[A-Z0-9]+(?:_[A-Z0-9]+)*)+)")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,3}")


@dataclass(frozen=True, slots=True)
class Overlaid:
    """The file's table with the overrides in it, the faults of those that could not be laid, and what else is set.
    `variables` is where each dotted key comes from that was overridden.
    """

    table: dict[str, object]
    faults: tuple[Fault, ...]
    variables: Mapping[str, str]
    others: tuple[str, ...]  # `SALTGATE_…` variables that override nothing.


def overlaid(table: Mapping[str, object], environment: Mapping[str, str]) -> Overlaid:
    """The table with every override laid over it, outer keys before the ones inside them. `table` stays as it is."""
    result = copy.deepcopy(dict(table))
    overrides, others = _overrides(environment)
    faults, variables = [], {}
    for override in overrides:
        key = ".".join(override.path)
        try:
            _lay(result, override)
        except ValueError as error:
            faults.append(_from(override.variable, Fault(key, str(error))))
        else:
            variables[key] = override.variable
    return Overlaid(result, tuple(faults), variables, others)


def with_origin(fault: Fault, variables: Mapping[str, str]) -> Fault:
    """The fault, with the variable that brought what it is about: who looks into the file finds nothing wrong there."""
    parts = fault.key.split(".")
    for length in range(len(parts), 0, -1):
        variable = variables.get(".".join(parts[:length]))
        if variable is not None:
            return _from(variable, fault)
    return fault


def _from(variable: str, fault: Fault) -> Fault:
    return Fault(fault.key, f"{fault.message} (from {variable})")


@dataclass(frozen=True, slots=True)
class _Override:
    variable: str
    path: tuple[str, ...]
    text: str


def _overrides(environment: Mapping[str, str]) -> tuple[list[_Override], tuple[str, ...]]:
    names = sorted(name for name in environment if name.startswith(PREFIX))
    matches = {name: _NAME.fullmatch(name) for name in names}
    found = [
        _Override(name, tuple(match[1].lower().split("__")), environment[name])
        for name, match in matches.items()
        if match
    ]
    found.sort(key=lambda override: (len(override.path), [(len(part), part) for part in override.path]))
    return found, tuple(name for name, match in matches.items() if match is None)


def _lay(table: dict[str, object], override: _Override) -> None:
    """Write one override into the table. Raises ValueError where its path leads nowhere."""
    *kinds, kind = _kinds(override.path)
    place: object = table
    for part, inner in zip(override.path, kinds, strict=False):
        place = _entered(place, part, [] if is_list(inner) else {})
    _put(place, override.path[-1], _value(override.text, kind))


def _kinds(path: Sequence[str]) -> list[object]:
    """The type of what stands at each step of the path."""
    kinds: list[object] = []
    for part in path:
        kinds.append(_known_member(kinds[-1] if kinds else Settings, part))
    return kinds


def _known_member(kind: object, part: str) -> object:
    found = member(kind, part)
    if found is not None:
        return found
    if is_list(kind):
        raise ValueError(f"{part!r} is no index; items of a list are numbered from 0")
    if not keys_of(kind):
        raise ValueError("the key above holds a single value; there is nothing inside it")
    raise ValueError(unknown_key(part, kind))


def unknown_key(key: str, kind: object) -> str:
    """The message for a key that a section does not have, with the nearest one that it has."""
    near = get_close_matches(key, keys_of(kind), n=1)
    if near:
        return f"unknown key; did you mean `{near[0]}`?"
    return f"unknown key; the keys here are {', '.join(keys_of(kind))}"


def _entered(place: object, part: str, fresh: object) -> object:
    """The container under `part`, made where it is absent."""
    if isinstance(place, list):
        index = _index(place, part)
        if index == len(place):
            place.append(fresh)
        return place[index]
    if not isinstance(place, dict):
        raise ValueError("the file holds something else above this key; correct the file")  # noqa: TRY004 - a fault of the file
    return place.setdefault(part, fresh)


def _put(place: object, part: str, value: object) -> None:
    if isinstance(place, list):
        index = _index(place, part)
        place[index : index + 1] = [value]
    elif isinstance(place, dict):
        place[part] = value
    else:
        raise ValueError("the file holds something else above this key; correct the file")  # noqa: TRY004 - a fault of the file


def _index(items: Sequence[object], part: str) -> int:
    if _INDEX.fullmatch(part) is None or int(part) > len(items):
        raise ValueError(f"there is no item {part} and the list has {len(items)}; number new items without a gap")
    return int(part)


def _value(text: str, kind: object) -> object:
    parsed = _toml(text)
    if is_text(kind):
        return parsed if isinstance(parsed, str) else text
    if is_list(kind) and not isinstance(parsed, list) and not keys_of(member(kind, "0")):
        return [parsed if isinstance(parsed, str) else text]
    return text if parsed is None else parsed


def _toml(text: str) -> object:
    """The text as a TOML value, or None where it is bare text. A line break cannot smuggle in a second key."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # too many digits or levels are no TOMLDecodeError
        return None
    return document["value"] if set(document) == {"value"} else None
