"""Hostile requests by kind, as raw bytes: whatever they are, an engine gets alice's salt of acme/apollo, or nothing.

Each kind is a module with `CASES`: what is tried → the bytes, `@credentials@` standing for alice's header lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.parts.hostile import charsets, fields, framing, headers, identity, media, members, paths

KINDS: Final[Mapping[str, Mapping[str, bytes]]] = {
    "members": members.CASES,
    "charsets": charsets.CASES,
    "framing": framing.CASES,
    "paths": paths.CASES,
    "headers": headers.CASES,
    "fields": fields.CASES,
    "media": media.CASES,
    "identity": identity.CASES,
}

# Those that are more than one request on their connection, however one reads them.
ANSWERS: Final[Mapping[str, int]] = framing.ANSWERS

# What others may not decide for alice: these must reach no engine at all.
NEVER_SERVED: Final = frozenset(identity.NEVER_SERVED)

# What is inside a schema is the client's own text, and passes as it is: no engine looks for a salt there.
WITHIN_A_SCHEMA: Final = frozenset({"in response_format's schema"})
