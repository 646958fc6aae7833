"""The forms of values that several kinds share: how a token is drawn, how long an answer is, what a tool choice is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from config.settings import EngineLimits
from proxy.engines.extent import MAX_PATTERN_CHARACTERS, Extent
from proxy.engines.rules import MAX_TOKEN_ID, Passes, Refuses, Rule, Schema

if TYPE_CHECKING:
    from typing_extensions import TypeForm


def passes(form: TypeForm[object], must_be: str) -> Passes:
    return Passes(msgspec.json.Decoder(form), must_be)


def whole(least: int, most: int) -> Passes:
    """A whole number from `least` to `most`."""
    if most >= MAX_TOKEN_ID:
        return passes(Annotated[int, Meta(ge=least, le=most)], f"a whole number, {least} or more")
    return passes(Annotated[int, Meta(ge=least, le=most)], f"a whole number from {least} to {most}")


def number(least: float, most: float) -> Passes:
    """A number from `least` to `most`."""
    return passes(Annotated[float, Meta(ge=least, le=most)], f"a number from {least:g} to {most:g}")


TokenCount = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
_TokenIds = Annotated[list[TokenCount], Meta(max_length=1024)]
_StopText = Annotated[str, Meta(max_length=1024)]

BOOLEAN: Final = passes(bool, "true or false")
TEXT: Final = passes(str, "a string")
COUNT: Final = whole(0, MAX_TOKEN_ID)
TOKEN_IDS: Final = passes(_TokenIds, "up to 1024 token ids")
SEED: Final = passes(Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)], "a 64-bit whole number")
PENALTY: Final = number(-2, 2)
TOP_K: Final = whole(-1, MAX_TOKEN_ID)
TRUNCATION: Final[Mapping[str, Rule]] = {
    "truncate_prompt_tokens": whole(-1, MAX_TOKEN_ID),
    "truncation_side": passes(Literal["left", "right"], '"left" or "right"'),
}
LOGIT_BIAS: Final = passes(
    Annotated[dict[str, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=1024)],
    "an object of up to 1024 numbers from -100 to 100",
)
EFFORT: Final = passes(Annotated[str, Meta(max_length=16)], "a level such as low, medium or high")

# OpenAI's own three; each engine has these bounds, or none.
SAMPLING: Final[Mapping[str, Rule]] = {"temperature": number(0, 2), "top_p": number(0, 1), "top_k": TOP_K}


def answer_tokens(limits: EngineLimits, *, least: int = 0) -> Passes:
    return whole(least, limits.max_tokens or MAX_TOKEN_ID)


def stop(limits: EngineLimits) -> Passes:
    texts = Annotated[list[_StopText], Meta(max_length=limits.stop)]
    return passes(_StopText | texts, f"a string, or up to {limits.stop} strings")


def stops(limits: EngineLimits) -> Passes:
    return passes(Annotated[list[_StopText], Meta(max_length=limits.stop)], f"up to {limits.stop} strings")


def schema_extent(limits: EngineLimits) -> Extent:
    return Extent(limits.schema_bytes, limits.schema_depth, in_texts=True)


def tools_extent(limits: EngineLimits) -> Extent:
    return Extent(limits.tools_bytes, limits.schema_depth)


def schema(form: TypeForm[object], must_be: str, limits: EngineLimits, *format_at: str) -> Schema:
    return Schema(msgspec.json.Decoder(form), must_be, schema_extent(limits), format_at)


_Name = Annotated[str, Meta(max_length=256)]
_Level = Annotated[str, Meta(max_length=32)]


class _JSONSchema(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name | None = None
    description: str | None = None
    schema: object = None
    strict: bool | None = None


class _StructuralTag(msgspec.Struct, forbid_unknown_fields=True):
    begin: str
    end: str
    schema: object = None


class _ResponseFormat(msgspec.Struct, forbid_unknown_fields=True):
    """OpenAI's, and beside it what vLLM (LegacyStructuralTagResponseFormat, StructuralTagResponseFormat) and
    TensorRT-LLM (ResponseFormat) read; `schema` beside the type also comes from SDKs of other providers.
    """

    type: _Level
    json_schema: _JSONSchema | None = None
    schema: object = None
    structures: list[_StructuralTag] | None = None
    triggers: list[str] | None = None
    format: object = None
    regex: str | None = None
    ebnf: str | None = None


class _TextFormat(msgspec.Struct, forbid_unknown_fields=True):
    type: _Level
    name: _Name | None = None
    description: str | None = None
    schema: object = None
    strict: bool | None = None


class _ResponsesText(msgspec.Struct, forbid_unknown_fields=True):
    format: _TextFormat | None = None
    verbosity: _Level | None = None


class _OutputFormat(msgspec.Struct, forbid_unknown_fields=True):
    type: _Level
    schema: object = None


class _TaskBudget(msgspec.Struct, forbid_unknown_fields=True):
    type: _Level
    total: TokenCount
    remaining: TokenCount | None = None


class _OutputConfig(msgspec.Struct, forbid_unknown_fields=True):
    effort: _Level | None = None
    format: _OutputFormat | None = None
    task_budget: _TaskBudget | None = None


def response_format(limits: EngineLimits) -> Schema:
    return schema(_ResponseFormat, "an object with a type, such as json_schema and that", limits, "type")


def responses_text(limits: EngineLimits) -> Schema:
    return schema(_ResponsesText, "an object of format and verbosity", limits, "format", "type")


def output_config(limits: EngineLimits) -> Schema:
    return schema(_OutputConfig, "an object of effort, format and task_budget", limits, "format", "type")


def regex(limits: EngineLimits) -> Schema:
    """Bounded further than other grammars: compiling it may cost much more than its length."""
    return schema(
        Annotated[str, Meta(max_length=MAX_PATTERN_CHARACTERS)], "a string of at most 4096 characters", limits
    )


def grammar(limits: EngineLimits) -> Schema:
    return schema(str, "a string", limits)


class _ThinkingSwitches(msgspec.Struct, forbid_unknown_fields=True):
    """The switches that published chat templates have. Anything else would hand a client's objects to a template."""

    enable_thinking: bool | None = None
    thinking: bool | None = None
    preserve_thinking: bool | None = None
    clear_thinking: bool | None = None


TEMPLATE: Final[Mapping[str, Rule]] = {
    "chat_template_kwargs": passes(
        _ThinkingSwitches, "an object of enable_thinking, thinking, preserve_thinking or clear_thinking, true or false"
    ),
    "chat_template": Refuses("chat_template is not enabled on this deployment. The model's own template is used."),
    "documents": Refuses("documents is not enabled on this deployment. Put the texts into a message."),
}


class _Function(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=256)]


class _ChatToolChoice(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["function"]
    function: _Function


class _ResponsesToolChoice(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["function", "custom"]
    name: Annotated[str, Meta(min_length=1, max_length=256)]


_TOOL_CHOICES: Final = '"none", "auto", "required" or a function\'s name'
CHAT_TOOL_CHOICE: Final = passes(Literal["none", "auto", "required"] | _ChatToolChoice, _TOOL_CHOICES)
RESPONSES_TOOL_CHOICE: Final = passes(Literal["none", "auto", "required"] | _ResponsesToolChoice, _TOOL_CHOICES)


class _Reasoning(msgspec.Struct, forbid_unknown_fields=True):
    """All that OpenAI's SDK has; engines read `effort`."""

    effort: _Level | None = None
    summary: _Level | None = None
    generate_summary: _Level | None = None
    context: _Level | None = None
    mode: _Level | None = None


REASONING: Final = passes(_Reasoning, "an object of effort, summary, generate_summary, context and mode")
