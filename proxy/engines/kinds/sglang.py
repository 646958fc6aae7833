"""SGLang: chat and completions.

Read from sglang/srt/entrypoints/openai/protocol.py (commit 004c82e) and managers/io_struct.py. /v1/messages and
/v1/responses drop the salt silently and are not listed. The radix cache's key is (extra_key, cache_salt): the salt is
stamped as `cache_salt`, one string for all prompts of a request, and `extra_key` is dropped. Unknown fields are ignored
(pydantic's default), so what is in no table is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta

from config.settings import EngineLimits
from proxy.engines.content import OPENAI_ONLY, chat_messages, chat_tools, parts, texts
from proxy.engines.forbidden import FORBIDDEN
from proxy.engines.forms import (
    BOOLEAN,
    CHAT_TOOL_CHOICE,
    COUNT,
    LOGIT_BIAS,
    PENALTY,
    SAMPLING,
    SEED,
    TEMPLATE,
    TEXT,
    TOKEN_IDS,
    answer_tokens,
    grammar,
    number,
    passes,
    regex,
    response_format,
    stop,
    whole,
)
from proxy.engines.profile import Endpoint, Line, Operation, Profile, SaltPlaces, drops, lines
from proxy.engines.rules import Prompts, Refuses, Rule, Shape
from proxy.refusals import Dialect

_PROTOCOL: Final = "sglang/srt/entrypoints/openai/protocol.py"
_SAMPLING_PARAMS: Final = "sglang/srt/sampling/sampling_params.py"
_GRAMMAR: Final = "sglang/srt/constrained/"
_OWN: Final = "acts on the caller's own answer only"
_COMPILED: Final = "compiled on a process that serves everybody, so bounded in bytes and depth"

_PARTS: Final = parts(
    {
        **texts("text"),
        "thinking": Shape(frozenset({"type", "thinking"}), text="thinking"),
        "tool_reference": Shape(frozenset({"type", "name"}), text="name"),
    }
)


def _refused(*names: str) -> dict[str, Rule]:
    return {name: Refuses(f"{name} is not enabled on this deployment. Leave it out.") for name in names}


def _generation(limits: EngineLimits) -> dict[str, Line]:
    sampling: Mapping[str, Rule] = {
        **SAMPLING,
        "min_p": number(0, 1),
        "frequency_penalty": PENALTY,
        "presence_penalty": PENALTY,
        "repetition_penalty": number(0, 2),
        "seed": SEED,
        "stop": stop(limits),
        "stop_token_ids": TOKEN_IDS,
        "logit_bias": LOGIT_BIAS,
        "max_tokens": answer_tokens(limits),
        "min_tokens": COUNT,
        "ignore_eos": BOOLEAN,
        "skip_special_tokens": BOOLEAN,
        "no_stop_trim": BOOLEAN,
    }
    return {
        **FORBIDDEN,
        **lines(_OWN, _SAMPLING_PARAMS, sampling),
        **lines("each sequence is a request of its own to the scheduler", _PROTOCOL, {"n": whole(1, limits.n)}),
        **lines(
            _COMPILED,
            _GRAMMAR,
            {"response_format": response_format(limits), "regex": regex(limits), "ebnf": grammar(limits)},
        ),
        **lines(
            "code that a client would have run in the engine",
            _PROTOCOL,
            {
                "custom_logit_processor": Refuses(
                    "custom_logit_processor is not enabled on this deployment. Leave it out."
                ),
                "stop_regex": Refuses("stop_regex is not enabled on this deployment. Use stop."),
            },
        ),
        **lines(
            "an adapter is a model of its own, which a project must be allowed to use",
            _PROTOCOL,
            {"lora_path": Refuses("lora_path is not enabled on this deployment. Name the adapter as model.")},
        ),
        **lines(
            "goes on with a session that anybody may name, on a cache without a border",
            _PROTOCOL,
            {"session_params": Refuses("Sessions are not enabled on this deployment. Send the earlier messages.")},
        ),
        **lines(
            "tells the prompt as the engine renders it, or its inside",
            _PROTOCOL,
            _refused("return_hidden_states", "return_routed_experts", "return_token_ids"),
        ),
        **drops(_PROTOCOL, {"store": "SGLang stores no completions", "prediction": "a hint for speed that is ignored"}),
    }


def _chat_fields(limits: EngineLimits) -> dict[str, Line]:
    return {
        **_generation(limits),
        **lines("reaches the chat template, a program in the engine", _PROTOCOL, TEMPLATE),
        **lines(
            "the prompt; of messages and parts only texts, nothing that names media or their hashes",
            _PROTOCOL,
            {"messages": chat_messages(_PARTS, "reasoning_content")},
        ),
        **lines(
            "only what the caller runs; schemas and texts in them stay as they are",
            _PROTOCOL,
            {
                "tools": chat_tools(limits, "defer_loading"),
                "tool_choice": CHAT_TOOL_CHOICE,
                "parallel_tool_calls": BOOLEAN,
            },
        ),
        **lines(
            _OWN,
            _PROTOCOL,
            {
                "max_completion_tokens": answer_tokens(limits),
                "logprobs": BOOLEAN,
                "reasoning_effort": passes(
                    Annotated[str, Meta(max_length=16)] | Annotated[float, Meta(ge=0, le=0.99)],
                    "a level such as low, medium or high, or a number from 0 to 0.99",
                ),
                "separate_reasoning": BOOLEAN,
                "stream_reasoning": BOOLEAN,
                "continue_final_message": BOOLEAN,
                "task": passes(
                    Literal["action", "query", "authority", "domain", "title", "read_url"],
                    "one of action, query, authority, domain, title, read_url",
                ),
            },
        ),
        **lines("more would be the whole vocabulary", _PROTOCOL, {"top_logprobs": whole(0, limits.logprobs)}),
        **lines(
            "a second spelling of reasoning_effort (normalize_reasoning_inputs)",
            _PROTOCOL,
            {"reasoning": Refuses("reasoning is not enabled for chat. Use reasoning_effort.")},
        ),
        **lines(
            "a prompt beside the messages, which the chat template has not seen",
            _PROTOCOL,
            {"input_ids": Refuses("input_ids is not enabled on this deployment. Use messages, or /v1/completions.")},
        ),
        **lines(
            "tells the prompt as the engine renders it, or its inside",
            _PROTOCOL,
            _refused("return_prompt_token_ids", "return_meta_info"),
        ),
        **lines("SGLang has not got it, so the answer would not be what was asked", _PROTOCOL, OPENAI_ONLY),
    }


def _completions_fields(limits: EngineLimits) -> dict[str, Line]:
    return {
        **_generation(limits),
        **lines("each prompt is a request of its own to the scheduler", _PROTOCOL, {"prompt": Prompts(limits.prompts)}),
        **lines(_OWN, _PROTOCOL, {"suffix": TEXT, "echo": BOOLEAN}),
        **lines("more would be the whole vocabulary", _PROTOCOL, {"logprobs": whole(0, limits.logprobs)}),
        **lines(_COMPILED, _GRAMMAR, {"json_schema": grammar(limits)}),
        **lines(
            "each costs a whole answer",
            _PROTOCOL,
            {"best_of": Refuses("best_of is not supported. Use n.", frozenset({b"1"}))},
        ),
    }


_SALT: Final = SaltPlaces((("cache_salt",),), _PROTOCOL)
_HIDES: Final[Mapping[str, str]] = {
    "sglext": "the engine's cache levels and routing",
    "metadata": "which weights the engine runs",
}
_HIDES_IN_CHOICES: Final[Mapping[str, str]] = {
    "hidden_states": "the model's inside",
    "prompt_token_ids": "the prompt as the engine renders it",
    "meta_info": "the engine's own numbers",
}


def sglang(limits: EngineLimits) -> Profile:
    """The profile of an SGLang server under these limits."""
    return Profile(
        kind="sglang",
        title="SGLang",
        version="source at commit 004c82e; not run",
        endpoints=(
            Endpoint(
                Operation.CHAT,
                "POST",
                "/v1/chat/completions",
                Dialect.OPENAI,
                _chat_fields(limits),
                _SALT,
                usage_on_demand=True,
                hides=_HIDES,
                hides_in_choices=_HIDES_IN_CHOICES,
            ),
            Endpoint(
                Operation.COMPLETIONS,
                "POST",
                "/v1/completions",
                Dialect.OPENAI,
                _completions_fields(limits),
                _SALT,
                usage_on_demand=True,
                hides=_HIDES,
                hides_in_choices=_HIDES_IN_CHOICES,
            ),
        ),
        reports_reuse="start SGLang with --enable-cache-report",
        reuses_prefixes="is the radix cache on (no --disable-radix-cache), is it large enough?",
    )
