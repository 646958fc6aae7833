"""How large, how deep and of what patterns a schema may be that an engine is asked to compile."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from proxy.refusals import InvalidRequest

MAX_PATTERN_CHARACTERS: Final = 4096
# A few bytes of JSON become a whole object, in the loop's thread: 1 MiB of them took a quarter of a second. What is in
# texts counts too.
MAX_NODES: Final = 2**16


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a schema an engine is asked to compile: bytes of JSON, and levels of objects and arrays.

    `in_texts`: a schema may also be written into a text (`structured_outputs.json`, `guided_json`), and counts there.
    """

    most_bytes: int
    most_levels: int
    in_texts: bool = False


_ANYTHING: Final = msgspec.json.Decoder(object)


def check_schema(where: str, raw: Raw, extent: Extent) -> None:
    """Raises InvalidRequest for a value that is larger or deeper than an engine should be asked to compile."""
    if len(raw) > extent.most_bytes:
        raise InvalidRequest(f"{where} must be at most {extent.most_bytes} bytes of JSON.", param=where)
    if sum(map(bytes(raw).count, (b"{", b"["))) > MAX_NODES:
        raise InvalidRequest(f"{where} must hold at most {MAX_NODES} objects and arrays.", param=where)
    opened = _opened if extent.in_texts else _as_it_is
    try:
        level = [opened(_ANYTHING.decode(raw))]
        for _ in range(extent.most_levels):
            if any(len(pattern) > MAX_PATTERN_CHARACTERS for node in level for pattern in _patterns(node)):
                raise InvalidRequest(
                    f"{where} holds a pattern of more than {MAX_PATTERN_CHARACTERS} characters.", param=where
                )
            level = [
                child for node in level for value in _values(node) if isinstance(child := opened(value), dict | list)
            ]
            if not level:
                return
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{where} holds a number that is too large, or nests too deep.", param=where) from error
    raise InvalidRequest(f"{where} must nest at most {extent.most_levels} levels.", param=where)


def _patterns(node: object) -> Iterable[str]:
    """The regular expressions of a schema's node or a structural tag's: compiling one may cost far more than its
    length.
    """
    if not isinstance(node, dict):
        return ()
    properties = node.get("patternProperties")
    named = properties if isinstance(properties, dict) else ()
    return (text for text in (node.get("pattern"), node.get("regex"), *named) if isinstance(text, str))


def _values(node: object) -> Iterable[object]:
    return node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def _as_it_is(value: object) -> object:
    return value


def _opened(value: object) -> object:
    """What a text holds where it is JSON, as the engines' Python reads it, which takes more than we do.

    Raises RecursionError.
    """
    text = value.lstrip() if isinstance(value, str) else ""
    if not text.startswith(("{", "[")):
        return value
    try:
        return _IN_TEXT.raw_decode(text)[0]
    except ValueError:
        return value


_IN_TEXT: Final = json.JSONDecoder(strict=False, parse_int=len, parse_float=len)
