"""A client's bytes: what is JSON and what is not, which name is which, and who must be told what."""

from __future__ import annotations

import json

import pytest

from proxy.engines.body import MAX_LISTS, MAX_OBJECTS, read_body
from proxy.engines.profile import MAX_MODEL_CHARACTERS, Operation
from proxy.refusals import InvalidRequest
from tests.proxy.engines.asking import ENDPOINT, SALT, SALTED, body_of, sent, sent_raw, stamped

CHAT = ENDPOINT[Operation.CHAT]
GOOD = '{"model":"tiny","messages":[{"role":"user","content":"Hi"}]}'


def refused(body: bytes, operation: Operation = Operation.CHAT) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read_body(ENDPOINT[operation], body)
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="an array"),
        pytest.param(b'"text"', id="a string"),
        pytest.param(GOOD.encode()[:-1], id="cut"),
        pytest.param(GOOD.encode() + b"x", id="trailing bytes"),
        pytest.param(GOOD.encode() + GOOD.encode(), id="two objects"),
        pytest.param(b"/* c */" + GOOD.encode(), id="a comment"),
        pytest.param(GOOD.replace("}]", "},]").encode(), id="a trailing comma"),
        pytest.param(GOOD.replace('"Hi"', "'Hi'").encode(), id="single quotes"),
        pytest.param(b"\xef\xbb\xbf" + GOOD.encode(), id="a byte order mark"),
        pytest.param(GOOD.encode("utf-16"), id="UTF-16 with a mark"),
        pytest.param(GOOD.encode("utf-16-le"), id="UTF-16"),
        pytest.param(GOOD.encode("utf-32-be"), id="UTF-32"),
        pytest.param(GOOD.replace("Hi", "ä").encode("latin-1"), id="Latin-1 in a value"),
        pytest.param(GOOD.encode().replace(b"Hi", b"\xed\xa0\x80"), id="an encoded surrogate"),
        pytest.param(GOOD.encode().replace(b"Hi", b"\xc0\xaf"), id="an overlong form"),
        pytest.param(GOOD.encode().replace(b"Hi", b"\\ud800"), id="a lone surrogate escape in a value"),
        pytest.param(GOOD.replace('"model"', '"\\ud800":1,"model"').encode(), id="a lone surrogate escape in a name"),
        pytest.param(GOOD.encode().replace(b"Hi", b"\\x41"), id="an escape that JSON has not"),
        pytest.param(GOOD.encode().replace(b"Hi", b"a\nb"), id="a raw control character"),
        pytest.param(GOOD.replace('"Hi"', "NaN").encode(), id="NaN in a value"),
        pytest.param(GOOD.replace("}]}", '}],"seed":NaN}').encode(), id="NaN in a field"),
        pytest.param(GOOD.replace("}]}", '}],"x":-Infinity}').encode(), id="Infinity in an unknown field"),
        pytest.param(GOOD.replace("}]}", '}],"seed":01}').encode(), id="a leading zero"),
        pytest.param(b"[" * 100_000, id="deep arrays"),
        pytest.param(GOOD.replace("}]}", '}],"x":' + "[" * 100_000 + "]" * 100_000 + "}").encode(), id="a deep field"),
        pytest.param(GOOD.replace('"Hi"', '{"a":' * 50_000 + "1" + "}" * 50_000).encode(), id="a deep message"),
    ],
)
def test_a_body_that_is_not_one_json_object_in_utf_8_is_refused(body: bytes) -> None:
    refused(body)


@pytest.mark.parametrize(
    "name",
    [
        "cache_salt",
        "cache\\u005fsalt",
        "\\u0063ache_salt",
        "\\u0063\\u0061\\u0063\\u0068\\u0065\\u005F\\u0073\\u0061\\u006c\\u0074",
        "Cache_Salt",
        "CACHE_SALT",
        "cache-salt",
        "cacheSalt",
        "cache_salt ",
        "cache_salt\\u0000",
        "саche_salt",  # noqa: RUF001 - Cyrillic letters
    ],
)
@pytest.mark.parametrize("value", ['"theirs"', "null", '""', "{}", '["theirs"]', "0"])
@pytest.mark.parametrize("operation", SALTED)
def test_a_clients_salt_is_dropped_in_whatever_form_it_comes(operation: Operation, name: str, value: str) -> None:
    body = body_of(operation).decode()
    for injected in (f'{{"{name}":{value},{body[1:]}', f'{body[:-1]},"{name}":{value}}}'):
        request = stamped(operation, injected.encode())
        document = json.loads(request.body)
        assert document["cache_salt"] == SALT.value
        assert [key for key in document if "alt" in key.lower()] == ["cache_salt"]
        assert b"theirs" not in request.body


@pytest.mark.parametrize("operation", SALTED)
@pytest.mark.parametrize("also", ["cache_salt", "c\\u0061che_salt"])
def test_a_salt_named_twice_is_refused_like_any_member(operation: Operation, also: str) -> None:
    body = body_of(operation).decode()
    refused(f'{body[:-1]},"cache_salt":"a","{also}":"b"}}'.encode(), operation)


@pytest.mark.parametrize(
    "body",
    [
        '{"model":"tiny","model":"tiny","messages":[]}',
        '{"model":"tiny","mod\\u0065l":"tiny","messages":[]}',
        '{ "model" : "tiny" , "messages" : [ ] , "model" : "tiny" }',
        '{"model":"tiny","messages":[],"unknown":1,"unknown":2}',
        '{"model":"tiny","messages":[{"role":"user","content":"a","content":"b"}]}',
        '{"model":"tiny","messages":[{"role":"user","content":"a","c\\u006fntent":"b"}]}',
        '{"model":"tiny","messages":[ {"role":"user", "content":"a", "role":"system"} ]}',
        '{"model":"tiny","messages":[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]}',
        '{"model":"tiny","messages":[{"role":"user","content":[{"type":"text","text":"a","uuid":1,"u\\u0075id":2}]}]}',
        '{"model":"tiny","messages":[{"role":"assistant","tool_calls":[{"id":"1","id":"2","function":{}}]}]}',
        '{"model":"tiny","messages":[],"tools":[{"type":"function","type":"function","function":{"name":"f"}}]}',
        '{"model":"tiny","messages":[],"stream":true,"stream_options":{"include_usage":true,"include_usage":false}}',
    ],
)
def test_a_member_named_twice_is_refused_at_every_level_that_is_opened(body: str) -> None:
    assert refused(body.encode()).reason == "doubled_member"


@pytest.mark.parametrize(
    "body",
    [
        '{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]}',
        '{"model":"tiny","messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"a","type":"b"}]}]}]}',
        '{"model":"tiny","max_tokens":1,"messages":[],"system":[{"type":"text","text":"a","text":"b"}]}',
        '{"model":"tiny","max_tokens":1,"messages":[],"tools":[{"name":"a","name":"b","input_schema":{}}]}',
    ],
)
def test_a_member_named_twice_is_refused_in_anthropic_blocks(body: str) -> None:
    assert refused(body.encode(), Operation.MESSAGES).reason == "doubled_member"


def test_a_doubled_name_below_what_is_opened_is_the_clients_own_business() -> None:
    body = (
        '{"model":"tiny","messages":[{"role":"user","content":"a"}],'
        '"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","type":"object"}}}]}'
    )
    assert b'{"type":"object","type":"object"}' in stamped(Operation.CHAT, body.encode()).body


@pytest.mark.parametrize("model", ["", None, 1, True, ["tiny"], {"id": "tiny"}, "x" * (MAX_MODEL_CHARACTERS + 1)])
@pytest.mark.parametrize("operation", SALTED)
def test_a_request_names_its_model(operation: Operation, model: object) -> None:
    assert refused(body_of(operation, model=model), operation).param == "model"


def test_a_request_without_a_model_is_told_so() -> None:
    assert refused(b'{"messages":[]}').param == "model"


def test_an_escaped_model_name_is_the_model_of_that_name() -> None:
    request = stamped(Operation.CHAT, b'{"model":"t\\u0069ny","messages":[]}')
    assert request.model == "tiny"
    assert json.loads(request.body)["model"] == "tiny"


@pytest.mark.parametrize("value", ["yes", "true", 1, 0, 1.0, [True], {}])
def test_stream_is_a_json_boolean(value: object) -> None:
    assert refused(body_of(Operation.CHAT, stream=value)).param == "stream"


@pytest.mark.parametrize("value", [False, None])
def test_a_stream_that_is_not_asked_for_is_not_made(value: object) -> None:
    assert "stream" not in sent(Operation.CHAT, stream=value)


def test_numbers_and_texts_arrive_as_they_were_written() -> None:
    messages = (
        '[{"content":"1e400 \\u00e4 \\/ NaN","role":"user"},'
        '{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\\"a\\":1.10}"}}]}]'
    )
    tools = '[{"type":"function","function":{"name":"f","parameters":{"x":1.50,"uuid":"u","cache_salt":"mine"}}}]'
    body = f'{{"model":"tiny","seed":9007199254740993,"temperature":0.70,"messages":{messages},"tools":{tools}}}'
    upstream = stamped(Operation.CHAT, body.encode()).body.decode()
    for part in (f'"messages":{messages}', f'"tools":{tools}', '"seed":9007199254740993', '"temperature":0.70'):
        assert part in upstream


def test_white_space_changes_nothing() -> None:
    fields = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a  b"}]}], "seed": 1}
    compact = sent_raw(Operation.CHAT, json.dumps({"model": "tiny", **fields}, separators=(",", ":")).encode())
    assert compact == sent_raw(Operation.CHAT, json.dumps({"model": "tiny", **fields}, indent=3).encode())


def test_a_body_of_more_objects_than_a_prompt_can_have_is_refused_before_they_are_made() -> None:
    body = b'{"model":"tiny","messages":[' + b"{},   " * MAX_OBJECTS + b"{}]}"
    assert refused(body).reason == "too_many_values"


def test_a_refusal_does_not_repeat_what_the_client_sent() -> None:
    for body in (
        body_of(Operation.CHAT, tool_choice="my secret"),
        body_of(Operation.CHAT, messages=[{"role": "my secret", "content": ""}]),
        body_of(Operation.CHAT, response_format="my secret"),
        body_of(Operation.CHAT, messages=[{"role": "user", "content": [{"type": "my secret"}]}]),
    ):
        assert "secret" not in refused(body).message


def test_so_is_one_of_more_lists() -> None:
    body = b'{"model":"tiny","messages":[' + b"[],   " * MAX_LISTS + b"[]]}"
    assert refused(body).reason == "too_many_values"


@pytest.mark.parametrize("blank", ["", " "])
@pytest.mark.parametrize("names", [600, 300_000])
def test_a_body_of_more_members_than_a_protocol_has_is_refused_before_they_are_compared(blank: str, names: int) -> None:
    junk = "".join(f',"x{number}":1' for number in range(names))
    body = f'{{{blank}"model":"tiny","messages":[{{"role":"user","content":"Hi"}}]{junk}}}'.encode()
    assert refused(body).reason in {"too_many_members", "too_many_values"}


@pytest.mark.parametrize(
    "where", ['"role":"user","content":"Hi"', '"role":"user","content":[{"type":"text","text":"Hi"']
)
def test_so_is_a_message_or_part(where: str) -> None:
    junk = "".join(f',"x{number}":1' for number in range(100))
    end = "}]" if "[" in where else ""
    body = f'{{"model":"tiny","messages":[{{{where} {junk}{end}}}]}}'.encode()
    assert refused(body).reason == "too_many_members"
