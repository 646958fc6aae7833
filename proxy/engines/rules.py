"""What the gate does with one field of a client's body. The tables of fields are in `kinds/`.

Each rule has `admit`: the value to send upstream, byte for byte the client's own wherever it can be, or None for a
field that is not sent, or an InvalidRequest that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec
from msgspec import Raw

from proxy.engines.extent import Extent, check_schema
from proxy.engines.media import DataImage
from proxy.engines.members import (
    ARRAY,
    FALSE,
    NULL,
    OBJECT,
    STRING,
    TRUE,
    Opened,
    check_doubled,
    kind,
    read_object,
    read_objects,
    read_text,
    write,
    write_text,
)
from proxy.refusals import InvalidRequest

# Of a value that is no schema: the largest is a logit_bias of 1024 tokens.
MAX_PLAIN_BYTES: Final = 64 * 1024
MAX_OBJECTS_IN_ARRAY: Final = 16_384
MAX_PLAIN_TAG_BYTES: Final = 64
MAX_TOKEN_ID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Passes:
    """The value passes if it has the form. `must_be` completes "… must be" for who sent another. Null passes: it is
    every protocol's way to say "not given", and an engine that wants a value says so."""

    form: msgspec.json.Decoder[object]
    must_be: str

    def admit(self, where: str, raw: Raw) -> Raw | None:
        first = memoryview(raw)[0]
        if first == OBJECT:
            if len(raw) > MAX_PLAIN_BYTES:
                raise InvalidRequest(f"{where} must be at most {MAX_PLAIN_BYTES} bytes of JSON.", param=where)
            _check_form(where, raw, self.form, self.must_be)
        elif first != NULL:
            try:
                self.form.decode(raw)
            except (msgspec.DecodeError, RecursionError) as error:
                raise _malformed(where, self.must_be, error) from error
        return raw


@dataclass(frozen=True, slots=True)
class Drops:
    """The field is left out, and the client's answer stays the same."""

    def admit(self, where: str, raw: Raw) -> Raw | None:  # noqa: ARG002 - whatever it holds
        return None


@dataclass(frozen=True, slots=True)
class Refuses:
    """Leaving the field out would change the answer, so it is refused and the client told what to do.

    Values that ask for nothing pass as left out: null, false, an empty array or object, and those of `harmless`.
    """

    remedy: str
    harmless: frozenset[bytes] = frozenset()

    def admit(self, where: str, raw: Raw) -> Raw | None:
        if kind(raw) in (NULL, FALSE) or bytes(memoryview(raw)[:64]) in self.harmless | _NOTHING:
            return None
        raise InvalidRequest(self.remedy, param=where, reason="field_refused")


_NOTHING: Final = frozenset({b"[]", b"{}"})


@dataclass(frozen=True, slots=True)
class Schema:
    """A value of bounded size and depth: the engine compiles it into a grammar, on a process that serves everybody
    (vllm/v1/structured_output/backend_xgrammar.py).

    `format_at` is the path of the member whose value tells the format, where there is one: absent and "text" ask for
    no grammar.
    """

    form: msgspec.json.Decoder[object]
    must_be: str
    extent: Extent
    format_at: tuple[str, ...] = ()

    def admit(self, where: str, raw: Raw) -> Raw | None:
        if kind(raw) == NULL:
            return raw
        check_schema(where, raw, self.extent)
        _check_form(where, raw, self.form, self.must_be)
        return raw


def _check_form(where: str, raw: Raw, form: msgspec.json.Decoder[object], must_be: str) -> None:
    """Raises InvalidRequest for a value of another form, for a member that the form has not got, and for one that is
    named twice: engines hand what they do not know to templates and backends.
    """
    try:
        form.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _malformed(where, must_be, error) from error
    if kind(raw) == OBJECT:
        check_doubled(raw, where)


def _malformed(where: str, must_be: str, error: Exception) -> InvalidRequest:
    unknown = _UNKNOWN_MEMBER.fullmatch(str(error))
    if unknown is None:
        return InvalidRequest(f"{where} must be {must_be}.", param=where)
    param = f"{where}{unknown['path'] or ''}.{unknown['name']}"
    return InvalidRequest(f"{param} is not known. Leave it out.", param=param, reason="unknown_member")


# msgspec's own words. A name that is none of a field is not repeated: it may be anything.
_UNKNOWN_MEMBER: Final = re.compile(
    r"Object contains unknown field `(?P<name>[A-Za-z0-9_-]{1,64})`(?: - at `\$(?P<path>[A-Za-z0-9_.\[\]-]{0,128})`)?"
)


@dataclass(frozen=True, slots=True)
class Prompts:
    """Texts to complete or embed: a string, token ids, or up to `most` of either (the forms that OpenAI has)."""

    most: int

    def admit(self, where: str, raw: Raw) -> Raw | None:
        if kind(raw) == STRING:
            return raw
        if kind(raw) != ARRAY:
            raise self._malformed(where)
        try:
            count = _count_prompts(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._malformed(where) from error
        if not 1 <= count <= self.most:
            raise InvalidRequest(f"{where} must hold 1 to {self.most} texts.", param=where)
        return raw

    def _malformed(self, where: str) -> InvalidRequest:
        return InvalidRequest(f"{where} must be a string, an array of strings, or arrays of token ids.", param=where)


@dataclass(frozen=True, slots=True)
class Shape:
    """An object that the gate opens. Only `members` are relayed.

    `text` names a member that must be a string, `texts` those that must be one or null where they are there, `flags`
    those that must be true, false or null, `one_of` members with a closed set of values, `opens` members whose arrays
    are opened in turn, `inner` those that must be one object of another shape, or null. `image` names a member that
    must be an image of this form.
    """

    members: frozenset[str]
    text: str | None = None
    texts: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    one_of: Mapping[str, frozenset[str]] = field(default_factory=dict)
    opens: Mapping[str, Opens] = field(default_factory=dict)
    inner: Mapping[str, Shape] = field(default_factory=dict)
    image: tuple[str, DataImage] | None = None

    @property
    def plain(self) -> frozenset[str]:
        """The members whose every string passes as it came."""
        bound = self.one_of.keys() | self.inner.keys() | self.flags | ({self.image[0]} if self.image else set())
        return self.members - bound - {name for name, opens in self.opens.items() if not opens.or_text}

    @property
    def needed(self) -> frozenset[str]:
        """The members that must be there."""
        return frozenset({name for name in (self.text, self.image[0] if self.image else None) if name is not None})


@dataclass(frozen=True, slots=True)
class Opens:
    """An array of objects, told apart by their member `tag`. A tag that is not in `shapes` is refused.

    `untagged` is the tag of an object without one, where the protocol has such a default. `or_text`: a string may stand
    in the array's place. `refused` are tags with a better word for why they are; `signs` are members that make any
    object one of these, also where they are null, unless they are members of the object's own shape. `extent` bounds
    the whole array as a schema.
    """

    tag: str
    shapes: Mapping[str, Shape]
    untagged: str | None = None
    or_text: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    signs: frozenset[str] = frozenset()
    extent: Extent | None = None
    # By the JSON of a tag: which members, where each is a string, pass as they came, and which must be there.
    _plain: Mapping[bytes, tuple[frozenset[str], frozenset[str]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain = {write_text(tag): (shape.plain | {self.tag}, shape.needed) for tag, shape in self.shapes.items()}
        object.__setattr__(self, "_plain", plain)

    def admit(self, where: str, raw: Raw) -> Raw:
        first = kind(raw)
        if first == NULL or (first == STRING and self.or_text):
            return raw
        if first != ARRAY:
            form = "a string or an array" if self.or_text else "an array"
            raise InvalidRequest(f"{where} must be {form} of objects.", param=where)
        if self.extent is not None:
            check_schema(where, raw, self.extent)
        return self._admit_objects(where, raw, read_objects(raw, where))

    def admit_opened(self, where: str, opened: Opened) -> Raw:
        """The same of an array that was opened already."""
        if self.extent is not None:
            check_schema(where, opened.raw, self.extent)
        return self._admit_objects(where, opened.raw, list(opened.objects))

    def _admit_objects(self, where: str, raw: Raw, objects: list[dict[str, Raw]]) -> Raw:
        """The array as it came, where all in it passes as it is. Who calls it does not keep the list of them."""
        if len(objects) > MAX_OBJECTS_IN_ARRAY:
            raise InvalidRequest(f"{where} must hold at most {MAX_OBJECTS_IN_ARRAY} objects.", param=where)
        changed = False
        for index, members in enumerate(objects):
            if not self._is_plain(members):
                kept = self._admit_object(f"{where}[{index}]", members)
                changed |= kept is not members
                objects[index] = kept
        return write(objects) if changed else raw

    def _is_plain(self, members: dict[str, Raw]) -> bool:
        """Whether the object is of strings alone, none of which any rule looks into, as most messages are."""
        tag = members.get(self.tag)
        known = self._plain.get(bytes(tag)) if tag is not None and len(tag) <= MAX_PLAIN_TAG_BYTES else None
        if known is None or not (known[0].issuperset(members) and known[1].issubset(members)):
            return False
        for value in members.values():  # noqa: SIM110 - a generator for each message costs more than all the rest
            if memoryview(value)[0] != STRING:
                return False
        return True

    def _admit_object(self, where: str, members: dict[str, Raw]) -> dict[str, Raw]:
        """The object's own dict where nothing has to change, so that the array's own bytes can be sent."""
        if self.signs and not self.signs.isdisjoint(members):
            self._refuse_signs(where, members)
        return _admit_members(where, self._shape(where, members), members)

    def _refuse_signs(self, where: str, members: dict[str, Raw]) -> None:
        for sign in members:
            if sign in self.signs and not self._is_own(sign, members):
                raise InvalidRequest(self.refused[sign], param=f"{where}.{sign}", reason="member_refused")

    def _is_own(self, sign: str, members: dict[str, Raw]) -> bool:
        raw = members.get(self.tag)
        shape = self.shapes.get(read_text(raw, self.tag)) if raw is not None and kind(raw) == STRING else None
        return shape is not None and sign in shape.members

    def _shape(self, where: str, members: dict[str, Raw]) -> Shape:
        param = f"{where}.{self.tag}"
        raw = members.get(self.tag)
        tag = self.untagged if raw is None or kind(raw) == NULL else read_text(raw, param)
        if tag is None:
            raise InvalidRequest(f"{param} must be given.", param=param)
        shape = self.shapes.get(tag)
        if shape is None:
            fault = f"{param} must be one of: {_listed(self.shapes)}."
            raise InvalidRequest(self.refused.get(tag, fault), param=param)
        return shape


_NULL: Final = Raw(b"null")


def _only(members: dict[str, Raw], names: frozenset[str]) -> dict[str, Raw]:
    return {name: raw for name, raw in members.items() if name in names}


def _with(kept: dict[str, Raw], members: dict[str, Raw], name: str, admitted: Raw) -> dict[str, Raw]:
    """`kept` with the admitted value. The client's own `members` are never changed."""
    if admitted is kept.get(name):
        return kept
    changed = dict(kept) if kept is members else kept
    changed[name] = admitted
    return changed


def _admit_members(where: str, shape: Shape, members: dict[str, Raw]) -> dict[str, Raw]:
    """The members that pass, each in its own form; the same dict where all do and none had to change."""
    kept = members if shape.members.issuperset(members) else _only(members, shape.members)
    for name, values in shape.one_of.items():
        if name in kept and read_text(kept[name], f"{where}.{name}") not in values:
            raise InvalidRequest(f"{where}.{name} must be one of: {_listed(values)}.", param=f"{where}.{name}")
    for name, opens in shape.opens.items():
        if name in kept:
            kept = _with(kept, members, name, opens.admit(f"{where}.{name}", kept[name]))
    for name, inner in shape.inner.items():
        if name in kept and kind(kept[name]) != NULL:
            kept = _with(kept, members, name, _admit_object(f"{where}.{name}", inner, kept[name]))
    if shape.text is not None and (shape.text not in kept or kind(kept[shape.text]) != STRING):
        raise InvalidRequest(f"{where}.{shape.text} must be a string.", param=f"{where}.{shape.text}")
    _check_kinds(where, kept, shape.texts, (STRING, NULL), "a string")
    _check_kinds(where, kept, shape.flags, (TRUE, FALSE, NULL), "true or false")
    if shape.image is not None:
        name, image = shape.image
        kept = _with(kept, members, name, image.admit(f"{where}.{name}", kept.get(name, _NULL)))
    return kept


def _admit_object(where: str, shape: Shape, raw: Raw) -> Raw:
    members = read_object(raw, where)
    kept = _admit_members(where, shape, members)
    return raw if kept is members else write(kept)


def _check_kinds(
    where: str, members: dict[str, Raw], names: frozenset[str], kinds: tuple[int, ...], must_be: str
) -> None:
    if names.isdisjoint(members):
        return
    for name, raw in members.items():  # in their order, so that of several faults the first is told
        if name in names and kind(raw) not in kinds:
            raise InvalidRequest(f"{where}.{name} must be {must_be}.", param=f"{where}.{name}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


Rule = Passes | Drops | Refuses | Schema | Prompts | Opens


def brings_media(rule: Rule) -> bool:
    """Whether what the rule lets pass may hold an image."""
    return isinstance(rule, Opens) and any(
        shape.image is not None or any(map(brings_media, shape.opens.values())) for shape in rule.shapes.values()
    )


_TokenId = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKEN_ID)]
_TEXTS: Final = msgspec.json.Decoder(list[str])
_TOKENS: Final = msgspec.json.Decoder(list[_TokenId])
_TOKEN_LISTS: Final = msgspec.json.Decoder(list[list[_TokenId]])


def _count_prompts(array: Raw) -> int:
    """How many texts the array holds; token ids are one. Raises msgspec.DecodeError for other arrays."""
    match bytes(memoryview(array)[1:1024]).lstrip(b" \t\r\n")[:1]:
        case b'"':
            return len(_TEXTS.decode(array))
        case b"[":
            return len(_TOKEN_LISTS.decode(array))
        case _:
            return min(1, len(_TOKENS.decode(array)))
