"""Each route as the official clients see it, and the framing that no client shows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anthropic
import openai
import pytest

from proxy.demo.simulator import AT_ONCE, Endpoint, EngineShape, Flaws, Simulator
from tests.parts.gone_client import GoneClient, post

LONG = "tell me about the tides and the salt of the sea " * 4
TOOL = {
    "name": "look_up",
    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}
CHAT_TOOL = {"type": "function", "function": TOOL}


@pytest.fixture
async def engine() -> AsyncIterator[Simulator]:
    async with Simulator(EngineShape(pace=AT_ONCE, adapters={"tiny-law": "tiny"})) as simulator:
        yield simulator


@pytest.fixture
async def client(engine: Simulator) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as sdk:
        yield sdk


@pytest.fixture
async def claude(engine: Simulator) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=engine.url, api_key="none", max_retries=0) as sdk:
        yield sdk


async def test_a_chat_answers_with_the_same_words_again_and_says_what_it_reused(client: openai.AsyncOpenAI) -> None:
    ask = {"model": "tiny", "messages": [{"role": "user", "content": LONG}], "extra_body": {"cache_salt": "one"}}
    first = await client.chat.completions.create(**ask)  # type: ignore[call-overload]
    again = await client.chat.completions.create(**ask)  # type: ignore[call-overload]
    assert first.choices[0].message.content == again.choices[0].message.content
    assert first.choices[0].message.content.startswith(f"You said {first.usage.prompt_tokens:,} tokens;")
    assert first.choices[0].finish_reason == "stop"
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert again.usage.prompt_tokens_details.cached_tokens == (first.usage.prompt_tokens - 1) // 16 * 16 > 0


async def test_a_chat_stream_is_role_then_tokens_then_usage_for_each_choice(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": LONG}],
        n=2,
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [part async for part in stream]
    assert [(c.choices[0].index, c.choices[0].delta.role, c.choices[0].delta.content) for c in chunks[:2]] == [
        (0, "assistant", ""),
        (1, "assistant", ""),
    ]
    assert [c.choices[0].finish_reason for c in chunks[-3:-1]] == ["length", "length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 10
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_continuous_usage_is_on_every_chunk(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "hi"}],
        max_tokens=3,
        stream=True,
        extra_body={"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    )
    counts = [chunk.usage.completion_tokens async for chunk in stream if chunk.usage]
    assert counts == [0, 1, 2, 3, 3]


async def test_a_conversation_reuses_its_own_answer(engine: Simulator, client: openai.AsyncOpenAI) -> None:
    said: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": LONG}]
    first = await client.chat.completions.create(model="tiny", messages=said, max_tokens=40)
    answer = first.choices[0].message.content
    assert first.usage is not None
    said += [{"role": "assistant", "content": answer}, {"role": "user", "content": "and then?"}]
    await client.chat.completions.create(model="tiny", messages=said, max_tokens=1)
    assert engine.last.reused is not None
    assert engine.last.reused > first.usage.prompt_tokens


@pytest.mark.parametrize(
    ("choice", "finish"),
    [("required", "tool_calls"), ({"type": "function", "function": {"name": "look_up"}}, "stop")],
)
async def test_a_demanded_tool_is_called_whole_and_streamed(
    client: openai.AsyncOpenAI, choice: object, finish: str
) -> None:
    ask = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [CHAT_TOOL],
        "tool_choice": choice,
    }
    whole = await client.chat.completions.create(**ask)  # type: ignore[call-overload]
    assert whole.choices[0].finish_reason == finish
    assert whole.choices[0].message.tool_calls[0].function.name == "look_up"
    assert json.loads(whole.choices[0].message.tool_calls[0].function.arguments) == {"n": 1}
    stream = await client.chat.completions.create(**ask, stream=True)  # type: ignore[call-overload]
    calls = [c.choices[0].delta.tool_calls[0].function async for c in stream if c.choices[0].delta.tool_calls]
    assert calls[0].name == "look_up"
    assert json.loads("".join(call.arguments or "" for call in calls)) == {"n": 1}


async def test_completions_interleave_prompts_and_samples(client: openai.AsyncOpenAI) -> None:
    whole = await client.completions.create(model="tiny", prompt=["one", "two"], n=2, max_tokens=4)
    stream = await client.completions.create(model="tiny", prompt=["one", "two"], n=2, max_tokens=4, stream=True)
    texts = ["", "", "", ""]
    order = []
    async for part in stream:
        texts[part.choices[0].index] += part.choices[0].text
        order.append(part.choices[0].index)
    assert order == [0, 1, 2, 3] * 4
    assert texts == [choice.text for choice in whole.choices]


@pytest.mark.slow
async def test_responses_stream_typed_numbered_events_to_completed(client: openai.AsyncOpenAI) -> None:
    whole = await client.responses.create(model="tiny", input=LONG, extra_body={"cache_salt": "one"})
    events = [
        event
        async for event in await client.responses.create(
            model="tiny", input=LONG, stream=True, extra_body={"cache_salt": "one"}
        )
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == whole.output_text
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert whole.usage is not None
    assert whole.usage.input_tokens_details.cached_tokens == 0
    assert events[-1].response.usage is not None
    assert events[-1].response.usage.input_tokens_details.cached_tokens > 0


async def test_responses_cut_by_the_bound_are_incomplete_and_calls_are_items(client: openai.AsyncOpenAI) -> None:
    cut = await client.responses.create(model="tiny", input="hi", max_output_tokens=2)
    assert (cut.status, cut.usage and cut.usage.output_tokens) == ("incomplete", 2)
    tool = {"type": "function", **TOOL}
    stream = await client.responses.create(  # type: ignore[call-overload]
        model="tiny", input="hi", tools=[tool], tool_choice="required", stream=True
    )
    events = [event async for event in stream]
    assert events[-1].response.output[0].name == "look_up"
    assert "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta") == '{"n":1}'


async def test_messages_stream_to_the_same_message_and_count_input_like_anthropic(
    claude: anthropic.AsyncAnthropic,
) -> None:
    ask = {"model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": LONG}], "system": "be kind"}
    whole = await claude.messages.create(**ask)  # type: ignore[call-overload]
    async with claude.messages.stream(**ask) as stream:  # type: ignore[arg-type]
        events = [event.type async for event in stream if event.type != "text"]
        streamed = await stream.get_final_message()
    assert [event for event in events if event != "content_block_delta"] == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert streamed.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert streamed.stop_reason == whole.stop_reason == "max_tokens"
    prompt = (await claude.messages.count_tokens(**{k: v for k, v in ask.items() if k != "max_tokens"})).input_tokens  # type: ignore[arg-type]
    for usage in (whole.usage, streamed.usage):
        told = (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
        assert sum(count or 0 for count in told) == prompt
    assert whole.usage.cache_read_input_tokens == 0
    assert streamed.usage.cache_read_input_tokens == (prompt - 1) // 16 * 16


async def test_messages_call_a_demanded_tool(claude: anthropic.AsyncAnthropic) -> None:
    tool = {"name": "look_up", "input_schema": TOOL["parameters"]}
    async with claude.messages.stream(
        model="tiny",
        max_tokens=99,
        messages=[{"role": "user", "content": "hi"}],
        tools=[tool],  # type: ignore[list-item]
        tool_choice={"type": "any"},
    ) as stream:
        message = await stream.get_final_message()
    assert message.stop_reason == "tool_use"
    assert message.content[0].input == {"n": 1}  # type: ignore[union-attr]


async def test_embeddings_are_the_text_alone_and_tell_nothing_of_reuse(client: openai.AsyncOpenAI) -> None:
    as_base64 = await client.embeddings.create(model="tiny", input=[LONG, "other"])
    as_floats = await client.embeddings.create(model="tiny", input=LONG, encoding_format="float")
    assert as_base64.data[0].embedding == pytest.approx(as_floats.data[0].embedding, abs=1e-6)
    assert as_base64.data[1].embedding != as_base64.data[0].embedding
    assert as_floats.usage.model_dump().get("prompt_tokens_details") is None


async def test_models_name_adapters_with_their_parent_and_unknown_models_are_404(client: openai.AsyncOpenAI) -> None:
    models = {model.id: model.model_dump()["parent"] async for model in client.models.list()}
    assert models == {"tiny": None, "tiny-law": "tiny"}
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        await client.chat.completions.create(model="other", messages=[{"role": "user", "content": "hi"}])


async def test_an_adapter_and_its_base_reuse_nothing_of_each_other(
    engine: Simulator, client: openai.AsyncOpenAI
) -> None:
    for model, reused in (("tiny", False), ("tiny-law", False), ("tiny-law", True)):
        await client.completions.create(model=model, prompt=LONG)
        assert bool(engine.last.reused) is reused


async def test_metrics_count_queries_and_hits_in_tokens(engine: Simulator, client: openai.AsyncOpenAI) -> None:
    for _ in range(2):
        await client.embeddings.create(model="tiny", input=LONG)
    counters = engine.engine.counters
    assert counters.prefix_queries == 2 * (engine.last.prompt_tokens or 0)
    assert counters.prefix_hits == engine.last.reused
    async with GoneClient.to(engine.url) as raw:
        await raw.send(b"GET /metricsfoo HTTP/1.1\r\nHost: x\r\n\r\n")
        page = (await raw.read_answer()).body.decode()
    assert f'vllm:prefix_cache_hits_total{{engine="0",model_name="tiny"}} {float(counters.prefix_hits)}' in page


async def test_prompt_logprobs_bypass_the_cache(engine: Simulator, client: openai.AsyncOpenAI) -> None:
    for _ in range(2):
        await client.completions.create(model="tiny", prompt=LONG, extra_body={"prompt_logprobs": 1})
    assert engine.last.reused == 0


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_stream_is_one_event_a_chunk_and_ends_with_done(engine: Simulator, path: str) -> None:
    ask = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "max_tokens": 2, "stream": True}
    async with GoneClient.to(engine.url) as raw:
        await raw.send(post(path, ask))
        head = await raw.read_until(b"\r\n\r\n")
        assert b"text/event-stream; charset=utf-8" in head
        chunks = []
        while size := int(await raw.read_until(b"\r\n"), 16):
            chunk = await raw.read_until(b"\n\n\r\n")
            assert len(chunk) == size + 2
            chunks.append(chunk[:-2])
    assert all(chunk.startswith(b"data: {") and chunk.count(b"\n\n") == 1 for chunk in chunks[:-1])
    assert chunks[-1] == b"data: [DONE]\n\n"


async def test_the_schema_of_every_route_declares_the_salt_unless_it_is_flawed() -> None:
    shape = EngineShape(flaws=Flaws(undeclared_salt=frozenset({Endpoint.MESSAGES})))
    async with Simulator(shape) as engine, GoneClient.to(engine.url) as raw:
        await raw.send(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
        page = json.loads((await raw.read_answer()).body)
    declared = {name for name, schema in page["components"]["schemas"].items() if "cache_salt" in schema["properties"]}
    assert set(page["paths"]) == {endpoint.value for endpoint in Endpoint}
    assert set(page["components"]["schemas"]) - declared == {"AnthropicMessagesRequest"}


async def test_v1_asks_for_the_api_key_and_the_rest_does_not() -> None:
    async with Simulator(EngineShape(api_key="sesame")) as engine, GoneClient.to(engine.url) as raw:
        await raw.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert [(await raw.read_answer()).status, (await raw.read_answer()).status] == [401, 200]
        await raw.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sesame\r\n\r\n")
        assert (await raw.read_answer()).status == 200
