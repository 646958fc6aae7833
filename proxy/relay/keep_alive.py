"""What a client hears of a stream whose engine is silent: nothing that its protocol takes for a part of the answer."""

from __future__ import annotations

import time
from typing import Final, Literal

import msgspec

from proxy.engines.profile import Operation

# A block of its own, as vLLM writes its own: who splits a stream at blank lines would lose an event behind a bare line.
COMMENT: Final = b": keep-alive\n\n"
# Anthropic's streams may have it anywhere, and any number of times.
_PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'


def no_event(operation: Operation, mode: Literal["off", "comment", "event"], *, model: str, answer_id: str) -> bytes:
    """A comment, or the event that says nothing in the operation's protocol, where it has one.

    For chat and completions that is a chunk whose one choice adds nothing: with no choice in it, it would break those
    clients, and there are many, that read the first one. The events of /v1/responses are numbered, and each says
    something.
    """
    if mode == "event":
        match operation:
            case Operation.MESSAGES:
                return _PING
            case Operation.CHAT:
                return _chunk("chat.completion.chunk", {"delta": {}}, model, answer_id)
            case Operation.COMPLETIONS:
                return _chunk("text_completion", {"text": ""}, model, answer_id)
            case _:
                pass
    return COMMENT


def _chunk(kind: str, nothing: dict[str, object], model: str, answer_id: str) -> bytes:
    choice = {"index": 0, **nothing, "logprobs": None, "finish_reason": None}
    created = int(time.time())  # noqa: TID251 - the wall clock is what the field tells
    chunk = {"id": answer_id, "object": kind, "created": created, "model": model, "choices": [choice]}
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"
