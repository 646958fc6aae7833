"""How a request's prompt begins, as far as that tells which replica may have computed it before; never what is in it.

Two digests. `shared` is of what many conversations of a border have in common: the tools, and the instructions before
the first word of a user. `own` is of that and of the first thing that a user says, so it stays the same for all turns
of a conversation, which only grows at its end. What a digest covers is bounded, because the end of a long text says
little that its beginning does not; so a prompt of megabytes costs as much as one of kilobytes, some microseconds.

The salt is in both. It is what separates prefixes in the engine, so requests of two borders have nothing to gain from
one replica; and as no client knows it, no client can choose texts that all lead to the same one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final

from msgspec import Raw

from proxy.engines.body import ClientRequest
from proxy.isolation.salt import Salt, length_prefixed

# About 500 tokens: 32 of vLLM's blocks on a GPU, 4 on a CPU. To compute less than that anew is cheaper than to make
# requests wait for one replica (some 10 ms on the slowest machines measured).
WORTHWHILE_BYTES: Final = 2048
# What a digest covers of each part. Instructions that differ only after that share more than they differ, or end with
# the time of day.
SHARED_BYTES: Final = 4096
OWN_BYTES: Final = WORTHWHILE_BYTES
# How far the first word of a user is looked for.
LOOK_BYTES: Final = 64 * 1024

_INSTRUCTIONS: Final = ("tools", "system", "instructions")
_CONVERSATION: Final = ("messages", "input", "prompt")
# In JSON a quote inside a text is escaped, so these are members wherever they match. A client that spells them with
# escapes, or puts them after the text, loses the finer choice and nothing else.
_USER: Final = re.compile(rb'"role"\s*:\s*"user"')
_ROLE: Final = re.compile(rb'"role"\s*:')
# What may stand between the end of a message and the role of the next one, or the end of the list.
_BETWEEN_MESSAGES: Final = b" \t\r\n,{]"


@dataclass(frozen=True, slots=True)
class Beginning:
    """See the module. `worthwhile`: what is shared is long enough to be better computed in few places."""

    shared: bytes = field(repr=False)
    own: bytes = field(repr=False)
    worthwhile: bool


def beginning(request: ClientRequest, salt: Salt) -> Beginning:
    """How the request's prompt begins under the salt. The same on every worker, machine and restart."""
    parts = [memoryview(raw) for name in _INSTRUCTIONS if (raw := request.fields.get(name)) is not None]
    conversation = next((raw for name in _CONVERSATION if (raw := request.fields.get(name)) is not None), Raw(b""))
    before, first = _first_words(bytes(memoryview(conversation)[:LOOK_BYTES]))
    digest = hashlib.blake2b(length_prefixed(request.model, salt.value), digest_size=16, person=b"sg beginning")
    for part in (*parts, memoryview(before)):
        digest.update(min(len(part), SHARED_BYTES).to_bytes(4, "big"))
        digest.update(part[:SHARED_BYTES])
    shared = digest.digest()
    digest.update(first[:OWN_BYTES])
    worthwhile = sum(map(len, parts)) + len(before) >= WORTHWHILE_BYTES
    return Beginning(shared=shared, own=digest.digest(), worthwhile=worthwhile)


def _first_words(conversation: bytes) -> tuple[bytes, bytes]:
    """What stands before the first message of a user, and that message: the same in each turn.

    A prompt without roles begins with its own words. Messages without a user's are all instructions.
    """
    user = _USER.search(conversation)
    if user is None:
        return (conversation, b"") if _ROLE.search(conversation) else (b"", conversation)
    following = _ROLE.search(conversation, user.end())
    end = len(conversation) if following is None else following.start()
    return conversation[: user.start()], conversation[user.end() : end].rstrip(_BETWEEN_MESSAGES)
