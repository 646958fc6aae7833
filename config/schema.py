"""The shape of the settings, asked by dotted key: which keys a section has, and what a key holds."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from config.secret import Secret


def keys_of(kind: object) -> tuple[str, ...]:
    """The keys of a section, in the order of the reference; none for anything but a section."""
    if kind is Secret:
        return ("file", "env")
    return tuple(get_type_hints(kind)) if isinstance(kind, type) and is_dataclass(kind) else ()


def required_keys_of(kind: object) -> frozenset[str]:
    """The keys that a section must have."""
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return frozenset()
    return frozenset(key.name for key in fields(kind) if key.default is MISSING and key.default_factory is MISSING)


def member(kind: object, part: str) -> object:
    """What stands under `part`, a key of a section or an index of a list: its type, or None where nothing can."""
    if is_list(kind):
        return _present(get_args(kind)[0]) if part.isdecimal() else None
    if kind is Secret:
        return str if part in keys_of(kind) else None
    return _present(get_type_hints(kind)[part]) if part in keys_of(kind) else None


def is_list(kind: object) -> bool:
    return get_origin(kind) is tuple


def is_text(kind: object) -> bool:
    """Whether a key holds text whatever it looks like: a string, a path or one word of several."""
    return kind is str or kind is Path or get_origin(kind) is Literal


def _present(kind: object) -> object:
    """The type of a value that is there: `X` of `X | None`."""
    if get_origin(kind) in {Union, UnionType}:
        return next(choice for choice in get_args(kind) if choice is not NoneType)
    return kind
