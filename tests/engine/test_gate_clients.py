"""The official clients, through saltgate, on a real engine: nothing in them knows that a gate is between."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anthropic
import openai
import pytest
import pytest_asyncio
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam

from tests.engine.gate import ALICE, CAROL, MALLORY, Caller, GateClient, fresh_prompt, reusable
from tests.engine.server import MODEL

pytestmark = pytest.mark.asyncio(loop_scope="module")


def openai_client(gate: GateClient, caller: Caller) -> openai.AsyncOpenAI:
    """As in OpenAI's own documentation: the scope in `organization` and `project`."""
    return openai.AsyncOpenAI(
        base_url=f"{gate.bed.url}/v1",
        api_key=gate.bed.token(caller.subject),
        organization=caller.workspace,
        project=caller.project,
        max_retries=0,
    )


def anthropic_client(gate: GateClient, caller: Caller) -> anthropic.AsyncAnthropic:
    """As for any gateway: the scope in the base URL, the token as the API key (`x-api-key`)."""
    return anthropic.AsyncAnthropic(
        base_url=f"{gate.bed.url}/w/{caller.workspace}/p/{caller.project}",
        api_key=gate.bed.token(caller.subject),
        max_retries=0,
    )


@pytest_asyncio.fixture(loop_scope="module")
async def alice(gate: GateClient) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai_client(gate, ALICE) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def carol(gate: GateClient) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai_client(gate, CAROL) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def claude(gate: GateClient) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic_client(gate, ALICE) as client:
        yield client


def user(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


# Where two answers are compared, both come from a prompt that is in the cache: a computed and a reused one may differ
# in their last bits, and with random weights that is enough for another word.


class TestOpenAI:
    async def test_a_chat_streams_the_same_words_and_tells_what_was_reused(
        self, alice: openai.AsyncOpenAI, carol: openai.AsyncOpenAI
    ) -> None:
        messages = user(fresh_prompt())
        first = await alice.chat.completions.create(model=MODEL, messages=messages, max_tokens=8, temperature=0)
        whole = await alice.chat.completions.create(model=MODEL, messages=messages, max_tokens=8, temperature=0)
        stream = await carol.chat.completions.create(
            model=MODEL,
            messages=messages,
            max_tokens=8,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == whole.choices[0].message.content
        assert whole.choices[0].finish_reason == "length"
        usage = chunks[-1].usage
        assert first.usage is not None
        assert first.usage.prompt_tokens_details is not None
        assert first.usage.prompt_tokens_details.cached_tokens == 0
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == reusable(usage.prompt_tokens) > 0

    async def test_a_stream_that_asked_for_no_usage_gets_none(self, alice: openai.AsyncOpenAI) -> None:
        stream = await alice.chat.completions.create(
            model=MODEL, messages=user("hello"), max_tokens=4, temperature=0, stream=True
        )
        chunks = [chunk async for chunk in stream]
        assert all(chunk.usage is None and chunk.choices for chunk in chunks)
        assert chunks[-1].choices[0].finish_reason == "length"

    async def test_two_choices_stream_side_by_side(self, alice: openai.AsyncOpenAI) -> None:
        stream = await alice.chat.completions.create(
            model=MODEL, messages=user("hello"), max_tokens=6, n=2, seed=1, stream=True
        )
        choices = [chunk.choices[0] async for chunk in stream]
        assert {choice.index for choice in choices} == {0, 1}
        assert [choice.finish_reason is not None for choice in choices].count(True) == 2

    async def test_completions_answer_whole_and_streamed(self, alice: openai.AsyncOpenAI) -> None:
        prompt = fresh_prompt()
        await alice.completions.create(model=MODEL, prompt=prompt, max_tokens=1)
        whole = await alice.completions.create(model=MODEL, prompt=prompt, max_tokens=8, temperature=0)
        stream = await alice.completions.create(model=MODEL, prompt=prompt, max_tokens=8, temperature=0, stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == whole.choices[0].text
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 8

    async def test_responses_answer_whole_and_streamed(self, alice: openai.AsyncOpenAI) -> None:
        prompt = fresh_prompt()
        first = await alice.responses.create(model=MODEL, input=prompt, max_output_tokens=1)
        whole = await alice.responses.create(model=MODEL, input=prompt, max_output_tokens=8, temperature=0)
        stream = await alice.responses.create(
            model=MODEL, input=prompt, max_output_tokens=8, temperature=0, stream=True
        )
        events = [event async for event in stream]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        last = events[-1]
        assert last.type == "response.completed"
        assert last.response.output_text == whole.output_text
        assert first.usage is not None
        assert first.usage.input_tokens_details.cached_tokens == 0
        assert last.response.usage is not None
        assert last.response.usage.input_tokens_details.cached_tokens == reusable(first.usage.input_tokens)

    async def test_the_models_are_the_engines(self, alice: openai.AsyncOpenAI) -> None:
        assert [model.id async for model in alice.models.list()] == [MODEL]
        assert (await alice.models.retrieve(MODEL)).id == MODEL

    async def test_a_model_that_nobody_serves_is_told_like_one_that_is_not_allowed(
        self, alice: openai.AsyncOpenAI
    ) -> None:
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await alice.chat.completions.create(model="gpt-9", messages=user("hello"))
        assert refused.value.code == "model_not_allowed"

    async def test_what_the_engine_refuses_comes_as_the_engine_says_it(self, alice: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError, match="context length"):
            await alice.chat.completions.create(model=MODEL, messages=user("word " * 20_000), max_tokens=4)

    async def test_a_stranger_with_this_client_reuses_nothing(
        self, gate: GateClient, alice: openai.AsyncOpenAI
    ) -> None:
        messages = user(fresh_prompt())
        await alice.chat.completions.create(model=MODEL, messages=messages, max_tokens=4)
        async with openai_client(gate, MALLORY) as mallory:
            answer = await mallory.chat.completions.create(model=MODEL, messages=messages, max_tokens=4)
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == 0


class TestAnthropic:
    async def test_messages_answer_whole_and_streamed_and_count_as_anthropic_does(
        self, claude: anthropic.AsyncAnthropic
    ) -> None:
        messages: list[MessageParam] = [{"role": "user", "content": fresh_prompt()}]
        greedy = {"temperature": 0}
        first = await claude.messages.create(model=MODEL, max_tokens=8, messages=messages)
        whole = await claude.messages.create(model=MODEL, max_tokens=8, messages=messages, extra_body=greedy)
        async with claude.messages.stream(model=MODEL, max_tokens=8, messages=messages, extra_body=greedy) as stream:
            text = "".join([part async for part in stream.text_stream])
            last = await stream.get_final_message()
        assert text == "".join(block.text for block in whole.content if block.type == "text")
        assert last.stop_reason == whole.stop_reason
        assert (first.usage.cache_read_input_tokens, last.usage.cache_creation_input_tokens) == (0, 0)
        assert last.usage.cache_read_input_tokens == first.usage.cache_creation_input_tokens
        assert last.usage.cache_read_input_tokens
        assert last.usage.input_tokens == first.usage.input_tokens

    async def test_a_wrong_token_is_told_in_anthropics_form(self, gate: GateClient) -> None:
        url = f"{gate.bed.url}/w/acme/p/apollo"
        async with anthropic.AsyncAnthropic(base_url=url, api_key="no.such.token", max_retries=0) as client:
            with pytest.raises(anthropic.AuthenticationError) as refused:
                await client.messages.create(model=MODEL, max_tokens=4, messages=[{"role": "user", "content": "hello"}])
        assert isinstance(refused.value.body, dict)
        assert refused.value.body["type"] == "error"
        assert refused.value.body["error"]["code"] == "invalid_token"

    async def test_a_strangers_project_is_told_as_a_permission_error(self, gate: GateClient) -> None:
        stranger = Caller(MALLORY.subject, ALICE.project, ALICE.workspace)
        async with anthropic_client(gate, stranger) as client:
            with pytest.raises(anthropic.PermissionDeniedError):
                await client.messages.create(model=MODEL, max_tokens=4, messages=[{"role": "user", "content": "hello"}])
