"""Each field on its own: passed, dropped, or refused with its name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from config.settings import EngineLimits
from proxy.engines.body import read_body
from proxy.engines.extent import MAX_NODES
from proxy.engines.profile import Operation
from proxy.refusals import InvalidRequest
from tests.proxy.engines.asking import ENDPOINT, SALTED, body_of, sent, sent_to

LIMITS = EngineLimits()
MAX_SCHEMA_BYTES, MAX_SCHEMA_LEVELS = LIMITS.schema_bytes, LIMITS.schema_depth
GENERATING = (Operation.CHAT, Operation.COMPLETIONS, Operation.RESPONSES, Operation.MESSAGES)


def param_of(operation: Operation, **fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        read_body(ENDPOINT[operation], body_of(operation, **fields))
    return caught.value.param


@pytest.mark.parametrize("operation", SALTED)
@pytest.mark.parametrize(
    "name",
    [
        "kv_transfer_params",
        "ec_transfer_params",
        "vllm_xargs",
        "request_id",
        "priority",
        "session_id",
        "nvext",
        "extra_key",
        "extra_body",
        "rid",
        "lora_path",
        "logits_processors",
        "metadata",
        "user",
        "prompt_cache_key",
        "service_tier",
        "mm_processor_kwargs",
        "skip_reading_prefix_cache",
        "a_field_of_tomorrow",
    ],
)
def test_a_field_that_is_not_the_clients_to_set_never_reaches_the_engine(operation: Operation, name: str) -> None:
    value = {"cache_salt": "theirs", "remote_host": "10.0.0.1"}
    document = sent(operation, **{name: value})
    assert document.get(name) != value
    assert document.keys() - {"request_id", "cache_salt", "store", "background"} == sent(operation).keys() - {
        "request_id",
        "cache_salt",
        "store",
        "background",
    }


@pytest.mark.parametrize(
    ("operation", "name", "value"),
    [
        (Operation.CHAT, "prompt_logprobs", 0),
        (Operation.CHAT, "use_beam_search", True),
        (Operation.CHAT, "chat_template", "{{ messages }}"),
        (Operation.CHAT, "documents", [{"text": "a"}]),
        (Operation.CHAT, "echo", True),
        (Operation.CHAT, "return_token_ids", True),
        (Operation.CHAT, "return_prompt_text", True),
        (Operation.CHAT, "functions", [{"name": "f"}]),
        (Operation.CHAT, "function_call", {"name": "f"}),
        (Operation.CHAT, "modalities", ["text", "audio"]),
        (Operation.CHAT, "audio", {"voice": "a"}),
        (Operation.CHAT, "web_search_options", {"a": 1}),
        (Operation.COMPLETIONS, "best_of", 2),
        (Operation.COMPLETIONS, "prompt_embeds", "AAAA"),
        (Operation.COMPLETIONS, "prompt_logprobs", 5),
        (Operation.RESPONSES, "previous_response_id", "resp_1"),
        (Operation.RESPONSES, "conversation", "conv_1"),
        (Operation.RESPONSES, "background", True),
        (Operation.RESPONSES, "prompt", {"id": "p"}),
        (Operation.RESPONSES, "previous_input_messages", [{"role": "user"}]),
        (Operation.RESPONSES, "enable_response_messages", True),
        (Operation.MESSAGES, "mcp_servers", [{"url": "http://a"}]),
        (Operation.MESSAGES, "container", "c"),
        (Operation.EMBEDDINGS, "messages", [{"role": "user", "content": "a"}]),
        (Operation.EMBEDDINGS, "normalize", True),
    ],
)
def test_a_field_whose_removal_would_change_the_answer_is_refused_by_name(
    operation: Operation, name: str, value: object
) -> None:
    assert param_of(operation, **{name: value}) == name


@pytest.mark.parametrize("value", [None, False])
@pytest.mark.parametrize("name", ["prompt_logprobs", "use_beam_search", "echo", "return_token_ids"])
def test_a_refused_field_that_asks_for_nothing_is_dropped(name: str, value: object) -> None:
    assert name not in sent(Operation.CHAT, **{name: value})


@pytest.mark.parametrize(
    ("operation", "name", "value"),
    [
        (Operation.CHAT, "n", 9),
        (Operation.CHAT, "n", 0),
        (Operation.CHAT, "n", 2.0),
        (Operation.CHAT, "n", True),
        (Operation.COMPLETIONS, "n", 16384),
        (Operation.CHAT, "top_logprobs", -1),
        (Operation.CHAT, "top_logprobs", 21),
        (Operation.CHAT, "logprobs", 1),
        (Operation.COMPLETIONS, "logprobs", -1),
        (Operation.COMPLETIONS, "logprobs", 21),
        (Operation.COMPLETIONS, "logprobs", True),
        (Operation.RESPONSES, "top_logprobs", -1),
        (Operation.CHAT, "seed", 2**63),
        (Operation.CHAT, "temperature", "0.5"),
        (Operation.CHAT, "temperature", -1),
        (Operation.CHAT, "stop", ["a"] * 17),
        (Operation.CHAT, "stop", "a" * 1025),
        (Operation.CHAT, "logit_bias", {"1": 101}),
        (Operation.CHAT, "logit_bias", {str(token): 1 for token in range(1025)}),
        (Operation.CHAT, "allowed_token_ids", [-1]),
        (Operation.CHAT, "allowed_token_ids", [1] * 1025),
        (Operation.CHAT, "bad_words", ["a"] * 129),
        (Operation.CHAT, "logprob_token_ids", [1] * 129),
        (Operation.CHAT, "max_tokens", "8"),
        (Operation.CHAT, "max_tokens", -1),
        (Operation.CHAT, "tool_choice", "any"),
        (Operation.CHAT, "tool_choice", {"type": "mcp"}),
        (Operation.CHAT, "tool_choice", {"type": "function", "function": {"name": 1}}),
        (Operation.CHAT, "logit_bias", {"1" * 70_000: 1}),
        (Operation.CHAT, "chat_template_kwargs", {"enable_thinking": "no"}),
        (Operation.CHAT, "structured_outputs", {"regex": "a" * 4097}),
        (Operation.CHAT, "response_format", "json"),
        (
            Operation.CHAT,
            "response_format",
            {"type": "json_schema", "json_schema": {"x": 1e308, "y": "z" * MAX_SCHEMA_BYTES}},
        ),
        (Operation.CHAT, "messages", "Hi"),
        (Operation.CHAT, "messages", ["Hi"]),
        (Operation.CHAT, "tools", {"type": "function"}),
        (Operation.RESPONSES, "include", ["file_search_call.results"]),
        (Operation.RESPONSES, "tool_choice", {"type": "web_search_preview"}),
        (Operation.RESPONSES, "text", "json"),
        (Operation.RESPONSES, "truncation", "left"),
        (Operation.MESSAGES, "max_tokens", 0),
        (Operation.MESSAGES, "thinking", {"type": "on"}),
        (Operation.MESSAGES, "tool_choice", "auto"),
        (Operation.EMBEDDINGS, "encoding_format", "bytes"),
        (Operation.EMBEDDINGS, "dimensions", 0),
    ],
)
def test_a_field_of_another_form_or_over_its_bound_is_refused_by_name(
    operation: Operation, name: str, value: object
) -> None:
    assert param_of(operation, **{name: value}) == name


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("chat_template_kwargs", {"documents": []}, "chat_template_kwargs.documents"),
        ("structured_outputs", {"regex": "a", "_backend": "x"}, "structured_outputs._backend"),
    ],
)
def test_a_member_that_a_field_has_not_got_is_refused_by_its_own_name(name: str, value: object, param: str) -> None:
    assert param_of(Operation.CHAT, **{name: value}) == param


@pytest.mark.parametrize("operation", [Operation.COMPLETIONS, Operation.EMBEDDINGS])
@pytest.mark.parametrize("value", ["", "Hi", ["a", "b"], [1, 2, 3], [[1, 2], [3]]])
def test_texts_come_as_strings_or_token_ids(operation: Operation, value: object) -> None:
    name = "prompt" if operation is Operation.COMPLETIONS else "input"
    assert sent(operation, **{name: value})[name] == value


@pytest.mark.parametrize("operation", [Operation.COMPLETIONS, Operation.EMBEDDINGS])
@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        1,
        True,
        ["a", 1],
        [1, "a"],
        [[1], "a"],
        [[1], 1],
        [-1],
        [2**31],
        [1.5],
        [{"role": "user", "content": "a"}],
        [[{"role": "user", "content": "a"}]],
        ["a"] * 2049,
        [None],
        [[[1]]],
    ],
)
def test_texts_of_another_form_or_too_many_are_refused(operation: Operation, value: object) -> None:
    name = "prompt" if operation is Operation.COMPLETIONS else "input"
    assert param_of(operation, **{name: value}) == name


def test_prompts_are_bounded() -> None:
    assert param_of(Operation.COMPLETIONS, prompt=["a"] * 65) == "prompt"


def test_echo_with_logprobs_is_prompt_logprobs_by_another_name() -> None:
    assert param_of(Operation.COMPLETIONS, echo=True, logprobs=0) == "echo"
    assert sent(Operation.COMPLETIONS, echo=True)["echo"] is True
    assert sent(Operation.COMPLETIONS, echo=False, logprobs=1)["logprobs"] == 1
    assert "echo" in sent(Operation.COMPLETIONS, echo=True, logprobs=None)


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        (
            Operation.CHAT,
            {
                "temperature": 0,
                "top_p": 0.5,
                "n": 8,
                "seed": -(2**63),
                "stop": ["a", "b"],
                "max_completion_tokens": 5,
                "logprobs": True,
                "top_logprobs": 20,
                "tool_choice": {"type": "function", "function": {"name": "f"}},
                "chat_template_kwargs": {"enable_thinking": False},
                "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
                "structured_outputs": {"json": {"type": "object"}},
                "reasoning_effort": "low",
                "logit_bias": {"5": -100},
                "repetition_detection": {"max_pattern_size": 4, "min_count": 3},
            },
        ),
        (Operation.COMPLETIONS, {"suffix": "x", "logprobs": 5, "max_tokens": 0, "min_p": 0.1, "top_k": -1}),
        (
            Operation.RESPONSES,
            {
                "instructions": "Be kind.",
                "max_output_tokens": 5,
                "include": ["reasoning.encrypted_content"],
                "reasoning": {"effort": "low", "summary": None, "context": "auto", "mode": "pro"},
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "s",
                        "schema": {"type": "object"},
                        "description": "d",
                        "strict": None,
                    },
                    "verbosity": "low",
                },
                "tool_choice": {"type": "function", "name": "f"},
            },
        ),
        (
            Operation.MESSAGES,
            {
                "system": "Be kind.",
                "stop_sequences": ["a"],
                "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
                "tool_choice": {"type": "tool", "name": "f"},
                "output_config": {
                    "effort": "low",
                    "format": {"type": "json_schema", "schema": {"type": "object"}},
                    "task_budget": {"type": "tokens", "total": 1000, "remaining": 10},
                },
            },
        ),
        (Operation.EMBEDDINGS, {"encoding_format": "base64", "dimensions": 8, "truncate_prompt_tokens": -1}),
    ],
)
def test_fields_that_are_the_clients_own_pass_unchanged(operation: Operation, fields: dict[str, Any]) -> None:
    document = sent(operation, **fields)
    assert {name: document[name] for name in fields} == fields


@pytest.mark.parametrize("operation", GENERATING)
def test_a_null_says_not_given_and_passes(operation: Operation) -> None:
    assert sent(operation, temperature=None)["temperature"] is None


def nested(levels: int) -> Any:
    schema: Any = {}
    for _ in range(levels - 1):
        schema = {"a": schema}
    return schema


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (Operation.CHAT, "response_format"),
        (Operation.RESPONSES, "text"),
        (Operation.MESSAGES, "output_config"),
    ],
)
def test_a_schema_may_nest_as_deep_as_the_engine_allows_and_no_deeper(operation: Operation, name: str) -> None:
    def around(levels: int) -> Any:
        schema = nested(levels - 2)
        if operation is Operation.CHAT:
            return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        return {"format": {"type": "json_schema", "schema": schema}}

    sent(operation, **{name: around(MAX_SCHEMA_LEVELS)})
    assert param_of(operation, **{name: around(MAX_SCHEMA_LEVELS + 1)}) == name


def test_a_tools_schema_is_bounded_too() -> None:
    def tools(levels: int) -> list[Any]:
        return [{"type": "function", "function": {"name": "f", "parameters": nested(levels)}}]

    sent(Operation.CHAT, tools=tools(64))
    assert param_of(Operation.CHAT, tools=tools(MAX_SCHEMA_LEVELS)) == "tools"
    assert param_of(Operation.CHAT, tools=[{"function": {"description": "x" * 2**20}}]) == "tools"


def test_a_schema_is_no_sack_of_objects() -> None:
    """Each costs the thread in which all streams run a microsecond, and a mebibyte holds 350,000."""

    def tools(objects: int) -> list[Any]:
        return [{"type": "function", "function": {"name": "f", "parameters": {"a": [{}] * objects}}}]

    sent(Operation.CHAT, tools=tools(MAX_NODES - 10))
    assert param_of(Operation.CHAT, tools=tools(MAX_NODES)) == "tools"
    text = json.dumps([[]] * (MAX_NODES + 1))
    assert param_of(Operation.CHAT, structured_outputs={"json": text}) == "structured_outputs"


def test_stream_options_need_a_stream_and_hold_booleans() -> None:
    assert param_of(Operation.CHAT, stream_options={"include_usage": True}) == "stream_options"
    assert param_of(Operation.CHAT, stream=True, stream_options=[]) == "stream_options"
    assert param_of(Operation.CHAT, stream=True, stream_options={"include_usage": 1}) == "stream_options.include_usage"
    assert "stream_options" not in sent(Operation.CHAT, stream_options=None)


LONG_PATTERN = "(a|b)*" * 1000


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"regex": LONG_PATTERN}},
        {"structured_outputs": {"json": {"type": "string", "pattern": LONG_PATTERN}}},
        {"structured_outputs": {"json": {"patternProperties": {LONG_PATTERN: {}}}}},
        {
            "structured_outputs": {
                "structural_tag": json.dumps({"format": {"type": "regex", "pattern": LONG_PATTERN * 4}})
            }
        },
        {"structured_outputs": {"grammar": 'root ::= "a"' + ' | "b"' * 20_000}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "string", "pattern": LONG_PATTERN}},
            }
        },
        {
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "f",
                        "parameters": {"properties": {"a": {"type": "string", "pattern": LONG_PATTERN}}},
                    },
                }
            ]
        },
    ],
)
def test_a_pattern_is_bounded_wherever_an_engine_compiles_one(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        sent(Operation.CHAT, **fields)


NESTED = '{"a":' * 200 + "1e999" + "}" * 200
PATTERN = json.dumps({"type": "string", "pattern": LONG_PATTERN})


@pytest.mark.parametrize("text", [PATTERN, NESTED, f" \n{PATTERN} and more", f'{{"a":NaN,"b":"\x01","c":{PATTERN}}}'])
@pytest.mark.parametrize(
    ("kind", "operation", "name", "member"),
    [
        ("vllm", Operation.CHAT, "structured_outputs", "json"),
        ("vllm", Operation.RESPONSES, "structured_outputs", "json"),
        ("vllm", Operation.COMPLETIONS, "structured_outputs", "structural_tag"),
        ("dynamo", Operation.CHAT, "guided_json", None),
        ("sglang", Operation.COMPLETIONS, "json_schema", None),
    ],
)
def test_a_schema_that_is_written_into_a_text_is_bounded_like_one_that_is_not(
    kind: str, operation: Operation, name: str, member: str | None, text: str
) -> None:
    for written in (text, json.dumps({"schema": text})):
        with pytest.raises(InvalidRequest) as caught:
            sent_to(kind, operation, **{name: written if member is None else {member: written}})
        assert caught.value.param == name
    harmless = json.dumps({"type": "string", "pattern": "^a+$"})
    sent_to(kind, operation, **{name: harmless if member is None else {member: harmless}})


def test_what_only_describes_is_no_schema() -> None:
    for text in ("{name} is what I said", "[optional] " + "x" * 5000, "{" * 200, '{"a": ', NESTED, PATTERN):
        function = {"name": "f", "description": text, "parameters": {"properties": {"a": {"description": text}}}}
        sent(Operation.CHAT, tools=[{"type": "function", "function": function}])


@pytest.mark.parametrize("name", ["name", "task", "reasoning", "reasoning_content", "refusal"])
@pytest.mark.parametrize("value", [{"type": "image_url", "uuid": "x"}, ["x"], 1, True])
def test_what_should_be_a_text_in_a_message_is_one(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sent(Operation.CHAT, messages=[{"role": "user", "content": "Hi", name: value}])
    assert caught.value.param == f"messages[0].{name}"
    for harmless in ("x", None):
        assert (
            sent(Operation.CHAT, messages=[{"role": "user", "content": "Hi", name: harmless}])["messages"][0][name]
            == harmless
        )
