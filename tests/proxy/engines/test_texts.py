"""The texts of a request: every string that can reach the model, alone and put together, or an honest "cannot"."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engines.body import ClientRequest, read_body
from proxy.engines.profile import Operation
from proxy.engines.texts import MAX_TEXTS, texts
from proxy.isolation.narrowing import Unseen
from tests.proxy.engines.asking import ENDPOINT, LEAST, body_of

LIMIT = 2**20
CHAT, COMPLETIONS, RESPONSES = Operation.CHAT, Operation.COMPLETIONS, Operation.RESPONSES
MESSAGES, EMBEDDINGS = Operation.MESSAGES, Operation.EMBEDDINGS


def asked(operation: Operation, **fields: Any) -> ClientRequest:
    return read_body(ENDPOINT[operation], body_of(operation, **fields))


def seen(operation: Operation, **fields: Any) -> tuple[str, ...]:
    found = texts(asked(operation, **fields), limit_bytes=LIMIT)
    assert not isinstance(found, Unseen)
    return found


def lines(operation: Operation, **fields: Any) -> list[str]:
    return seen(operation, **fields)[0].split("\n")


def test_each_string_stands_alone_then_joined_by_message_then_by_field() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "system", "content": "zero"}, {"role": "user", "content": parts}]
    assert seen(CHAT, messages=messages) == ("zero\none\ntwo", "onetwo", "zeroonetwo")
    assert seen(CHAT) == ("Hi",)
    assert seen(COMPLETIONS, prompt=["one", "two"], suffix="3") == ("one\ntwo\n3", "one3two3")
    assert seen(MESSAGES, system=parts)[1:] == ("onetwoHi",)


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        (RESPONSES, {"instructions": "SEC", "input": "RET"}),
        (RESPONSES, {"input": [{"role": "user", "content": "RET"}], "instructions": "SEC"}),
        (MESSAGES, {"messages": [{"role": "user", "content": "RET"}], "system": [{"type": "text", "text": "SEC"}]}),
        (COMPLETIONS, {"suffix": "RET", "prompt": "SEC"}),
        (COMPLETIONS, {"suffix": "RET", "prompt": ["SEC", "x"]}),
        (COMPLETIONS, {"suffix": "RET", "prompt": ["x", "SEC"]}),
        (MESSAGES, {"messages": [{"role": "assistant", "content": [
            {"type": "thinking", "thinking": "SEC", "signature": "s"}, {"type": "text", "text": "RET"}]}]}),
        (MESSAGES, {"messages": [{"role": "assistant", "content": [
            {"type": "text", "text": "SEC"}, {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "text", "text": "RET"}]}]}),
        (CHAT, {"messages": [{"role": "assistant", "content": [
            {"type": "text", "text": "SEC"}, {"type": "refusal", "refusal": "r"}, {"type": "text", "text": "RET"}]}]}),
        (CHAT, {"messages": [{"role": "assistant", "content": [
            {"type": "text", "text": "SEC"}, {"type": "refusal", "refusal": "RET"}]}]}),
        (CHAT, {"messages": [{"role": "assistant", "content": "SEC", "reasoning_content": "r"},
                             {"role": "user", "content": "RET"}]}),
        (RESPONSES, {"input": [
            {"role": "assistant", "content": "SEC"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "r"}]},
            {"role": "user", "content": "RET"}]}),
    ],
)  # fmt: skip
def test_what_stands_side_by_side_in_the_prompt_is_put_together(operation: Operation, fields: dict[str, Any]) -> None:
    assert "SECRET" in "\n".join(seen(operation, **fields))


def test_what_stands_aside_is_put_together_with_the_rest_also() -> None:
    """A call's own `type` and `thinking` are its arguments, whatever they say, and hide no message from a rule."""
    call = {"type": "tool_use", "id": "1", "name": "n", "input": {"type": "reasoning"}}
    thought = {"type": "thinking", "thinking": "t", "signature": "s"}
    messages = [
        {"role": "assistant", "content": [call, {"type": "text", "text": "SEC"}]},
        {"role": "assistant", "content": [thought]},
        {"role": "user", "content": "RET"},
    ]
    assert "SECRET" in "\n".join(seen(MESSAGES, messages=messages))


def test_a_long_suffix_of_very_many_prompts_is_over_the_limit() -> None:
    request = asked(COMPLETIONS, prompt=["x"] * 16, suffix="y" * 2**17)
    assert texts(request, limit_bytes=LIMIT) is Unseen.OVER_LIMIT


def test_names_values_and_numbers_of_what_the_protocol_does_not_name_are_texts() -> None:
    call = {"type": "tool_use", "id": "c-1", "name": "pay", "input": {"password": "hunter2", "card": 4111111111111111}}
    found = lines(MESSAGES, messages=[{"role": "assistant", "content": [call]}])
    assert {"pay", "c-1", "password", "hunter2", "password: hunter2", "4111111111111111"} <= set(found)
    # The protocol's own words are in every request, so a rule that finds one says nothing.
    assert not {"role", "assistant", "tool_use", "type", "input", "content"} & set(found)
    schema = {"type": "object", "properties": {"iban": {"type": "string", "enum": ["a", "b"], "default": "c"}}}
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}}
    assert {"iban", "a", "b", "default: c", "c", "d"} <= set(lines(CHAT, tools=[tool]))


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        (CHAT, {"messages": [{"role": "system", "content": "SECRET"}]}),
        (CHAT, {"messages": [{"role": "user", "name": "SECRET", "content": "x"}]}),
        (CHAT, {"messages": [{"role": "assistant", "reasoning_content": "SECRET"}]}),
        (CHAT, {"messages": [{"role": "assistant", "refusal": "SECRET"}]}),
        (CHAT, {"messages": [{"role": "tool", "tool_call_id": "SECRET", "content": "x"}]}),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "SECRET"}}}),
        (CHAT, {"structured_outputs": {"choice": ["SECRET"]}}),
        (CHAT, {"stop": ["SECRET"]}),
        (CHAT, {"bad_words": ["SECRET"]}),
        (CHAT, {"tool_choice": {"type": "function", "function": {"name": "SECRET"}}}),
        (COMPLETIONS, {"prompt": "SECRET"}),
        (COMPLETIONS, {"suffix": "SECRET"}),
        (RESPONSES, {"instructions": "SECRET"}),
        (RESPONSES, {"input": [{"type": "function_call", "call_id": "c", "name": "n", "arguments": "SECRET"}]}),
        (RESPONSES, {"input": [{"type": "function_call_output", "call_id": "c", "output": "SECRET"}]}),
        (RESPONSES, {"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "SECRET"}]}]}),
        (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "SECRET"}}}),
        (MESSAGES, {"system": "SECRET"}),
        (MESSAGES, {"stop_sequences": ["SECRET"]}),
        (EMBEDDINGS, {"input": ["x", "SECRET"]}),
    ],
)
def test_every_place_is_seen(operation: Operation, fields: dict[str, Any]) -> None:
    assert "SECRET" in "\n".join(seen(operation, **fields))


def test_what_is_dropped_is_not_looked_at() -> None:
    assert seen(CHAT, metadata={"a": "SECRET"}, user="SECRET", unknown="SECRET") == ("Hi",)
    request = read_body(ENDPOINT[CHAT], b'{"model":"SECRET","messages":[{"role":"user","content":"Hi","x":"SECRET"}]}')
    assert texts(request, limit_bytes=LIMIT) == ("Hi",)


def test_escapes_and_names_are_decoded() -> None:
    raw = (
        rb'{"model":"tiny","messages":[{"rol\u0065":"user","cont\u0065nt":"\u0053\u0045CR\u0045T \ud83d\ude00 \"q\""}]}'
    )
    assert texts(read_body(ENDPOINT[CHAT], raw), limit_bytes=LIMIT) == ('SECRET 😀 "q"',)


def test_a_member_that_is_named_twice_below_what_the_gate_opens_is_seen_twice() -> None:
    raw = b'{"model":"tiny","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1",'
    raw += b'"name":"n","input":{"a":"FIRST","a":"SECOND"}}]}]}'
    found = texts(read_body(ENDPOINT[MESSAGES], raw), limit_bytes=LIMIT)
    assert not isinstance(found, Unseen)
    assert {"FIRST", "SECOND"} <= set(found[0].split("\n"))


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        (COMPLETIONS, {"prompt": [1, 2, 3]}),
        (COMPLETIONS, {"prompt": [[1, 2], [3]]}),
        (EMBEDDINGS, {"input": [1]}),
        (EMBEDDINGS, {"input": [[1]]}),
        (CHAT, {"messages": [{"role": "user", "content": "data:image/png;base64,iVBORw0KGgo="}]}),
        (CHAT, {"messages": [{"role": "user", "content": "DATA:;BASE64,AAAA"}]}),
        (MESSAGES, {"messages": [{"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}]}),
        (RESPONSES, {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}]}),
    ],
)
def test_what_is_not_text_cannot_be_scanned(operation: Operation, fields: dict[str, Any]) -> None:
    assert texts(asked(operation, **fields), limit_bytes=LIMIT) is Unseen.UNSCANNABLE


@pytest.mark.parametrize("first", [b"1", b"-0", b" \n\t" * 2000 + b"1", b"[-0]"])
def test_no_spelling_of_token_ids_hides_them(first: bytes) -> None:
    raw = b'{"model":"tiny","prompt":[' + first + b"]}"
    assert texts(read_body(ENDPOINT[COMPLETIONS], raw), limit_bytes=LIMIT) is Unseen.UNSCANNABLE


def test_the_limit_is_on_what_is_looked_at() -> None:
    request = asked(CHAT, messages=[{"role": "user", "content": "x" * 1000}], metadata={"a": "y" * 10_000})
    assert texts(request, limit_bytes=1100) != Unseen.OVER_LIMIT
    assert texts(request, limit_bytes=1000) is Unseen.OVER_LIMIT


@pytest.mark.slow
def test_very_many_strings_are_over_the_limit() -> None:
    value = {"a": ["x"] * MAX_TEXTS}
    call = {"type": "tool_use", "id": "1", "name": "n", "input": value}
    request = asked(MESSAGES, messages=[{"role": "assistant", "content": [call]}])
    assert texts(request, limit_bytes=LIMIT) is Unseen.OVER_LIMIT
    value["a"] = ["x"] * 1000
    request = asked(MESSAGES, messages=[{"role": "assistant", "content": [call]}])
    assert texts(request, limit_bytes=LIMIT) != Unseen.OVER_LIMIT


def test_depth_costs_nothing() -> None:
    deep = b"[" * 400 + b'"SECRET"' + b"]" * 400
    raw = b'{"model":"tiny","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1",'
    raw += b'"name":"n","input":{"a":%b}}]}]}' % deep
    found = texts(read_body(ENDPOINT[MESSAGES], raw), limit_bytes=LIMIT)
    assert not isinstance(found, Unseen)
    assert "SECRET" in found[0]


_WORDS = st.text(max_size=12).map("§".__add__)  # none of the protocols' own
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=12,
)


def strings_of(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [one for inner in value for one in strings_of(inner)]
        case dict():
            return [one for name, inner in value.items() for one in (name, *strings_of(inner))]
        case _:
            return []


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(_WORDS, _JSON, max_size=5), st.booleans())
def test_no_string_of_a_tool_call_is_missed(arguments: dict[str, Any], ascii_only: bool) -> None:
    call = {"type": "tool_use", "id": "1", "name": "n", "input": arguments}
    document = {"model": "tiny", **LEAST[MESSAGES], "messages": [{"role": "assistant", "content": [call]}]}
    body = json.dumps(document, ensure_ascii=ascii_only).encode()
    found = texts(read_body(ENDPOINT[MESSAGES], body), limit_bytes=LIMIT)
    assert not isinstance(found, Unseen)
    alone = f"\n{found[0]}\n"
    assert all(f"\n{one}\n" in alone for one in strings_of(arguments))
