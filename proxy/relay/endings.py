"""An honest bad end: the event that tells a client, in its protocol's own form, that its answer broke off.

After it the stream just ends: no `[DONE]`, no `message_stop`, no `response.completed`, so that a client that overlooks
the error still sees that its answer is not whole.
"""

from __future__ import annotations

import msgspec

from proxy.engines.profile import Operation
from proxy.refusals import Dialect, Refusal


def error_event(operation: Operation, refusal: Refusal, *, sequence_number: int = 0) -> bytes:
    """One whole event that says what the refusal would have said before the first byte. `sequence_number` belongs to
    /v1/responses, where events count.

    On /v1/responses the event is OpenAI's `error` event, with the `error` member that makes the SDKs raise.
    """
    match operation:
        case Operation.MESSAGES | Operation.COUNT_TOKENS:
            return b"event: error\ndata: " + refusal.document(Dialect.ANTHROPIC) + b"\n\n"
        case Operation.RESPONSES:
            event = {"type": "error", "code": refusal.code, "message": refusal.message, "param": None}
            return b"event: error\n" + _data(
                {**event, "sequence_number": sequence_number, "error": _openai_error(refusal)}
            )
        case Operation.CHAT | Operation.COMPLETIONS | Operation.EMBEDDINGS:
            return _data({"error": _openai_error(refusal)})


def _openai_error(refusal: Refusal) -> dict[str, str | None]:
    return {"message": refusal.message, "type": refusal.openai_type, "code": refusal.code, "param": None}


def _data(document: dict[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode(document) + b"\n\n"
