"""What an engine tells of itself: its version, and which endpoints have a `cache_salt` in their request's schema. Pure.

An engine's own word proves nothing, since behaviour is what counts. It is believed where it speaks against the engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

# The versions of vLLM that the tests of this release ran on (tests/engine). Older ones have endpoints that drop the
# salt without a word; of newer ones nobody knows yet. The probes decide in either case.
TESTED: Final = ("0.32",)

_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}")
_MOST_SCHEMAS: Final = 64


_SALT: Final = "cache_salt"


class Declared(Enum):
    """What an engine's schema says of one endpoint."""

    SALTED = "its request has a cache_salt"
    UNSALTED = "its request has no cache_salt"
    ABSENT = "there is no such endpoint"


@dataclass(frozen=True, slots=True)
class About:
    """`version` is None where the engine does not tell one that can be shown; `paths` are all that its schema lists."""

    version: str | None = None
    paths: frozenset[str] = frozenset()
    salted: Mapping[str, bool] = field(default_factory=dict)

    @property
    def is_tested(self) -> bool:
        return self.version is not None and any(
            self.version == tested or self.version.startswith(tested + ".") for tested in TESTED
        )

    def declared(self, path: str) -> Declared | None:
        """None where the schema says nothing of it: there is none, or it lists not one endpoint that computes."""
        if not self.salted:
            return None
        if path not in self.paths:
            return Declared.ABSENT
        salted = self.salted.get(path)
        return None if salted is None else Declared.SALTED if salted else Declared.UNSALTED


NOTHING_TOLD: Final = About()


def read_about(version_page: bytes | None, schema_page: bytes | None) -> About:
    """What the two pages say. A page that is missing, or makes no sense, says nothing."""
    document = _object(schema_page)
    paths = _object_of(document.get("paths"))
    salted: dict[str, bool] = {}
    for path, item in paths.items():
        declares = _declares_salt(document, item)
        if declares is not None:
            salted[path] = declares
    return About(_version(_object(version_page).get("version")), frozenset(paths), salted)


def _version(told: object) -> str | None:
    """It becomes a label of metrics and a word in logs, so it must look like one."""
    return told if isinstance(told, str) and _VERSION.fullmatch(told) else None


def _declares_salt(document: Mapping[str, object], item: object) -> bool | None:
    """Whether a POST there has a member `cache_salt` in its body; None where no body is described member by member."""
    body = _object_of(_object_of(_object_of(item).get("post")).get("requestBody"))
    media = _object_of(_object_of(body.get("content")).get("application/json"))
    found = [_SALT in properties for properties in _properties(document, media.get("schema"))]
    return any(found) if found else None


def _properties(document: Mapping[str, object], schema: object) -> Iterator[Mapping[str, object]]:
    """The members of each object that the schema may be: it can be a reference, or a choice of several."""
    waiting, seen = [schema], 0
    while waiting and seen < _MOST_SCHEMAS:
        seen += 1
        one = _object_of(waiting.pop())
        reference = one.get("$ref")
        if isinstance(reference, str):
            waiting.append(_referred(document, reference))
        for choice in ("anyOf", "oneOf", "allOf"):
            several = one.get(choice)
            waiting.extend(several if isinstance(several, list) else ())
        if isinstance(one.get("properties"), dict):
            yield _object_of(one["properties"])


def _referred(document: Mapping[str, object], reference: str) -> object:
    place: object = document
    for part in reference.removeprefix("#/").split("/"):
        place = _object_of(place).get(part)
    return place


def _object(page: bytes | None) -> Mapping[str, object]:
    try:
        return _object_of(json.loads(page or b"{}"))
    except (ValueError, RecursionError):
        return {}


def _object_of(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
