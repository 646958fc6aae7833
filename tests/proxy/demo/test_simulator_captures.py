"""The simulator answers as the real engine did: the same members of the same kinds, the same events in the same frames.

The captures in tests/engine/captures are a real vLLM's; `make engine` checks that they are still true.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from tests.engine import endpoints
from tests.engine.endpoints import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Endpoint, Json, events

CAPTURES: Final = Path(endpoints.__file__).with_name("captures")

_STREAM: Final[Json] = {"stream": True}
_USAGE: Final[Json] = {"stream": True, "stream_options": {"include_usage": True}}
_TOOL: Final = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
_ASKED: Final[dict[str, tuple[Endpoint, Json]]] = {
    "chat.json": (CHAT, {}),
    "chat.sse": (CHAT, _STREAM),
    "chat-usage.sse": (CHAT, _USAGE),
    "chat-continuous-usage.sse": (
        CHAT,
        {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    ),
    "chat-two-choices.sse": (CHAT, _USAGE | {"n": 2, "temperature": 1, "seed": 1}),
    # The real model's call was cut by its bound, so this one is as well.
    "chat-tool.sse": (
        CHAT,
        _USAGE
        | {
            "tools": [{"type": "function", "function": {"name": "answer", "parameters": _TOOL}}],
            "tool_choice": {"type": "function", "function": {"name": "answer"}},
            "max_tokens": 2,
        },
    ),
    "completions.json": (COMPLETIONS, {}),
    "completions.sse": (COMPLETIONS, _STREAM),
    "completions-usage.sse": (COMPLETIONS, _USAGE),
    "responses.json": (RESPONSES, {}),
    "responses.sse": (RESPONSES, _STREAM),
    "messages.json": (MESSAGES, {}),
    "messages.sse": (MESSAGES, _STREAM),
    "error-chat.json": (CHAT, {"model": "unknown"}),
    "error-messages.json": (MESSAGES, {"model": "unknown"}),
}


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with Simulator(EngineShape(pace=AT_ONCE)) as engine, aiohttp.ClientSession(engine.url) as client:
        yield client


@pytest.mark.parametrize("name", _ASKED)
async def test_an_answer_has_the_members_and_the_frames_of_the_real_engines(
    session: aiohttp.ClientSession, name: str
) -> None:
    endpoint, members = _ASKED[name]
    body = endpoint.body("the same words again and again " * 20) | {"cache_salt": "captured"} | members
    # Each capture is the second answer under its salt.
    _, simulated = [await _post(session, endpoint.path, body) for _ in range(2)]
    assert _outline(simulated) == _outline((CAPTURES / name).read_bytes())


def test_every_capture_is_compared() -> None:
    assert {path.name for path in CAPTURES.iterdir()} == set(_ASKED)


async def _post(session: aiohttp.ClientSession, path: str, body: Json) -> bytes:
    async with session.post(path, json=body) as answer:
        return await answer.read()


def _outline(answer: bytes) -> list[str]:
    """The kinds of event in the order of their first: the event's name, and its members in order with their kinds.

    Only of their first, because several choices overtake each other.
    """
    text = answer.decode()
    if text.startswith("{"):
        return _members(json.loads(text))
    return list(dict.fromkeys(f"{event.name}: {_data(event.data)}" for event in events(text)))


def _data(data: str) -> str:
    return data if data == "[DONE]" else " ".join(_members(json.loads(data)))


def _members(value: Any, path: str = "") -> list[str]:
    match value:
        case dict():
            return [inner for name, member in value.items() for inner in _members(member, f"{path}.{name}")]
        case list() if value:
            return [inner for item in value for inner in _members(item, f"{path}[]")]
        case _:
            return [f"{path}={_kind(value)}"]


def _kind(value: Any) -> str:
    match value:
        case None | bool():
            return json.dumps(value)
        case int() | float():
            return "number"
        case str():
            return "text"
        case _:
            return "empty list"
