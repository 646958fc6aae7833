"""How a simulated engine is built: its models, its cache, its pace, and the flaws that a gate must notice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Endpoint(Enum):
    """The routes that generate or embed, by their path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    EMBEDDINGS = "/v1/embeddings"


ALL_ENDPOINTS = frozenset(Endpoint)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the engine works. Zero of either kind is "at once".

    Prefill takes `fresh / prefill_tokens_per_second * (1 + (prompt + reused) / 4000)` seconds: the share of attention
    grows with the length of the prompt. The default values give about 0.28 s for 2,300 tokens and 1.2 s for 6,000, as
    measured on a small model on a CPU. Each step of decoding takes `seconds_per_token`.
    """

    prefill_tokens_per_second: float = 12_700.0
    seconds_per_token: float = 0.015

    def prefill_seconds(self, *, prompt: int, reused: int) -> float:
        """How long a prompt of `prompt` tokens computes when `reused` of them are in the cache."""
        if not self.prefill_tokens_per_second:
            return 0.0
        return (prompt - reused) / self.prefill_tokens_per_second * (1 + (prompt + reused) / 4000)


AT_ONCE = Pace(prefill_tokens_per_second=0.0, seconds_per_token=0.0)


@dataclass(frozen=True, slots=True)
class Flaws:
    """What is wrong with this engine. A sound engine has none; each one is what some engine or setting in the field
    does.

    `ignores_salt`: these routes drop the salt, as routes do that have no such field. `undeclared_salt`: the schema of
    these routes does not name it. `no_prefix_cache`: nothing is reused. `hides_cached_tokens`: these routes do not say
    what was reused (vLLM without --enable-prompt-tokens-details does that on all but /v1/responses).
    """

    ignores_salt: frozenset[Endpoint] = frozenset()
    undeclared_salt: frozenset[Endpoint] = frozenset()
    no_prefix_cache: bool = False
    hides_cached_tokens: frozenset[Endpoint] = frozenset()


@dataclass(frozen=True, slots=True)
class EngineShape:
    """The settings of one simulated engine.

    `adapters` maps the name of a LoRA adapter to its base model. `answer_tokens` is the length of an answer that
    nothing cuts short or prolongs; `capacity_blocks` and `block_size` are the prefix cache's. With an `api_key`, /v1
    asks for it as a bearer token.
    """

    models: tuple[str, ...] = ("tiny",)
    adapters: Mapping[str, str] = field(default_factory=dict)
    endpoints: frozenset[Endpoint] = ALL_ENDPOINTS
    pace: Pace = field(default_factory=Pace)
    flaws: Flaws = field(default_factory=Flaws)
    block_size: int = 16
    capacity_blocks: int = 8192
    max_model_len: int = 32_768
    answer_tokens: int = 32
    version: str = "0.32.0"
    api_key: str | None = None
