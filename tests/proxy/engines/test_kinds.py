"""Hostile bodies at every endpoint of every kind: our salt in each place that the kind reads, and nowhere another."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw, structs

from proxy.engines.body import read_body
from proxy.engines.kinds import PROFILES
from proxy.engines.profile import Operation
from proxy.engines.rules import Drops, Refuses
from proxy.engines.stamp import CountRequest, StampedRequest, count, stamp
from proxy.engines.usage import read_answer
from proxy.refusals import InvalidRequest
from tests.proxy.engines.asking import EVERYWHERE, LEAST, SALT, body_of, endpoint_of, sent_to, stamped

EVERY = pytest.mark.parametrize(("kind", "operation"), EVERYWHERE)
COUNTING = endpoint_of("vllm", Operation.COUNT_TOKENS)
# Where a salt is read, written down once more from the facts and not from the profiles.
PLACES: dict[str, dict[str, Any]] = {
    "vllm": {"cache_salt": SALT.value},
    "sglang": {"cache_salt": SALT.value},
    "tensorrt-llm": {"cache_salt": SALT.value},
    "dynamo": {"nvext": {"cache_salt": SALT.value}, "cache_salt": SALT.value},
}
OURS = {"request_id", "store", "background", "stream_options"}
THEIRS = [
    ("cache_salt", '"theirs"'),
    ("cache_salt", '["theirs","theirs"]'),
    ("cache_salt", "null"),
    ("cache\\u005fsalt", '"theirs"'),
    ("\\u0063ache_salt", '{"a":"theirs"}'),
    ("CACHE_SALT", '"theirs"'),
    ("cacheSalt", '"theirs"'),
    ("extra_key", '"theirs"'),
    ("extra\\u005fkey", '["theirs"]'),
    ("nvext", '{"cache_salt":"theirs"}'),
    ("nv\\u0065xt", '{"cache_salt":"theirs","extra_fields":["timing"],"token_data":[1]}'),
    ("nvext", '"theirs"'),
    ("NvExt", '{"cache_salt":"theirs"}'),
    ("x-tenant-id", '"theirs"'),
    ("kv_transfer_params", '{"cache_salt":"theirs"}'),
    ("disaggregated_params", '{"ctx_info_endpoint":"theirs"}'),
    ("vllm_xargs", '{"cache_salt":"theirs"}'),
    ("extra_body", '{"cache_salt":"theirs"}'),
    ("rid", '"theirs"'),
    ("session_id", '"theirs"'),
    ("custom_params", '{"cache_salt":"theirs"}'),
]


def headers_of(request: StampedRequest) -> dict[str, str]:
    lines = request.headers.decode().split("\r\n")
    assert lines[-1] == ""
    return dict(line.split(": ", 1) for line in lines[:-1])


@EVERY
def test_the_salt_stands_in_every_place_that_the_kind_reads_and_last(kind: str, operation: Operation) -> None:
    request = stamped(operation, body_of(operation), kind)
    places = PLACES[kind]
    document = json.loads(request.body)
    assert {name: document[name] for name in places} == places
    assert list(document)[-len(places) :] == list(places)
    assert request.body.count(SALT.value.encode()) == len(places)
    assert headers_of(request) == ({"x-tenant-id": SALT.value} if kind == "dynamo" else {})


@EVERY
@pytest.mark.parametrize(("name", "value"), THEIRS)
def test_a_clients_own_is_dropped_in_whatever_form_it_comes(
    kind: str, operation: Operation, name: str, value: str
) -> None:
    body = body_of(operation).decode()
    clean = stamped(operation, body.encode(), kind)
    for injected in (f'{{"{name}":{value},{body[1:]}', f'{body[:-1]},"{name}":{value}}}'):
        request = stamped(operation, injected.encode(), kind)
        assert json.loads(request.body) == json.loads(clean.body)
        assert request.headers == clean.headers


@EVERY
def test_even_a_forged_client_request_goes_up_under_our_salt_alone(kind: str, operation: Operation) -> None:
    client = read_body(endpoint_of(kind, operation), body_of(operation))
    theirs = Raw(b'{"cache_salt":"theirs"}')
    forged = structs.replace(client, fields={"nvext": theirs, "cache_salt": theirs, **client.fields})
    request = stamp(forged, SALT, request_id="r", show_reuse=True)
    document = json.loads(request.body)
    assert list(document.items())[-len(PLACES[kind]) :] == list(PLACES[kind].items())
    assert "cache_salt" not in list(document)[:-1]


@EVERY
@pytest.mark.parametrize("name", ["cache_salt", "extra_key", "nvext"])
def test_one_that_is_named_twice_is_refused_also_where_it_would_be_dropped(
    kind: str, operation: Operation, name: str
) -> None:
    body = body_of(operation).decode()
    escaped = f"\\u{ord(name[0]):04x}{name[1:]}"
    with pytest.raises(InvalidRequest):
        stamped(operation, f'{body[:-1]},"{name}":"a","{escaped}":"b"}}'.encode(), kind)


@pytest.mark.parametrize("kind", PROFILES)
def test_what_a_schema_a_call_or_a_text_says_is_untouched_byte_for_byte(kind: str) -> None:
    words = '"uuid": 1.50 , "cache_salt" :"u\\u0075id" ,"nvext":{"cache_salt":"mine"},"extra_key":1e2'
    messages = (
        '[{"role":"user","content":"\\"cache_salt\\": \\u0022uuid\\u0022 1e400"},'
        f'{{"role":"assistant","tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":{{{words}}}}}}}]}},'
        '{"role":"tool","tool_call_id":"c","content":"{\\"uuid\\":\\"u\\",\\"cache_salt\\":\\"s\\"}"}]'
    )
    tools = f'[{{"type":"function","function":{{"name":"f","parameters":{{"properties":{{{words}}}}}}}}}]'
    schema = f'{{"type":"json_schema","json_schema":{{"name":"x","schema":{{{words}}}}}}}'
    parts = {"messages": messages, "tools": tools, "response_format": schema, "seed": "9007199254740993"}
    parts |= {"temperature": "0.70", "top_p": "1e0"}
    body = '{"model":"tiny",' + ",".join(f'"{name}": {value}' for name, value in parts.items()) + "}"
    upstream = stamped(Operation.CHAT, body.encode(), kind).body.decode()
    for name, value in parts.items():
        assert f'"{name}":{value}' in upstream, name


@EVERY
def test_a_part_loses_its_identity_at_every_kind(kind: str, operation: Operation) -> None:
    if operation not in (Operation.CHAT, Operation.MESSAGES):
        return
    part = {"type": "text", "text": "uuid"}
    laden = part | {"uuid": "u", "cache_salt": "s", "content_hash": "h", "nvext": {}}
    fields: dict[str, Any] = {"max_tokens": 8}
    clean = sent_to(kind, operation, messages=[{"role": "user", "content": [part]}], **fields)
    assert sent_to(kind, operation, messages=[{"role": "user", "content": [laden], "uuid": 1}], **fields) == clean


@EVERY
@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": None, "uuid": "tenant-x"},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "text", "text": "a", "image_url": {"url": "http://10.0.0.1", "content_hash": "h"}},
        {"type": "video_url", "video_url": {"url": "/etc/passwd"}},
        {"type": "audio_url", "audio_url": {"url": "data:,"}},
    ],
)
def test_media_are_refused_at_every_kind(kind: str, operation: Operation, part: dict[str, Any]) -> None:
    name = {Operation.CHAT: "messages", Operation.MESSAGES: "messages", Operation.RESPONSES: "input"}.get(operation)
    if name is None:
        return
    with pytest.raises(InvalidRequest) as refused:
        sent_to(kind, operation, **{name: [{"role": "user", "content": [part]}]})
    assert "Media are not enabled" in refused.value.message


@pytest.mark.parametrize(
    ("kind", "operation", "name", "value"),
    [
        ("sglang", Operation.CHAT, "lora_path", "x"),
        ("sglang", Operation.CHAT, "input_ids", [1]),
        ("sglang", Operation.CHAT, "session_params", {"id": "s"}),
        ("sglang", Operation.CHAT, "custom_logit_processor", "code"),
        ("sglang", Operation.COMPLETIONS, "return_hidden_states", "last"),
        ("sglang", Operation.CHAT, "return_meta_info", True),
        ("sglang", Operation.CHAT, "reasoning", {"effort": "high"}),
        ("sglang", Operation.CHAT, "regex", "a" * 4097),
        ("sglang", Operation.CHAT, "repetition_penalty", 2.1),
        ("tensorrt-llm", Operation.CHAT, "lora_request", {"lora_path": "/x"}),
        ("tensorrt-llm", Operation.CHAT, "prompt_token_ids", [1]),
        ("tensorrt-llm", Operation.CHAT, "top_k", -1),
        ("tensorrt-llm", Operation.CHAT, "use_beam_search", True),
        ("dynamo", Operation.COMPLETIONS, "echo", True),
        ("dynamo", Operation.COMPLETIONS, "logprobs", 6),
        ("dynamo", Operation.CHAT, "repetition_penalty", 2.1),
        ("dynamo", Operation.CHAT, "chat_template_args", {"x": 1}),
        ("dynamo", Operation.RESPONSES, "background", True),
        ("dynamo", Operation.RESPONSES, "previous_response_id", "resp_1"),
        *((kind, Operation.CHAT, "temperature", 2.1) for kind in PROFILES),
    ],
)
def test_what_a_kind_must_not_be_asked_is_refused_by_name(
    kind: str, operation: Operation, name: str, value: object
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        sent_to(kind, operation, **{name: value})
    assert refused.value.param == name


def test_dynamo_stores_nothing_and_runs_nothing_on() -> None:
    document = sent_to("dynamo", Operation.RESPONSES, store=True)
    assert (document["store"], document["background"]) == (False, False)


def test_items_that_dynamo_would_leave_out_are_refused_instead() -> None:
    for item in ({"type": "reasoning", "summary": []}, {"type": "custom_tool_call", "call_id": "c", "input": "x"}):
        with pytest.raises(InvalidRequest):
            sent_to("dynamo", Operation.RESPONSES, input=[item])
    with pytest.raises(InvalidRequest):
        sent_to("dynamo", Operation.RESPONSES, tools=[{"type": "custom", "name": "f"}])


@pytest.mark.parametrize(
    ("kind", "hidden", "in_choice"),
    [
        ("sglang", {"sglext": {"cached_tokens_details": {}}, "metadata": {"weight_version": "1"}}, {"meta_info": {}}),
        ("tensorrt-llm", {"prompt_token_ids_b64": "AA"}, {"disaggregated_params": {"ctx_info_endpoint": "x"}}),
        ("tensorrt-llm", {"prompt_token_ids": [1]}, {"avg_decoded_tokens_per_iter": 2.5}),
        ("dynamo", {"nvext": {"worker_id": 1}}, {}),
        ("vllm", {"metrics": {"queue_time_ms": 1}}, {}),
    ],
)
def test_what_speaks_of_the_engine_is_hidden_at_every_kind(
    kind: str, hidden: dict[str, Any], in_choice: dict[str, Any]
) -> None:
    endpoint = endpoint_of(kind, Operation.CHAT)
    choice = {"index": 0, "message": {"content": "ä"}, "finish_reason": "stop"}
    shown = {"id": "x", "choices": [choice], "usage": {"prompt_tokens": 1}}
    told = shown | hidden | {"choices": [choice | in_choice]}
    assert json.loads(read_answer(endpoint, json.dumps(told).encode(), show_reuse=True).body) == shown
    nothing = json.dumps(shown | dict.fromkeys(hidden) | {"choices": [choice | dict.fromkeys(in_choice)]}).encode()
    assert read_answer(endpoint, nothing, show_reuse=True).body is nothing


@pytest.mark.parametrize("choices", [b"null", b"1", b"[1]", b'["x"]', b"{}"])
def test_choices_that_cannot_be_read_stay_as_they_are(choices: bytes) -> None:
    body = b'{"id":"x","choices":%b}' % choices
    assert read_answer(endpoint_of("tensorrt-llm", Operation.CHAT), body, show_reuse=True).body is body


# Counting tokens: another type, so that a StampedRequest always has its salt.


def test_neither_of_the_two_requests_can_be_made_of_the_others() -> None:
    counting = read_body(COUNTING, body_of(Operation.COUNT_TOKENS))
    with pytest.raises(ValueError, match="no place for a salt"):
        stamp(counting, SALT, request_id="r", show_reuse=True)
    for kind, operation in EVERYWHERE:
        with pytest.raises(ValueError, match="needs a salt"):
            count(read_body(endpoint_of(kind, operation), body_of(operation)), request_id="r")
    with pytest.raises(TypeError):
        type("Unsalted", (CountRequest,), {})


def test_counting_sends_the_prompt_and_nothing_of_a_generation() -> None:
    tools = [{"name": "f", "input_schema": {"properties": {"uuid": {}, "cache_salt": {}}}}]
    asked = {"system": "s", "tools": tools, "tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"}}
    body = body_of(Operation.COUNT_TOKENS, **asked, max_tokens=9, stream=True, temperature=1, cache_salt="theirs")
    document = json.loads(count(read_body(COUNTING, body), request_id="r").body)
    assert document == {"model": "tiny", **LEAST[Operation.COUNT_TOKENS], **asked}


# Any body at all.

NAMES = sorted(
    {name for profile in PROFILES.values() for endpoint in profile.endpoints for name in endpoint.fields}
    | {"model", "stream", "stream_options", "x-tenant-id", "Nvext", "cachesalt", "", "x"}
)
SECRET = "theirs"
LEAVES = st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(0, 2) | st.sampled_from([SECRET, "auto", "a"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["cache_salt", "nvext", "type", "a"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(
    st.sampled_from(EVERYWHERE),
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES, st.booleans()), max_size=8, unique_by=lambda member: member[0]),
)
@settings(max_examples=250, deadline=None)
@example(("dynamo", Operation.CHAT), [("nvext", {"cache_salt": SECRET}, True), ("cache_salt", SECRET, True)])
def test_whatever_a_client_writes_each_kind_gets_our_salt_in_its_places_and_listed_fields_only(
    asked: tuple[str, Operation], members: list[tuple[str, Any, bool]]
) -> None:
    kind, operation = asked
    written = {"model": "tiny", **LEAST[operation]}
    body = json.dumps({name: value for name, value in written.items() if name not in {m[0] for m in members}})
    for name, value, escaped in members:
        spelled = "".join(f"\\u{ord(letter):04x}" for letter in name) if escaped else name
        body = f'{body[:-1]}{", " if len(body) > 2 else ""}"{spelled}": {json.dumps(value)}}}'
    try:
        request = stamped(operation, body.encode(), kind)
    except InvalidRequest:
        return
    document = json.loads(request.body)
    for name, value in PLACES[kind].items():
        assert document[name] == value
    assert request.body.count(SALT.value.encode()) == len(PLACES[kind])
    fields = endpoint_of(kind, operation).fields
    listed = {name for name, line in fields.items() if not isinstance(line.rule, Drops | Refuses)}
    assert document.keys() <= listed | OURS | {"model", "stream"} | PLACES[kind].keys()
    assert set(headers_of(request).values()) <= {SALT.value}
