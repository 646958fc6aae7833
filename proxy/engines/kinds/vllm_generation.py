"""vLLM 0.32: how text is generated, and the fields of chat and completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from config.settings import EngineLimits
from proxy.engines.content import OPENAI_ONLY, VLLM_CHAT_PARTS, chat_messages, chat_tools, with_images
from proxy.engines.extent import MAX_PATTERN_CHARACTERS
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
    TEXT,
    TOKEN_IDS,
    TRUNCATION,
    TokenCount,
    answer_tokens,
    number,
    passes,
    response_format,
    schema,
    stop,
    whole,
)
from proxy.engines.media import DataImage
from proxy.engines.profile import Line, drops, lines
from proxy.engines.rules import MAX_TOKEN_ID, Opens, Passes, Prompts, Refuses, Rule

_CHAT: Final = "vllm/entrypoints/openai/chat_completion/protocol.py"
_COMPLETION: Final = "vllm/entrypoints/openai/completion/protocol.py"
_SAMPLING_PARAMS: Final = "vllm/sampling_params.py"
OWN: Final = "acts on the caller's own answer only"


class _Repetition(msgspec.Struct, forbid_unknown_fields=True):
    max_pattern_size: Annotated[int, Meta(ge=0, le=4096)] = 0
    min_pattern_size: Annotated[int, Meta(ge=0, le=4096)] = 0
    min_count: Annotated[int, Meta(ge=0, le=4096)] = 0


class _Structure(msgspec.Struct, forbid_unknown_fields=True):
    """vllm/sampling_params.py, StructuredOutputsParams. A regex is bounded further: compiling it may cost much more
    than its length."""

    json: object = None
    regex: Annotated[str, Meta(max_length=MAX_PATTERN_CHARACTERS)] | None = None
    choice: Annotated[list[str], Meta(max_length=1024)] | None = None
    grammar: Annotated[str, Meta(max_length=65536)] | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: Annotated[str, Meta(max_length=256)] | None = None
    structural_tag: Annotated[str, Meta(max_length=16384)] | None = None


def further_sampling(limits: EngineLimits) -> dict[str, Line]:
    """How tokens are drawn, where an endpoint takes vLLM's whole set."""
    rules: Mapping[str, Rule] = {
        **SAMPLING,
        "min_p": number(0, 1),
        "frequency_penalty": PENALTY,
        "presence_penalty": PENALTY,
        "repetition_penalty": passes(Annotated[float, Meta(gt=0, le=100)], "a number above 0"),
        "seed": SEED,
        "stop": stop(limits),
        "stop_token_ids": TOKEN_IDS,
        "ignore_eos": BOOLEAN,
        "include_stop_str_in_output": BOOLEAN,
        "skip_special_tokens": BOOLEAN,
        "logit_bias": LOGIT_BIAS,
    }
    grammar = schema(_Structure, "an object with one of json, regex, choice, grammar, json_object", limits)
    return {
        **lines(OWN, _SAMPLING_PARAMS, rules),
        **lines(
            "compiled on a process that serves everybody, so bounded in bytes and depth",
            "vllm/v1/structured_output/backend_xgrammar.py",
            {"structured_outputs": grammar},
        ),
    }


def template() -> dict[str, Line]:
    """The chat template's inputs: a client's objects would run in a program of the engine's."""
    return lines("reaches the chat template, a program in the engine", "vllm/renderers/online_renderer.py", TEMPLATE)


def _generation(limits: EngineLimits) -> dict[str, Line]:
    """Chat and completions share it."""
    return {
        **FORBIDDEN,
        **further_sampling(limits),
        **lines(
            "each sequence is a request of its own to the scheduler; vLLM allows 16,384",
            _SAMPLING_PARAMS,
            {"n": whole(1, limits.n)},
        ),
        **lines(
            OWN,
            _CHAT,
            {
                "max_tokens": answer_tokens(limits),
                "min_tokens": COUNT,
                "spaces_between_special_tokens": BOOLEAN,
                "allowed_token_ids": TOKEN_IDS,
                "bad_words": passes(
                    Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=128)], "up to 128 strings"
                ),
                "logprob_token_ids": passes(Annotated[list[TokenCount], Meta(max_length=128)], "up to 128 token ids"),
                "return_tokens_as_token_ids": BOOLEAN,
                "thinking_token_budget": whole(-1, MAX_TOKEN_ID),
                "repetition_detection": passes(
                    _Repetition, "an object of max_pattern_size, min_pattern_size and min_count"
                ),
                "stream_interval": whole(1, 1024),
                **TRUNCATION,
                "add_special_tokens": BOOLEAN,
            },
        ),
        **lines(
            "compiled on a process that serves everybody, so bounded in bytes and depth",
            "vllm/v1/structured_output/backend_xgrammar.py",
            {"response_format": response_format(limits)},
        ),
        **drops(
            _CHAT,
            {
                "length_penalty": "acts on beam search only, and beam search is refused",
                "store": "vLLM stores no completions",
                "prediction": "a hint for speed that vLLM ignores",
            },
        ),
        **lines(
            "costs a multiple of what it seems to",
            "vllm/entrypoints/generate/beam_search/online.py",
            {
                "use_beam_search": Refuses(
                    "Beam search is not enabled on this deployment. Use n and sampling instead."
                ),
                "best_of": Refuses("best_of is not supported. Use n.", frozenset({b"1"})),
            },
        ),
        **lines(
            "computing them reads no prefix cache, at everybody's cost (skip_reading_prefix_cache)",
            _SAMPLING_PARAMS,
            {"prompt_logprobs": Refuses("prompt_logprobs is not enabled on this deployment. Leave it out.")},
        ),
        **lines(
            "the prompt as the engine renders it is not handed out",
            _CHAT,
            {
                name: Refuses(f"{name} is not enabled on this deployment. Leave it out.")
                for name in ("return_token_ids", "return_prompt_text")
            },
        ),
        **lines(
            "a tensor to deserialise",
            "vllm/renderers/embed_utils.py",
            {
                "prompt_embeds": Refuses(
                    "prompt_embeds is not enabled on this deployment. Send the prompt as text or token ids."
                )
            },
        ),
    }


def _top_logprobs(limits: EngineLimits) -> Passes:
    return whole(0, limits.logprobs)


def _messages(content: Opens) -> Opens:
    return chat_messages(content, "reasoning", "reasoning_content", "refusal", "task")


def messages_with_images(image: DataImage) -> dict[str, Line]:
    """The prompt where the engine is configured with `media`. Audio and video stay out: of a video vLLM makes several
    items, whose identities are not all the part's own (vllm/renderers/chat_utils.py, vision chunks)."""
    return lines(
        "the prompt; images only in the request itself, each with an identity of saltgate's (`uuid`), or fetched by "
        "saltgate and then as if they had been",
        "vllm/multimodal/processing/inputs.py",
        {"messages": _messages(with_images(VLLM_CHAT_PARTS, image))},
    )


def chat_fields(limits: EngineLimits) -> dict[str, Line]:
    return {
        **_generation(limits),
        **template(),
        **lines(
            "the prompt; of messages and parts only what vLLM reads as text, nothing that names media",
            "vllm/renderers/chat_utils.py",
            {"messages": _messages(VLLM_CHAT_PARTS)},
        ),
        **lines(
            "only what the caller runs; schemas and texts in them stay as they are",
            _CHAT,
            {
                "tools": chat_tools(limits, "defer_loading"),
                "tool_choice": CHAT_TOOL_CHOICE,
                "parallel_tool_calls": BOOLEAN,
            },
        ),
        **lines(
            OWN,
            _CHAT,
            {
                "max_completion_tokens": answer_tokens(limits),
                "logprobs": BOOLEAN,
                "reasoning_effort": EFFORT,
                "include_reasoning": BOOLEAN,
                "add_generation_prompt": BOOLEAN,
                "continue_final_message": BOOLEAN,
            },
        ),
        **lines(
            "vLLM's --max-logprobs; -1 would be the whole vocabulary", _CHAT, {"top_logprobs": _top_logprobs(limits)}
        ),
        **lines(
            "vLLM computes prompt logprobs for it, with all that this costs (to_sampling_params)",
            _CHAT,
            {"echo": Refuses("echo is not enabled on this deployment. You have the message that you sent.")},
        ),
        **lines("vLLM has not got it, so the answer would not be what was asked", _CHAT, OPENAI_ONLY),
    }


def completions_fields(limits: EngineLimits) -> dict[str, Line]:
    return {
        **_generation(limits),
        **lines(
            "each prompt is a request of its own to the scheduler", _COMPLETION, {"prompt": Prompts(limits.prompts)}
        ),
        **lines(OWN, _COMPLETION, {"suffix": TEXT, "echo": BOOLEAN}),
        **lines(
            "vLLM's --max-logprobs; -1 would be the whole vocabulary", _COMPLETION, {"logprobs": _top_logprobs(limits)}
        ),
    }
