"""/v1/embeddings (vllm/entrypoints/pooling/embed/serving.py, version 0.32).

The usage says nothing of reuse: on this route only /metrics tells whether a prefix was found.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import Final

from proxy.demo.simulator.engine import Prefilled
from proxy.demo.simulator.tokens import Prompt
from proxy.demo.simulator.wire import Ticket, compact, usage


def embeddings(ticket: Ticket, prompts: tuple[Prefilled, ...]) -> bytes:
    """The answer: for each prompt a unit vector that only its own tokens determine."""
    vectors = [_vector(prompt) for prompt in ticket.order.prompts]
    document = {
        "id": ticket.id,
        "object": "list",
        "created": ticket.created,
        "model": ticket.order.served,
        "data": [
            {"index": index, "object": "embedding", "embedding": _base64(vector) if ticket.order.base64 else vector}
            for index, vector in enumerate(vectors)
        ],
        "usage": usage(prompts, 0) | {"prompt_tokens_details": None, "completion_tokens_details": None},
    }
    return compact(document)


def _vector(prompt: Prompt) -> list[float]:
    digest = hashlib.sha256(repr(prompt).encode()).digest()
    raw = [byte - 127.5 for byte in digest[:_DIMENSIONS]]
    length = sum(number * number for number in raw) ** 0.5
    return [number / length for number in raw]


def _base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


_DIMENSIONS: Final = 16
