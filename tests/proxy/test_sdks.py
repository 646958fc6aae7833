"""The official clients of OpenAI and Anthropic through a whole gate: they work, and an answer that broke off raises."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anthropic
import openai
import pytest
from anthropic.types import MessageParam, ToolParam
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam

from config.settings import KeepAlive, Public, Timeouts
from proxy.demo.simulator import EngineShape, Fault, FaultKind, Flaws, Pace, Simulator
from proxy.demo.simulator.shape import Endpoint
from tests.parts.assertions import HEADER, assertion
from tests.parts.gate_bed import GateBed, gate_bed
from tests.parts.raw_engine import RawEngine, Send, Step
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.test_deaths import ENDS, PROTOCOLS, stages

pytestmark = pytest.mark.process  # importing them alone takes seconds

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
HI: list[MessageParam] = [{"role": "user", "content": "Hello"}]
# Enough blocks of 16 tokens that a reuse shows, and time between tokens for a client to leave.
LONG_TEXT = " ".join(f"word{number}" for number in range(200))
PACE = Pace(prefill_tokens_per_second=0.0, seconds_per_token=0.002)
SCHEMA: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL: ChatCompletionToolParam = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
RESPONSES_TOOL: FunctionToolParam = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": None}
MESSAGES_TOOL: ToolParam = {"name": "weather", "input_schema": SCHEMA}


@dataclass(frozen=True, slots=True)
class Clients:
    """A client of each kind, alice's in acme/apollo."""

    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic


@dataclass(frozen=True, slots=True)
class Bed(Clients):
    """The same with the gate that they are clients of, and the engine behind it."""

    gate: GateBed
    engine: Simulator


@asynccontextmanager
async def opened(
    redis: RedisServer,
    folder: Path,
    *,
    shape: EngineShape | None = None,
    public: Public | None = None,
    timeouts: Timeouts | None = None,
    proof: Literal["strict", "off"] = "strict",
) -> AsyncIterator[Bed]:
    async with (
        Simulator(shape or EngineShape(pace=PACE)) as engine,
        gate_bed(redis.settings(), [engine.url], folder, public=public, timeouts=timeouts, proof=proof) as gate,
        openai_client(gate, organization="acme", project="apollo") as for_openai,
        anthropic_client(gate) as for_anthropic,
    ):
        yield Bed(for_openai, for_anthropic, gate, engine)


def openai_client(
    gate: GateBed,
    *,
    path: str = "/v1",
    key: str | Callable[[], Awaitable[str]] | None = None,
    organization: str | None = None,
    project: str | None = None,
) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=gate.url + path,
        api_key=gate.token() if key is None else key,
        organization=organization,
        project=project,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),  # this machine's proxies are none of ours
    )


def anthropic_client(gate: GateBed, *, project: str = "apollo", key: str | None = None) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url=f"{gate.url}/w/acme/p/{project}",
        api_key=gate.token() if key is None else key,
        max_retries=0,
        http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False),
    )


@pytest.fixture
async def bed(redis: RedisServer, tmp_path: Path) -> AsyncIterator[Bed]:
    async with opened(redis, tmp_path) as running:
        yield running


# What works.


async def test_chat_answers_whole_and_says_what_was_reused(bed: Bed) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": LONG_TEXT}]
    first = await bed.openai.chat.completions.create(model="tiny", messages=messages)
    again = await bed.openai.chat.completions.create(model="tiny", messages=messages)
    assert first.choices[0].finish_reason == "stop"
    assert (first.choices[0].message.content or "").startswith("You said ")
    assert (reused(first.usage), reused(again.usage) > 300) == (0, True)


@pytest.mark.parametrize("usage", [True, False])
async def test_chat_streams_and_tells_its_usage_to_who_asked(bed: Bed, usage: bool) -> None:
    asked: openai.types.chat.ChatCompletionStreamOptionsParam = {"include_usage": True}
    stream = await bed.openai.chat.completions.create(
        model="tiny", messages=HELLO, stream=True, stream_options=asked if usage else openai.omit
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    whole = await bed.openai.chat.completions.create(model="tiny", messages=HELLO)
    assert text == whole.choices[0].message.content
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"
    assert [chunk.usage is not None for chunk in chunks].count(True) == int(usage)
    assert all(chunk.choices for chunk in chunks if chunk.usage is None)


async def test_chat_gives_several_answers_and_keeps_their_streams_apart(bed: Bed) -> None:
    whole = await bed.openai.chat.completions.create(model="tiny", messages=HELLO, n=2)
    stream = await bed.openai.chat.completions.create(model="tiny", messages=HELLO, n=2, stream=True)
    texts = ["", ""]
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert texts[0] != texts[1]


async def test_chat_calls_a_tool_also_as_the_stream_helper_assembles_it(bed: Bed) -> None:
    whole = await bed.openai.chat.completions.create(
        model="tiny", messages=HELLO, tools=[CHAT_TOOL], tool_choice="required"
    )
    async with bed.openai.chat.completions.stream(
        model="tiny", messages=HELLO, tools=[CHAT_TOOL], tool_choice="required"
    ) as stream:
        streamed = await stream.get_final_completion()
    for message in (whole.choices[0].message, streamed.choices[0].message):
        assert message.tool_calls is not None
        call = message.tool_calls[0]
        assert call.type == "function"
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments)


async def test_completions_answer_whole_and_streamed_the_same(bed: Bed) -> None:
    whole = await bed.openai.completions.create(model="tiny", prompt="Hello", max_tokens=8)
    stream = await bed.openai.completions.create(model="tiny", prompt="Hello", max_tokens=8, stream=True)
    assert "".join([choice.text async for chunk in stream for choice in chunk.choices]) == whole.choices[0].text
    assert whole.choices[0].finish_reason == "length"


async def test_responses_answer_whole_and_as_the_stream_helper_assembles_them(bed: Bed) -> None:
    whole = await bed.openai.responses.create(model="tiny", input="Hello")
    async with bed.openai.responses.stream(model="tiny", input="Hello") as stream:
        streamed = await stream.get_final_response()
    assert whole.status == streamed.status == "completed"
    assert whole.output_text == streamed.output_text != ""


async def test_responses_call_a_tool(bed: Bed) -> None:
    answer = await bed.openai.responses.create(
        model="tiny", input="Hello", tools=[RESPONSES_TOOL], tool_choice="required"
    )
    (call,) = [item for item in answer.output if item.type == "function_call"]
    assert call.name == "weather"
    assert json.loads(call.arguments)


async def test_embeddings_come_in_the_form_that_the_client_asks_for_by_itself(bed: Bed) -> None:
    answer = await bed.openai.embeddings.create(model="tiny", input=["one", "two"])
    assert [item.index for item in answer.data] == [0, 1]
    assert all(isinstance(number, float) for item in answer.data for number in item.embedding)


async def test_models_are_listed_and_retrieved(bed: Bed) -> None:
    assert [model.id async for model in bed.openai.models.list()] == ["tiny"]
    assert (await bed.openai.models.retrieve("tiny")).id == "tiny"


async def test_messages_answer_whole_and_as_the_stream_helper_assembles_them(bed: Bed) -> None:
    whole = await bed.anthropic.messages.create(model="tiny", messages=HI, system="Be brief.", max_tokens=100)
    async with bed.anthropic.messages.stream(model="tiny", messages=HI, system="Be brief.", max_tokens=100) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        streamed = await stream.get_final_message()
    assert [block.text for block in whole.content if block.type == "text"] == [text]
    assert (whole.stop_reason, streamed.stop_reason) == ("end_turn", "end_turn")
    assert whole.usage.output_tokens == streamed.usage.output_tokens > 0


async def test_tokens_are_counted_as_the_message_that_is_sent_has_them(bed: Bed) -> None:
    counted = await bed.anthropic.messages.count_tokens(
        model="tiny", messages=HI, system="Be brief.", tools=[MESSAGES_TOOL], tool_choice={"type": "auto"}
    )
    sent = await bed.anthropic.messages.create(
        model="tiny", messages=HI, system="Be brief.", tools=[MESSAGES_TOOL], max_tokens=1
    )
    usage = sent.usage
    prompt = usage.input_tokens + (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    assert counted.input_tokens == prompt > 0
    assert b"cache_salt" not in bed.engine.requests[-2].body


async def test_a_grammar_that_the_engine_cannot_use_is_not_sent_again_by_the_clients_themselves(bed: Bed) -> None:
    bed.engine.requests.clear()
    bed.engine.faults.add(Fault(FaultKind.STATUS_500, times=9))
    schema = {"name": "x", "schema": {"$ref": "#"}}
    with pytest.raises(openai.InternalServerError, match="response_format"):
        await bed.openai.with_options(max_retries=2).chat.completions.create(
            model="tiny", messages=HELLO, extra_body={"response_format": {"type": "json_schema", "json_schema": schema}}
        )
    assert len(bed.engine.requests) == 1
    output = {"format": {"type": "json_schema", "schema": {"$ref": "#"}}}
    with pytest.raises(anthropic.InternalServerError, match="output_config"):
        await bed.anthropic.with_options(max_retries=2).messages.create(
            model="tiny", messages=HI, max_tokens=4, extra_body={"output_config": output}
        )
    assert len(bed.engine.requests) == 2


async def test_messages_call_a_tool_also_streamed(bed: Bed) -> None:
    whole = await bed.anthropic.messages.create(
        model="tiny", messages=HI, max_tokens=100, tools=[MESSAGES_TOOL], tool_choice={"type": "any"}
    )
    async with bed.anthropic.messages.stream(
        model="tiny", messages=HI, max_tokens=100, tools=[MESSAGES_TOOL], tool_choice={"type": "any"}
    ) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        assert message.stop_reason == "tool_use"
        (call,) = [block for block in message.content if block.type == "tool_use"]
        assert call.name == "weather"
        assert call.input


async def test_a_key_may_be_a_function_that_is_asked_for_each_request(bed: Bed) -> None:
    asked = []

    async def key() -> str:
        asked.append(bed.gate.token())
        return asked[-1]

    async with openai_client(bed.gate, path="/w/acme/p/apollo/v1", key=key) as client:
        await client.chat.completions.create(model="tiny", messages=HELLO)
        await client.chat.completions.create(model="tiny", messages=HELLO)
    assert len(asked) == 2


async def test_a_key_that_is_over_is_told_so_and_the_next_request_of_the_same_client_asks_for_a_fresh_one(
    bed: Bed,
) -> None:
    """As `saltgate token` behind a function: neither client sends a 401 again by itself, so nothing is asked twice."""
    over = bed.gate.mint.token(subject="u-alice-0001", exp=1_000_000_000, iat=999_999_000)
    keys = [over, bed.gate.token()]

    async def key() -> str:
        return keys.pop(0)

    async with openai_client(bed.gate, path="/w/acme/p/apollo/v1", key=key) as client:
        with pytest.raises(openai.AuthenticationError, match="expired") as refused:
            await client.chat.completions.create(model="tiny", messages=HELLO)
        assert refused.value.code == "token_expired"
        assert (await client.chat.completions.create(model="tiny", messages=HELLO)).choices
    assert not keys


def claude_code(gate: GateBed, authorization: str, key: str) -> anthropic.AsyncAnthropic:
    """With an `apiKeyHelper`, Claude Code sends what it prints in both headers."""
    return anthropic.AsyncAnthropic(
        base_url=f"{gate.url}/w/acme/p/apollo",
        auth_token=authorization,
        default_headers={"x-api-key": key},
        max_retries=0,
        http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False),
    )


async def test_the_same_key_in_both_headers_is_one_credential_as_claude_code_sends_it(bed: Bed) -> None:
    token = bed.gate.token()
    async with claude_code(bed.gate, token, token) as client:
        answer = await client.messages.with_raw_response.create(model="tiny", messages=HI, max_tokens=4)
        sent = answer.http_response.request.headers
        assert (sent["authorization"], sent["x-api-key"]) == (f"Bearer {token}", token)
    async with claude_code(bed.gate, token, bed.gate.token("u-bob-0002")) as client:
        with pytest.raises(anthropic.BadRequestError, match="two different credentials"):
            await client.messages.create(model="tiny", messages=HI, max_tokens=4)


async def test_the_cookies_and_user_headers_that_a_chat_ui_forwards_change_nothing_and_go_no_further(bed: Bed) -> None:
    forwarded = {
        "Cookie": "token=of-the-ui; oauth_session_id=1",
        "X-OpenWebUI-User-Id": "u-mallory-0009",
        "X-OpenWebUI-User-Role": "admin",
        HEADER: assertion("u-mallory-0009"),
    }
    await bed.openai.with_options(default_headers=forwarded).chat.completions.create(model="tiny", messages=HELLO)
    with_them = bed.engine.last
    await bed.openai.chat.completions.create(model="tiny", messages=HELLO)
    assert with_them.salt == bed.engine.last.salt
    assert [name for name, _ in with_them.headers] == [name for name, _ in bed.engine.last.headers]


async def test_the_base_url_and_the_clients_own_arguments_name_the_same_scope(bed: Bed) -> None:
    async with openai_client(bed.gate, path="/w/acme/p/apollo/v1") as by_url:
        await by_url.chat.completions.create(model="tiny", messages=HELLO)
        first = bed.engine.last.salt
    await bed.openai.chat.completions.create(model="tiny", messages=HELLO)
    second = bed.engine.last.salt
    await bed.anthropic.messages.create(model="tiny", messages=HI, max_tokens=4)
    assert first == second == bed.engine.last.salt
    async with openai_client(bed.gate, organization="acme", project="ares") as elsewhere:
        await elsewhere.chat.completions.create(model="tiny", messages=HELLO)
    assert bed.engine.last.salt != first


async def test_a_salt_in_the_clients_extra_body_is_not_the_engines(bed: Bed) -> None:
    await bed.openai.chat.completions.create(model="tiny", messages=HELLO)
    ours = bed.engine.last.salt
    await bed.openai.chat.completions.create(model="tiny", messages=HELLO, extra_body={"cache_salt": "mine"})
    assert bed.engine.last.salt == ours != "mine"


# What does not, and how the clients say it.


async def test_a_token_that_is_none_is_an_authentication_error_that_a_person_can_read(bed: Bed) -> None:
    async with openai_client(bed.gate, key="sk-nothing") as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            await client.chat.completions.create(model="tiny", messages=HELLO)
    assert refused.value.code == "invalid_token"
    assert "sk-nothing" not in str(refused.value)
    assert str(refused.value).count(" ") > 5
    assert refused.value.response.headers["www-authenticate"].startswith("Bearer ")
    async with anthropic_client(bed.gate, key="sk-nothing") as other:
        with pytest.raises(anthropic.AuthenticationError) as also:
            await other.messages.create(model="tiny", messages=HI, max_tokens=4)
    assert also.value.type == "authentication_error"


async def test_an_expired_token_is_told_from_a_wrong_one(bed: Bed) -> None:
    expired = bed.gate.mint.token(subject="u-alice-0001", exp=1_000_000_000, iat=999_999_000)
    async with openai_client(bed.gate, key=expired) as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            await client.models.list()
    assert refused.value.code == "token_expired"


async def test_a_project_of_others_and_one_that_is_not_there_are_the_same_permission_error(bed: Bed) -> None:
    bodies = []
    for project in ("hermes", "nowhere"):
        async with openai_client(bed.gate, organization="acme", project=project) as client:
            with pytest.raises(openai.PermissionDeniedError) as refused:
                await client.chat.completions.create(model="tiny", messages=HELLO)
        assert refused.value.code == "not_a_member"
        bodies.append(refused.value.body)
        async with anthropic_client(bed.gate, project=project) as other:
            with pytest.raises(anthropic.PermissionDeniedError):
                await other.messages.create(model="tiny", messages=HI, max_tokens=4)
    assert bodies[0] == bodies[1]


async def test_a_model_that_may_not_be_used_is_a_permission_error(bed: Bed) -> None:
    with pytest.raises(openai.PermissionDeniedError) as refused:
        await bed.openai.chat.completions.create(model="gpt-4o", messages=HELLO)
    assert (refused.value.code, refused.value.param) == ("model_not_allowed", "model")
    with pytest.raises(openai.PermissionDeniedError):
        await bed.openai.models.retrieve("gpt-4o")


async def test_several_memberships_and_none_named_is_a_bad_request_that_lists_them(bed: Bed) -> None:
    async with openai_client(bed.gate) as client:
        with pytest.raises(openai.BadRequestError, match="acme/apollo") as refused:
            await client.chat.completions.create(model="tiny", messages=HELLO)
    assert refused.value.code == "scope_required"


async def test_an_endpoint_that_is_not_served_is_not_found(bed: Bed) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        await bed.openai.files.list()
    assert refused.value.code == "endpoint_not_allowed"
    with pytest.raises(anthropic.NotFoundError):
        await bed.anthropic.messages.batches.list()


async def test_a_field_out_of_bounds_is_a_bad_request_that_names_it(bed: Bed) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await bed.openai.chat.completions.create(model="tiny", messages=HELLO, n=99)
    assert (refused.value.code, refused.value.param) == ("invalid_request", "n")
    with pytest.raises(openai.BadRequestError) as stored:
        await bed.openai.responses.create(model="tiny", input="Hello", previous_response_id="resp_1")
    assert stored.value.param == "previous_response_id"
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        await bed.anthropic.messages.create(model="tiny", messages=HI, max_tokens=-1)


async def test_a_body_that_is_too_large_is_told_in_each_clients_own_way(redis: RedisServer, tmp_path: Path) -> None:
    async with opened(redis, tmp_path, public=Public(max_body=1000)) as bed:
        with pytest.raises(openai.APIStatusError) as refused:
            await bed.openai.chat.completions.create(model="tiny", messages=[{"role": "user", "content": LONG_TEXT}])
        assert (refused.value.status_code, refused.value.code) == (413, "body_too_large")
        with pytest.raises(anthropic.APIStatusError) as also:
            await bed.anthropic.messages.create(
                model="tiny", messages=[{"role": "user", "content": LONG_TEXT}], max_tokens=4
            )
        assert (also.value.status_code, also.value.type) == (413, "request_too_large")


async def test_an_engine_that_is_not_proven_is_unavailable_and_says_when_to_come_back(
    redis: RedisServer, tmp_path: Path
) -> None:
    flaws = Flaws(ignores_salt=frozenset({Endpoint.CHAT, Endpoint.MESSAGES}))
    async with opened(redis, tmp_path, shape=EngineShape(pace=PACE, flaws=flaws)) as bed:
        with pytest.raises(openai.InternalServerError) as refused:
            await bed.openai.chat.completions.create(model="tiny", messages=HELLO)
        assert (refused.value.status_code, refused.value.code) == (503, "engine_unavailable")
        assert int(refused.value.response.headers["retry-after"]) > 0
        with pytest.raises(anthropic.APIStatusError) as also:
            await bed.anthropic.messages.create(model="tiny", messages=HI, max_tokens=4)
        assert (also.value.status_code, also.value.type) == (503, "overloaded_error")


async def test_an_engine_that_fails_before_an_answer_is_a_server_error(bed: Bed) -> None:
    for kind in (FaultKind.DIE_BEFORE_HEAD, FaultKind.GARBAGE, FaultKind.STATUS_500):
        # Twice: a request that met a connection which was just ending is sent again, once.
        bed.engine.faults.add(Fault(kind, times=2))
        with pytest.raises(openai.InternalServerError):
            await bed.openai.chat.completions.create(model="tiny", messages=HELLO)
        bed.engine.faults.clear()
        bed.engine.faults.add(Fault(kind, times=2))
        with pytest.raises(anthropic.InternalServerError):
            await bed.anthropic.messages.create(model="tiny", messages=HI, max_tokens=4)
        bed.engine.faults.clear()


# An answer that breaks off is never taken for a whole one.

BROKEN = (FaultKind.DIE_MID_STREAM, FaultKind.CUT_MID_STREAM, FaultKind.ERROR_MID_STREAM)


async def chat_stream(bed: Clients) -> AsyncGenerator[str | None, None]:
    stream = await bed.openai.chat.completions.create(model="tiny", messages=HELLO, stream=True)
    async with stream:
        async for chunk in stream:
            yield chunk.choices[0].finish_reason


async def completions_stream(bed: Clients) -> AsyncGenerator[str | None, None]:
    stream = await bed.openai.completions.create(model="tiny", prompt="Hello", max_tokens=30, stream=True)
    async with stream:
        async for chunk in stream:
            yield chunk.choices[0].finish_reason


async def responses_stream(bed: Clients) -> AsyncGenerator[str | None, None]:
    stream = await bed.openai.responses.create(model="tiny", input="Hello", stream=True)
    async with stream:
        async for event in stream:
            yield "completed" if event.type == "response.completed" else None


async def messages_stream(bed: Clients) -> AsyncGenerator[str | None, None]:
    stream = await bed.anthropic.messages.create(model="tiny", messages=HI, max_tokens=30, stream=True)
    async with stream:
        async for event in stream:
            yield event.delta.stop_reason if event.type == "message_delta" else None


async def chat_helper(bed: Clients) -> AsyncGenerator[str | None, None]:
    async with bed.openai.chat.completions.stream(model="tiny", messages=HELLO) as stream:
        async for event in stream:
            yield "stop" if event.type == "content.done" else None


async def responses_helper(bed: Clients) -> AsyncGenerator[str | None, None]:
    async with bed.openai.responses.stream(model="tiny", input="Hello") as stream:
        async for event in stream:
            yield "completed" if event.type == "response.completed" else None


async def messages_helper(bed: Clients) -> AsyncGenerator[str | None, None]:
    async with bed.anthropic.messages.stream(model="tiny", messages=HI, max_tokens=30) as stream:
        async for event in stream:
            yield "stop" if event.type == "message_stop" else None


Stream = Callable[[Clients], AsyncGenerator[str | None, None]]
STREAMS: tuple[Stream, ...] = (
    chat_stream,
    completions_stream,
    responses_stream,
    messages_stream,
    chat_helper,
    responses_helper,
    messages_helper,
)


@pytest.mark.parametrize("stream", STREAMS)
async def test_a_whole_stream_says_that_it_is_finished_and_does_not_raise(bed: Bed, stream: Stream) -> None:
    assert any([finish async for finish in stream(bed)])


# Prefill and each token take longer than a client waits to hear something.
SILENT = EngineShape(pace=Pace(prefill_tokens_per_second=100.0, seconds_per_token=0.1), answer_tokens=3)


@pytest.mark.parametrize("mode", ["comment", "event"])
async def test_what_a_client_hears_of_a_silent_engine_breaks_no_stream(
    mode: KeepAlive, redis: RedisServer, tmp_path: Path
) -> None:
    timeouts = Timeouts(keep_alive=mode, keep_alive_interval=0.06)
    async with opened(redis, tmp_path, shape=SILENT, timeouts=timeouts, proof="off") as bed:
        for stream in STREAMS:
            assert any([finish async for finish in stream(bed)]), stream
        _, _, heard = await bed.gate.post(document={"model": "tiny", "messages": HELLO, "stream": True})
        sign = b'"delta":{}' if mode == "event" else b": keep-alive"
        assert heard.index(sign) < heard.index(b'"role":"assistant"') < heard.rindex(sign)
        whole = await bed.openai.chat.completions.create(model="tiny", messages=HELLO)
        async with bed.openai.chat.completions.stream(model="tiny", messages=HELLO) as helper:
            same = await helper.get_final_completion()
        assert same.choices[0].message.content == whole.choices[0].message.content
        assert same.choices[0].message.role == "assistant"


@pytest.mark.parametrize("stream", STREAMS)
async def test_a_stream_whose_engine_dies_raises_and_never_looks_finished(bed: Bed, stream: Stream) -> None:
    for kind in BROKEN:
        bed.engine.faults.add(Fault(kind))
        seen: list[str | None] = []
        with pytest.raises((openai.APIError, anthropic.APIStatusError)):
            await gather(stream(bed), seen)
        assert seen, kind
        assert not any(seen), kind


@pytest.mark.parametrize("stream", [chat_stream, completions_stream, responses_stream, messages_stream])
async def test_closing_a_stream_frees_the_engine(redis: RedisServer, tmp_path: Path, stream: Stream) -> None:
    # An answer of minutes, so that nothing but the client's leaving can end it.
    shape = EngineShape(pace=Pace(prefill_tokens_per_second=0.0, seconds_per_token=0.01), answer_tokens=20)
    async with opened(redis, tmp_path, shape=shape) as bed:
        bed.engine.faults.add(Fault(FaultKind.SLOW, seconds=30.0))
        left = stream(bed)
        assert await anext(left) is None
        await left.aclose()
        await bed.engine.wait_for(lambda: bed.engine.last.aborted)
        assert bed.engine.last.generated < 20
        assert not bed.engine.last.finished


async def gather(stream: AsyncIterator[str | None], seen: list[str | None]) -> None:
    async for finish in stream:
        seen.append(finish)


def reused(usage: openai.types.CompletionUsage | None) -> int:
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return usage.prompt_tokens_details.cached_tokens or 0


# The same at every stage of an answer, with an engine of bytes.

PLAIN: dict[str, Stream] = {
    "chat": chat_stream,
    "completions": completions_stream,
    "responses": responses_stream,
    "messages": messages_stream,
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("protocol", PLAIN)
async def test_a_client_raises_at_whatever_stage_the_engine_dies_unless_its_answer_is_whole(
    protocol: str, end: Sequence[Step], redis: RedisServer, tmp_path: Path
) -> None:
    cases = list(stages(PROTOCOLS[protocol]))
    scripts = [(*([Send(stage.sent)] if stage.sent else []), *end) for stage in cases]
    async with (
        RawEngine(*scripts) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",)) as gate,
        openai_client(gate, organization="acme", project="apollo") as for_openai,
        anthropic_client(gate) as for_anthropic,
    ):
        for stage in cases:
            seen: list[str | None] = []
            answer = gather(PLAIN[protocol](Clients(for_openai, for_anthropic)), seen)
            if stage.is_whole:
                await answer
                assert seen, stage.name
            else:
                with pytest.raises((openai.APIError, anthropic.APIStatusError)):
                    await answer
                assert not any(seen), stage.name
