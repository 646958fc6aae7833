"""/v1/responses (vllm/entrypoints/openai/responses/serving.py, simple_streaming_events.py; version 0.32)."""

from __future__ import annotations

from proxy.demo.simulator.engine import Prefilled, Token
from proxy.demo.simulator.order import EngineError
from proxy.demo.simulator.wire import Ticket, compact, event, usage


class Responses:
    """Typed, numbered events from response.created (sent before prefill) to response.completed, which holds the usage.

    There is no [DONE], and a failure after the head has no event at all: the body just ends.
    """

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self._order = ticket.order
        self._prompts: tuple[Prefilled, ...] = ()
        self._text = ""
        self._count = 0
        self._finish = "stop"
        self._number = 0
        suffix = ticket.id.removeprefix("resp_")
        self._item_id = f"{'fc' if self._order.tool_call else 'msg'}_{suffix}"
        self._call_id = f"chatcmpl-tool-{suffix}"

    def opening(self) -> list[bytes]:
        response = self._response("in_progress", output=[], counts=None)
        return [
            self._event("response.created", {"response": response}),
            self._event("response.in_progress", {"response": response}),
        ]

    def started(self, prompts: tuple[Prefilled, ...]) -> list[bytes]:
        self._prompts = prompts
        added = self._event("response.output_item.added", {"item": self._item("in_progress"), "output_index": 0})
        if self._order.tool_call:
            return [added]
        part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        return [added, self._event("response.content_part.added", self._place() | {"part": part})]

    def token(self, token: Token) -> list[bytes]:
        self._text += token.text
        self._count += 1
        self._finish = token.finish or self._finish
        if not token.text:
            return []
        if self._order.tool_call:
            return [
                self._event(
                    "response.function_call_arguments.delta",
                    {"delta": token.text, "item_id": self._item_id, "output_index": 0},
                )
            ]
        return [self._event("response.output_text.delta", self._place() | {"delta": token.text, "logprobs": []})]

    def ending(self) -> list[bytes]:
        return [*self._item_done(), self._event("response.completed", {"response": self._finished()})]

    def broken(self, error: EngineError) -> list[bytes]:  # noqa: ARG002 - the Dialect's, this route has no words for it
        return []

    def document(self) -> bytes:
        return compact(self._finished())

    def _event(self, kind: str, members: dict[str, object]) -> bytes:
        numbered = members | {"sequence_number": self._number, "type": kind}
        self._number += 1
        # vLLM sorts the members, but for one that its event's class does not declare.
        return event(kind, {name: numbered[name] for name in sorted(numbered, key=lambda name: (name == "name", name))})

    def _place(self) -> dict[str, object]:
        return {"content_index": 0, "item_id": self._item_id, "output_index": 0}

    def _item_done(self) -> list[bytes]:
        item = {"item": self._item("completed"), "output_index": 0}
        if call := self._order.tool_call:
            arguments = {"arguments": self._text, "item_id": self._item_id, "name": call.name, "output_index": 0}
            return [
                self._event("response.function_call_arguments.done", arguments),
                self._event("response.output_item.done", item),
            ]
        return [
            self._event("response.output_text.done", self._place() | {"logprobs": [], "text": self._text}),
            self._event("response.content_part.done", self._place() | {"part": self._part()}),
            self._event("response.output_item.done", item),
        ]

    def _item(self, status: str) -> dict[str, object]:
        if call := self._order.tool_call:
            return {
                "arguments": self._text,
                "call_id": self._call_id,
                "name": call.name,
                "type": "function_call",
                "id": self._item_id,
                "async": None,
                "caller": None,
                "namespace": None,
                "status": status,
            }
        return {
            "id": self._item_id,
            "content": [] if status == "in_progress" else [self._part()],
            "role": "assistant",
            "status": status,
            "type": "message",
            "phase": None,
        }

    def _part(self) -> dict[str, object]:
        return {"annotations": [], "text": self._text, "type": "output_text", "logprobs": None}

    def _finished(self) -> dict[str, object]:
        status = "incomplete" if self._finish == "length" else "completed"
        return self._response(status, output=[self._item("completed")], counts=self._counts())

    def _counts(self) -> dict[str, object]:
        [prompt] = self._prompts
        details: dict[str, object] | None = {
            "cached_tokens": prompt.reused,
            "cache_write_tokens": prompt.created,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        }
        return {
            "input_tokens": prompt.tokens,
            "input_tokens_details": details if self._ticket.shows_reuse else None,
            "output_tokens": self._count,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": usage(self._prompts, self._count)["total_tokens"],
        }

    def _response(self, status: str, *, output: list[object], counts: dict[str, object] | None) -> dict[str, object]:
        return {
            "id": self._ticket.id,
            "created_at": self._ticket.created,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": None,
            "metadata": None,
            "model": self._order.served,
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": self._tool_choice(),
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": self._order.max_tokens,
            "max_tool_calls": None,
            "previous_response_id": None,
            "prompt": None,
            "reasoning": None,
            "service_tier": "auto",
            "status": status,
            "text": None,
            "top_logprobs": None,
            "truncation": "disabled",
            "usage": counts,
            "user": None,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }

    def _tool_choice(self) -> object:
        """What the request demanded. Without tools vLLM says "none"."""
        call = self._order.tool_call
        if call is None:
            return "none"
        return {"name": call.name, "type": "function"} if call.named else "required"
