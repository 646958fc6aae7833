"""What an observer sees of a stream, and that the stream does not change for it."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engines.profile import Operation
from proxy.engines.usage import Usage
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit
from proxy.relay.sse import MAX_EVENT_BYTES, Observer

SALT = salt_for(ProjectUnit("acme", "apollo"), epoch=0, key=SaltKey("k1", b"0123456789abcdef0123456789abcdef"))
DONE = b"data: [DONE]\n\n"


def observer(operation: Operation = Operation.CHAT, *, hide_usage: bool = False, show_reuse: bool = True) -> Observer:
    return Observer(operation, hide_usage=hide_usage, show_reuse=show_reuse, salt=SALT)


def data(document: Any, name: str | None = None) -> bytes:
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


def chunk(delta: Any = None, **members: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": None}]
    return data({"id": "chatcmpl-1", "choices": choices, **members})


def text(value: str) -> bytes:
    return data({"id": "cmpl-1", "choices": [{"index": 0, "text": value}]})


def named(kind: str, **members: Any) -> bytes:
    return data({"type": kind, **members}, kind)


OPENAI_USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}
HIDDEN_OPENAI_USAGE = {"prompt_tokens": 10, "completion_tokens": 2}
USAGE_ONLY = data({"id": "chatcmpl-1", "choices": [], "usage": OPENAI_USAGE})
CHAT = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "dätä: [DONE]\n\ndata: [DONE]\n\n"}),
    b": keep-alive\n\n",
    chunk({"content": '"usage":{"prompt_tokens":1}'}),
    data({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    USAGE_ONLY,
    DONE,
]
RESPONSE_USAGE = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 2}
RESPONSES = [
    named("response.created", sequence_number=0, response={"id": "resp_1", "status": "in_progress", "usage": None}),
    named("response.output_text.delta", sequence_number=1, delta="ä"),
    named(
        "response.completed",
        sequence_number=2,
        response={"id": "resp_1", "status": "completed", "usage": RESPONSE_USAGE},
    ),
]
MESSAGES = [
    named(
        "message_start",
        message={"id": "msg_1", "usage": {"input_tokens": 2, "output_tokens": 0, "cache_read_input_tokens": 8}},
    ),
    named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    named("content_block_delta", index=0, delta={"type": "text_delta", "text": "ä"}),
    named("content_block_stop", index=0),
    named(
        "message_delta",
        delta={"stop_reason": "end_turn", "stop_sequence": None},
        usage={"input_tokens": 2, "output_tokens": 3, "cache_read_input_tokens": 8},
    ),
    named("message_stop"),
]
STREAMS = {Operation.CHAT: CHAT, Operation.RESPONSES: RESPONSES, Operation.MESSAGES: MESSAGES}


def fed(seen: Observer, *pieces: bytes) -> bytes:
    return b"".join([*map(seen.feed, pieces), seen.finish()])


def cut(stream: bytes, size: int) -> list[bytes]:
    return [stream[begin : begin + size] for begin in range(0, len(stream), size)]


# What is seen.


@pytest.mark.parametrize("operation", STREAMS)
def test_events_leave_unchanged_as_soon_as_they_are_whole(operation: Operation) -> None:
    seen = observer(operation)
    for event in STREAMS[operation]:
        assert seen.feed(event[:9]) == b""
        assert seen.at_border
        assert seen.feed(event[9:]) == event
    assert seen.finish() == b""
    assert seen.complete
    assert not seen.failed
    assert not seen.unobserved


def test_a_chat_stream_tells_its_end_its_usage_and_its_name() -> None:
    seen = observer()
    fed(seen, *CHAT)
    assert seen.usage == Usage(prompt=10, reused=8, output=2)
    assert (seen.finish_reason, seen.response_id, seen.first_token) == ("stop", "chatcmpl-1", "content")
    assert (seen.events, seen.token_events) == (6, 2)


def test_a_responses_stream_tells_its_end_its_usage_and_its_name() -> None:
    seen = observer(Operation.RESPONSES)
    fed(seen, *RESPONSES)
    assert seen.usage == Usage(prompt=10, reused=8, output=2)
    assert (seen.finish_reason, seen.response_id, seen.first_token) == ("completed", "resp_1", "content")
    assert seen.sequence_number == 3


def test_a_messages_stream_tells_its_end_its_usage_and_its_name() -> None:
    seen = observer(Operation.MESSAGES)
    fed(seen, *MESSAGES)
    assert seen.usage == Usage(prompt=10, reused=8, output=3)
    assert (seen.finish_reason, seen.response_id, seen.first_token) == ("end_turn", "msg_1", "content")


def test_a_messages_stream_that_has_only_begun_has_an_unknown_output() -> None:
    seen = observer(Operation.MESSAGES)
    seen.feed(MESSAGES[0])
    assert seen.usage == Usage(prompt=10, reused=8, output=None)


@pytest.mark.parametrize(
    ("operation", "event"),
    [
        (Operation.CHAT, chunk({"role": "assistant"})),
        (Operation.CHAT, chunk({"role": "assistant", "content": ""})),
        (Operation.CHAT, chunk({"content": None, "reasoning": "", "tool_calls": []})),
        (Operation.CHAT, chunk({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]})),
        (Operation.CHAT, b": a comment\n\n"),
        (Operation.CHAT, b"event: ping\nid: 1\nretry: 5\n\n"),
        (Operation.CHAT, USAGE_ONLY),
        (Operation.CHAT, DONE),
        (Operation.COMPLETIONS, text("")),
        (Operation.RESPONSES, RESPONSES[0]),
        (Operation.RESPONSES, named("response.output_text.delta", delta="")),
        (Operation.RESPONSES, named("response.output_text.done", text="a")),
        (Operation.RESPONSES, named("response.output_item.added", item={"type": "function_call", "name": ""})),
        (Operation.RESPONSES, named("response.output_item.added", item={"type": "message", "content": []})),
        (Operation.RESPONSES, named("response.output_item.added", item={"type": "reasoning", "id": "r"})),
        (Operation.RESPONSES, named("response.output_item.done", item={"type": "function_call", "name": "f"})),
        (Operation.MESSAGES, named("content_block_start", content_block={"type": "tool_use", "name": ""})),
        (Operation.MESSAGES, named("content_block_start", content_block={"type": "thinking", "thinking": ""})),
        (Operation.MESSAGES, MESSAGES[0]),
        (Operation.MESSAGES, MESSAGES[1]),
        (Operation.MESSAGES, named("content_block_delta", delta={"type": "signature_delta", "signature": "s"})),
        (Operation.MESSAGES, named("ping")),
    ],
)
def test_an_event_that_bears_no_token_is_not_the_first(operation: Operation, event: bytes) -> None:
    seen = observer(operation)
    seen.feed(event)
    assert seen.first_token is None
    assert seen.token_events == 0


@pytest.mark.parametrize(
    ("operation", "event", "kind"),
    [
        (Operation.CHAT, chunk({"content": "a"}), "content"),
        (Operation.CHAT, chunk({"content": "", "reasoning": "a"}), "reasoning"),
        (Operation.CHAT, chunk({"reasoning_content": "a"}), "reasoning"),
        (Operation.CHAT, chunk({"refusal": "a"}), "refusal"),
        (
            Operation.CHAT,
            chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}),
            "tool_call",
        ),
        (Operation.COMPLETIONS, text(" "), "content"),
        (Operation.RESPONSES, named("response.reasoning_text.delta", delta="a"), "reasoning"),
        (Operation.RESPONSES, named("response.refusal.delta", delta="a"), "refusal"),
        (Operation.RESPONSES, named("response.function_call_arguments.delta", delta="{"), "tool_call"),
        (
            Operation.RESPONSES,
            named("response.output_item.added", item={"type": "function_call", "name": "f", "arguments": ""}),
            "tool_call",
        ),
        (Operation.RESPONSES, named("response.output_item.added", item={"type": "mcp_call", "name": "f"}), "tool_call"),
        (
            Operation.MESSAGES,
            named("content_block_start", content_block={"type": "tool_use", "id": "t", "name": "f", "input": {}}),
            "tool_call",
        ),
        (Operation.MESSAGES, named("content_block_start", content_block={"type": "text", "text": "a"}), "content"),
        (
            Operation.MESSAGES,
            named("content_block_start", content_block={"type": "thinking", "thinking": "a"}),
            "reasoning",
        ),
        (
            Operation.MESSAGES,
            named("content_block_delta", delta={"type": "thinking_delta", "thinking": "a"}),
            "reasoning",
        ),
        (
            Operation.MESSAGES,
            named("content_block_delta", delta={"type": "input_json_delta", "partial_json": "{"}),
            "tool_call",
        ),
    ],
)
def test_the_first_token_has_a_kind(operation: Operation, event: bytes, kind: str) -> None:
    seen = observer(operation)
    seen.feed(event)
    assert seen.first_token == kind
    seen.feed(chunk({"content": "b"}))
    assert seen.first_token == kind


@pytest.mark.parametrize(
    ("operation", "event"),
    [
        (Operation.CHAT, data({"error": {"message": "m", "code": 500}})),
        (Operation.COMPLETIONS, data({"error": {"message": "m"}})),
        (Operation.RESPONSES, named("error", code="x", message="m")),
        (Operation.RESPONSES, named("response.failed", response={"id": "r", "status": "failed"})),
        (Operation.RESPONSES, data({"error": {"message": "m"}})),
        (Operation.MESSAGES, named("error", error={"type": "api_error", "message": "m"})),
    ],
)
def test_an_error_in_the_stream_is_a_failure(operation: Operation, event: bytes) -> None:
    seen = observer(operation, hide_usage=operation is Operation.CHAT)
    assert seen.feed(event) == event
    assert seen.failed


def test_an_error_that_carries_usage_is_not_withheld() -> None:
    event = data({"error": {"message": "m"}, "choices": [], "usage": OPENAI_USAGE})
    assert observer(hide_usage=True).feed(event) == event


@pytest.mark.parametrize("operation", STREAMS)
def test_a_stream_without_its_protocols_last_event_is_not_complete(operation: Operation) -> None:
    seen = observer(operation)
    fed(seen, *STREAMS[operation][:-1])
    assert not seen.complete


def test_a_text_that_looks_like_an_end_is_none() -> None:
    seen = observer()
    seen.feed(chunk({"content": "data: [DONE]"}))
    seen.feed(b"data: [DONE] \n\n: data: [DONE]\n\nx: [DONE]\n\n")
    assert not seen.complete


def test_an_event_that_is_no_json_is_relayed_and_said_to_be_unobserved() -> None:
    seen = observer(hide_usage=True)
    assert seen.feed(b"data: {not json\n\n" + CHAT[1]) == b"data: {not json\n\n" + CHAT[1]
    assert seen.unobserved
    assert seen.first_token == "content"


@pytest.mark.parametrize(
    "event",
    [
        data({"id": 7, "choices": [], "usage": OPENAI_USAGE}),
        b'data: {"id":"x","choices":[],"usage":{"prompt_tokens_details":{"cached_tokens":8}}\n\n',
    ],
)
def test_an_event_that_cannot_be_read_never_tells_the_reuse_that_is_hidden(event: bytes) -> None:
    seen = observer(show_reuse=False)
    assert seen.feed(event) == b""
    assert seen.unobserved
    assert observer(show_reuse=True).feed(event) == event


# Line ends and cuts.


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("operation", STREAMS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_every_line_end_of_the_standard_is_understood_at_every_cut(operation: Operation, end: bytes, size: int) -> None:
    stream = b"".join(STREAMS[operation]).replace(b"\n", end)
    seen, hiding = observer(operation), observer(operation, show_reuse=False)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert fed(seen, *pieces) == stream
    fed(hiding, *pieces)
    for each in (seen, hiding):
        assert each.usage is not None
        assert each.complete
        assert each.first_token == "content"
        assert not each.unobserved
        assert each.at_border


def test_data_may_come_in_several_lines_with_or_without_a_space() -> None:
    seen = observer()
    seen.feed(b'event: x\ndata:{"choices":\ndata: [{"delta":\ndata:{"content":"a"}}]}\n\n')
    assert seen.first_token == "content"
    assert not seen.unobserved


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_what_is_hidden_is_so_behind_a_byte_order_mark_too(size: int) -> None:
    mark = "\ufeff".encode()
    hiding = observer(hide_usage=True)
    assert fed(hiding, *cut(mark + USAGE_ONLY + DONE, size)) == DONE
    assert hiding.usage is not None
    told = observer(Operation.MESSAGES, show_reuse=False)
    usage = {"input_tokens": 2, "cache_read_input_tokens": 8, "output_tokens": 0}
    start = b"data: " + json.dumps({"type": "message_start", "message": {"id": "m", "usage": usage}}).encode() + b"\n\n"
    assert b"cache_read" not in fed(told, *cut(mark + start, size))


def test_several_blank_lines_between_events_change_nothing() -> None:
    stream = b"\n\n\n".join(CHAT) + b"\n"
    seen = observer(hide_usage=True)
    assert USAGE_ONLY not in fed(seen, stream)
    assert seen.complete
    assert not seen.unobserved


# Hiding.


def test_the_usage_event_that_nobody_asked_for_is_withheld() -> None:
    kept = [event for event in CHAT if event is not USAGE_ONLY]
    seen = observer(hide_usage=True)
    assert fed(seen, *CHAT) == b"".join(kept)
    assert seen.usage == Usage(prompt=10, reused=8, output=2)


@pytest.mark.parametrize("choices", [{}, {"choices": None}, {"choices": []}])
@pytest.mark.parametrize("operation", [Operation.CHAT, Operation.COMPLETIONS])
def test_usage_alone_is_withheld_however_its_lack_of_choices_is_told(operation: Operation, choices: Any) -> None:
    event = data({"id": "chatcmpl-1", **choices, "usage": OPENAI_USAGE})
    seen = observer(operation, hide_usage=True)
    assert seen.feed(event) == b""
    assert seen.usage == Usage(prompt=10, reused=8, output=2)
    assert observer(operation).feed(event) == event


def test_a_usage_event_that_was_asked_for_passes() -> None:
    assert fed(observer(), *CHAT) == b"".join(CHAT)


@pytest.mark.parametrize(
    "event",
    [
        chunk({"content": "a"}, usage=OPENAI_USAGE),
        data({"choices": [], "usage": None}),
        data({"choices": []}),
        data({"id": "chatcmpl-1"}),
    ],
)
def test_only_an_event_of_usage_alone_is_withheld(event: bytes) -> None:
    assert observer(hide_usage=True).feed(event) == event


@pytest.mark.parametrize("operation", STREAMS)
@pytest.mark.parametrize("show_reuse", [True, False])
def test_of_an_event_within_which_the_engine_dies_nothing_was_given(operation: Operation, show_reuse: bool) -> None:
    for event in STREAMS[operation]:
        for end in range(1, len(event) - 2):
            seen = observer(operation, show_reuse=show_reuse)
            assert fed(seen, b": ping\n\n", event[:end]) == b": ping\n\n"
            assert seen.at_border
            assert not seen.complete


def test_while_hiding_only_whole_events_leave() -> None:
    seen = observer(hide_usage=True)
    assert seen.feed(CHAT[1][:-1]) == b""
    assert seen.at_border
    assert seen.feed(CHAT[1][-1:] + USAGE_ONLY[:5]) == CHAT[1]
    assert seen.feed(USAGE_ONLY[5:] + DONE) == DONE


def test_the_two_bytes_of_one_line_end_are_not_two() -> None:
    seen = observer(Operation.RESPONSES, show_reuse=False)
    event = RESPONSES[1].replace(b"\n", b"\r\n")
    assert seen.feed(event[:-2]) == b""
    assert seen.feed(event[-2:]) == event
    assert seen.events == 1


def test_events_with_different_line_ends_in_one_read_are_told_apart() -> None:
    seen = observer(hide_usage=True)
    assert seen.feed(USAGE_ONLY.replace(b"\n", b"\r\n") + CHAT[1]) == CHAT[1]
    assert (seen.events, seen.token_events, seen.usage) == (2, 1, Usage(10, 8, 2))


def test_the_second_byte_of_a_withheld_line_end_is_withheld_before_whole_events() -> None:
    seen = observer(hide_usage=True)
    assert fed(seen, USAGE_ONLY.replace(b"\n", b"\r\n")[:-1], b"\n" + CHAT[1]) == CHAT[1]


@pytest.mark.parametrize("show_reuse", [True, False])
def test_the_second_byte_of_a_line_end_belongs_to_its_event_though_it_comes_later(show_reuse: bool) -> None:
    seen = observer(show_reuse=show_reuse)
    event = CHAT[1].replace(b"\n", b"\r\n")
    seen.feed(event[:-1])
    assert seen.feed(b"\n") == b"\n"
    assert seen.at_border


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_withheld_event_takes_its_line_ends_with_it(end: bytes, size: int) -> None:
    stream = b"".join(CHAT).replace(b"\n", end)
    kept = b"".join(event for event in CHAT if event is not USAGE_ONLY).replace(b"\n", end)
    assert fed(observer(hide_usage=True), *(stream[at : at + size] for at in range(0, len(stream), size))) == kept


@pytest.mark.parametrize(
    ("operation", "event", "hidden"),
    [
        (
            Operation.CHAT,
            chunk({"content": "ä"}, usage=OPENAI_USAGE),
            {
                "id": "chatcmpl-1",
                "choices": [{"index": 0, "delta": {"content": "ä"}, "finish_reason": None}],
                "usage": HIDDEN_OPENAI_USAGE,
            },
        ),
        (Operation.CHAT, USAGE_ONLY, {"id": "chatcmpl-1", "choices": [], "usage": HIDDEN_OPENAI_USAGE}),
        (
            Operation.RESPONSES,
            RESPONSES[2],
            {
                "type": "response.completed",
                "sequence_number": 2,
                "response": {
                    "id": "resp_1",
                    "status": "completed",
                    "usage": {
                        "input_tokens": 10,
                        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                        "output_tokens": 2,
                    },
                },
            },
        ),
        (
            Operation.MESSAGES,
            MESSAGES[0],
            {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 10, "output_tokens": 0}}},
        ),
        (
            Operation.MESSAGES,
            MESSAGES[4],
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"input_tokens": 10, "output_tokens": 3},
            },
        ),
    ],
)
def test_an_event_that_tells_reuse_is_rewritten_where_it_may_not(
    operation: Operation, event: bytes, hidden: Any
) -> None:
    seen = observer(operation, show_reuse=False)
    *names, line, blank, end = seen.feed(event).split(b"\n")
    assert json.loads(line.removeprefix(b"data: ")) == hidden
    assert (blank, end) == (b"", b"")
    assert names == event.split(b"\n")[:-3]
    assert seen.usage is not None
    assert seen.usage.reused == 8


@pytest.mark.parametrize(
    ("start", "last", "usage"),
    [
        ({"input_tokens": 2, "cache_read_input_tokens": 8}, {"output_tokens": 4}, Usage(10, 8, 4)),
        ({"input_tokens": 2}, {"output_tokens": 4, "cache_read_input_tokens": 8}, Usage(10, 8, 4)),
        ({"input_tokens": 2, "cache_read_input_tokens": 5}, {"cache_read_input_tokens": 8}, Usage(10, 8, None)),
        (
            {"input_tokens": 2, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 5},
            {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 4},
            Usage(10, 5, 4, 3),
        ),
        ({"input_tokens": 2}, {"input_tokens": 3, "output_tokens": 4}, Usage(3, None, 4)),
        ({"output_tokens": 0}, {"input_tokens": 3, "output_tokens": 4}, Usage(3, None, 4)),
        ({"output_tokens": 0}, {"output_tokens": 4}, None),
    ],
)
def test_the_usage_that_a_message_began_with_is_completed_by_its_last(start: Any, last: Any, usage: Any) -> None:
    for show_reuse in (True, False):
        seen = observer(Operation.MESSAGES, show_reuse=show_reuse)
        given = seen.feed(named("message_start", message={"id": "m", "usage": {"output_tokens": 0, **start}}))
        given += seen.feed(named("message_delta", delta={"stop_reason": "end_turn"}, usage=last))
        assert seen.usage == usage
        assert show_reuse or re.search(rb'cache\w+": ?[1-9]', given) is None


def test_what_a_later_usage_of_a_message_leaves_out_is_as_the_one_before_told() -> None:
    seen = observer(Operation.MESSAGES)
    seen.feed(named("message_start", message={"usage": {"input_tokens": 2, "cache_read_input_tokens": 8}}))
    seen.feed(named("message_delta", usage={"output_tokens": 4}))
    seen.feed(named("message_delta", usage={"cache_creation_input_tokens": 3}))
    assert seen.usage == Usage(prompt=13, reused=8, output=4, cache_written=3)


def test_a_message_that_has_only_begun_tells_what_it_put_into_the_cache() -> None:
    seen = observer(Operation.MESSAGES)
    seen.feed(named("message_start", message={"usage": {"input_tokens": 2, "cache_creation_input_tokens": 8}}))
    assert seen.usage == Usage(prompt=10, reused=None, output=None, cache_written=8)


@pytest.mark.parametrize(
    ("operation", "event"),
    [
        (Operation.CHAT, data({"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 640}}})),
        (Operation.COMPLETIONS, data({"usage": {"prompt_tokens": "x", "prompt_tokens_details": 640}})),
        (Operation.CHAT, data({"usage": {"prompt_tokens": 1, "cache_read_input_tokens": 640}})),
        (Operation.RESPONSES, named("response.in_progress", response={"usage": {"input_tokens_details": 640}})),
        (Operation.RESPONSES, named("response.completed", usage={"input_tokens_details": {"cached_tokens": 640}})),
        (Operation.RESPONSES, named("x", delta="a", response={"usage": {"input_tokens_details": {"a": 640}}})),
        (Operation.MESSAGES, named("message_delta", usage={"output_tokens": 4, "cache_read_input_tokens": 640})),
        (Operation.MESSAGES, named("message_delta", usage={"cache_creation_input_tokens": 640})),
        (Operation.MESSAGES, named("message_delta", usage={"cache_creation": {"ephemeral_5m_input_tokens": 640}})),
        (Operation.MESSAGES, named("message_start", message={"usage": {"cache_read_input_tokens": 640}})),
        (Operation.MESSAGES, named("message_stop", usage={"cache_read_input_tokens": 640})),
        (Operation.MESSAGES, named("ping", message={"usage": {"cache_read_input_tokens": 640}}, usage=None)),
        (
            Operation.MESSAGES,
            named(
                "message_start",
                message={"usage": {"cache_read_input_tokens": 640}},
                usage={"input_tokens": 640, "cache_read_input_tokens": "x"},
            ),
        ),
    ],
)
def test_reuse_is_hidden_wherever_it_is_told_though_the_rest_is_missing(operation: Operation, event: bytes) -> None:
    given = observer(operation, show_reuse=False).feed(event)
    assert b"640" not in given
    assert given.startswith(event[:10])
    assert observer(operation).feed(event) == event


@pytest.mark.parametrize("operation", STREAMS)
def test_no_other_event_is_touched_while_hiding_reuse(operation: Operation) -> None:
    seen = observer(operation, show_reuse=False)
    for event in STREAMS[operation]:
        if b"cache" not in event:
            assert seen.feed(event) == event


@pytest.mark.parametrize("cut", range(1, len(USAGE_ONLY)))
def test_a_stream_cut_within_a_hidden_event_shows_nothing_of_it(cut: int) -> None:
    shown = fed(observer(hide_usage=True), CHAT[1] + USAGE_ONLY[:cut])
    assert shown == CHAT[1]
    assert b"cached" not in fed(observer(show_reuse=False), CHAT[1] + USAGE_ONLY[:cut])


def test_a_last_event_without_its_blank_line_still_counts() -> None:
    for hide_usage in (False, True):
        seen = observer(hide_usage=hide_usage)
        assert fed(seen, CHAT[1] + DONE[:-1]) == CHAT[1] + DONE[:-1]
        assert seen.complete


# Long events.


@pytest.mark.parametrize("hide_usage", [False, True])
@pytest.mark.parametrize("size", [1000, 65536])
def test_a_line_of_any_length_is_relayed_and_given_up_until_the_next_event(hide_usage: bool, size: int) -> None:
    long = chunk({"content": "x\\n" * (2**20 + 2**15)})
    assert len(long) > MAX_EVENT_BYTES + size
    stream = long + b"".join(event for event in CHAT if event is not USAGE_ONLY)
    seen = observer(hide_usage=hide_usage)
    assert fed(seen, *(stream[at : at + size] for at in range(0, len(stream), size))) == stream
    assert seen.unobserved
    assert seen.complete
    assert seen.token_events == 3


@pytest.mark.parametrize("hide_usage", [False, True])
def test_what_waits_is_bounded(hide_usage: bool) -> None:
    seen = observer(hide_usage=hide_usage)
    begun = b"data: " + b"x" * MAX_EVENT_BYTES
    assert seen.feed(begun[:MAX_EVENT_BYTES]) == b""
    assert seen.feed(begun[MAX_EVENT_BYTES:]) == begun
    assert not seen.at_border
    assert (seen.events, seen.token_events, seen.first_token, seen.visible) == (1, 1, "content", True)
    for _ in range(64):
        assert seen.feed(b"x" * 65_536) == b"x" * 65_536
    assert len(seen._tail) < 8
    assert seen.feed(b"\n\n") == b"\n\n"
    assert seen.at_border


def last_response(length: int, kind: str = "response.completed") -> bytes:
    return named(kind, response={"id": "resp_1", "instructions": "x" * length, "usage": RESPONSE_USAGE})


@pytest.mark.parametrize("show_reuse", [True, False])
def test_the_last_event_of_a_response_is_read_though_it_repeats_the_answer(show_reuse: bool) -> None:
    event = last_response(2**17)
    seen = observer(Operation.RESPONSES, show_reuse=show_reuse)
    given = fed(seen, *(event[at : at + 5000] for at in range(0, len(event), 5000)))
    assert seen.usage == Usage(prompt=10, reused=8, output=2)
    assert seen.complete
    assert not seen.unobserved
    assert (given == event) is show_reuse
    assert (b'"cached_tokens": 8' in given) is show_reuse


def test_a_last_event_that_is_too_long_is_known_by_its_name() -> None:
    event = last_response(MAX_EVENT_BYTES)
    seen = observer(Operation.RESPONSES)
    assert fed(seen, event[:-1]) == event[:-1]
    assert not seen.complete
    seen = observer(Operation.RESPONSES)
    assert fed(seen, event[:-9], event[-9:]) == event
    assert seen.complete
    assert seen.unobserved
    assert seen.usage is None
    assert seen.first_token is None


TOO_LONG = "x" * MAX_EVENT_BYTES


@pytest.mark.parametrize("size", [1000, MAX_EVENT_BYTES + 100])
@pytest.mark.parametrize(
    ("operation", "event"),
    [
        (Operation.CHAT, chunk({"content": TOO_LONG}, usage=OPENAI_USAGE)),
        (Operation.COMPLETIONS, data({"choices": [{"text": TOO_LONG}], "usage": OPENAI_USAGE})),
        (Operation.RESPONSES, last_response(MAX_EVENT_BYTES)),
        (Operation.RESPONSES, last_response(MAX_EVENT_BYTES, "response.created")),
        (Operation.MESSAGES, named("message_delta", x=TOO_LONG, usage={"cache_read_input_tokens": 8})),
    ],
)
def test_from_an_event_on_that_is_too_long_to_hide_the_reuse_in_it_nothing_is_given(
    operation: Operation, event: bytes, size: int
) -> None:
    seen = observer(operation, show_reuse=False)
    begun, stop = b": begun\n\n", STREAMS.get(operation, CHAT)[-1]
    pieces = [*cut(event[:-1], size), event[-1:]]
    assert seen.feed(begun + pieces[0]) + fed(seen, *pieces[1:], stop) == begun
    assert (seen.withheld, seen.salt_seen, seen.unobserved, seen.complete) == (True, False, True, False)


def test_whole_events_before_one_that_is_too_long_to_hide_the_reuse_in_it_are_given() -> None:
    seen = observer(show_reuse=False)
    assert seen.feed(CHAT[1] + chunk({"content": TOO_LONG})[:-1]) == CHAT[1]
    assert seen.feed(b"\n" + DONE) + seen.finish() == b""


@pytest.mark.parametrize("size", [1000, 2**20])
@pytest.mark.parametrize("operation", STREAMS)
def test_reuse_is_hidden_in_an_event_of_hundreds_of_kilobytes(operation: Operation, size: int) -> None:
    usage = {**OPENAI_USAGE, "input_tokens": 2, "cache_read_input_tokens": 8}
    event = {
        Operation.CHAT: chunk({"content": "a" * 300_000}, usage=usage),
        Operation.RESPONSES: last_response(300_000),
        Operation.MESSAGES: named("message_delta", x="a" * 300_000, usage=usage),
    }[operation]
    seen = observer(operation, show_reuse=False)
    given = fed(seen, *cut(event, size))
    assert len(given) > 300_000
    assert b'"cached_tokens": 8' not in given
    assert b"cache_read" not in given
    assert seen.usage is not None
    assert seen.usage.reused == 8
    assert not seen.unobserved


def test_a_usage_event_of_hundreds_of_kilobytes_is_withheld() -> None:
    event = data({"id": "x" * 300_000, "choices": [], "usage": OPENAI_USAGE})
    seen = observer(hide_usage=True)
    assert fed(seen, *cut(event, 5000), DONE) == DONE
    assert seen.usage is not None


def test_a_long_event_is_put_together_without_reading_it_again_for_each_piece() -> None:
    """4 MiB in pieces take about as long in one event as in a thousand."""
    long, short = (chunk({"content": "a" * size}).replace(b"\n", b"\r\n") for size in (2**22 - 500, 2**12))
    seen, began = observer(), time.process_time()
    assert fed(seen, *cut(short * 1024, 128)) == short * 1024
    between = time.process_time()
    assert fed(seen, *cut(long, 128)) == long
    assert time.process_time() - between < 5 * (between - began)
    assert (seen.token_events, seen.unobserved) == (1025, False)


def test_a_line_end_that_comes_late_belongs_to_a_long_event_though_the_one_before_was_withheld() -> None:
    seen = observer(hide_usage=True)
    seen.feed(USAGE_ONLY + b"data: " + b"x" * MAX_EVENT_BYTES)
    assert seen.feed(b"\r\n\r") + seen.feed(b"\n" + DONE) + seen.finish() == b"\r\n\r\n" + DONE


def test_an_event_of_4_mib_waits_for_its_end() -> None:
    assert MAX_EVENT_BYTES == 4 * 2**20, "as definitions.md and contract.md say"


# The salt.


@pytest.mark.parametrize("cut", range(1, len(SALT.value)))
@pytest.mark.parametrize("hide_usage", [False, True])
def test_a_salt_in_the_stream_is_seen_at_every_cut_and_never_given_back(cut: int, hide_usage: bool) -> None:
    seen = observer(hide_usage=hide_usage)
    event = chunk({"content": f"the salt is {SALT.value}"})
    at = event.index(SALT.value.encode()) + cut
    given = seen.feed(CHAT[1]) + seen.feed(event[:at])
    assert given in (CHAT[1], CHAT[1] + event[: at - cut])
    assert seen.feed(event[at:]) + seen.feed(DONE) + seen.finish() == b""
    assert seen.salt_seen


def test_a_salt_in_single_bytes_is_seen() -> None:
    seen = observer()
    for byte in SALT.value.encode():
        assert seen.feed(bytes([byte])) == b""
    assert seen.salt_seen


@pytest.mark.parametrize("cut", range(1, 25))
def test_a_salt_that_is_told_in_part_is_seen_at_every_cut(cut: int) -> None:
    for part in (SALT.value[:25], SALT.value[-25:]):
        seen = observer()
        event = chunk({"content": f"the salt is {part}..."})
        at = event.index(part.encode()) + cut
        seen.feed(event[:at])
        assert seen.feed(event[at:]) + seen.finish() == b""
        assert seen.salt_seen


@pytest.mark.parametrize("mark", SALT.marks)
def test_either_end_of_a_salt_is_seen_in_a_whole_event(mark: bytes) -> None:
    seen = observer()
    assert seen.feed(text(mark.decode("ascii"))) == b""
    assert seen.salt_seen


@pytest.mark.parametrize("hide_usage", [True, False])
def test_a_line_that_begins_as_a_salt_does_is_whole_though_whole_events_come_behind_it(hide_usage: bool) -> None:
    seen = observer(hide_usage=hide_usage)
    line = SALT.value[:5].encode("ascii") + b": x\n"
    assert fed(seen, CHAT[1] + line[:3], line[3:] + CHAT[3]) == CHAT[1] + line + CHAT[3]


def test_the_beginning_of_a_salt_alone_is_only_a_text() -> None:
    seen = observer()
    event = b": sg1-k1-vGND\n\n"
    assert seen.feed(event[:-2]) + seen.feed(event[-2:]) == event
    assert seen.feed(DONE[:-2] + b"\ndata: sg1-") + seen.finish() == b""
    assert not seen.salt_seen


# Any stream, any cut.

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["data: [DONE]", '"usage":{', "\n\n", "sg1-k1-", "s"]
)
EVENTS = st.one_of(
    TEXTS.map(lambda value: chunk({"content": value})),
    st.just(CHAT[0]),
    st.just(b": keep-alive\n\n"),
    st.just(b"event: x\nid: 1\ndata: {}\n\n"),
    st.just(chunk({"content": "a"}, usage=OPENAI_USAGE)),
    st.just(USAGE_ONLY),
    st.integers(1, 300).map(lambda length: chunk({"content": "é" * length})),
)


@given(
    st.lists(EVENTS, max_size=6),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(1, 1000), min_size=1, max_size=12),
)
@settings(max_examples=100, deadline=None)
def test_any_stream_passes_exactly_and_loses_exactly_what_is_hidden(
    events: list[bytes], end: bytes, sizes: list[int]
) -> None:
    written = [event.replace(b"\n", end) for event in [*events, DONE]]
    stream = b"".join(written)
    pieces: list[bytes] = []
    at = 0
    while at < len(stream):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(stream[at : at + size])
        at += size
    plain, hiding = observer(), observer(hide_usage=True)
    assert fed(plain, *pieces) == stream
    assert fed(hiding, *pieces) == b"".join(event for event in written if USAGE_ONLY.replace(b"\n", end) not in event)
    assert plain.complete
    assert hiding.complete
    assert (plain.usage is not None) is any(b"cached_tokens" in event for event in events)
    assert plain.token_events == hiding.token_events
