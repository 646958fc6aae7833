"""/v1/chat/completions (vllm/entrypoints/openai/chat_completion/serving.py, version 0.32)."""

from __future__ import annotations

from proxy.demo.simulator.engine import Prefilled, Token
from proxy.demo.simulator.order import EngineError
from proxy.demo.simulator.wire import DONE, Ticket, compact, data, openai_error, usage


class Chat:
    """The role of every choice, then their tokens interleaved, then usage where it was asked for, then [DONE]."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self._order = ticket.order
        self._prompts: tuple[Prefilled, ...] = ()
        self._texts = [""] * self._order.n
        self._counts = [0] * self._order.n
        self._finishes = ["stop"] * self._order.n

    def opening(self) -> list[bytes]:
        return []

    def started(self, prompts: tuple[Prefilled, ...]) -> list[bytes]:
        self._prompts = prompts
        return [self._role(choice) for choice in range(self._order.n)]

    def token(self, token: Token) -> list[bytes]:
        is_first = not self._counts[token.choice]
        self._texts[token.choice] += token.text
        self._counts[token.choice] += 1
        choice: dict[str, object] = {
            "index": token.choice,
            "delta": self._delta(token),
            "logprobs": None,
            "finish_reason": self._finish_reason(token.finish),
        }
        if token.finish:
            self._finishes[token.choice] = self._finish_reason(token.finish) or "stop"
            choice["stop_reason"] = None
        choice["token_ids"] = None
        chunk = self._chunk(choice, self._counts[token.choice], is_last=token.finish is not None)
        return [self._call_start(token.choice), chunk] if is_first and self._order.tool_call else [chunk]

    def ending(self) -> list[bytes]:
        return [self._usage_chunk(), DONE] if self._order.include_usage else [DONE]

    def broken(self, error: EngineError) -> list[bytes]:
        return [data(openai_error(error)), DONE]

    def document(self) -> bytes:
        counts = usage(self._prompts, sum(self._counts))
        document = self._head("chat.completion") | {
            "choices": [self._whole_choice(choice) for choice in range(self._order.n)],
            "service_tier": None,
            "system_fingerprint": self._ticket.fingerprint,
            "usage": counts | {"prompt_tokens_details": self._details(), "completion_tokens_details": None},
        }
        return compact(document | dict.fromkeys(_NULLS))

    def _head(self, kind: str) -> dict[str, object]:
        return {"id": self._ticket.id, "object": kind, "created": self._ticket.created, "model": self._order.served}

    def _role(self, choice: int) -> bytes:
        opening = {
            "index": choice,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        chunk = self._head("chat.completion.chunk") | {"choices": [opening]}
        return data(chunk | self._continuous_usage(0) | {"prompt_token_ids": None, "prompt_text": None})

    def _chunk(self, choice: dict[str, object], count: int, *, is_last: bool) -> bytes:
        chunk = self._head("chat.completion.chunk") | {"choices": [choice]} | self._continuous_usage(count)
        if is_last and not self._order.include_usage:
            chunk["system_fingerprint"] = self._ticket.fingerprint
        return data(chunk)

    def _continuous_usage(self, count: int) -> dict[str, object]:
        if not self._order.continuous_usage:
            return {}
        return {"usage": usage(self._prompts, count) | {"completion_tokens_details": None}}

    def _usage_chunk(self) -> bytes:
        counts = usage(self._prompts, sum(self._counts))
        details = self._details()
        if details:
            counts["prompt_tokens_details"] = {name: value for name, value in details.items() if value is not None}
        chunk = self._head("chat.completion.chunk") | {"choices": [], "usage": counts}
        return data(chunk | {"system_fingerprint": self._ticket.fingerprint})

    def _details(self) -> dict[str, object] | None:
        if not self._ticket.shows_reuse:
            return None
        [prompt] = self._prompts
        return {"cached_tokens": prompt.reused, "created_cache_tokens": prompt.created, "multimodal_tokens": None}

    def _delta(self, token: Token) -> dict[str, object]:
        if self._order.tool_call is None:
            return {"content": token.text}
        if not token.text:
            return {"content": ""}
        return {"content": None, "tool_calls": [{"index": 0, "function": {"arguments": token.text}}]}

    def _call_start(self, choice: int) -> bytes:
        """The chunk that names the tool; the arguments come in those after it."""
        assert self._order.tool_call is not None
        function = {"name": self._order.tool_call.name}
        call = {"id": self._call_id(), "type": "function", "index": 0, "function": function}
        opening = {
            "index": choice,
            "delta": {"content": None, "tool_calls": [call]},
            "logprobs": None,
            "finish_reason": None,
            "token_ids": None,
        }
        return self._chunk(opening, self._counts[choice], is_last=False)

    def _finish_reason(self, finish: str | None) -> str | None:
        """A tool that was demanded by name ends as "stop" in vLLM, any other call as "tool_calls"."""
        call = self._order.tool_call
        return "tool_calls" if finish == "stop" and call and not call.named else finish

    def _whole_choice(self, choice: int) -> dict[str, object]:
        message: dict[str, object] = {
            "role": "assistant",
            "content": "" if self._order.tool_call else self._texts[choice],
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
        }
        if self._order.tool_call:
            function = {"name": self._order.tool_call.name, "arguments": self._texts[choice]}
            message["tool_calls"] = [{"id": self._call_id(), "type": "function", "function": function}]
        return {
            "index": choice,
            "message": message | {"reasoning": None},
            "logprobs": None,
            "finish_reason": self._finishes[choice],
            "stop_reason": None,
            "token_ids": None,
            "routed_experts": None,
        }

    def _call_id(self) -> str:
        return f"chatcmpl-tool-{self._ticket.id.removeprefix('chatcmpl-')}"


_NULLS = (
    "prompt_logprobs",
    "prompt_token_ids",
    "prompt_text",
    "kv_transfer_params",
    "ec_transfer_params",
    "metrics",
)
