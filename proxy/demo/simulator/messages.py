"""/v1/messages (vllm/entrypoints/anthropic/serving.py, version 0.32).

`input_tokens` counts what was neither read from the cache nor written to it, as in Anthropic's own answers: the prompt
is `input_tokens + cache_read_input_tokens + cache_creation_input_tokens`. Where nothing is told of the cache, the two
members are absent and `input_tokens` is the whole prompt; so it always is in message_start, which is made before the
details are known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from proxy.demo.simulator.engine import Prefilled, Token
from proxy.demo.simulator.order import EngineError
from proxy.demo.simulator.wire import Ticket, anthropic_error, compact, event, usage


class Messages:
    """message_start after prefill, one content block, message_delta with the usage, message_stop; no [DONE], no
    ping.
    """

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self._order = ticket.order
        self._prompts: tuple[Prefilled, ...] = ()
        self._text = ""
        self._count = 0
        self._finish = "stop"
        self._has_block = False

    def opening(self) -> list[bytes]:
        return []

    def started(self, prompts: tuple[Prefilled, ...]) -> list[bytes]:
        self._prompts = prompts
        counts = {"input_tokens": usage(prompts, 0)["prompt_tokens"], "output_tokens": 0}
        message = self._message(content=[], stop={"stop_reason": None, "stop_sequence": None}, counts=counts)
        return [event("message_start", {"type": "message_start", "message": message})]

    def token(self, token: Token) -> list[bytes]:
        self._text += token.text
        self._count += 1
        self._finish = token.finish or self._finish
        opening = [] if self._has_block or not (token.text or self._order.tool_call) else [self._block_start()]
        self._has_block = self._has_block or bool(opening)
        return [*opening, self._block_delta(token.text)] if token.text else opening

    def ending(self) -> list[bytes]:
        stop = {"type": "content_block_stop", "index": 0}
        reason = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        delta = {"type": "message_delta", "delta": reason, "usage": self._counts()}
        return [
            *([event("content_block_stop", stop)] if self._has_block else []),
            event("message_delta", delta),
            event("message_stop", {"type": "message_stop"}),
        ]

    def broken(self, error: EngineError) -> list[bytes]:
        return [event("error", anthropic_error(error))]

    def document(self) -> bytes:
        content: list[object] = [self._block(self._text)] if self._text else []
        stop = {"stop_reason": self._stop_reason()}
        return compact(self._message(content=content, stop=stop, counts=self._counts()))

    def _message(
        self, *, content: list[object], stop: Mapping[str, object], counts: Mapping[str, object]
    ) -> dict[str, object]:
        return {
            "id": self._ticket.id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self._order.served,
            **stop,
            "usage": counts,
        }

    def _block(self, text: str) -> dict[str, object]:
        call = self._order.tool_call
        if call is None:
            return {"type": "text", "text": text}
        return {"type": "tool_use", "id": self._call_id(), "name": call.name, "input": _arguments(text)}

    def _block_start(self) -> bytes:
        return event(
            "content_block_start", {"type": "content_block_start", "content_block": self._block(""), "index": 0}
        )

    def _block_delta(self, text: str) -> bytes:
        delta = (
            {"type": "input_json_delta", "partial_json": text}
            if self._order.tool_call
            else {"type": "text_delta", "text": text}
        )
        return event("content_block_delta", {"type": "content_block_delta", "delta": delta, "index": 0})

    def _counts(self) -> dict[str, object]:
        [prompt] = self._prompts
        if not self._ticket.shows_reuse:
            return {"input_tokens": prompt.tokens, "output_tokens": self._count}
        return {
            "input_tokens": prompt.tokens - prompt.reused - prompt.created,
            "output_tokens": self._count,
            "cache_creation_input_tokens": prompt.created,
            "cache_read_input_tokens": prompt.reused,
        }

    def _stop_reason(self) -> str:
        called = self._finish == "stop" and self._order.tool_call is not None and not self._order.tool_call.named
        return "tool_use" if called else _STOP_REASONS[self._finish]

    def _call_id(self) -> str:
        return f"chatcmpl-tool-{self._ticket.id.removeprefix('chatcmpl-')}"


def _arguments(text: str) -> object:
    """The call's arguments as an object; empty while they have not come, or where `max_tokens` cut them."""
    try:
        return json.loads(text)
    except ValueError:
        return {}


_STOP_REASONS: Final = {"stop": "end_turn", "length": "max_tokens"}
