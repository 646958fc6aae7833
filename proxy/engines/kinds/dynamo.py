"""Dynamo's frontend: chat, completions, responses and embeddings.

Read from lib/llm/src/protocols/ (common/extensions.rs at commit 004e2c5, openai/). It takes the salt from the header
`x-tenant-id`, else from `nvext.cache_salt`, else from `cache_salt` at the top: all three are set to one value, and a
client's `nvext` goes whole. The backend must be vLLM or TensorRT-LLM; with another the salt does not arrive, which the
proof shows. Chat and completions refuse unknown fields, so what is in no table must not be sent at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from config.settings import EngineLimits
from proxy.engines.content import (
    CHAT_PARTS,
    NO_STORE,
    OPENAI_ONLY,
    chat_messages,
    chat_tools,
    responses_input,
    responses_tools,
)
from proxy.engines.forbidden import FORBIDDEN
from proxy.engines.forms import (
    BOOLEAN,
    CHAT_TOOL_CHOICE,
    COUNT,
    EFFORT,
    LOGIT_BIAS,
    PENALTY,
    REASONING,
    RESPONSES_TOOL_CHOICE,
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
    responses_text,
    schema,
    stop,
    whole,
)
from proxy.engines.profile import Endpoint, Line, Operation, Profile, SaltPlaces, drops, lines
from proxy.engines.rules import Prompts, Refuses, Rule
from proxy.refusals import Dialect

_EXTENSIONS: Final = "dynamo lib/llm/src/protocols/common/extensions.rs"
_CHAT: Final = "dynamo lib/llm/src/protocols/openai/chat_completions.rs"
_COMMON: Final = "dynamo lib/llm/src/protocols/openai/common_ext.rs"
_COMPLETIONS: Final = "dynamo lib/llm/src/protocols/openai/completions.rs"
_RESPONSES: Final = "dynamo lib/llm/src/protocols/openai/responses/mod.rs"
_EMBEDDINGS: Final = "dynamo lib/llm/src/protocols/openai/embeddings.rs"
_VALIDATE: Final = "dynamo lib/llm/src/protocols/openai/validate.rs"
_OWN: Final = "acts on the caller's own answer only"
_COMPILED: Final = "compiled on a process that serves everybody, so bounded in bytes and depth"


class _Thinking(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["enabled", "disabled", "adaptive"]


def _generation(limits: EngineLimits) -> dict[str, Line]:
    sampling: Mapping[str, Rule] = {
        **SAMPLING,
        "min_p": number(0, 1),
        "frequency_penalty": PENALTY,
        "presence_penalty": PENALTY,
        "repetition_penalty": passes(Annotated[float, Meta(gt=0, le=2)], "a number above 0, at most 2"),
        "seed": SEED,
        "stop": stop(limits),
        "logit_bias": LOGIT_BIAS,
        "max_tokens": answer_tokens(limits),
    }
    common: Mapping[str, Rule] = {
        "stop_token_ids": TOKEN_IDS,
        "allowed_token_ids": TOKEN_IDS,
        "min_tokens": COUNT,
        "ignore_eos": BOOLEAN,
        "include_stop_str_in_output": BOOLEAN,
        "skip_special_tokens": BOOLEAN,
    }
    grammars: Mapping[str, Rule] = {
        "guided_json": schema(str | dict[str, object], "an object or a string", limits),
        "guided_regex": regex(limits),
        "guided_grammar": grammar(limits),
        "guided_choice": schema(Annotated[list[str], Meta(max_length=1024)], "up to 1024 strings", limits),
    }
    return {
        **FORBIDDEN,
        **lines(_OWN, _VALIDATE, sampling),
        **lines(_OWN, _COMMON, common),
        **lines(
            "each sequence is a request of its own to the scheduler; Dynamo takes 128",
            _VALIDATE,
            {"n": whole(1, limits.n)},
        ),
        **lines(_COMPILED, _COMMON, grammars),
        **drops(
            _COMMON,
            {
                "guided_decoding_backend": "which compiler the engine uses is the operator's decision",
                "guided_whitespace_pattern": "one more grammar to compile, for white space only",
                "detokenize": "the answer would be no text",
                "bad_words_token_ids": "a form of bad words that only some backends read",
                "store": "Dynamo stores no completions",
                "prediction": "a hint for speed that is ignored",
            },
        ),
        **lines(
            "each costs a whole answer",
            _VALIDATE,
            {"best_of": Refuses("best_of is not supported. Use n.", frozenset({b"0", b"1"}))},
        ),
    }


def _chat_fields(limits: EngineLimits) -> dict[str, Line]:
    return {
        **_generation(limits),
        **lines("reaches the chat template, a program in the engine", _CHAT, TEMPLATE),
        **lines(
            "another name of chat_template_kwargs",
            _CHAT,
            {"chat_template_args": Refuses("chat_template_args is not enabled. Use chat_template_kwargs.")},
        ),
        **lines(
            "the prompt; of messages and parts only texts, nothing that names media",
            _CHAT,
            {"messages": chat_messages(CHAT_PARTS, "reasoning_content", "refusal")},
        ),
        **lines(
            "only what the caller runs; schemas and texts in them stay as they are",
            _CHAT,
            {"tools": chat_tools(limits), "tool_choice": CHAT_TOOL_CHOICE, "parallel_tool_calls": BOOLEAN},
        ),
        **lines(
            _OWN,
            _CHAT,
            {
                "max_completion_tokens": answer_tokens(limits),
                "logprobs": BOOLEAN,
                "return_tokens_as_token_ids": BOOLEAN,
                "reasoning_effort": EFFORT,
                "thinking": passes(bool | _Thinking, "true, false, or an object with a type"),
            },
        ),
        **lines(_COMPILED, _CHAT, {"response_format": response_format(limits)}),
        **lines("more would be the whole vocabulary", _VALIDATE, {"top_logprobs": whole(0, limits.logprobs)}),
        **lines("Dynamo has not got it, so the answer would not be what was asked", _CHAT, OPENAI_ONLY),
    }


def _completions_fields(limits: EngineLimits) -> dict[str, Line]:
    return {
        **_generation(limits),
        **lines(
            "each prompt is a request of its own to the scheduler", _COMPLETIONS, {"prompt": Prompts(limits.prompts)}
        ),
        **lines(_OWN, _COMPLETIONS, {"suffix": TEXT}),
        **lines("Dynamo takes at most 5", _VALIDATE, {"logprobs": whole(0, min(5, limits.logprobs))}),
        **lines(
            "becomes prompt logprobs, which are computed without the cache at everybody's cost",
            _COMPLETIONS,
            {"echo": Refuses("echo is not enabled on this deployment. You have the prompt that you sent.")},
        ),
        **lines(
            "Dynamo has it for chat only",
            _COMPLETIONS,
            {"response_format": Refuses("response_format is not supported for completions. Use guided_json.")},
        ),
        **lines(
            "a tensor to deserialise",
            _COMPLETIONS,
            {"prompt_embeds": Refuses("prompt_embeds is not enabled on this deployment. Send text or token ids.")},
        ),
    }


def _responses_fields(limits: EngineLimits) -> dict[str, Line]:
    own: Mapping[str, Rule] = {
        "temperature": SAMPLING["temperature"],
        "top_p": SAMPLING["top_p"],
        "max_output_tokens": answer_tokens(limits),
        "max_tool_calls": COUNT,
        "reasoning": REASONING,
        "truncation": passes(Literal["auto", "disabled"], '"auto" or "disabled"'),
        "include": passes(
            list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]],
            "an array of message.output_text.logprobs or reasoning.encrypted_content",
        ),
    }
    return {
        **FORBIDDEN,
        **lines(_OWN, _RESPONSES, own),
        **lines("more would be the whole vocabulary", _RESPONSES, {"top_logprobs": whole(0, limits.logprobs)}),
        **lines(
            "the prompt; of items and parts only those that Dynamo hands on, nothing that names media or the store",
            _RESPONSES,
            {"input": responses_input("message", "function_call", "function_call_output"), "instructions": TEXT},
        ),
        **lines(
            "only what the caller runs; Dynamo leaves others out without a word",
            _RESPONSES,
            {
                "tools": responses_tools(limits, "function"),
                "tool_choice": RESPONSES_TOOL_CHOICE,
                "parallel_tool_calls": BOOLEAN,
            },
        ),
        **lines(_COMPILED, _RESPONSES, {"text": responses_text(limits)}),
        **drops(
            _RESPONSES,
            {
                "store": "sent as false: nothing is stored for anybody to read",
                "stream_options": "obfuscation and the like, which Dynamo has not",
            },
        ),
        **lines(
            "nothing is stored, so there is nothing to go on from",
            _RESPONSES,
            {"previous_response_id": Refuses(NO_STORE), "conversation": Refuses(NO_STORE)},
        ),
        **lines(
            "sent as false: it would run on when the caller has left",
            _RESPONSES,
            {"background": Refuses("background is not enabled on this deployment. Use stream.")},
        ),
        **lines(
            "Dynamo has no prompt templates",
            _RESPONSES,
            {"prompt": Refuses("Prompt templates are not supported. Send the text in input and instructions.")},
        ),
    }


def _embeddings_fields(limits: EngineLimits) -> dict[str, Line]:
    return {
        **FORBIDDEN,
        **lines("each text is a request of its own to the scheduler", _EMBEDDINGS, {"input": Prompts(limits.inputs)}),
        **lines(
            _OWN,
            _EMBEDDINGS,
            {
                "encoding_format": passes(Literal["float", "base64"], '"float" or "base64"'),
                "dimensions": whole(1, 1_000_000),
            },
        ),
        **lines(
            "Dynamo would answer in another form, or not at all",
            _EMBEDDINGS,
            {"messages": Refuses("messages is not enabled for embeddings. Use input.")},
        ),
    }


_MEMBERS: Final = (("nvext", "cache_salt"), ("cache_salt",))
_SALT: Final = SaltPlaces(_MEMBERS, _EXTENSIONS, header="x-tenant-id")
# The version read has no field for it in the embeddings' own nvext: whether it arrives, only a proof can tell.
_EMBEDDINGS_SALT: Final = SaltPlaces(_MEMBERS, f"{_EMBEDDINGS} (not seen to be read there)", header="x-tenant-id")
_HIDES: Final[Mapping[str, str]] = {"nvext": "workers, timing and tokens of the engine"}
_FALSE: Final = b"false"


def dynamo(limits: EngineLimits) -> Profile:
    """The profile of a Dynamo frontend under these limits."""
    return Profile(
        kind="dynamo",
        title="Dynamo",
        version="source at commit 004e2c5 and earlier; not run",
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
            ),
            Endpoint(
                Operation.RESPONSES,
                "POST",
                "/v1/responses",
                Dialect.OPENAI,
                _responses_fields(limits),
                _SALT,
                constants={"store": _FALSE, "background": _FALSE},
                hides=_HIDES,
            ),
            Endpoint(
                Operation.EMBEDDINGS,
                "POST",
                "/v1/embeddings",
                Dialect.OPENAI,
                _embeddings_fields(limits),
                _EMBEDDINGS_SALT,
                streams=False,
                hides=_HIDES,
            ),
        ),
        reports_reuse="let its backend tell usage.prompt_tokens_details.cached_tokens "
        "(vLLM: --enable-prompt-tokens-details)",
        reuses_prefixes="is prefix caching on in its backend, and is the backend vLLM or TensorRT-LLM?",
    )
