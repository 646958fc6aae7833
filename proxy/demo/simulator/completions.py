"""/v1/completions (vllm/entrypoints/openai/completion/serving.py, version 0.32)."""

from __future__ import annotations

from proxy.demo.simulator.engine import Prefilled, Token
from proxy.demo.simulator.order import EngineError
from proxy.demo.simulator.wire import DONE, Ticket, compact, data, openai_error, usage


class Completions:
    """The tokens of all choices interleaved (`index` = prompt * n + sample), usage where it was asked for, [DONE]."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self._order = ticket.order
        self._choices = len(self._order.prompts) * self._order.n
        self._prompts: tuple[Prefilled, ...] = ()
        self._texts = [""] * self._choices
        self._counts = [0] * self._choices
        self._finishes: list[str | None] = [None] * self._choices

    def opening(self) -> list[bytes]:
        return []

    def started(self, prompts: tuple[Prefilled, ...]) -> list[bytes]:
        self._prompts = prompts
        return []

    def token(self, token: Token) -> list[bytes]:
        self._texts[token.choice] += token.text
        self._counts[token.choice] += 1
        self._finishes[token.choice] = token.finish
        choice = {"index": token.choice, "text": token.text, "logprobs": None, "finish_reason": token.finish}
        chunk = self._head() | {"choices": [choice | dict.fromkeys(("stop_reason", "prompt_token_ids", "token_ids"))]}
        if self._order.continuous_usage:
            own = self._prompts[token.choice // self._order.n]
            chunk["usage"] = usage((own,), self._counts[token.choice])
        if token.finish and not self._order.include_usage:
            chunk["system_fingerprint"] = self._ticket.fingerprint
        return [data(chunk)]

    def ending(self) -> list[bytes]:
        if not self._order.include_usage:
            return [DONE]
        counts = usage(self._prompts, sum(self._counts))
        if self._ticket.shows_reuse:
            # vLLM's stream tells the first prompt's reuse, its document the last one's.
            counts["prompt_tokens_details"] = {"cached_tokens": self._prompts[0].reused}
        chunk = self._head() | {"choices": [], "usage": counts, "system_fingerprint": self._ticket.fingerprint}
        return [data(chunk), DONE]

    def broken(self, error: EngineError) -> list[bytes]:
        return [data(openai_error(error)), DONE]

    def document(self) -> bytes:
        cached = {"cached_tokens": self._prompts[-1].reused, "created_cache_tokens": None, "multimodal_tokens": None}
        counts = usage(self._prompts, sum(self._counts)) | {
            "prompt_tokens_details": cached if self._ticket.shows_reuse else None,
            "completion_tokens_details": None,
        }
        document = self._head() | {
            "choices": [self._whole_choice(choice) for choice in range(self._choices)],
            "service_tier": None,
            "system_fingerprint": self._ticket.fingerprint,
            "usage": counts,
        }
        return compact(document | dict.fromkeys(("kv_transfer_params", "ec_transfer_params", "metrics")))

    def _head(self) -> dict[str, object]:
        return {
            "id": self._ticket.id,
            "object": "text_completion",
            "created": self._ticket.created,
            "model": self._order.served,
        }

    def _whole_choice(self, choice: int) -> dict[str, object]:
        told = {"index": choice, "text": self._texts[choice], "logprobs": None, "finish_reason": self._finishes[choice]}
        return told | dict.fromkeys(
            ("stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids", "routed_experts")
        )
