"""Reading an engine's answer: what was used, and what a client must not see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from proxy.engines.profile import Endpoint, Operation
from proxy.isolation.salt import Salt


class Usage(Struct, frozen=True):
    """Tokens of one request. `prompt` is the whole prompt, `reused` the part of it that came from the prefix cache, and
    `cache_written` the part that was put there; `reasoning` is a part of `output`.

    None is unknown, which is not zero: vLLM reports reuse only with --enable-prompt-tokens-details (always on
    /v1/responses), and no output where a stream has only begun.
    """

    prompt: int
    reused: int | None
    output: int | None
    cache_written: int | None = None
    reasoning: int | None = None


def read_usage(operation: Operation, body: bytes) -> Usage | None:
    """The usage that a whole answer tells; None where it tells none."""
    if operation not in _READERS:
        return None
    try:
        usage = _ANSWER.decode(body).usage
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if usage is UNSET else usage_of(operation, usage)


def usage_of(operation: Operation, member: bytes, begun: Usage | None = None) -> Usage | None:
    """The usage in an answer's or event's `usage` member; None where it does not tell the prompt. What a member of
    /v1/messages leaves out is as `begun`, which the stream told before: its last event need not repeat what its first
    one told (platform.claude.com/docs/en/build-with-claude/streaming).
    """
    try:
        told = _READERS[operation].decode(member)
    except (msgspec.DecodeError, RecursionError):
        return None
    return told.usage(begun) if isinstance(told, _MessagesUsage) else told.usage()


class UnreadableAnswer(Exception):  # noqa: N818 - a state of what an engine sent
    """An answer that is no JSON object."""


class SeenAnswer(Struct, frozen=True):
    """A whole answer as the client may see it, and what it tells of its usage."""

    body: bytes
    usage: Usage | None

    def __repr__(self) -> str:
        return f"SeenAnswer({len(self.body)} bytes, {self.usage!r})"


def read_answer(endpoint: Endpoint, body: bytes, *, show_reuse: bool) -> SeenAnswer:
    """The engine's own bytes, unless something in them has to be hidden, and the usage that they tell.

    Raises UnreadableAnswer for what is no JSON object: nobody knows what it would tell.
    """
    try:
        members = _MEMBERS.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableAnswer from error
    told = members.get("usage")
    usage = None if told is None or endpoint.operation not in _READERS else usage_of(endpoint.operation, told)
    kept = _without(members, endpoint.hides)
    hidden = len(kept) != len(members)
    choices = _clean_choices(endpoint, kept.get("choices"))
    if choices is not None:
        kept["choices"] = choices
        hidden = True
    shown = None if show_reuse or told is None else hide_reuse(endpoint.operation, told)
    if shown is not None:
        kept["usage"] = Raw(shown)
        hidden = True
    return SeenAnswer(_ENCODER.encode(kept) if hidden else body, usage)


def _clean_choices(endpoint: Endpoint, raw: Raw | None) -> Raw | None:
    """The choices without what is not the client's; None where there is nothing of that."""
    if raw is None or not endpoint.hides_in_choices:
        return None
    try:
        choices = _CHOICES.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    kept = [_without(choice, endpoint.hides_in_choices) for choice in choices]
    return None if list(map(len, kept)) == list(map(len, choices)) else Raw(_ENCODER.encode(kept))


def _without(members: dict[str, Raw], hidden: Mapping[str, str]) -> dict[str, Raw]:
    """The members less those that tell something hidden; null tells nothing, and is what engines mostly say there."""
    telling = [name for name in hidden.keys() & members if bytes(members[name]) != b"null"]
    return {name: raw for name, raw in members.items() if name not in telling} if telling else members


def hide_reuse(operation: Operation, member: bytes) -> bytes | None:
    """The `usage` member without reuse; None where it tells none already.

    Each member that tells reuse in one of the protocols goes, whatever else is there. /v1/responses demands the count,
    so it is 0 there. On /v1/messages `input_tokens` is then the whole prompt, which it otherwise tells only together
    with what was reused (vllm/entrypoints/anthropic/serving.py, _build_anthropic_usage); where that cannot be counted,
    it goes as well.
    """
    try:
        members = _MEMBERS.decode(member)
    except (msgspec.DecodeError, RecursionError):
        return None if bytes(member) == b"null" else b"null"  # what cannot be read tells nothing then
    telling = [name for name in _TELLS_REUSE if name in members and bytes(members[name]) != b"null"]
    if not telling:
        return None
    kept = {name: raw for name, raw in members.items() if name not in telling}
    if operation is Operation.RESPONSES:
        kept["input_tokens_details"] = _NOTHING_REUSED
    if operation is Operation.MESSAGES and "input_tokens" in kept:
        usage = usage_of(operation, member)
        if usage is None:
            del kept["input_tokens"]
        else:
            kept["input_tokens"] = Raw(b"%d" % usage.prompt)
    return _ENCODER.encode(kept)


_TELLS_REUSE: Final = (
    "prompt_tokens_details",
    "input_tokens_details",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_creation",
)
_NOTHING_REUSED: Final = Raw(b'{"cached_tokens":0,"cache_write_tokens":0}')


def holds_salt(salt: Salt, data: bytes) -> bool:
    """Whether an answer would tell the salt that protects it, or where it begins or ends (as a cut echo does)."""
    beginning, end = salt.marks
    # `in` first tries what is looked for as a number, and makes and drops an error for it.
    return data.find(beginning) >= 0 or data.find(end) >= 0


class _Answer(Struct):
    usage: Raw | UnsetType = UNSET


class _Cached(Struct):
    cached_tokens: int | None = None
    created_cache_tokens: int | None = None


class _Written(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Thought(Struct):
    reasoning_tokens: int | None = None


_NOT_TOLD: Final = _Cached()
_NOT_WRITTEN: Final = _Written()
_NOT_THOUGHT: Final = _Thought()


class _OpenAIUsage(Struct):
    """Chat, completions and embeddings (vllm/entrypoints/serve/engine/protocol.py, UsageInfo)."""

    prompt_tokens: int
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None
    completion_tokens_details: _Thought | None = None

    def usage(self) -> Usage:
        told = self.prompt_tokens_details or _NOT_TOLD
        thought = self.completion_tokens_details or _NOT_THOUGHT
        return Usage(
            self.prompt_tokens,
            told.cached_tokens,
            self.completion_tokens,
            told.created_cache_tokens,
            thought.reasoning_tokens,
        )


class _ResponsesUsage(Struct):
    """vllm/entrypoints/openai/responses/protocol.py, ResponseUsage."""

    input_tokens: int
    output_tokens: int | None = None
    input_tokens_details: _Written | None = None
    output_tokens_details: _Thought | None = None

    def usage(self) -> Usage:
        told = self.input_tokens_details or _NOT_WRITTEN
        thought = self.output_tokens_details or _NOT_THOUGHT
        return Usage(
            self.input_tokens, told.cached_tokens, self.output_tokens, told.cache_write_tokens, thought.reasoning_tokens
        )


class _MessagesUsage(Struct):
    """vllm/entrypoints/anthropic/protocol.py, AnthropicUsage: `input_tokens` leaves out what the cache gave or took."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    def usage(self, begun: Usage | None) -> Usage | None:
        computed, reused, written = self.input_tokens, self.cache_read_input_tokens, self.cache_creation_input_tokens
        output = self.output_tokens
        if begun is not None:
            computed = begun.prompt - (begun.reused or 0) - (begun.cache_written or 0) if computed is None else computed
            reused = begun.reused if reused is None else reused
            written = begun.cache_written if written is None else written
            output = begun.output if output is None else output
        return None if computed is None else Usage(computed + (reused or 0) + (written or 0), reused, output, written)


_ANSWER: Final = msgspec.json.Decoder(_Answer)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_CHOICES: Final = msgspec.json.Decoder(list[dict[str, Raw]])
_ENCODER: Final = msgspec.json.Encoder()
_READERS: Final[Mapping[Operation, msgspec.json.Decoder[_OpenAIUsage | _ResponsesUsage | _MessagesUsage]]] = {
    Operation.CHAT: msgspec.json.Decoder(_OpenAIUsage),
    Operation.COMPLETIONS: msgspec.json.Decoder(_OpenAIUsage),
    Operation.EMBEDDINGS: msgspec.json.Decoder(_OpenAIUsage),
    Operation.RESPONSES: msgspec.json.Decoder(_ResponsesUsage),
    Operation.MESSAGES: msgspec.json.Decoder(_MessagesUsage),
}
