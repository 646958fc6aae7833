"""Objects inside a field: of those, too, only known members pass, each once, at every endpoint of every kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types import ToolChoiceAutoParam, ToolChoiceToolParam
from anthropic.types.beta import (
    BetaJSONOutputFormatParam,
    BetaOutputConfigParam,
    BetaThinkingBlockBindingParam,
    BetaThinkingConfigAdaptiveParam,
    BetaThinkingConfigEnabledParam,
    BetaTokenTaskBudgetParam,
)
from openai.types.chat import ChatCompletionNamedToolChoiceParam
from openai.types.responses import (
    ResponseFormatTextJSONSchemaConfigParam,
    ResponseTextConfigParam,
    ToolChoiceFunctionParam,
)
from openai.types.shared_params import Reasoning, ResponseFormatJSONSchema
from openai.types.shared_params.response_format_json_schema import JSONSchema

from proxy.engines.body import read_body
from proxy.engines.kinds import PROFILES
from proxy.engines.profile import Operation
from proxy.engines.rules import Passes, Schema
from proxy.refusals import InvalidRequest
from tests.proxy.engines.asking import LEAST, body_of, endpoint_of, sent, sent_to, stamped

FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "cache_salt": "mine"}}}
TEXT = {"format": {"type": "json_schema", "name": "n", "schema": {"anything": {"goes": 1}}}}
# Every field that takes an object, with one that it takes.
OBJECTS: dict[tuple[str, Operation], dict[str, Any]] = {
    ("vllm", Operation.CHAT): {
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": FORMAT,
        "chat_template_kwargs": {"thinking": True},
        "structured_outputs": {"choice": ["a"]},
        "repetition_detection": {"min_count": 3},
    },
    ("vllm", Operation.COMPLETIONS): {
        "response_format": {"type": "structural_tag", "triggers": ["<"], "structures": [{"begin": "<", "end": ">"}]},
        "structured_outputs": {"regex": "a"},
        "repetition_detection": {"min_count": 3},
    },
    ("vllm", Operation.RESPONSES): {
        "tool_choice": {"type": "function", "name": "f"},
        "reasoning": {"effort": "low"},
        "text": TEXT,
        "chat_template_kwargs": {"thinking": True},
        "structured_outputs": {"json": {}},
    },
    ("vllm", Operation.MESSAGES): {
        "tool_choice": {"type": "tool", "name": "f"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"format": {"type": "json_schema", "schema": {}}},
        "chat_template_kwargs": {"thinking": True},
    },
    ("vllm", Operation.COUNT_TOKENS): {
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
        "chat_template_kwargs": {"thinking": True},
    },
    ("vllm", Operation.EMBEDDINGS): {},
    ("sglang", Operation.CHAT): {
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": FORMAT,
        "chat_template_kwargs": {"thinking": True},
    },
    ("sglang", Operation.COMPLETIONS): {"response_format": FORMAT},
    ("tensorrt-llm", Operation.CHAT): {
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json", "schema": {"type": "object"}},
        "thinking": {"type": "enabled"},
        "chat_template_kwargs": {"thinking": True},
    },
    ("dynamo", Operation.CHAT): {
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": FORMAT,
        "thinking": {"type": "enabled"},
        "chat_template_kwargs": {"thinking": True},
    },
    ("dynamo", Operation.COMPLETIONS): {},
    ("dynamo", Operation.RESPONSES): {
        "tool_choice": {"type": "function", "name": "f"},
        "reasoning": {"effort": "low"},
        "text": TEXT,
    },
    ("dynamo", Operation.EMBEDDINGS): {},
}
CASES = [(*place, name, value) for place, fields in OBJECTS.items() for name, value in fields.items()]
# A client's own: names of tokens, and schemas.
FREE = {"logit_bias", "guided_json"}


def takes_objects() -> Iterator[tuple[str, Operation, str]]:
    """Every field whose rule lets an object pass, found by asking the rule: it names the member that it has not got."""
    for kind, profile in PROFILES.items():
        for endpoint in profile.endpoints:
            for name, line in endpoint.fields.items():
                if isinstance(line.rule, Passes | Schema) and name not in FREE:
                    schema = json.dumps(_types(line.rule.form.type))
                    if "Struct" in schema or "dict" in schema:
                        yield kind, endpoint.operation, name


def _types(form: object) -> str:
    inner = getattr(form, "__args__", ())
    return f"{form!r} {getattr(form, '__mro__', '')} {' '.join(map(_types, inner))}"


def test_every_field_that_takes_an_object_is_tried_below() -> None:
    assert set(takes_objects()) == {(kind, operation, name) for kind, operation, name, _ in CASES}


@pytest.mark.parametrize(("kind", "operation", "name", "value"), CASES)
def test_what_a_client_may_say_passes_as_it_is(kind: str, operation: Operation, name: str, value: Any) -> None:
    request = read_body(endpoint_of(kind, operation), body_of(operation, **{name: value}))
    assert json.loads(bytes(request.fields[name])) == value


def refused(kind: str, operation: Operation, name: str, written: str) -> InvalidRequest:
    members = json.dumps({"model": "tiny", **LEAST[operation]})[1:]
    with pytest.raises(InvalidRequest) as caught:
        read_body(endpoint_of(kind, operation), f'{{"{name}":{written},{members}'.encode())
    return caught.value


@pytest.mark.parametrize(("kind", "operation", "name", "value"), CASES)
@pytest.mark.parametrize("member", ["cache_salt", "kv_transfer_params", "uuid", "x"])
def test_a_member_that_is_not_known_is_refused_by_its_name(
    kind: str, operation: Operation, name: str, value: Any, member: str
) -> None:
    refusal = refused(kind, operation, name, json.dumps({**value, member: "mine"}))
    assert (refusal.param, refusal.reason) == (f"{name}.{member}", "unknown_member")
    escaped = json.dumps({**value, "MEMBER": 1}).replace("MEMBER", f"\\u{ord(member[0]):04x}{member[1:]}")
    assert refused(kind, operation, name, escaped).param == f"{name}.{member}"


# What the official SDKs can say: the object around it, at the place of None, and their own type of it.
SAID_BY_SDKS: list[tuple[Operation, str, Any, type]] = [
    (Operation.CHAT, "tool_choice", None, ChatCompletionNamedToolChoiceParam),
    (Operation.CHAT, "response_format", None, ResponseFormatJSONSchema),
    (Operation.CHAT, "response_format", {"type": "json_schema", "json_schema": None}, JSONSchema),
    (Operation.RESPONSES, "tool_choice", None, ToolChoiceFunctionParam),
    (Operation.RESPONSES, "reasoning", None, Reasoning),
    (Operation.RESPONSES, "text", None, ResponseTextConfigParam),
    (Operation.RESPONSES, "text", {"format": None}, ResponseFormatTextJSONSchemaConfigParam),
    (Operation.MESSAGES, "tool_choice", None, ToolChoiceToolParam),
    (Operation.MESSAGES, "tool_choice", None, ToolChoiceAutoParam),
    (Operation.MESSAGES, "thinking", None, BetaThinkingConfigEnabledParam),
    (Operation.MESSAGES, "thinking", None, BetaThinkingConfigAdaptiveParam),
    (Operation.MESSAGES, "thinking", {"type": "adaptive", "block_binding": None}, BetaThinkingBlockBindingParam),
    (Operation.MESSAGES, "output_config", None, BetaOutputConfigParam),
    (Operation.MESSAGES, "output_config", {"format": None}, BetaJSONOutputFormatParam),
    (Operation.MESSAGES, "output_config", {"task_budget": None}, BetaTokenTaskBudgetParam),
]


@pytest.mark.parametrize(("operation", "name", "around", "said"), SAID_BY_SDKS)
def test_every_member_that_the_official_sdks_have_is_known(
    operation: Operation, name: str, around: Any, said: type
) -> None:
    """Null may not be its value; then the refusal is about the form, and not about the name."""
    for member in said.__annotations__:
        value: Any = {member: None}
        if around is not None:
            value = {key: value if inner is None else inner for key, inner in around.items()}
        assert reason_of(operation, name, value) != "unknown_member", member


def reason_of(operation: Operation, name: str, value: object) -> str | None:
    """Why it is refused, if it is."""
    try:
        read_body(endpoint_of("vllm", operation), body_of(operation, **{name: value}))
    except InvalidRequest as refusal:
        return refusal.reason
    return None


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("tool_choice", {"type": "function", "function": {"name": "f", "x": 1}}, "tool_choice.function.x"),
        ("response_format", {**FORMAT, "json_schema": {"name": "n", "x": 1}}, "response_format.json_schema.x"),
        (
            "response_format",
            {**FORMAT, "structures": [{"begin": "", "end": "", "x": 1}]},
            "response_format.structures[0].x",
        ),
    ],
)
def test_so_is_one_further_down(name: str, value: Any, param: str) -> None:
    refusal = refused("vllm", Operation.CHAT, name, json.dumps(value))
    assert refusal.param == param


def test_a_name_that_could_be_a_text_is_not_repeated() -> None:
    refusal = refused("vllm", Operation.CHAT, "tool_choice", '{"type":"function","my secret: é`":1}')
    assert (refusal.param, "secret" in refusal.message) == ("tool_choice", False)


@pytest.mark.parametrize(("kind", "operation", "name", "value"), CASES)
@pytest.mark.parametrize("blank", ["", " "])
def test_a_member_named_twice_is_refused(kind: str, operation: Operation, name: str, value: Any, blank: str) -> None:
    member, first = next(iter(value.items()))
    written = json.dumps(value)[:-1] + f',{blank}"{member}":{json.dumps(first)}}}'
    assert refused(kind, operation, name, written).reason == "doubled_member"
    escaped = json.dumps(value)[:-1] + f',"\\u{ord(member[0]):04x}{member[1:]}":{json.dumps(first)}}}'
    assert refused(kind, operation, name, escaped).reason == "doubled_member"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("logit_bias", '{"1":1,"1":2}'),
        ("tool_choice", '{"type":"function","function":{"name":"a","name":"b"}}'),
        ("response_format", '{"type":"json_schema","json_schema":{"name":"n","schema":{"a":{"b":1,"b":2}}}}'),
        ("response_format", '{"type":"json_schema","json_schema":{"name":"n","schema":{"a":[{"b":1,"b":2}]}}}'),
        ("tools", '[{"type":"function","function":{"name":"a","name":"b"}}]'),
        ("messages", '[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"a","name":"b"}}]}]'),
    ],
)
def test_so_is_one_further_down_twice(name: str, written: str) -> None:
    body = f'{{"model":"tiny","{name}":{written}'
    body += "}" if name == "messages" else ',"messages":[{"role":"user","content":"Hi"}]}'
    with pytest.raises(InvalidRequest) as caught:
        read_body(endpoint_of("vllm", Operation.CHAT), body.encode())
    assert caught.value.reason == "doubled_member"


def test_of_functions_only_known_members_go_up() -> None:
    function = {"name": "f", "description": "d", "parameters": {"cache_salt": "the schema's own"}, "strict": True}
    tool = {"type": "function", "function": {**function, "cache_salt": "x", "uuid": "x"}, "cache_salt": "x"}
    assert sent(Operation.CHAT, tools=[tool])["tools"] == [{"type": "function", "function": function}]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"cache_salt":1}', "uuid": "x"}}
    turn = {"role": "assistant", "tool_calls": [call]}
    (message,) = sent(Operation.CHAT, messages=[turn])["messages"]
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"cache_salt":1}'}
    custom = {"type": "custom", "name": "c", "format": {"type": "text", "uuid": "x"}}
    assert sent(Operation.RESPONSES, tools=[custom])["tools"][0]["format"] == {"type": "text"}
    assert sent_to("sglang", Operation.CHAT, tools=[tool])["tools"] == [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    ("operation", "fields", "param"),
    [
        (Operation.CHAT, {"tools": [{"type": "function", "function": "f"}]}, "tools[0].function"),
        (Operation.CHAT, {"tools": [{"type": "function", "function": {"name": {}}}]}, "tools[0].function.name"),
        (
            Operation.CHAT,
            {"messages": [{"role": "assistant", "tool_calls": [{"id": {}, "function": {"name": "f"}}]}]},
            "messages[0].tool_calls[0].id",
        ),
        (Operation.RESPONSES, {"input": [{"type": "function_call", "name": ["x"]}]}, "input[0].name"),
        (Operation.RESPONSES, {"input": [{"role": "user", "content": "x", "id": {}}]}, "input[0].id"),
        (
            Operation.MESSAGES,
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": {}}]}]},
            "messages[0].content[0].tool_use_id",
        ),
        (Operation.MESSAGES, {"tools": [{"name": {"a": 1}}]}, "tools[0].name"),
    ],
)
def test_where_a_text_belongs_no_object_passes(operation: Operation, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        stamped(operation, body_of(operation, **fields))
    assert caught.value.param == param
