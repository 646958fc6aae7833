"""The bad end, as the official SDKs read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from openai.types.responses import ResponseErrorEvent

from proxy.engines.profile import Operation
from proxy.refusals import Draining, EngineFailed
from proxy.relay.endings import error_event

CHAT_START = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[]}\n\n'
TEXT_START = b'data: {"id":"c","object":"text_completion","created":1,"model":"tiny","choices":[]}\n\n'
RESPONSES_START = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","sequence_number":0,"item_id":"m",'
    b'"output_index":0,"content_index":0,"delta":"a","logprobs":[]}\n\n'
)
MESSAGES_START = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'


def answering(body: bytes) -> httpx2.MockTransport:
    return httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)
    )


def openai_client(body: bytes) -> openai.OpenAI:
    return openai.OpenAI(
        api_key="k", base_url="http://gate/v1", max_retries=0, http_client=httpx2.Client(transport=answering(body))
    )


def chat(client: openai.OpenAI) -> Any:
    return client.chat.completions.create(model="tiny", messages=[], stream=True)


def completions(client: openai.OpenAI) -> Any:
    return client.completions.create(model="tiny", prompt="a", stream=True)


def responses(client: openai.OpenAI) -> Any:
    return client.responses.create(model="tiny", input="a", stream=True)


@pytest.mark.parametrize(
    ("operation", "ask", "start"),
    [
        (Operation.CHAT, chat, CHAT_START),
        (Operation.COMPLETIONS, completions, TEXT_START),
        (Operation.RESPONSES, responses, RESPONSES_START),
    ],
)
def test_the_openai_sdk_raises_after_what_it_got(
    operation: Operation, ask: Callable[[openai.OpenAI], Any], start: bytes
) -> None:
    with openai_client(start + error_event(operation, EngineFailed("The engine broke off."))) as client:
        stream = ask(client)
        assert next(stream) is not None
        with pytest.raises(openai.APIError, match="The engine broke off") as caught:
            next(stream)
        stream.close()
    assert caught.value.code == "engine_failed"


def test_the_anthropic_sdk_raises_after_what_it_got() -> None:
    body = MESSAGES_START + error_event(Operation.MESSAGES, EngineFailed("The engine broke off."))
    transport = httpx2.Client(transport=answering(body))
    with anthropic.Anthropic(api_key="k", base_url="http://gate", max_retries=0, http_client=transport) as client:
        stream = client.messages.create(model="tiny", max_tokens=1, messages=[], stream=True)
        assert next(iter(stream)) is not None
        with pytest.raises(anthropic.APIStatusError, match="The engine broke off") as caught:
            next(iter(stream))
        stream.close()
    assert caught.value.body == {
        "type": "error",
        "error": {"type": "api_error", "message": "The engine broke off.", "code": "engine_failed"},
    }


def test_a_responses_error_is_openais_own_event_with_its_number() -> None:
    name, data, *rest = error_event(Operation.RESPONSES, Draining("Again."), sequence_number=7).split(b"\n")
    event = ResponseErrorEvent.model_validate(json.loads(data.removeprefix(b"data: ")), strict=True)
    assert (name, event.sequence_number, event.code, event.message) == (b"event: error", 7, "draining", "Again.")
    assert rest == [b"", b""]


@pytest.mark.parametrize("operation", Operation)
def test_a_bad_end_is_one_whole_event_and_no_protocols_good_end(operation: Operation) -> None:
    event = error_event(operation, EngineFailed('a\n\ndata: [DONE]\n\n"ä'))
    assert event.endswith(b"\n\n")
    assert event.count(b"\n\n") == 1
    for end in (b"\ndata: [DONE]", b"event: message_stop", b"event: response.completed"):
        assert end not in event
