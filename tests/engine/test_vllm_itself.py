"""What saltgate takes for granted about vLLM, asked of a real one. No gate is in between.

If one of these fails after a new vLLM, the profile in proxy/engines/ is what to look at: a salt that is no longer
carried is not an error that the engine reports, but an answer that came from somebody else's cache.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from pathlib import Path
from typing import Any, Final

import pytest

from tests.engine.client import EngineClient
from tests.engine.endpoints import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    SALTED,
    Endpoint,
    Json,
    events,
)
from tests.engine.server import BLOCK_TOKENS, MODEL

CAPTURES: Final = Path(__file__).with_name("captures")

each_endpoint = pytest.mark.parametrize("endpoint", SALTED, ids=lambda endpoint: endpoint.name)
stream_or_not = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def fresh() -> str:
    """A name that no other test, and no earlier run against the same engine, has used."""
    return uuid.uuid4().hex


def long_prompt(start: str) -> str:
    """Several blocks of tokens, the same for the same `start`, and different from the first token on for another."""
    return f"{start} " + " ".join(f"line {number}: the quick brown fox" for number in range(60))


class TestSalt:
    @each_endpoint
    @stream_or_not
    async def test_the_same_salt_reuses(self, engine: EngineClient, endpoint: Endpoint, stream: bool) -> None:
        prompt, salt = long_prompt(fresh()), fresh()
        assert await engine.reused(endpoint, prompt, salt, stream=stream) == 0
        assert await engine.reused(endpoint, prompt, salt, stream=stream) >= BLOCK_TOKENS

    @each_endpoint
    @stream_or_not
    async def test_another_salt_reuses_nothing(self, engine: EngineClient, endpoint: Endpoint, stream: bool) -> None:
        prompt = long_prompt(fresh())
        await engine.reused(endpoint, prompt, fresh(), stream=stream)
        assert await engine.reused(endpoint, prompt, fresh(), stream=stream) == 0

    @each_endpoint
    async def test_a_salted_prompt_and_an_unsalted_one_are_apart(
        self, engine: EngineClient, endpoint: Endpoint
    ) -> None:
        prompt, salt = long_prompt(fresh()), fresh()
        await engine.reused(endpoint, prompt, salt)
        assert await engine.reused(endpoint, prompt, None) == 0
        other = long_prompt(fresh())
        await engine.reused(endpoint, other, None)
        assert await engine.reused(endpoint, other, salt) == 0

    @each_endpoint
    async def test_a_null_salt_is_no_salt_and_no_error(self, engine: EngineClient, endpoint: Endpoint) -> None:
        """So a gate that forgets the salt, or sends null, gets 200 and an answer from everybody's cache."""
        prompt = long_prompt(fresh())
        answer = await engine.post(endpoint.path, endpoint.body(prompt) | {"cache_salt": None})
        assert answer.status == 200
        assert await engine.reused(endpoint, prompt, None) >= BLOCK_TOKENS

    @pytest.mark.parametrize(
        ("first", "second"), [(CHAT, RESPONSES), (CHAT, MESSAGES), (MESSAGES, RESPONSES)], ids=lambda e: e.name
    )
    async def test_one_salt_is_one_cache_on_all_endpoints(
        self, engine: EngineClient, first: Endpoint, second: Endpoint
    ) -> None:
        prompt, salt = long_prompt(fresh()), fresh()
        await engine.reused(first, prompt, salt)
        assert await engine.reused(second, prompt, salt) >= BLOCK_TOKENS
        assert await engine.reused(second, prompt, fresh()) == 0

    async def test_of_two_salts_in_one_body_the_last_counts_however_it_is_spelt(self, engine: EngineClient) -> None:
        prompt, ours, theirs = long_prompt(fresh()), fresh(), fresh()
        await engine.reused(CHAT, prompt, theirs)
        body = json.dumps(CHAT.body(prompt) | {"cache_salt": ours})
        for spelling in ('"cache_salt"', '"cache\\u005fsalt"'):
            forged = f'{body[:-1]}, {spelling}: "{theirs}"}}'.encode()
            answer = await engine.post(CHAT.path, forged)
            assert CHAT.usage(answer.body).reused >= BLOCK_TOKENS

    @each_endpoint
    @pytest.mark.parametrize("salt", ["", "a/b", "a@b", "a\\b", "x" * 129, 5, ["a"]], ids=repr)
    async def test_a_salt_of_another_form_is_refused(
        self, engine: EngineClient, endpoint: Endpoint, salt: object
    ) -> None:
        answer = await engine.post(endpoint.path, endpoint.body("hello") | {"cache_salt": salt})
        assert answer.status == 400

    @each_endpoint
    async def test_the_longest_salt_of_ours_fits(self, engine: EngineClient, endpoint: Endpoint) -> None:
        """`sg1-`, a key id of 32 characters, `-`, 43 characters of base64url."""
        salt = f"sg1-{'k' * 32}-{'A_-9' * 10}xyz"
        answer = await engine.post(endpoint.path, endpoint.body("hello") | {"cache_salt": salt})
        assert answer.status == 200

    @each_endpoint
    @stream_or_not
    async def test_no_answer_holds_the_salt(self, engine: EngineClient, endpoint: Endpoint, stream: bool) -> None:
        salt = fresh()
        answer = await engine.post(endpoint.path, endpoint.body("hello", stream=stream) | {"cache_salt": salt})
        assert answer.status == 200
        assert salt.encode() not in answer.body

    @each_endpoint
    async def test_the_schema_of_each_endpoint_has_the_salt(self, engine: EngineClient, endpoint: Endpoint) -> None:
        schema = json.loads((await engine.get("/openapi.json")).body)
        assert "cache_salt" in _request_schema(schema, endpoint.path)["properties"]

    async def test_counting_tokens_knows_no_salt(self, engine: EngineClient) -> None:
        schema = json.loads((await engine.get("/openapi.json")).body)
        assert "cache_salt" not in _request_schema(schema, "/v1/messages/count_tokens")["properties"]


class TestUsage:
    async def test_chat_counts_the_whole_prompt_and_names_the_reused_part(self, engine: EngineClient) -> None:
        usage = await self._second(engine, CHAT)
        prompt, reused = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
        assert usage == {
            "prompt_tokens": prompt,
            "total_tokens": prompt + 4,
            "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": reused, "created_cache_tokens": 0, "multimodal_tokens": None},
            "completion_tokens_details": None,
        }
        assert 0 < prompt - reused <= BLOCK_TOKENS

    async def test_completions_counts_as_chat_does_less_the_newly_cached_tokens(self, engine: EngineClient) -> None:
        usage = await self._second(engine, COMPLETIONS)
        prompt, reused = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
        assert usage == {
            "prompt_tokens": prompt,
            "total_tokens": prompt + 4,
            "completion_tokens": 4,
            "prompt_tokens_details": {
                "cached_tokens": reused,
                "created_cache_tokens": None,
                "multimodal_tokens": None,
            },
            "completion_tokens_details": None,
        }
        assert 0 < prompt - reused <= BLOCK_TOKENS

    async def test_responses_counts_the_whole_prompt_under_other_names(self, engine: EngineClient) -> None:
        usage = await self._second(engine, RESPONSES)
        prompt, reused = usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
        assert usage == {
            "input_tokens": prompt,
            "input_tokens_details": {
                "cached_tokens": reused,
                "cache_write_tokens": 0,
                "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": 4,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": prompt + 4,
        }
        assert 0 < prompt - reused <= BLOCK_TOKENS

    async def test_messages_counts_in_input_tokens_only_what_no_cache_has_or_gets(self, engine: EngineClient) -> None:
        prompt, salt = long_prompt(fresh()), fresh()
        counted = await engine.post("/v1/messages/count_tokens", _without(MESSAGES.body(prompt), "max_tokens"))
        whole = json.loads(counted.body)["input_tokens"]
        first, second = [await self._usage(engine, MESSAGES, prompt, salt) for _ in range(2)]
        cached = whole // BLOCK_TOKENS * BLOCK_TOKENS
        rest = {"input_tokens": whole - cached, "output_tokens": 4}
        assert first == rest | {"cache_creation_input_tokens": cached, "cache_read_input_tokens": 0}
        assert second == rest | {"cache_creation_input_tokens": 0, "cache_read_input_tokens": cached}

    async def test_a_stream_of_messages_counts_the_whole_prompt_at_its_start_and_the_rest_at_its_end(
        self, engine: EngineClient
    ) -> None:
        prompt, salt = long_prompt(fresh()), fresh()
        await engine.reused(MESSAGES, prompt, salt)
        answer = await engine.post(MESSAGES.path, MESSAGES.body(prompt, stream=True) | {"cache_salt": salt})
        stream = [json.loads(event.data) for event in events(answer.body.decode())]
        start = next(event for event in stream if event["type"] == "message_start")["message"]["usage"]
        delta = next(event for event in stream if event["type"] == "message_delta")["usage"]
        assert start == {"input_tokens": delta["input_tokens"] + delta["cache_read_input_tokens"], "output_tokens": 0}
        assert delta["cache_read_input_tokens"] >= BLOCK_TOKENS

    @pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS], ids=lambda endpoint: endpoint.name)
    async def test_a_stream_tells_its_usage_only_when_asked(self, engine: EngineClient, endpoint: Endpoint) -> None:
        answer = await engine.post(endpoint.path, endpoint.body("hello") | {"stream": True})
        assert b"usage" not in answer.body
        assert all(chunk["choices"] for chunk in _chunks(answer.body))

    @pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS], ids=lambda endpoint: endpoint.name)
    async def test_the_usage_asked_for_is_one_chunk_without_choices_before_the_end(
        self, engine: EngineClient, endpoint: Endpoint
    ) -> None:
        answer = await engine.post(endpoint.path, endpoint.body("hello", stream=True))
        *_, last, end = events(answer.body.decode())
        assert end.data == "[DONE]"
        assert json.loads(last.data)["choices"] == []
        assert [chunk["choices"] == [] for chunk in _chunks(answer.body)].count(True) == 1
        assert ["usage" in chunk for chunk in _chunks(answer.body)].count(True) == 1

    async def test_continuous_usage_names_the_reused_part_only_in_the_last_chunk(self, engine: EngineClient) -> None:
        prompt, salt = long_prompt(fresh()), fresh()
        await engine.reused(CHAT, prompt, salt)
        options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        answer = await engine.post(CHAT.path, CHAT.body(prompt, stream=True) | options | {"cache_salt": salt})
        *running, last = [chunk["usage"] for chunk in _chunks(answer.body)]
        assert all(usage.get("prompt_tokens_details") is None for usage in running)
        assert last["prompt_tokens_details"]["cached_tokens"] >= BLOCK_TOKENS

    @each_endpoint
    @stream_or_not
    async def test_no_reuse_is_reported_as_zero_not_left_out(
        self, engine: EngineClient, endpoint: Endpoint, stream: bool
    ) -> None:
        assert await engine.reused(endpoint, fresh(), fresh(), stream=stream) == 0

    async def _second(self, engine: EngineClient, endpoint: Endpoint) -> Json:
        """The usage of a prompt's second answer under one salt."""
        prompt, salt = long_prompt(fresh()), fresh()
        await self._usage(engine, endpoint, prompt, salt)
        return await self._usage(engine, endpoint, prompt, salt)

    async def _usage(self, engine: EngineClient, endpoint: Endpoint, prompt: str, salt: str) -> Json:
        answer = await engine.post(endpoint.path, endpoint.body(prompt) | {"cache_salt": salt})
        usage: Json = json.loads(answer.body)["usage"]
        return usage


class TestStream:
    async def test_a_client_that_leaves_frees_the_engine(self, engine: EngineClient) -> None:
        body = CHAT.body("hello", max_tokens=12_000, stream=True) | {"ignore_eos": True, "cache_salt": fresh()}
        async with engine.session.post(CHAT.path, json=body) as answer:
            await answer.content.readany()
            assert await _running_requests(engine) >= 1
        async with asyncio.timeout(20):
            while await _running_requests(engine):
                await asyncio.sleep(0.1)

    async def test_a_response_cut_by_its_length_ends_as_completed_and_says_incomplete(
        self, engine: EngineClient
    ) -> None:
        """OpenAI sends `response.incomplete` here; vLLM does not."""
        answer = await engine.post(RESPONSES.path, RESPONSES.body("hello", stream=True) | {"ignore_eos": True})
        last = events(answer.body.decode())[-1]
        assert last.name == "response.completed"
        assert json.loads(last.data)["response"]["status"] == "incomplete"

    async def test_too_long_a_prompt_is_refused_before_the_stream_begins(self, engine: EngineClient) -> None:
        answer = await engine.post(CHAT.path, CHAT.body("word " * 20_000, stream=True))
        assert answer.status == 400
        assert json.loads(answer.body)["error"]["code"] == 400


_TOOL: Final = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
_USAGE: Final = {"stream": True, "stream_options": {"include_usage": True}}
_CALLS: Final[dict[str, tuple[str, Json]]] = {
    "chat.json": (CHAT.path, {}),
    "chat.sse": (CHAT.path, {"stream": True}),
    "chat-usage.sse": (CHAT.path, _USAGE),
    "chat-continuous-usage.sse": (
        CHAT.path,
        {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    ),
    "chat-two-choices.sse": (CHAT.path, _USAGE | {"n": 2, "temperature": 1, "seed": 1}),
    "chat-tool.sse": (
        CHAT.path,
        _USAGE
        | {
            "tools": [{"type": "function", "function": {"name": "answer", "parameters": _TOOL}}],
            "tool_choice": {"type": "function", "function": {"name": "answer"}},
            "max_tokens": 40,
        },
    ),
    "completions.json": (COMPLETIONS.path, {}),
    "completions.sse": (COMPLETIONS.path, {"stream": True}),
    "completions-usage.sse": (COMPLETIONS.path, _USAGE),
    "responses.json": (RESPONSES.path, {}),
    "responses.sse": (RESPONSES.path, {"stream": True}),
    "messages.json": (MESSAGES.path, {}),
    "messages.sse": (MESSAGES.path, {"stream": True}),
    "error-chat.json": (CHAT.path, {"model": "unknown"}),
    "error-messages.json": (MESSAGES.path, {"model": "unknown"}),
}
_BODIES: Final = {endpoint.path: endpoint for endpoint in SALTED}


class TestCaptures:
    """Real answers, byte for byte, for the tests that have no engine: each is the second one under its salt."""

    @pytest.mark.parametrize("name", _CALLS)
    async def test_a_capture_has_the_shape_of_this_engines_answer(
        self, engine: EngineClient, pytestconfig: pytest.Config, name: str
    ) -> None:
        path, members = _CALLS[name]
        body = _BODIES[path].body(long_prompt("captured")) | {"cache_salt": fresh()} | members
        await engine.post(path, body)
        answer = await engine.post(path, body)
        if pytestconfig.getoption("engine_record", False):
            (CAPTURES / name).write_bytes(answer.body)
        assert _shape(answer.body) == _shape((CAPTURES / name).read_bytes())

    def test_every_capture_is_checked(self) -> None:
        assert {path.name for path in CAPTURES.iterdir()} == set(_CALLS)


def _shape(answer: bytes) -> list[str]:
    """The kinds of event in an answer, in the order of their first: each one's name and the members of its data."""
    text = answer.decode()
    stream = [("", text)] if text.startswith("{") else [(event.name, event.data) for event in events(text)]
    kinds = [f"{name} {_members(data)}" for name, data in stream]
    return list(dict.fromkeys(kinds))


def _members(data: str) -> str:
    return data if data == "[DONE]" else ",".join(sorted(_paths(json.loads(data))))


def _paths(value: Any, path: str = "") -> set[str]:
    match value:
        case dict():
            return {path}.union(*(_paths(inner, f"{path}.{name}") for name, inner in value.items()))
        case list():
            return {path}.union(*(_paths(inner, f"{path}[]") for inner in value))
        case _:
            return {path}


def _chunks(stream: bytes) -> list[Json]:
    return [json.loads(event.data) for event in events(stream.decode()) if event.data != "[DONE]"]


def _without(body: Json, name: str) -> Json:
    return {key: value for key, value in body.items() if key != name}


def _request_schema(schema: Json, path: str) -> Json:
    reference = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    found: Json = schema["components"]["schemas"][reference.rsplit("/", 1)[1]]
    return found


async def _running_requests(engine: EngineClient) -> float:
    metrics = (await engine.get("/metrics")).body.decode()
    (running,) = re.findall(rf'^vllm:num_requests_running{{.*model_name="{MODEL}".*}} (\S+)$', metrics, re.MULTILINE)
    return float(running)
