"""What the answers of all routes share: JSON and server-sent events as vLLM writes them, and the counts they tell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from proxy.demo.simulator.engine import Prefilled, Token
from proxy.demo.simulator.order import EngineError, Order

DONE: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Ticket:
    """One request under way: its order, the id of its answer, its Unix second, and whether it may tell what was
    reused.
    """

    order: Order
    id: str
    created: int
    shows_reuse: bool
    fingerprint: str


class Dialect(Protocol):
    """How one route speaks. Each method returns the events of its moment; each event goes out as one chunk.

    `document` is the answer without streaming, after all tokens were told by `token`.
    """

    def opening(self) -> list[bytes]:
        """Before prefill."""

    def started(self, prompts: tuple[Prefilled, ...]) -> list[bytes]:
        """Prefill is done; the first token is about to come."""

    def token(self, token: Token) -> list[bytes]:
        """A token was generated."""

    def ending(self) -> list[bytes]:
        """All answers are finished."""

    def broken(self, error: EngineError) -> list[bytes]:
        """The engine failed after the head was sent."""

    def document(self) -> bytes:
        """The whole answer as one JSON document."""


def compact(document: Mapping[str, object]) -> bytes:
    """JSON as pydantic and starlette write it: no blanks, no escapes beyond the necessary."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def data(document: Mapping[str, object]) -> bytes:
    """An event without a type, as on chat and completions."""
    return b"data: " + compact(document) + b"\n\n"


def event(kind: str, document: Mapping[str, object]) -> bytes:
    """An event with a type, as on responses and messages."""
    return b"event: " + kind.encode() + b"\ndata: " + compact(document) + b"\n\n"


def usage(prompts: tuple[Prefilled, ...], completion_tokens: int) -> dict[str, object]:
    """The three counts that every OpenAI usage begins with, in vLLM's order."""
    prompt_tokens = sum(prompt.tokens for prompt in prompts)
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


def openai_error(error: EngineError) -> dict[str, object]:
    """vLLM's error document in OpenAI's form; `code` is the HTTP status as a number."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.status}}


def anthropic_error(error: EngineError) -> dict[str, object]:
    """vLLM's error document in Anthropic's form."""
    return {"type": "error", "error": {"type": error.kind, "message": error.message}}
