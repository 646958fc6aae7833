"""A large conversation, opened in one pass over its bytes.

`read_object` and then `read_objects` pass over all of them twice, and nearly all are in the texts of the messages. A
decoder that knows the usual names beforehand opens both levels at once. What it may have missed, a name that it does
not know, a name twice, an escaped one, white space, makes the body longer than all that it has seen: then it says
nothing, and the body is opened level by level.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import astuple

from proxy.engines.members import MAX_MEMBERS_IN_ARRAYS, Opened, shortest_array, shortest_object

MESSAGES: Final = "messages"

# Below that, two passes cost less than the rest of it.
LEAST_BYTES: Final = 32 * 1024
# As many programs write JSON; what is found here only spares a vain pass.
_SPACED: Final = b'": '
_BEGINNING_BYTES: Final = 256

# Of chat completions and messages, as clients send them. Which of them an engine gets is not decided here.
_USUAL: Final = (
    *("model", "stream", "stream_options", "system", "user", "metadata", "store", "service_tier", "n", "seed", "stop"),
    *("max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "stop_sequences", "thinking"),
    *("frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "logprobs", "top_logprobs"),
    *("tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "chat_template_kwargs"),
)

_Conversation: Final = msgspec.defstruct(
    "_Conversation",
    [(MESSAGES, list[dict[str, Raw]]), *((name, Raw | UnsetType, UNSET) for name in _USUAL)],
)
_CONVERSATION: Final = msgspec.json.Decoder(_Conversation)


def open_at_once(body: bytes) -> tuple[dict[str, Raw], Opened] | None:
    """The members of the body, and its messages, as `read_object` and `read_objects` would tell them. None where only
    those can tell; never for a body that they would refuse.
    """
    if len(body) < LEAST_BYTES or _SPACED in body[:_BEGINNING_BYTES]:
        return None
    try:
        objects, *others = astuple(_CONVERSATION.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return None
    if max(map(len, objects), default=0) > MAX_MEMBERS_IN_ARRAYS:
        return None
    members = {name: raw for name, raw in zip(_USUAL, others, strict=True) if raw is not UNSET}
    if shortest_object(members) + len(MESSAGES) + 4 + shortest_array(objects) != len(body):
        return None
    return _in_order(members, objects, body)


def _in_order(members: dict[str, Raw], objects: list[dict[str, Raw]], body: bytes) -> tuple[dict[str, Raw], Opened]:
    """As they are in the body, which has nothing between them. Of several faults the first is told."""
    ordered: dict[str, Raw] = {}
    at = len("{")
    while at < len(body):
        name = str(body[at + 1 : body.index(b'"', at + 1)], "ascii")
        at += len(name) + len('"":')
        if name == MESSAGES:
            members[name] = Raw(memoryview(body)[at : at + shortest_array(objects)])
        ordered[name] = members[name]
        at += len(members[name]) + len(",")
    return ordered, Opened(members[MESSAGES], objects)
