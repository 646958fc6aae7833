"""A request body read as vLLM 0.32 reads it, into what the engine is asked to do.

As lenient as the original, so that a gate which relies on the engine's strictness is caught: `json.loads` of the raw
bytes (the last of two members wins, any of the Unicode encodings, NaN), unknown members ignored, `"stream": "yes"` a
stream. As strict as the original with the salt (vllm/entrypoints/generate/base/protocol.py, `validate_cache_salt`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from proxy.demo.simulator.shape import Endpoint, EngineShape
from proxy.demo.simulator.tokens import Message, Prompt, chat_prompt, mark, tokenize


class EngineError(Exception):
    """An answer that is an error: HTTP status, message, vLLM's `type`, and the member at fault."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param


class UnparsableBody(Exception):  # noqa: N818 - named for what it is
    """The body is no JSON object; answered by FastAPI itself, before vLLM sees it."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The one call that the simulator makes when the request demands one. `named` tells whether it demanded this
    tool.
    """

    name: str
    arguments: str
    named: bool


@dataclass(frozen=True, slots=True)
class Order:
    """What the engine is asked to do. `model` and `adapter` are the hash's; `served` is the name that the client used.

    `max_tokens` is None where the client set no bound. `dimensions`, `base64` matter to embeddings only.
    """

    endpoint: Endpoint
    served: str
    model: str
    adapter: str | None
    salt: str | None
    prompts: tuple[Prompt, ...]
    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    reads_cache: bool = True
    tool_call: ToolCall | None = None
    base64: bool = False
    request_id: str | None = None


def parse_body(raw: bytes) -> Mapping[str, object]:
    """The members of the body's object. Raises UnparsableBody."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UnparsableBody from error
    if not isinstance(document, dict):
        raise UnparsableBody
    return document


def salt_of(body: Mapping[str, object]) -> str | None:
    """The salt that the body carries, whether it is valid or not; None where it carries no text."""
    salt = body.get("cache_salt")
    return salt if isinstance(salt, str) else None


def read_order(endpoint: Endpoint, body: Mapping[str, object], shape: EngineShape) -> Order:
    """What `body` asks of an engine of this shape. Raises EngineError with vLLM's status and words."""
    salt = _valid_salt(endpoint, body)
    served = _served(body, shape)
    adapter = served if served in shape.adapters else None
    stream = _flag(body, "stream")
    include_usage, continuous = _stream_options(endpoint, body, stream=stream)
    _refuse_stored_responses(endpoint, body)
    prompts = _prompts(endpoint, body)
    for prompt in prompts:
        _fits(len(prompt), shape)
    return Order(
        endpoint=endpoint,
        served=served,
        model=shape.adapters.get(served, served),
        adapter=adapter,
        salt=salt,
        prompts=prompts,
        n=_count(body, "n", default=1, most=_MOST_SEQUENCES) if endpoint in _SAMPLES else 1,
        max_tokens=_max_tokens(endpoint, body),
        min_tokens=_number(body, "min_tokens") or 0,
        ignore_eos=_flag(body, "ignore_eos"),
        stream=stream,
        include_usage=include_usage,
        continuous_usage=continuous,
        # vllm/v1/request.py: prompt logprobs need every token computed.
        reads_cache=body.get("prompt_logprobs") is None,
        tool_call=_tool_call(endpoint, body),
        base64=body.get("encoding_format") == "base64",
        request_id=_optional_text(body, "request_id"),
    )


def _valid_salt(endpoint: Endpoint, body: Mapping[str, object]) -> str | None:
    salt = body.get("cache_salt")
    if salt is None:
        return None
    if not isinstance(salt, str) or not salt:
        raise EngineError("Parameter 'cache_salt' must be a non-empty string if provided.", param="cache_salt")
    if any("\ud800" <= character <= "\udfff" for character in salt):
        raise EngineError(
            "Input should be a valid string, unable to parse raw data as a unicode string", param="cache_salt"
        )
    if len(salt) > _LONGEST_SALT or not _FORBIDDEN_IN_SALT.isdisjoint(salt):
        # /v1/messages checks at conversion and echoes the value.
        echo = f", 'input': {salt!r}" if endpoint is Endpoint.MESSAGES else ""
        raise EngineError(
            "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\', or NUL." + echo,
            param="cache_salt",
        )
    return salt


def _served(body: Mapping[str, object], shape: EngineShape) -> str:
    model = body.get("model")
    if model is None:
        return shape.models[0]
    if not isinstance(model, str):
        raise EngineError("Input should be a valid string", param="model")
    if model not in shape.models and model not in shape.adapters:
        raise EngineError(f"The model `{model}` does not exist.", status=404, kind="NotFoundError", param="model")
    return model


def _stream_options(endpoint: Endpoint, body: Mapping[str, object], *, stream: bool) -> tuple[bool, bool]:
    """Whether usage is asked for, and whether on each chunk. On /v1/messages vLLM always asks for both itself."""
    options = body.get("stream_options")
    if endpoint not in (Endpoint.CHAT, Endpoint.COMPLETIONS) or options is None:
        return False, False
    if not isinstance(options, dict):
        raise EngineError("Input should be a valid dictionary", param="stream_options")
    if not stream:
        raise EngineError("Stream options can only be defined when `stream=True`.", param="stream_options")
    include_usage = "include_usage" not in options or _flag(options, "include_usage")
    return include_usage, include_usage and _flag(options, "continuous_usage_stats")


def _refuse_stored_responses(endpoint: Endpoint, body: Mapping[str, object]) -> None:
    if endpoint is not Endpoint.RESPONSES:
        return
    if _flag(body, "background"):
        raise EngineError(
            "This vLLM engine does not support `store=True` and therefore does not support the background mode.",
            kind="invalid_request_error",
            param="background",
        )
    previous = body.get("previous_response_id")
    if previous is not None:
        raise EngineError(
            f"Response with id '{previous}' not found.", status=404, kind="invalid_request_error", param="response_id"
        )


def _prompts(endpoint: Endpoint, body: Mapping[str, object]) -> tuple[Prompt, ...]:
    match endpoint:
        case Endpoint.CHAT:
            return (chat_prompt([*_tool_list(body), *_messages(body, "messages")]),)
        case Endpoint.MESSAGES:
            return (chat_prompt([*_tool_list(body), *_system(body, "system"), *_messages(body, "messages")]),)
        case Endpoint.RESPONSES:
            return (chat_prompt([*_tool_list(body), *_system(body, "instructions"), *_input(body)]),)
        case Endpoint.COMPLETIONS:
            return _text_prompts(body, "prompt")
        case Endpoint.EMBEDDINGS if "messages" in body:
            return (chat_prompt(_messages(body, "messages")),)
        case Endpoint.EMBEDDINGS:
            return _text_prompts(body, "input")


def _messages(body: Mapping[str, object], member: str) -> list[Message]:
    items = body.get(member)
    if not isinstance(items, list) or not items:
        raise EngineError("Input should be a valid list", param=member)
    return [_message(item, member) for item in items]


def _message(item: object, member: str) -> Message:
    if not isinstance(item, dict):
        raise EngineError("Input should be a valid dictionary", param=member)
    role = item.get("role", item.get("type"))
    if not isinstance(role, str) or not role:
        raise EngineError("Field required", param=f"{member}.role")
    said = item.get("content", item.get("output", item.get("arguments")))
    calls = item.get("tool_calls")
    return Message(role, _said(said) + (_compact(calls) if calls else ""))


def _said(content: object) -> str:
    """All that a message says, as one text. What is no text counts by its own bytes, so other media never look the
    same.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise EngineError("Input should be a valid string or list", param="content")
    return "".join(_part(part) for part in content)


def _part(part: object) -> str:
    if isinstance(part, dict):
        text = part.get("text")
        if isinstance(text, str):
            return text
    return part if isinstance(part, str) else _compact(part)


def _system(body: Mapping[str, object], member: str) -> list[Message]:
    system = body.get(member)
    return [] if system is None else [Message("system", _said(system))]


def _input(body: Mapping[str, object]) -> list[Message]:
    given = body.get("input")
    return [Message("user", given)] if isinstance(given, str) else _messages(body, "input")


def _tool_list(body: Mapping[str, object]) -> list[Message]:
    tools = body.get("tools")
    return [Message("tools", _compact(tools))] if tools else []


def _text_prompts(body: Mapping[str, object], member: str) -> tuple[Prompt, ...]:
    """The four forms of OpenAI's `prompt` and `input`: a text, several, token ids, several of those."""
    given = body.get(member)
    several = isinstance(given, list) and bool(given) and not all(_is_number(item) for item in given)
    prompts = tuple(_text_prompt(item, member) for item in (given if isinstance(given, list) and several else [given]))
    if not all(prompts):
        raise EngineError("Either prompt or prompt_embeds must be provided and non-empty.", param=member)
    return prompts


def _text_prompt(item: object, member: str) -> Prompt:
    if isinstance(item, str):
        return tokenize(item)
    if isinstance(item, list) and all(_is_number(number) for number in item):
        return tuple(mark(f"id:{number}") for number in item)
    raise EngineError("Input should be a string, a list of strings, or token ids", param=member)


def _fits(length: int, shape: EngineShape) -> None:
    if length >= shape.max_model_len:
        raise EngineError(
            f"This model's maximum context length is {shape.max_model_len} tokens. "
            f"However, your request has {length} input tokens.",
            param="input_tokens",
        )


def _max_tokens(endpoint: Endpoint, body: Mapping[str, object]) -> int | None:
    names: tuple[str, ...] = ("max_tokens",)
    match endpoint:
        case Endpoint.CHAT:
            names = ("max_completion_tokens", "max_tokens")
        case Endpoint.RESPONSES:
            names = ("max_output_tokens",)
        case Endpoint.MESSAGES if body.get("max_tokens") is None:
            raise EngineError("Field required", param="max_tokens")
        case _:
            pass
    for name in names:
        bound = _number(body, name)
        if bound is not None and bound < 1:
            raise EngineError(f"{name} must be at least 1, got {bound}.", param=name)
        if bound is not None:
            return bound
    # OpenAI's default for completions, kept by vLLM.
    return 16 if endpoint is Endpoint.COMPLETIONS else None


def _tool_call(endpoint: Endpoint, body: Mapping[str, object]) -> ToolCall | None:
    """The call that the request demands: "required" and Anthropic's "any" get the first tool, a name gets that tool."""
    tools, choice = body.get("tools"), body.get("tool_choice")
    if endpoint not in _CALLS or not isinstance(tools, list) or choice is None:
        return None
    functions = [_function(tool) for tool in tools if isinstance(tool, dict)]
    wanted = _wanted_tool(choice)
    if wanted is None:
        return None
    for function in functions:
        name = function.get("name")
        if isinstance(name, str) and wanted in ("", name):
            schema = function.get("parameters", function.get("input_schema"))
            return ToolCall(name, _compact(_arguments(schema)), named=wanted != "")
    raise EngineError(
        "The tool specified in `tool_choice` does not match any of the specified `tools`", param="tool_choice"
    )


def _wanted_tool(choice: object) -> str | None:
    """The name of the tool that must be called; "" for any; None where the model may answer in words."""
    if isinstance(choice, dict):
        name = _function(choice).get("name")
        if isinstance(name, str):
            return name
        choice = choice.get("type")
    return "" if choice in ("required", "any") else None


def _function(tool: Mapping[str, object]) -> Mapping[str, object]:
    function = tool.get("function")
    return function if isinstance(function, dict) else tool


def _arguments(schema: object) -> dict[str, object]:
    """Arguments that fit a plain schema: one fixed value for each required property."""
    if not isinstance(schema, dict):
        return {}
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    return {name: _argument(properties.get(name)) for name in required if isinstance(name, str)}


def _argument(schema: object) -> object:
    if not isinstance(schema, dict):
        return None
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    kind = schema.get("type")
    return _FIXED_ARGUMENTS.get(kind) if isinstance(kind, str) else None


def _flag(body: Mapping[str, object], member: str) -> bool:
    """A boolean as pydantic's lax mode reads it."""
    value = body.get(member)
    if value is None or isinstance(value, bool):
        return bool(value)
    word = value.strip().lower() if isinstance(value, str) else value
    if word in _TRUE_WORDS or word in _FALSE_WORDS:
        return word in _TRUE_WORDS
    raise EngineError("Input should be a valid boolean, unable to interpret input", param=member)


def _number(body: Mapping[str, object], member: str) -> int | None:
    value = body.get(member)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise EngineError("Input should be a valid integer", param=member)


def _count(body: Mapping[str, object], member: str, *, default: int, most: int) -> int:
    value = _number(body, member)
    if value is None:
        return default
    if not 1 <= value <= most:
        raise EngineError(f"{member} must be between 1 and {most}, got {value}.", param=member)
    return value


def _optional_text(body: Mapping[str, object], member: str) -> str | None:
    value = body.get(member)
    return value if isinstance(value, str) else None


def _is_number(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


_LONGEST_SALT: Final = 128
_FORBIDDEN_IN_SALT: Final = frozenset("@/\\\0")
_MOST_SEQUENCES: Final = 16_384
_SAMPLES: Final = frozenset({Endpoint.CHAT, Endpoint.COMPLETIONS})
_CALLS: Final = frozenset({Endpoint.CHAT, Endpoint.RESPONSES, Endpoint.MESSAGES})
_TRUE_WORDS: Final[Sequence[object]] = ("true", "1", "yes", "on", "t", "y", 1)
_FALSE_WORDS: Final[Sequence[object]] = ("false", "0", "no", "off", "f", "n", 0)
_FIXED_ARGUMENTS: Final[Mapping[str, object]] = {
    "string": "saltgate",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
}
