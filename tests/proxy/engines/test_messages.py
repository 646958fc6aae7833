"""Messages, parts, items, blocks and tools: what of them is relayed."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.engines.body import read_body
from proxy.engines.profile import Operation
from proxy.refusals import InvalidRequest
from tests.proxy.engines.asking import ENDPOINT, body_of, sent, sent_raw


def refused(operation: Operation, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read_body(ENDPOINT[operation], body_of(operation, **fields))
    return caught.value


def chat(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def items(*parts: Any) -> dict[str, Any]:
    return {"input": [{"type": "message", "role": "user", "content": list(parts)}]}


def outputs(*parts: Any) -> dict[str, Any]:
    return {"input": [{"type": "function_call_output", "call_id": "c", "output": list(parts)}]}


def blocks(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def results(*parts: Any) -> dict[str, Any]:
    return blocks({"type": "tool_result", "tool_use_id": "t", "content": list(parts)})


def system(*parts: Any) -> dict[str, Any]:
    return {"system": list(parts)}


PLACES = [
    pytest.param(Operation.CHAT, chat, "text", id="chat"),
    pytest.param(Operation.RESPONSES, items, "input_text", id="responses item"),
    pytest.param(Operation.RESPONSES, outputs, "input_text", id="responses tool output"),
    pytest.param(Operation.MESSAGES, blocks, "text", id="messages block"),
    pytest.param(Operation.MESSAGES, results, "text", id="messages tool result"),
    pytest.param(Operation.MESSAGES, system, "text", id="messages system"),
]
MEDIA = [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "image_url", "image_url": {"url": "http://10.0.0.1/"}},
    {"type": "image_url", "image_url": None, "uuid": "tenant-x-invoice-42"},
    {"type": "input_image", "image_url": "data:,"},
    {"type": "input_image", "file_id": "f"},
    {"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/"}},
    {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    {"type": "audio_url", "audio_url": {"url": "data:,"}},
    {"type": "video_url", "video_url": {"url": "data:,"}},
    {"type": "image_embeds", "image_embeds": "AAAA"},
    {"type": "audio_embeds", "audio_embeds": None},
    {"type": "prompt_embeds", "data": "AAAA"},
    {"type": "image_pil", "image_pil": None},
    {"type": "file", "file": {"file_id": "f"}},
    {"type": "input_file", "file_url": "http://10.0.0.1/"},
    {"type": "document", "source": {"type": "base64", "data": ""}},
]


@pytest.mark.parametrize(("operation", "place", "text"), PLACES)
@pytest.mark.parametrize("part", MEDIA)
def test_media_are_refused_wherever_a_part_may_stand(operation: Operation, place: Any, text: str, part: Any) -> None:
    refusal = refused(operation, **place({"type": text, "text": "a"}, part))
    assert "Media are not enabled" in refusal.message
    assert refusal.param is not None
    assert "[1]" in refusal.param


@pytest.mark.parametrize(("operation", "place", "text"), PLACES)
@pytest.mark.parametrize("name", ["image_url", "input_audio", "video_url", "image_embeds", "prompt_embeds"])
def test_a_part_that_says_text_and_carries_media_is_refused(
    operation: Operation, place: Any, text: str, name: str
) -> None:
    refused(operation, **place({"type": text, "text": "a", name: None}))
    refused(operation, **place({name: {"url": "data:,"}}))


@pytest.mark.parametrize(("operation", "place", "text"), PLACES)
@pytest.mark.parametrize(
    "part",
    [
        {"type": "hologram"},
        {"type": None, "text": "a"},
        {"text": "a"},
        {"type": ["text"], "text": "a"},
        "a",
        1,
        [],
        None,
    ],
)
def test_a_part_of_no_known_type_is_refused(operation: Operation, place: Any, text: str, part: Any) -> None:
    refused(operation, **place(part))


@pytest.mark.parametrize(("operation", "place", "text"), PLACES)
@pytest.mark.parametrize("value", [None, 1, {"image_url": "data:,"}, ["a"]])
def test_a_text_part_holds_a_string(operation: Operation, place: Any, text: str, value: Any) -> None:
    refused(operation, **place({"type": text, "text": value}))


@pytest.mark.parametrize(("operation", "place", "text"), PLACES)
def test_a_text_part_keeps_its_text_and_loses_what_would_reach_a_template(
    operation: Operation, place: Any, text: str
) -> None:
    part = {"type": text, "text": "a uuid, cache_salt"}
    extra = {"uuid": "u", "cache_control": {"type": "ephemeral"}, "cache_salt": "s", "citations": None, "x": 1}
    clean, laden = sent(operation, **place(part)), sent(operation, **place(part | extra))
    assert clean == laden


def test_an_escaped_uuid_is_a_uuid() -> None:
    body = b'{"model":"tiny","messages":[{"role":"user","content":[{"type":"text","text":"a","u\\u0075id":"x"}]}]}'
    assert sent_raw(Operation.CHAT, body)["messages"] == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]


@pytest.mark.parametrize("role", ["function", "User", "root", "", None, 1])
def test_roles_are_a_closed_set(role: Any) -> None:
    assert refused(Operation.CHAT, messages=[{"role": role, "content": "a"}]).param == "messages[0].role"
    assert refused(Operation.MESSAGES, messages=[{"role": role, "content": "a"}]).param == "messages[0].role"
    refused(Operation.RESPONSES, input=[{"role": role, "content": "a"}])


def test_a_message_keeps_its_own_members_in_their_order() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"content": [{"text": "t", "type": "text"}], "role": "user", "name": "n"},
        {
            "role": "assistant",
            "content": None,
            "reasoning": "r",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"uuid":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    document = sent(Operation.CHAT, messages=messages)
    assert [list(message.items()) for message in document["messages"]] == [list(m.items()) for m in messages]


def test_a_message_loses_members_that_vllm_does_not_read() -> None:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "a",
        "annotations": [],
        "audio": None,
        "function_call": None,
        "x": 1,
    }
    assert sent(Operation.CHAT, messages=[message])["messages"] == [{"role": "assistant", "content": "a"}]


def test_tools_stand_beside_the_messages() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert refused(Operation.CHAT, messages=[{"role": "developer", "content": "", "tools": tools}]).param == (
        "messages[0].tools"
    )


@pytest.mark.parametrize(
    ("operation", "tool"),
    [
        (Operation.CHAT, {"type": "custom", "custom": {"name": "f"}}),
        (Operation.CHAT, {"type": "mcp"}),
        (Operation.RESPONSES, {"type": "mcp", "server_label": "x", "server_url": "http://a"}),
        (Operation.RESPONSES, {"type": "web_search_preview"}),
        (Operation.RESPONSES, {"type": "code_interpreter", "container": {"type": "auto"}}),
        (Operation.RESPONSES, {"type": "file_search"}),
        (Operation.RESPONSES, {"name": "f"}),
        (Operation.RESPONSES, {"type": "namespace", "name": "n", "tools": []}),
        (Operation.MESSAGES, {"type": "web_search_20250305", "name": "web_search"}),
        (Operation.MESSAGES, {"type": "bash_20250124", "name": "bash"}),
    ],
)
def test_tools_that_the_caller_does_not_run_are_refused(operation: Operation, tool: Any) -> None:
    assert refused(operation, tools=[tool]).param == "tools[0].type"


@pytest.mark.parametrize(
    ("operation", "tool"),
    [
        (
            Operation.CHAT,
            {
                "type": "function",
                "function": {"name": "f", "parameters": {"properties": {"uuid": {}, "cache_salt": {}}}},
            },
        ),
        (Operation.CHAT, {"function": {"name": "f"}}),
        (Operation.RESPONSES, {"type": "function", "name": "f", "parameters": {"uuid": {}}, "strict": True}),
        (Operation.RESPONSES, {"type": "custom", "name": "f"}),
        (Operation.MESSAGES, {"name": "f", "input_schema": {"properties": {"uuid": {}}}}),
        (Operation.MESSAGES, {"type": "custom", "name": "f", "description": "d", "input_schema": {}}),
    ],
)
def test_a_callers_own_tools_pass_whole(operation: Operation, tool: Any) -> None:
    assert sent(operation, tools=[tool])["tools"] == [tool]
    assert sent(operation, tools=[tool | {"cache_control": {"type": "ephemeral"}}])["tools"] == [tool]


def test_items_of_a_conversation_pass() -> None:
    conversation = [
        {"role": "user", "content": "a"},
        {
            "type": "message",
            "role": "assistant",
            "id": "m",
            "status": "completed",
            "content": [{"type": "output_text", "text": "b"}],
        },
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "y"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "z"}]},
    ]
    assert sent(Operation.RESPONSES, input=conversation)["input"] == conversation


@pytest.mark.parametrize("kind", ["item_reference", "computer_call", "mcp_call", "web_search_call", "compaction"])
def test_items_that_stand_for_something_stored_or_run_elsewhere_are_refused(kind: str) -> None:
    assert refused(Operation.RESPONSES, input=[{"type": kind, "id": "x"}]).param == "input[0].type"


def test_a_tool_output_cannot_become_a_message() -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": "x"}
    smuggled = item | {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    refused_or_clean = sent(Operation.RESPONSES, input=[smuggled])["input"]
    assert refused_or_clean == [item]


def test_blocks_of_a_conversation_pass() -> None:
    conversation = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "text", "text": "b"},
                {"type": "tool_use", "id": "u", "name": "f", "input": {"uuid": 1, "cache_salt": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "u",
                    "is_error": False,
                    "content": [{"type": "text", "text": "x"}],
                },
                {"type": "tool_result", "tool_use_id": "u", "content": "x"},
            ],
        },
    ]
    assert sent(Operation.MESSAGES, messages=conversation)["messages"] == conversation


@pytest.mark.parametrize("kind", ["server_tool_use", "web_search_tool_result", "tool_addition", "search_result"])
def test_blocks_that_vllm_cannot_honour_are_refused(kind: str) -> None:
    assert refused(Operation.MESSAGES, **blocks({"type": kind})).param == "messages[0].content[0].type"
