"""TensorRT-LLM (trtllm-serve): chat.

Read from tensorrt_llm/serve/openai_protocol.py (commit 0076e93). Only ChatCompletionRequest has `cache_salt`:
/v1/responses would be unsalted without a word, /v1/completions and /v1/embeddings have no field. Every model forbids
extra fields, so what is in no table must not be sent at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from config.settings import EngineLimits
from proxy.engines.content import CHAT_PARTS, OPENAI_ONLY, chat_messages, chat_tools
from proxy.engines.forbidden import FORBIDDEN
from proxy.engines.forms import (
    BOOLEAN,
    CHAT_TOOL_CHOICE,
    COUNT,
    EFFORT,
    LOGIT_BIAS,
    PENALTY,
    SAMPLING,
    SEED,
    TEMPLATE,
    TOKEN_IDS,
    answer_tokens,
    number,
    passes,
    response_format,
    stop,
    whole,
)
from proxy.engines.profile import Endpoint, Line, Operation, Profile, SaltPlaces, drops, lines
from proxy.engines.rules import MAX_TOKEN_ID, Refuses, Rule
from proxy.refusals import Dialect

_PROTOCOL: Final = "tensorrt_llm/serve/openai_protocol.py"
_OWN: Final = "acts on the caller's own answer only"


class _Thinking(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["enabled", "disabled"] = "enabled"
    keep: Literal["all"] | None = None
    effort: Literal["low", "high", "max"] | None = None


def _chat_fields(limits: EngineLimits) -> dict[str, Line]:
    own: Mapping[str, Rule] = {
        **SAMPLING,
        "top_k": COUNT,
        "top_p_min": number(0, 1),
        "min_p": number(0, 1),
        "frequency_penalty": PENALTY,
        "presence_penalty": PENALTY,
        "repetition_penalty": number(0, 100),
        "seed": SEED,
        "stop": stop(limits),
        "stop_token_ids": TOKEN_IDS,
        "logit_bias": LOGIT_BIAS,
        "max_tokens": answer_tokens(limits),
        "max_completion_tokens": answer_tokens(limits),
        "min_tokens": COUNT,
        "ignore_eos": BOOLEAN,
        "include_stop_str_in_output": BOOLEAN,
        "skip_special_tokens": BOOLEAN,
        "spaces_between_special_tokens": BOOLEAN,
        "truncate_prompt_tokens": whole(1, MAX_TOKEN_ID),
        "prompt_ignore_length": COUNT,
        "logprobs": BOOLEAN,
        "reasoning_effort": EFFORT,
        "thinking": passes(_Thinking, "an object of type, keep and effort"),
        "thinking_token_budget": whole(-1, MAX_TOKEN_ID),
        "add_generation_prompt": BOOLEAN,
        "add_special_tokens": BOOLEAN,
    }
    return {
        **FORBIDDEN,
        **lines(_OWN, _PROTOCOL, own),
        **lines("each sequence is a request of its own to the scheduler", _PROTOCOL, {"n": whole(1, limits.n)}),
        **lines("more would be the whole vocabulary", _PROTOCOL, {"top_logprobs": whole(0, limits.logprobs)}),
        **lines(
            "compiled on a process that serves everybody, so bounded in bytes and depth",
            _PROTOCOL,
            {"response_format": response_format(limits)},
        ),
        **lines("reaches the chat template, a program in the engine", _PROTOCOL, TEMPLATE),
        **lines(
            "the prompt; of messages and parts only texts: a media part could name a file of the engine's machine",
            "tensorrt_llm/inputs/utils.py",
            {"messages": chat_messages(CHAT_PARTS, "reasoning", "reasoning_content", "refusal")},
        ),
        **lines(
            "only what the caller runs; schemas and texts in them stay as they are",
            _PROTOCOL,
            {"tools": chat_tools(limits), "tool_choice": CHAT_TOOL_CHOICE, "parallel_tool_calls": BOOLEAN},
        ),
        **lines(
            "an adapter is a model of its own, and this one is named by a path of the engine's machine",
            _PROTOCOL,
            {"lora_request": Refuses("lora_request is not enabled on this deployment. Name the adapter as model.")},
        ),
        **lines(
            "a prompt beside the messages, which the chat template has not seen",
            _PROTOCOL,
            {
                name: Refuses(f"{name} is not enabled on this deployment. Use messages.")
                for name in ("prompt_token_ids", "prompt_token_ids_b64")
            },
        ),
        **lines(
            "costs a multiple of what it seems to",
            _PROTOCOL,
            {
                "use_beam_search": Refuses(
                    "Beam search is not enabled on this deployment. Use n and sampling instead."
                ),
                "best_of": Refuses("best_of is not supported. Use n.", frozenset({b"1"})),
            },
        ),
        **lines(
            "the message that is prepended is the caller's own already",
            _PROTOCOL,
            {"echo": Refuses("echo is not enabled on this deployment. You have the message that you sent.")},
        ),
        **drops(
            _PROTOCOL,
            {
                "length_penalty": "acts on beam search only, and beam search is refused",
                "early_stopping": "acts on beam search only, and beam search is refused",
                "store": "TensorRT-LLM stores no completions, and refuses the field",
                "prediction": "a hint for speed, and TensorRT-LLM refuses the field",
            },
        ),
        **lines("TensorRT-LLM has not got it, so the answer would not be what was asked", _PROTOCOL, OPENAI_ONLY),
    }


def tensorrt_llm(limits: EngineLimits) -> Profile:
    """The profile of a trtllm-serve under these limits."""
    return Profile(
        kind="tensorrt-llm",
        title="TensorRT-LLM",
        version="source at commit 0076e93; not run",
        endpoints=(
            Endpoint(
                Operation.CHAT,
                "POST",
                "/v1/chat/completions",
                Dialect.OPENAI,
                _chat_fields(limits),
                SaltPlaces((("cache_salt",),), _PROTOCOL),
                usage_on_demand=True,
                hides={
                    "prompt_token_ids": "the prompt as the engine renders it",
                    "prompt_token_ids_b64": "the prompt as the engine renders it",
                },
                hides_in_choices={
                    "disaggregated_params": "hosts and caches of the engine's network",
                    "mm_embedding_handle": "names memory of the engine",
                    "avg_decoded_tokens_per_iter": "how well the engine drafted: a number of the engine's",
                },
            ),
        ),
        reports_reuse="use a TensorRT-LLM that tells usage.prompt_tokens_details.cached_tokens",
        reuses_prefixes="is block reuse on (kv_cache_config.enable_block_reuse), is the cache large enough?",
    )
