"""The texts of a request: everything in it that can reach the model as words, decoded, as rules look at it.

A lexer over the admitted fields rather than a walk through their objects: it sees a doubled member twice, takes no
depth, and stops for other threads after each string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from proxy.engines.body import ClientRequest
from proxy.engines.members import ARRAY, OBJECT, kind
from proxy.isolation.narrowing import Unseen

# More strings and numbers than any conversation has; a body of nothing else would cost a hundred times its length.
MAX_TEXTS: Final = 2**16
# A suffix is looked at behind each prompt, so it must be short where there are many.
MAX_COMPLETED_CHARACTERS: Final = 2**20
# A value this short is also shown behind its name, as templates write it: `password: …`.
MAX_PAIRED_CHARACTERS: Final = 256

# Which model answers, and how, is no text of the prompt.
_NO_TEXTS: Final = frozenset({"model", "stream", "stream_options", "logit_bias", "stop_token_ids", "allowed_token_ids"})
# What the protocols call their own parts. As the name of a member, or as a role or type, each is in every request.
_FRAME_WORDS: Final = """
role content type text name tool_calls tool_call_id function arguments id call_id status input output summary
parameters description properties required items system developer user assistant tool message input_text output_text
summary_text reasoning_text reasoning reasoning_content thinking refusal function_call function_call_output custom
custom_tool_call custom_tool_call_output tool_use tool_result tool_use_id input_schema object string number integer
boolean array null strict json_schema schema format
"""
_FRAME: Final = frozenset(_FRAME_WORDS.split())
_TAGS: Final = frozenset({"role", "type"})
# Values that stand between the texts of parts and messages, but that templates do not write there.
_LABELS: Final = frozenset({"role", "type", "id", "name", "status", "call_id", "tool_call_id", "tool_use_id"})
# Beside what is said: templates leave it out of old turns, or write it elsewhere than where it stands.
_ASIDE: Final = frozenset({"thinking", "reasoning", "reasoning_content", "refusal"})
# No template writes it anywhere.
_UNWRITTEN: Final = _LABELS | {"signature"}
# The fields of the prompt, in the order in which templates write them, one behind the other.
_PROMPT: Final = ("system", "instructions", "messages", "input", "prompt")
# Content that is not text, or that only the model can read. Those that an engine's profile refuses never come here.
_OPAQUE_TYPES: Final = frozenset(
    {"redacted_thinking", "base64", "image_url", "input_image", "input_audio", "audio_url", "video_url", "input_file"}
)
_OPAQUE_MEMBER: Final = "encrypted_content"
_DATA_URL: Final = re.compile(r"data:[^,]{0,256};base64,", re.IGNORECASE)

# A string, and whether a colon makes it a name; or a number of six characters or more: shorter ones identify nobody.
# Each character can be matched in one way only, so the time is linear.
_TOKEN: Final = re.compile(
    rb'(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")(?P<colon>[ \t\r\n]*:)?|(?P<number>[0-9][0-9.eE+-]{5,})'
)
_TEXT: Final = msgspec.json.Decoder(str)
_ELEMENTS: Final = msgspec.json.Decoder(list[Raw])


def texts(request: ClientRequest, *, limit_bytes: int) -> tuple[str, ...] | Unseen:
    """The request's texts, each a text of many lines: every string on a line of its own; then the strings of one
    message without anything between, and those of the whole prompt or of another field, so that what is cut in two is
    whole there. Where there is thinking or the like, also without it.
    """
    fields = {name: raw for name, raw in request.fields.items() if name not in _NO_TEXTS}
    if sum(map(len, fields.values())) > limit_bytes:
        return Unseen.OVER_LIMIT
    found = _Texts()
    try:
        found.fields += _joined(_read_prompt(found, fields))
        for name in fields.keys() - {*_PROMPT, "suffix"}:
            found.fields += _joined(list(_read_field(found, name, fields[name])))
    except (_Opaque, msgspec.DecodeError):
        return Unseen.UNSCANNABLE
    except _TooMany:
        return Unseen.OVER_LIMIT
    return tuple("\n".join(lines) for lines in (found.strings, found.messages, found.fields) if lines)


class _Opaque(Exception):  # noqa: N818 - an answer, not an error
    """Something in the request is not text."""


class _TooMany(Exception):  # noqa: N818 - an answer, not an error
    """There are more texts than are looked at."""


@dataclass(slots=True)
class _Texts:
    """What was read. `messages` and `fields` hold only what is put together from several strings."""

    count: int = 0
    strings: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)


class _Part(NamedTuple):
    """One or more strings of a prompt without anything between: all of them, and without what stands aside."""

    whole: str
    said: str


_NOTHING: Final = _Part("", "")


def _part(strings: Sequence[_Part]) -> _Part:
    return (
        strings[0]
        if len(strings) == 1
        else _Part("".join(one[0] for one in strings), "".join(one[1] for one in strings))
    )


def _joined(parts: Sequence[_Part]) -> Sequence[str]:
    """What is put together from several parts, in both ways where they differ."""
    if len(parts) < 2:
        return ()
    whole, said = _part(parts)
    return (whole, said) if said not in ("", whole) else (whole,)


def _read_prompt(found: _Texts, fields: Mapping[str, Raw]) -> Sequence[_Part]:
    """The parts of the prompt in their order; a suffix behind each of the prompts that it may complete."""
    parts = [part for name in _PROMPT if name in fields for part in _read_field(found, name, fields[name])]
    if "suffix" not in fields:
        return parts
    suffix = list(_read_field(found, "suffix", fields["suffix"]))
    if len(parts) * sum(len(part.whole) for part in suffix) > MAX_COMPLETED_CHARACTERS:
        raise _TooMany
    return [one for part in parts or [_NOTHING] for one in (part, *suffix)]


def _read_field(found: _Texts, name: str, raw: Raw) -> Iterator[_Part]:
    """Takes the field's strings in, and yields its messages, items or texts."""
    for element in _elements(name, raw):
        aside = name == "input" and _is_reasoning(element)
        parts = list(_read_element(found, bytes(element)))
        if aside:
            parts = [_Part(part.whole, "") for part in parts]
        found.messages += _joined(parts)
        if parts:
            yield _part(parts)


def _elements(name: str, raw: Raw) -> list[Raw]:
    """The messages, items or texts of a field. Raises _Opaque for token ids, which only the engine can read."""
    if kind(raw) != ARRAY:
        return [raw]
    if name in ("prompt", "input") and not _READABLE.match(raw):
        raise _Opaque
    return _ELEMENTS.decode(raw)


# An array of texts, of objects or of nothing: whatever else it holds is taken for token ids.
_READABLE: Final = re.compile(rb'\[[ \t\r\n]*["{\]]')


class _Item(msgspec.Struct):
    """An item of /v1/responses: its type tells whether it is what the model thought."""

    type: object = None


_ITEM: Final = msgspec.json.Decoder(_Item)


def _is_reasoning(element: Raw) -> bool:
    return kind(element) == OBJECT and _ITEM.decode(element).type == "reasoning"


def _read_element(found: _Texts, data: bytes) -> Iterator[_Part]:
    """Takes the strings and numbers in, and yields those that stand in the prompt one behind the other."""
    name = ""
    for token in _TOKEN.finditer(data):
        found.count += 1
        if found.count > MAX_TEXTS:
            raise _TooMany
        text = token["number"].decode("ascii") if token["string"] is None else _decoded(token["string"])
        if token["colon"] is not None:
            name = text
            if name not in _FRAME:
                found.strings.append(name)
            continue
        _take_value(found, name, text)
        if name not in _UNWRITTEN:
            yield _Part(text, "" if name in _ASIDE else text)
        name = ""


def _decoded(string: bytes) -> str:
    return _TEXT.decode(string) if b"\\" in string else string[1:-1].decode("utf-8")


def _take_value(found: _Texts, name: str, text: str) -> None:
    if (name == _OPAQUE_MEMBER and text) or (name == "type" and text in _OPAQUE_TYPES) or _DATA_URL.match(text):
        raise _Opaque
    if name in _TAGS and text in _FRAME:
        return
    found.strings.append(text)
    if name and name not in _FRAME and len(text) <= MAX_PAIRED_CHARACTERS:
        found.strings.append(f"{name}: {text}")
