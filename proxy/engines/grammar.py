"""Which fields of a request an engine has to compile a grammar from: where that fails, the same request fails again.

vLLM answers 500 to a grammar that derives nothing (`root ::= root`) or a schema that refers to itself in a circle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Raw

from proxy.engines.members import NULL, STRING, kind
from proxy.engines.rules import Schema
from proxy.engines.stamp import StampedRequest

_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])


def grammar_fields(stamped: StampedRequest) -> Iterator[str]:
    """The names, in the order of the body. Tools count where the answer must be a call of one.

    Read from the bytes that were sent, when the engine has failed on them: what goes well pays nothing for it.
    """
    fields = _MEMBERS.decode(stamped.body)
    for name, raw in fields.items():
        line = stamped.endpoint.fields.get(name)
        if line is not None and isinstance(line.rule, Schema) and _asks_for_one(line.rule, raw):
            yield name
    if "tools" in fields and _must_call(fields.get("tool_choice")):
        yield "tools"


def _asks_for_one(rule: Schema, raw: Raw) -> bool:
    if kind(raw) == NULL:
        return False
    value = msgspec.json.decode(raw)
    for name in rule.format_at:
        value = value.get(name) if isinstance(value, dict) else None
    return not rule.format_at or value not in (None, "text")


def _must_call(choice: Raw | None) -> bool:
    if choice is None or kind(choice) == NULL:
        return False
    value = msgspec.json.decode(choice)
    word = value if kind(choice) == STRING else value.get("type")
    return word not in ("auto", "none")
