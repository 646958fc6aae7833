"""What a caller says of the trace that he is in: the headers `traceparent` and `tracestate` (W3C Trace Context)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Section 3.2.2: a later version may append fields; version ff and zero ids are invalid.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?"
)
# Section 3.3.1.3: printable ASCII without `,` and `=`, at most 256 of it, and no space at its end.
_MEMBER: Final = re.compile(
    r"[ \t]*(?:([a-z0-9][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e])?[ \t]*"
)
MOST_MEMBERS: Final = 32
# Section 3.3.1.5: so much at least is passed on.
MOST_STATE_CHARACTERS: Final = 512

SAMPLED: Final = 0x01
RANDOM: Final = 0x02  # Level 2, section 3.2.2.5.2: the trace id is random; whoever passes it on passes this on, too.


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of somebody else's, as he names it. `flags` are those of the header."""

    trace_id: int
    span_id: int
    flags: int

    @property
    def sampled(self) -> bool:
        """Whether he records it, and so wants to find what happened inside it."""
        return bool(self.flags & SAMPLED)


def trace_context(traceparents: Sequence[str]) -> TraceContext | None:
    """What the lines of `traceparent` say. None where it is not exactly one, and a valid one."""
    match = _TRACEPARENT.fullmatch(traceparents[0]) if len(traceparents) == 1 else None
    if match is None or (match[1] == "00" and match[5] is not None):
        return None
    return TraceContext(int(match[2], 16), int(match[3], 16), int(match[4], 16))


def trace_state(lines: Sequence[str]) -> str:
    """The lines of `tracestate` as one, to be passed on; "" where they are no valid list, or one that is too long."""
    state = ",".join(lines)
    if not lines or len(state) > MOST_STATE_CHARACTERS:
        return ""
    members = [_MEMBER.fullmatch(member) for member in state.split(",")]
    keys = [member[1] for member in members if member is not None and member[1]]
    if None in members or len(keys) > MOST_MEMBERS or len(set(keys)) != len(keys):
        return ""
    return state.strip(" \t") if keys else ""
