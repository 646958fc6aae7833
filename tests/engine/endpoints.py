"""The endpoints that carry a salt, each in its own form: how a prompt is asked, how an answer tells what was reused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.engine.server import MODEL

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event: its `event` field, "" where there is none, and its data."""

    name: str
    data: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer, whatever the endpoint calls them. `prompt` is all of it, the reused part included."""

    prompt: int
    reused: int
    output: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint. `ask` makes a body without a salt; `document` picks, from a stream, what holds the usage."""

    name: str
    path: str
    ask: Callable[[str, int], Json]
    stream_members: Json
    usage_of: Callable[[Json], Usage]
    document: Callable[[list[Event]], Json]

    def body(self, prompt: str, *, max_tokens: int = 4, stream: bool = False) -> Json:
        """A request for `prompt`, without a salt; streaming, it asks for the usage where that must be asked for."""
        return self.ask(prompt, max_tokens) | (self.stream_members if stream else {})

    def usage(self, answer: bytes) -> Usage:
        """What an answer's body says, a JSON document or a whole stream."""
        text = answer.decode()
        return self.usage_of(json.loads(text) if text.startswith("{") else self.document(events(text)))


def events(text: str) -> list[Event]:
    """The events of a whole stream, in order. Raises ValueError where it ends inside one."""
    *blocks, rest = text.split("\n\n")
    if rest:
        raise ValueError(f"the stream ends inside an event: {rest!r}")
    return [_event(block) for block in blocks]


def _event(block: str) -> Event:
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    return Event(fields.get("event", ""), fields["data"])


def _chat(prompt: str, max_tokens: int) -> Json:
    messages = [{"role": "user", "content": prompt}]
    return {"model": MODEL, "messages": messages, "max_tokens": max_tokens, "temperature": 0}


def _completion(prompt: str, max_tokens: int) -> Json:
    return {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}


def _response(prompt: str, max_tokens: int) -> Json:
    return {"model": MODEL, "input": prompt, "max_output_tokens": max_tokens, "temperature": 0}


def _openai_usage(answer: Json) -> Usage:
    usage = answer["usage"]
    return Usage(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"])


def _responses_usage(answer: Json) -> Usage:
    usage = answer["usage"]
    return Usage(usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"])


def _messages_usage(answer: Json) -> Usage:
    """The one form whose `input_tokens` is what is left of the prompt after both kinds of cached tokens."""
    usage = answer["usage"]
    reused = usage["cache_read_input_tokens"]
    prompt = usage["input_tokens"] + usage["cache_creation_input_tokens"] + reused
    return Usage(prompt, reused, usage["output_tokens"])


def _usage_chunk(stream: list[Event]) -> Json:
    (chunk,) = (c for c in _chunks(stream) if c["choices"] == [] and "usage" in c)
    return chunk


def _completed_response(stream: list[Event]) -> Json:
    (last,) = (json.loads(event.data) for event in stream if event.name == "response.completed")
    response: Json = last["response"]
    return response


def _message_delta(stream: list[Event]) -> Json:
    (delta,) = (json.loads(event.data) for event in stream if event.name == "message_delta")
    return dict(delta)


def _chunks(stream: list[Event]) -> list[Json]:
    return [json.loads(event.data) for event in stream if event.data != "[DONE]"]


_WITH_USAGE: Final[Json] = {"stream": True, "stream_options": {"include_usage": True}}
_STREAM: Final[Json] = {"stream": True}

CHAT: Final = Endpoint("chat", "/v1/chat/completions", _chat, _WITH_USAGE, _openai_usage, _usage_chunk)
COMPLETIONS: Final = Endpoint("completions", "/v1/completions", _completion, _WITH_USAGE, _openai_usage, _usage_chunk)
RESPONSES: Final = Endpoint("responses", "/v1/responses", _response, _STREAM, _responses_usage, _completed_response)
MESSAGES: Final = Endpoint("messages", "/v1/messages", _chat, _STREAM, _messages_usage, _message_delta)
SALTED: Final = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
