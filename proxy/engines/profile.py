"""The vLLM profile: which endpoints carry the salt, and what happens to each field of a body sent there.

Read from vLLM 0.32 (vllm/entrypoints/…/protocol.py and serving.py of each endpoint). An endpoint is listed only because
its request model has `cache_salt` and hands it to the engine; many others accept the field and ignore it. A field that
is in no table is dropped: vLLM ignores fields that it does not know (vllm/entrypoints/serve/engine/protocol.py,
`extra="allow"`), so the answer is the same, and what a later vLLM may make of it stays out.
"""
# ruff: noqa: A005 - imported as proxy.engines.profile; nothing here is run with this folder on the path

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from proxy.engines.rules import (
    MAX_TOKEN_ID,
    MAX_TOOLS_BYTES,
    Drops,
    Opens,
    Passes,
    Prompts,
    Refuses,
    Rule,
    Schema,
    Shape,
)
from proxy.refusals import Dialect

if TYPE_CHECKING:
    from typing_extensions import TypeForm


class Operation(Enum):
    """What a caller asks of a model. Each has its own protocol for bodies, answers and events."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    EMBEDDINGS = "embeddings"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One exact method and path, and its table of fields.

    `streams`: it has a `stream` field. `usage_on_demand`: a stream tells its usage only when `stream_options` asks
    (chat and completions). `constants` are sent whatever the client says. `id_prefix` precedes the gate's request id in
    the body's `request_id`; None where the protocol has no such field.
    """

    operation: Operation
    method: str
    path: str
    dialect: Dialect
    fields: Mapping[str, Rule] = field(repr=False)
    streams: bool = True
    usage_on_demand: bool = False
    constants: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    id_prefix: str | None = ""


# Bounds. n: each sequence is a request of its own to the scheduler, and vLLM allows 16,384 of them.
MAX_SEQUENCES: Final = 8
MAX_PROMPTS: Final = 64
MAX_INPUTS: Final = 2048  # OpenAI's own bound on embeddings.
MAX_TOP_LOGPROBS: Final = 20  # vLLM's --max-logprobs; -1 would be the whole vocabulary.
MAX_MODEL_CHARACTERS: Final = 256


def _passes(form: TypeForm[object], must_be: str) -> Passes:
    return Passes(msgspec.json.Decoder(form), must_be)


def _schema(form: TypeForm[object], must_be: str) -> Schema:
    return Schema(msgspec.json.Decoder(form), must_be)


_Tokens = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
_TokenIds = Annotated[list[_Tokens], Meta(max_length=1024)]
_StopText = Annotated[str, Meta(max_length=1024)]
_StopTexts = Annotated[list[_StopText], Meta(max_length=16)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]

_BOOLEAN = _passes(bool, "true or false")
_TEXT = _passes(str, "a string")
_COUNT = _passes(_Tokens, "a whole number, 0 or more")


class _ThinkingSwitches(msgspec.Struct, forbid_unknown_fields=True):
    """The switches that published chat templates have. Anything else would hand a client's objects to a template."""

    enable_thinking: bool | None = None
    thinking: bool | None = None
    preserve_thinking: bool | None = None
    clear_thinking: bool | None = None


class _Repetition(msgspec.Struct, forbid_unknown_fields=True):
    max_pattern_size: Annotated[int, Meta(ge=0, le=4096)] = 0
    min_pattern_size: Annotated[int, Meta(ge=0, le=4096)] = 0
    min_count: Annotated[int, Meta(ge=0, le=4096)] = 0


class _Structure(msgspec.Struct, forbid_unknown_fields=True):
    """vllm/sampling_params.py, StructuredOutputsParams. A regex is bounded further: compiling it may cost much more
    than its length."""

    json: object = None
    regex: Annotated[str, Meta(max_length=4096)] | None = None
    choice: Annotated[list[str], Meta(max_length=1024)] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: Annotated[str, Meta(max_length=256)] | None = None
    structural_tag: str | None = None


class _Function(msgspec.Struct):
    name: Annotated[str, Meta(min_length=1, max_length=256)]


class _ChatToolChoice(msgspec.Struct):
    type: Literal["function"]
    function: _Function


class _ResponsesToolChoice(msgspec.Struct):
    type: Literal["function", "custom"]
    name: Annotated[str, Meta(min_length=1, max_length=256)]


class _MessagesToolChoice(msgspec.Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: Annotated[str, Meta(max_length=256)] | None = None
    disable_parallel_tool_use: bool | None = None


class _Thinking(msgspec.Struct):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: _Tokens | None = None


class _Reasoning(msgspec.Struct):
    effort: Annotated[str, Meta(max_length=16)] | None = None
    summary: Annotated[str, Meta(max_length=16)] | None = None


_JSON_OBJECT = dict[str, object]


# What every endpoint drops, and why the answer stays the same.

_NOT_THE_CLIENTS: Final[Mapping[str, Rule]] = {
    "cache_salt": Drops("the border of the cache; saltgate stamps its own"),
    "request_id": Drops("names a request of the engine, or a stored response; saltgate stamps its own"),
    "priority": Drops("whose turn it is; the header form would even win (vllm/entrypoints/generate/base/serving.py)"),
    "session_id": Drops("routes by affinity and tags cache events; not an identity"),
    "kv_transfer_params": Drops(
        "names hosts and cache blocks that the engine would fetch; a scheduler's, not a client's"
    ),
    "ec_transfer_params": Drops("names hosts that the engine would fetch encoder outputs from"),
    "vllm_xargs": Drops("a second door to kv_transfer_params and to scheduler internals (SamplingParams.extra_args)"),
    "nvext": Drops("another engine's extension, with a salt of its own in it"),
    "extra_key": Drops("another engine's name for a cache namespace"),
    "extra_body": Drops("an SDK's parameter, not a field"),
    "watermarking": Drops("whether answers are watermarked is the operator's decision"),
    "user": Drops("vLLM ignores it; who calls is what the credential says"),
    "safety_identifier": Drops("vLLM ignores it"),
    "metadata": Drops("vLLM keeps it nowhere but in the answer's echo"),
    "prompt_cache_key": Drops("vLLM ignores it; other engines route by it"),
    "prompt_cache_retention": Drops("vLLM ignores it"),
    "prompt_cache_options": Drops("vLLM ignores it"),
    "service_tier": Drops("vLLM only echoes it"),
    "media_io_kwargs": Drops("acts on media only, and media are refused"),
    "mm_processor_kwargs": Drops("acts on media only, and media are refused"),
    "mm_payload": Drops("acts on render endpoints only"),
    "return_mm_kwargs": Drops("acts on render endpoints only"),
    "return_token_offsets": Drops("acts on render endpoints only"),
    "routed_experts_prompt_start": Drops("acts only where the operator returns routed experts"),
}

# How tokens are drawn. It touches only the caller's own answer; the bounds are vLLM's, or keep its cost in reason.

_SAMPLING: Final[Mapping[str, Rule]] = {
    "temperature": _passes(Annotated[float, Meta(ge=0, le=100)], "a number, 0 or more"),
    "top_p": _passes(Annotated[float, Meta(ge=0, le=1)], "a number from 0 to 1"),
    "top_k": _passes(Annotated[int, Meta(ge=-1, le=MAX_TOKEN_ID)], "a whole number, -1 or more"),
}

_FURTHER_SAMPLING: Final[Mapping[str, Rule]] = {
    **_SAMPLING,
    "min_p": _passes(Annotated[float, Meta(ge=0, le=1)], "a number from 0 to 1"),
    "frequency_penalty": _passes(_Penalty, "a number from -2 to 2"),
    "presence_penalty": _passes(_Penalty, "a number from -2 to 2"),
    "repetition_penalty": _passes(Annotated[float, Meta(gt=0, le=100)], "a number above 0"),
    "seed": _passes(Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)], "a 64-bit whole number"),
    "stop": _passes(_StopText | _StopTexts, "a string, or up to 16 strings"),
    "stop_token_ids": _passes(_TokenIds, "up to 1024 token ids"),
    "ignore_eos": _BOOLEAN,
    "include_stop_str_in_output": _BOOLEAN,
    "skip_special_tokens": _BOOLEAN,
    "logit_bias": _passes(
        Annotated[dict[str, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=1024)],
        "an object of up to 1024 numbers from -100 to 100",
    ),
    "structured_outputs": _schema(_Structure, "an object with one of json, regex, choice, grammar, json_object"),
}

# Chat and completions share vLLM's whole set.

_GENERATION: Final[Mapping[str, Rule]] = {
    **_NOT_THE_CLIENTS,
    **_FURTHER_SAMPLING,
    "n": _passes(Annotated[int, Meta(ge=1, le=MAX_SEQUENCES)], f"a whole number from 1 to {MAX_SEQUENCES}"),
    "max_tokens": _COUNT,
    "min_tokens": _COUNT,
    "spaces_between_special_tokens": _BOOLEAN,
    "allowed_token_ids": _passes(_TokenIds, "up to 1024 token ids"),
    "bad_words": _passes(
        Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=128)], "up to 128 strings"
    ),
    "logprob_token_ids": _passes(Annotated[list[_Tokens], Meta(max_length=128)], "up to 128 token ids"),
    "return_tokens_as_token_ids": _BOOLEAN,
    "thinking_token_budget": _passes(Annotated[int, Meta(ge=-1, le=MAX_TOKEN_ID)], "a whole number, -1 or more"),
    "repetition_detection": _passes(_Repetition, "an object of max_pattern_size, min_pattern_size and min_count"),
    "stream_interval": _passes(Annotated[int, Meta(ge=1, le=1024)], "a whole number from 1 to 1024"),
    "truncate_prompt_tokens": _passes(Annotated[int, Meta(ge=-1, le=MAX_TOKEN_ID)], "a whole number, -1 or more"),
    "truncation_side": _passes(Literal["left", "right"], '"left" or "right"'),
    "add_special_tokens": _BOOLEAN,
    "response_format": _schema(_JSON_OBJECT, "an object"),
    "length_penalty": Drops("acts on beam search only, and beam search is refused"),
    "store": Drops("vLLM stores no completions"),
    "prediction": Drops("a hint for speed that vLLM ignores"),
    "use_beam_search": Refuses("Beam search is not enabled on this deployment. Use n and sampling instead."),
    "best_of": Refuses("best_of is not supported. Use n.", frozenset({b"1"})),
    # Computing them reads no prefix cache (vllm/sampling_params.py, skip_reading_prefix_cache), at everybody's cost.
    "prompt_logprobs": Refuses("prompt_logprobs is not enabled on this deployment. Leave it out."),
    # The prompt as the engine renders it is not handed out.
    "return_token_ids": Refuses("return_token_ids is not enabled on this deployment. Leave it out."),
    "return_prompt_text": Refuses("return_prompt_text is not enabled on this deployment. Leave it out."),
    # A tensor to deserialise (vllm/renderers/embed_utils.py).
    "prompt_embeds": Refuses("prompt_embeds is not enabled on this deployment. Send the prompt as text or token ids."),
}

_TEMPLATE: Final[Mapping[str, Rule]] = {
    "chat_template_kwargs": _passes(
        _ThinkingSwitches, "an object of enable_thinking, thinking, preserve_thinking or clear_thinking, true or false"
    ),
    # A template is a program that would run in the engine.
    "chat_template": Refuses("chat_template is not enabled on this deployment. The model's own template is used."),
    "documents": Refuses("documents is not enabled on this deployment. Put the texts into a message."),
}

# Media. An engine's caches of media know no salt (vllm/v1/core/encoder_cache_manager.py), a part's `uuid` is taken as
# its content's identity, and URLs are fetched from inside the network.

_NO_MEDIA: Final = "Media are not enabled on this deployment. Send text parts only."
_MEDIA_MEMBERS: Final = frozenset(
    {
        "image_url",
        "input_image",
        "image_pil",
        "image_embeds",
        "audio_url",
        "input_audio",
        "audio_embeds",
        "video_url",
        "video_embeds",
        "prompt_embeds",
    }
)
_MEDIA: Final[Mapping[str, str]] = dict.fromkeys(
    (
        *_MEDIA_MEMBERS,
        "image",
        "audio",
        "video",
        "input_video",
        "file",
        "input_file",
        "document",
        "container_upload",
        "computer_screenshot",
    ),
    _NO_MEDIA,
)


def _texts(*types: str) -> Mapping[str, Shape]:
    return {name: Shape(frozenset({"type", "text"}), text="text") for name in types}


# Chat. The part types that vLLM reads as text (vllm/renderers/chat_utils.py, TEXT_PART_TYPES); it hands members that it
# does not know to the chat template, so none but the listed pass.

_CHAT_PARTS: Final = Opens(
    tag="type",
    shapes={
        **_texts("text", "input_text", "output_text"),
        "refusal": Shape(frozenset({"type", "refusal"}), text="refusal"),
        "thinking": Shape(frozenset({"type", "thinking", "closed"}), text="thinking"),
        "tool_reference": Shape(frozenset({"type", "name"}), text="name"),
    },
    or_text=True,
    refused=_MEDIA,
    signs=_MEDIA_MEMBERS,
)
_TOOL_CALLS: Final = Opens(
    tag="type",
    shapes={"function": Shape(frozenset({"id", "type", "function"}))},
    untagged="function",
)
_CHAT_MESSAGE: Final = Shape(
    frozenset(
        {
            "role",
            "content",
            "name",
            "tool_calls",
            "tool_call_id",
            "reasoning",
            "reasoning_content",
            "refusal",
            "task",
        }
    ),
    opens={"content": _CHAT_PARTS, "tool_calls": _TOOL_CALLS},
)
_CHAT: Final[Mapping[str, Rule]] = {
    **_GENERATION,
    **_TEMPLATE,
    "messages": Opens(
        tag="role",
        shapes=dict.fromkeys(("system", "developer", "user", "assistant", "tool"), _CHAT_MESSAGE),
        # vLLM reads them from a developer's message, and nobody would have bounded them.
        refused={"tools": "Send tools beside messages, not in one."},
        signs=frozenset({"tools"}),
    ),
    "tools": Opens(
        tag="type",
        shapes={"function": Shape(frozenset({"type", "function", "defer_loading"}))},
        untagged="function",
        schema_bytes=MAX_TOOLS_BYTES,
    ),
    "tool_choice": _passes(
        Literal["none", "auto", "required"] | _ChatToolChoice, '"none", "auto", "required" or a function\'s name'
    ),
    "parallel_tool_calls": _BOOLEAN,
    "max_completion_tokens": _COUNT,
    "logprobs": _BOOLEAN,
    "top_logprobs": _passes(
        Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)], f"a whole number from 0 to {MAX_TOP_LOGPROBS}"
    ),
    "reasoning_effort": _passes(Annotated[str, Meta(max_length=16)], "a level such as low, medium or high"),
    "include_reasoning": _BOOLEAN,
    "add_generation_prompt": _BOOLEAN,
    "continue_final_message": _BOOLEAN,
    # vLLM computes prompt logprobs for it, with all that this costs (chat_completion/protocol.py, to_sampling_params).
    "echo": Refuses("echo is not enabled on this deployment. You have the message that you sent."),
    "functions": Refuses("functions is not supported. Use tools."),
    "function_call": Refuses("function_call is not supported. Use tool_choice.", frozenset({b'"none"', b'"auto"'})),
    "audio": Refuses(_NO_MEDIA),
    "modalities": Refuses(_NO_MEDIA, frozenset({b'["text"]'})),
    "web_search_options": Refuses("Built-in tools are not enabled on this deployment. Leave web_search_options out."),
}

# Completions.

_COMPLETIONS: Final[Mapping[str, Rule]] = {
    **_GENERATION,
    "prompt": Prompts(MAX_PROMPTS),
    "suffix": _TEXT,
    "echo": _BOOLEAN,
    "logprobs": _passes(
        Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)], f"a whole number from 0 to {MAX_TOP_LOGPROBS}"
    ),
}

# Embeddings: the form with `input`; the chat forms would be a second door for messages.

_EMBEDDINGS: Final[Mapping[str, Rule]] = {
    **_NOT_THE_CLIENTS,
    "input": Prompts(MAX_INPUTS),
    "messages": Refuses("messages is not enabled for embeddings. Use input."),
    "encoding_format": _passes(Literal["float", "base64"], '"float" or "base64"'),
    "dimensions": _passes(Annotated[int, Meta(ge=1, le=1_000_000)], "a whole number, 1 or more"),
    "truncate_prompt_tokens": _passes(Annotated[int, Meta(ge=-1, le=MAX_TOKEN_ID)], "a whole number, -1 or more"),
    "truncation_side": _passes(Literal["left", "right"], '"left" or "right"'),
    "padding": _passes(Literal["max_length", "do_not_pad"], '"max_length" or "do_not_pad"'),
    "add_special_tokens": _BOOLEAN,
    "use_activation": _BOOLEAN,
    "embed_dtype": _passes(
        Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"], "a type such as float32 or float16"
    ),
    "endianness": _passes(Literal["native", "big", "little"], '"native", "big" or "little"'),
    "normalize": Refuses("vLLM removed normalize. Use use_activation."),
    "task": Refuses("task is not supported. Leave it out.", frozenset({b'"embed"'})),
}

# Responses.

_RESPONSES_OUTPUT: Final = Opens(
    tag="type", shapes=_texts("input_text"), or_text=True, refused=_MEDIA, signs=_MEDIA_MEMBERS
)
_NO_STORE: Final = "This deployment keeps no responses. Send the earlier items in input."
_RESPONSES_ITEMS: Final[Mapping[str, Shape]] = {
    "message": Shape(
        frozenset({"type", "id", "role", "content", "status"}),
        one_of={"role": frozenset({"system", "developer", "user", "assistant"})},
        opens={
            "content": Opens(
                tag="type",
                shapes={
                    **_texts("input_text", "output_text"),
                    "refusal": Shape(frozenset({"type", "refusal"}), text="refusal"),
                },
                or_text=True,
                refused=_MEDIA,
                signs=_MEDIA_MEMBERS,
            )
        },
    ),
    "reasoning": Shape(
        frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
        opens={
            "summary": Opens(tag="type", shapes=_texts("summary_text")),
            "content": Opens(tag="type", shapes=_texts("reasoning_text")),
        },
    ),
    "function_call": Shape(frozenset({"type", "id", "call_id", "name", "arguments", "status"})),
    "function_call_output": Shape(
        frozenset({"type", "id", "call_id", "output", "status"}), opens={"output": _RESPONSES_OUTPUT}
    ),
    "custom_tool_call": Shape(frozenset({"type", "id", "call_id", "name", "input"})),
    "custom_tool_call_output": Shape(
        frozenset({"type", "id", "call_id", "output"}), opens={"output": _RESPONSES_OUTPUT}
    ),
}
_RESPONSES: Final[Mapping[str, Rule]] = {
    **_NOT_THE_CLIENTS,
    **_FURTHER_SAMPLING,
    **_TEMPLATE,
    "input": Opens(
        tag="type",
        shapes=_RESPONSES_ITEMS,
        untagged="message",
        or_text=True,
        refused={**_MEDIA, "item_reference": _NO_STORE},
        signs=_MEDIA_MEMBERS,
    ),
    "instructions": _TEXT,
    # Only what the caller runs: other tools would run in the engine's network (vllm/entrypoints/mcp/tool_server.py).
    "tools": Opens(
        tag="type",
        shapes={
            "function": Shape(frozenset({"type", "name", "description", "parameters", "strict", "defer_loading"})),
            "custom": Shape(frozenset({"type", "name", "description", "format"})),
        },
        schema_bytes=MAX_TOOLS_BYTES,
    ),
    "tool_choice": _passes(
        Literal["none", "auto", "required"] | _ResponsesToolChoice, '"none", "auto", "required" or a function\'s name'
    ),
    "parallel_tool_calls": _BOOLEAN,
    "max_tool_calls": _COUNT,
    "max_output_tokens": _COUNT,
    "include": _passes(
        list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]],
        "an array of message.output_text.logprobs or reasoning.encrypted_content",
    ),
    "include_reasoning": _BOOLEAN,
    "reasoning": _passes(_Reasoning, "an object with effort and summary"),
    "text": _schema(_JSON_OBJECT, "an object"),
    "top_logprobs": _passes(
        Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)], f"a whole number from 0 to {MAX_TOP_LOGPROBS}"
    ),
    "truncation": _passes(Literal["auto", "disabled"], '"auto" or "disabled"'),
    # vLLM's store knows no owner: any client could read, continue or overwrite by id (responses/serving.py).
    "store": Drops("sent as false; nothing is stored, as vLLM does by default"),
    "stream_options": Drops("obfuscation and the like, which vLLM has not"),
    "previous_response_id": Refuses(_NO_STORE),
    "conversation": Refuses(_NO_STORE),
    "previous_input_messages": Refuses(_NO_STORE),
    "background": Refuses("background is not enabled on this deployment. Use stream."),
    "prompt": Refuses("Prompt templates are not supported. Send the text in input and instructions."),
    "enable_response_messages": Refuses("enable_response_messages is not enabled on this deployment. Leave it out."),
}

# Messages. vLLM turns blocks into chat parts (vllm/entrypoints/anthropic/serving.py).

_RESULT_BLOCKS: Final = Opens(
    tag="type",
    shapes={**_texts("text"), "tool_reference": Shape(frozenset({"type", "tool_name", "name"}))},
    or_text=True,
    refused=_MEDIA,
    signs=_MEDIA_MEMBERS,
)
_MESSAGES_MESSAGE: Final = Shape(
    frozenset({"role", "content"}),
    opens={
        "content": Opens(
            tag="type",
            shapes={
                **_texts("text"),
                "thinking": Shape(frozenset({"type", "thinking", "signature"}), text="thinking"),
                "redacted_thinking": Shape(frozenset({"type", "data"})),
                "tool_use": Shape(frozenset({"type", "id", "name", "input"})),
                "tool_result": Shape(
                    frozenset({"type", "tool_use_id", "content", "is_error"}), opens={"content": _RESULT_BLOCKS}
                ),
                "tool_reference": Shape(frozenset({"type", "tool_name", "name"})),
            },
            or_text=True,
            refused=_MEDIA,
            signs=_MEDIA_MEMBERS,
        )
    },
)
_MESSAGES: Final[Mapping[str, Rule]] = {
    **_NOT_THE_CLIENTS,
    **_SAMPLING,
    **_TEMPLATE,
    "messages": Opens(tag="role", shapes=dict.fromkeys(("user", "assistant", "system"), _MESSAGES_MESSAGE)),
    "system": Opens(tag="type", shapes=_texts("text"), or_text=True, refused=_MEDIA, signs=_MEDIA_MEMBERS),
    "max_tokens": _passes(Annotated[int, Meta(ge=1, le=MAX_TOKEN_ID)], "a whole number, 1 or more"),
    "stop_sequences": _passes(_StopTexts, "up to 16 strings"),
    # A tool with a type of its own is one of Anthropic's, which vLLM has not.
    "tools": Opens(
        tag="type",
        shapes={"custom": Shape(frozenset({"type", "name", "description", "input_schema", "strict", "defer_loading"}))},
        untagged="custom",
        schema_bytes=MAX_TOOLS_BYTES,
    ),
    "tool_choice": _passes(_MessagesToolChoice, "an object whose type is auto, any, tool or none"),
    "thinking": _passes(_Thinking, "an object whose type is enabled, disabled or adaptive"),
    "output_config": _schema(_JSON_OBJECT, "an object"),
    "context_management": Drops("edits of old turns, which vLLM does not make: the model sees them all"),
    "inference_geo": Drops("vLLM ignores it"),
    "speed": Drops("vLLM ignores it"),
    "container": Refuses("Containers are not supported. Leave container out."),
    "mcp_servers": Refuses("Built-in tools are not enabled on this deployment. Call MCP servers from your client."),
}


_FALSE: Final = b"false"

ENDPOINTS: Final = (
    Endpoint(Operation.CHAT, "POST", "/v1/chat/completions", Dialect.OPENAI, _CHAT, usage_on_demand=True),
    Endpoint(Operation.COMPLETIONS, "POST", "/v1/completions", Dialect.OPENAI, _COMPLETIONS, usage_on_demand=True),
    Endpoint(
        Operation.RESPONSES,
        "POST",
        "/v1/responses",
        Dialect.OPENAI,
        _RESPONSES,
        constants={"store": _FALSE, "background": _FALSE},
        id_prefix="resp_",
    ),
    Endpoint(Operation.MESSAGES, "POST", "/v1/messages", Dialect.ANTHROPIC, _MESSAGES, id_prefix=None),
    Endpoint(Operation.EMBEDDINGS, "POST", "/v1/embeddings", Dialect.OPENAI, _EMBEDDINGS, streams=False),
)
