"""Opening JSON objects one level at a time.

Names are compared decoded, so no spelling of a name escapes a rule; values stay the bytes that the client wrote, so
nothing that a rule lets pass is changed. A name that occurs twice is refused, because decoders differ in which of the
two they take (RFC 8259 section 4).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from proxy.refusals import InvalidRequest

STRING: Final = ord('"')
ARRAY: Final = ord("[")
OBJECT: Final = ord("{")
NULL: Final = ord("n")
TRUE: Final = ord("t")
FALSE: Final = ord("f")

# No body and no message, part or tool of an engine's protocol has half as many. Looking for doubled names costs a
# microsecond each, so who sends thousands is refused before.
MAX_MEMBERS: Final = 512
MAX_MEMBERS_IN_ARRAYS: Final = 64
WRITTEN_AGAIN_BYTES: Final = 16 * 1024


T = TypeVar("T")


class _Name:
    """A member's name as a key that equals only itself, so that a dict of them keeps doubled names apart."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _name(_: type, text: object) -> _Name:
    return _Name(str(text))


_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_OBJECTS: Final = msgspec.json.Decoder(list[dict[str, Raw]])
_PAIRS: Final = msgspec.json.Decoder(dict[_Name, Raw], dec_hook=_name)
_LISTS_OF_PAIRS: Final = msgspec.json.Decoder(list[dict[_Name, Raw]], dec_hook=_name)
_TEXT: Final = msgspec.json.Decoder(str)
_ENCODER: Final = msgspec.json.Encoder()


class Opened(Struct, frozen=True):
    """An array as it was written, and the members of each of its objects, each name once."""

    raw: Raw
    objects: list[dict[str, Raw]]

    def __repr__(self) -> str:
        return f"Opened({len(self.objects)} objects)"  # what people write is in no repr


def kind(raw: Raw) -> int:
    """The first byte of a JSON value, which tells its type."""
    return memoryview(raw)[0]


def read_object(data: bytes, where: str | None) -> dict[str, Raw]:
    """The members of a JSON object. Raises InvalidRequest for anything else, and for a name that occurs twice.

    `where` is the object's place in the client's body for the refusal's `param`; None is the body itself.
    """
    try:
        members = _OBJECT.decode(data)
        if len(members) > MAX_MEMBERS:
            raise _too_many(MAX_MEMBERS, where)
        if not _is_shortest(members, data, shortest_object) and len(_PAIRS.decode(data)) != len(members):
            raise _doubled(where)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{where or 'The body'} must be a JSON object.", param=where, reason="not_json") from error
    return members


def read_objects(data: bytes, where: str) -> list[dict[str, Raw]]:
    """The members of each object of a JSON array, under the same rules as `read_object`."""
    try:
        objects = _OBJECTS.decode(data)
        if max(map(len, objects), default=0) > MAX_MEMBERS_IN_ARRAYS:
            raise _too_many(MAX_MEMBERS_IN_ARRAYS, where)
        if not _is_shortest(objects, data, shortest_array) and any(
            len(pairs) != len(members) for pairs, members in zip(_LISTS_OF_PAIRS.decode(data), objects, strict=True)
        ):
            raise _doubled(where)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{where} must be an array of JSON objects.", param=where, reason="not_json") from error
    return objects


def _is_shortest(value: T, data: bytes, shortest: Callable[[T], int]) -> bool:
    """Whether no JSON of what was read from the data is shorter: then none of its members was lost. The data is longer
    also where there was white space or an escaped name: then every pair is looked at.

    To write a small value again is quicker than to count, and what msgspec writes is as short as JSON can be.
    """
    return (len(_ENCODER.encode(value)) if len(data) <= WRITTEN_AGAIN_BYTES else shortest(value)) == len(data)


def shortest_object(members: dict[str, Raw]) -> int:
    """A length in bytes that no JSON object of these members is below. It has this length where there are members, in
    names of ASCII that need no escape, and nothing is between them. Looking at lengths alone spares a copy.
    """
    return 1 + 4 * len(members) + sum(map(len, members)) + sum(map(len, members.values()))


def shortest_array(objects: list[dict[str, Raw]]) -> int:
    """The same of an array of such objects. One sum for all of them: a conversation has hundreds."""
    names = sum(map(len, chain.from_iterable(objects)))
    values = sum(map(len, chain.from_iterable(map(dict.values, objects))))
    return 1 + 2 * len(objects) + 4 * sum(map(len, objects)) + names + values


def check_doubled(data: bytes, where: str) -> None:
    """Raises InvalidRequest where any object in the JSON names a member twice, however deep it is.

    For values whose form was looked at already: it takes what other decoders take, too, and costs a microsecond a
    member.
    """
    try:
        _EVERY_OBJECT.decode(str(data, "utf-8"))
    except _DoubledError as error:
        raise _doubled(where) from error
    except RecursionError as error:
        raise InvalidRequest(f"{where} nests too deep.", param=where) from error


class _DoubledError(Exception):
    """A member's name occurs twice."""


def _each_once(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise _DoubledError


_EVERY_OBJECT: Final = json.JSONDecoder(object_pairs_hook=_each_once, parse_int=len, parse_float=len)


def read_text(raw: Raw, where: str) -> str:
    """A JSON string's value. Raises InvalidRequest for anything else."""
    try:
        return _TEXT.decode(raw)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{where} must be a string.", param=where) from error


def write(value: dict[str, Raw] | list[dict[str, Raw]]) -> Raw:
    """The JSON of opened objects, every value as it came."""
    return Raw(_ENCODER.encode(value))


def write_text(text: str) -> bytes:
    """The JSON of a text, as nearly every client writes it."""
    return _ENCODER.encode(text)


def _too_many(most: int, where: str | None) -> InvalidRequest:
    place = f"An object in {where}" if where else "The body"
    return InvalidRequest(f"{place} has more than {most} members.", param=where, reason="too_many_members")


def _doubled(where: str | None) -> InvalidRequest:
    place = f"An object in {where}" if where else "The body"
    return InvalidRequest(f"{place} names a member twice. Send each once.", param=where, reason="doubled_member")
