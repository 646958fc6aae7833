"""What goes to the engine: exactly one salt, ours, and nothing that the table does not name."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.engines.body import read_body
from proxy.engines.profile import Operation
from proxy.engines.rules import Drops, Refuses
from proxy.engines.stamp import StampedRequest, stamp
from proxy.refusals import InvalidRequest
from tests.proxy.engines.asking import ENDPOINT, LEAST, SALT, SALTED, body_of, sent, stamped

BY_THE_GATE = {"model", "stream", "stream_options", "cache_salt", "request_id", "store", "background"}


def pairs_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize("operation", SALTED)
def test_the_salt_is_stamped_last_and_once(operation: Operation) -> None:
    request = stamped(operation, body_of(operation))
    assert request.body.endswith(b',"cache_salt":"' + SALT.value.encode() + b'"}')
    assert request.body.count(SALT.value.encode()) == 1


def test_a_client_that_knows_the_salts_name_gains_nothing_by_writing_it_anywhere() -> None:
    document = sent(Operation.CHAT, messages=[{"role": "user", "content": '","cache_salt":"theirs'}])
    assert document["cache_salt"] == SALT.value


@pytest.mark.parametrize(("operation", "prefix"), [(Operation.CHAT, ""), (Operation.RESPONSES, "resp_")])
def test_the_engine_knows_the_request_by_our_id(operation: Operation, prefix: str) -> None:
    assert sent(operation, request_id="resp_of_somebody_else")["request_id"] == f"{prefix}r-1"


def test_messages_has_no_field_for_an_id() -> None:
    assert "request_id" not in sent(Operation.MESSAGES, request_id="x")


@pytest.mark.parametrize("value", [True, False, None])
def test_nothing_is_stored_or_run_behind_the_clients_back(value: bool | None) -> None:
    document = sent(Operation.RESPONSES, store=value)
    assert document["store"] is False
    assert document["background"] is False


@pytest.mark.parametrize("operation", [Operation.CHAT, Operation.COMPLETIONS])
@pytest.mark.parametrize(
    ("options", "continuous", "hidden"),
    [
        (None, False, True),
        ({}, False, True),
        ({"include_usage": False}, False, True),
        ({"include_usage": None, "continuous_usage_stats": True}, False, True),
        ({"include_usage": True}, False, False),
        ({"include_usage": True, "continuous_usage_stats": True, "include_obfuscation": True}, True, False),
    ],
)
def test_a_stream_always_tells_its_usage_to_the_gate(
    operation: Operation, options: object, continuous: bool, hidden: bool
) -> None:
    request = stamped(operation, body_of(operation, stream=True, stream_options=options))
    assert json.loads(request.body)["stream_options"] == {"include_usage": True, "continuous_usage_stats": continuous}
    assert request.hide_usage is hidden


@pytest.mark.parametrize("operation", [Operation.RESPONSES, Operation.MESSAGES])
def test_protocols_that_always_tell_usage_are_not_asked_for_it(operation: Operation) -> None:
    request = stamped(operation, body_of(operation, stream=True))
    assert "stream_options" not in json.loads(request.body)
    assert not request.hide_usage


def test_no_usage_is_asked_for_without_a_stream() -> None:
    request = stamped(Operation.CHAT, body_of(Operation.CHAT))
    assert "stream_options" not in json.loads(request.body)
    assert not request.hide_usage


def test_embeddings_do_not_stream() -> None:
    request = stamped(Operation.EMBEDDINGS, body_of(Operation.EMBEDDINGS, stream=True))
    assert not request.stream
    assert "stream" not in json.loads(request.body)


def test_the_path_is_the_endpoints_constant() -> None:
    request = stamped(Operation.MESSAGES, body_of(Operation.MESSAGES))
    assert (request.path, request.headers) == (b"/v1/messages", b"")


def test_a_stamped_request_cannot_be_changed_or_derived_from() -> None:
    request = stamped(Operation.CHAT, body_of(Operation.CHAT))
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.body = b"{}"  # type: ignore[misc]
    with pytest.raises(TypeError):
        dataclasses.replace(request, body=b"{}")
    with pytest.raises(TypeError):
        type("Unsalted", (StampedRequest,), {})
    assert copy.copy(request).body == request.body


def test_a_stamped_request_cannot_be_made_of_bytes() -> None:
    with pytest.raises((TypeError, AttributeError)):
        StampedRequest(b"{}", SALT, request_id="r", show_reuse=True)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        StampedRequest(body=b"{}")  # type: ignore[call-arg]


def test_even_a_forged_client_request_goes_up_under_our_salt_alone() -> None:
    request = read_body(ENDPOINT[Operation.CHAT], body_of(Operation.CHAT))
    forged = msgspec.structs.replace(request, fields={"cache_salt": request.fields["model"], **request.fields})
    body = stamp(forged, SALT, request_id="r", show_reuse=True).body
    assert list(json.loads(body, object_pairs_hook=pairs_once).items())[-1] == ("cache_salt", SALT.value)


def test_neither_salt_nor_text_shows_in_a_repr() -> None:
    body = body_of(Operation.CHAT, messages=[{"role": "user", "content": "my secret"}])
    client = read_body(ENDPOINT[Operation.CHAT], body)
    shown = repr(client) + repr(stamp(client, SALT, request_id="r", show_reuse=True))
    assert "my secret" not in shown
    assert SALT.value not in shown
    assert SALT.fingerprint in shown


# Any body at all.

NAMES = st.sampled_from(
    sorted(
        {name for operation in SALTED for name in ENDPOINT[operation].fields}
        | {name for operation in SALTED for name in LEAST[operation]}
        | {"model", "stream", "stream_options", "Cache_Salt", "cachesalt", "", "x", "é"}
    )
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just("cache_salt")
LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
)
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "input_text", "image_url", "thinking", "tool_result", "x"])},
    optional={"text": TEXTS, "uuid": TEXTS, "cache_salt": TEXTS, "thinking": TEXTS, "image_url": LEAVES},
)
MESSAGES = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool", "x"]),
        "content": TEXTS | st.lists(PARTS, max_size=3),
    },
    optional={"uuid": TEXTS, "cache_salt": TEXTS, "name": TEXTS, "tool_calls": st.just([{"id": "1", "function": {}}])},
)
VALUES = st.recursive(
    LEAVES | MESSAGES | st.lists(MESSAGES, max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)


def spelled(name: str, escaped: int) -> str:
    """A JSON string that decodes to `name`, the character at `escaped` spelled as an escape."""
    letters = [
        f"\\u{ord(letter):04x}" if index == escaped else json.dumps(letter, ensure_ascii=False)[1:-1]
        for index, letter in enumerate(name)
    ]
    return '"' + "".join(letters) + '"'


@st.composite
def bodies(draw: st.DrawFn) -> tuple[Operation, bytes]:
    operation = draw(st.sampled_from(SALTED))
    members = [("model", "tiny"), *LEAST[operation].items(), *draw(st.lists(st.tuples(NAMES, VALUES), max_size=6))]
    unique = draw(st.booleans())
    chosen = list(dict(members).items()) if unique else members
    space = draw(st.sampled_from(["", " ", "\n\t"]))
    ascii_only = draw(st.booleans())
    written = [
        f"{space}{spelled(name, draw(st.integers(0, 12)))}{space}:{space}{json.dumps(value, ensure_ascii=ascii_only)}"
        for name, value in draw(st.permutations(chosen))
    ]
    return operation, ("{" + ",".join(written) + space + "}").encode()


@given(bodies())
@settings(max_examples=200, deadline=None)
@example((Operation.CHAT, b'{"model":"tiny","messages":[],"c\\u0061che_salt":"theirs"}'))
def test_whatever_a_client_writes_the_engine_gets_one_salt_and_listed_fields_only(
    asked: tuple[Operation, bytes],
) -> None:
    operation, body = asked
    try:
        request = stamped(operation, body)
    except InvalidRequest:
        return
    document = json.loads(request.body)
    top = json.loads(request.body, object_pairs_hook=lambda pairs: tuple(name for name, _ in pairs))
    assert len(top) == len(set(top))
    assert top.count("cache_salt") == 1
    assert document["cache_salt"] == SALT.value
    assert request.body.count(SALT.value.encode()) == 1
    listed = {name for name, line in ENDPOINT[operation].fields.items() if not isinstance(line.rule, Drops | Refuses)}
    assert document.keys() <= listed | BY_THE_GATE
    for message in document.get("messages") or ():
        assert "cache_salt" not in message
        if isinstance(message["content"], list):
            assert all(part.keys().isdisjoint({"uuid", "cache_salt", "image_url"}) for part in message["content"])


CLEAN_PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=3)
CLEAN_MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": TEXTS | CLEAN_PARTS},
        optional={"name": TEXTS, "reasoning": TEXTS},
    ),
    max_size=5,
)


@given(CLEAN_MESSAGES, st.dictionaries(TEXTS, VALUES, max_size=3), st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=60, deadline=None)
def test_messages_schemas_and_numbers_arrive_as_the_client_meant_them(
    messages: list[Any], schema: dict[str, Any], seed: int
) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    try:
        document = sent(Operation.CHAT, messages=messages, tools=tools, seed=seed)
    except InvalidRequest as refusal:
        assert refusal.param == "tools"  # noqa: PT017 - a number that no engine could compile
        return
    assert document["messages"] == messages
    assert document["tools"] == tools
    assert document["seed"] == seed
