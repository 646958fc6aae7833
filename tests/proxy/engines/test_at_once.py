"""A large conversation that is opened in one pass is what two passes make of it, and nothing slips in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from config.settings import EngineLimits
from proxy.engines.at_once import LEAST_BYTES, open_at_once
from proxy.engines.body import OpenBody, UnfetchedRequest, open_body, read_request, with_images
from proxy.engines.kinds.vllm import vllm, vllm_with_images
from proxy.engines.members import MAX_MEMBERS_IN_ARRAYS, read_object, read_objects
from proxy.engines.profile import Endpoint, Operation
from proxy.refusals import InvalidRequest
from tests.proxy.engines.test_media import PNG
from tests.proxy.engines.test_remote import CAT, at, remote
from tests.proxy.engines.test_remote import CHAT as REMOTE

LIMITS = EngineLimits()
ENDPOINTS = [
    endpoint
    for profile in (vllm(LIMITS), vllm_with_images(LIMITS))
    for endpoint in profile.endpoints
    if endpoint.operation in (Operation.CHAT, Operation.MESSAGES, Operation.RESPONSES, Operation.COMPLETIONS)
]
LONG = "as long as a contract, " * (LEAST_BYTES // 20)
ASKED = {"role": "user", "content": LONG}


def compact(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def level_by_level(body: bytes) -> OpenBody:
    members = read_object(body, None)
    return OpenBody(str(json.loads(bytes(members["model"]))), members)


def outcome(endpoint: Endpoint, opened: Callable[[bytes], OpenBody], body: bytes) -> tuple[object, ...]:
    try:
        request = read_request(endpoint, opened(body))
    except InvalidRequest as refusal:
        return (refusal.message, refusal.param, refusal.reason)
    if isinstance(request, UnfetchedRequest):
        return (request.endpoint, request.remote, same(request.opened.members))
    return (request.endpoint, request.model, request.stream, request.wants_usage, same(request.fields), request.images)


def _given(opened: OpenBody, _: bytes) -> OpenBody:
    return opened


def same(members: Any) -> dict[str, bytes]:
    return {name: bytes(raw) for name, raw in members.items()}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [ASKED], "model": "tiny"},
        {"model": "tiny", "messages": [ASKED], "max_tokens": 16, "temperature": 0.7, "stream": True},
        {"model": "tiny", "messages": [{"role": "system", "content": "é"}, ASKED], "tools": [], "user": None},
        {"model": "tiny", "max_tokens": 9, "system": LONG, "messages": [{"role": "user", "content": [{"a": 1}]}]},
    ],
)
def test_what_clients_send_is_opened_at_once(body: dict[str, Any]) -> None:
    written = compact(body)
    found = open_at_once(written)
    assert found is not None
    members, opened = found
    assert list(same(members).items()) == list(same(read_object(written, None)).items())
    assert [same(one) for one in opened.objects] == [same(one) for one in read_objects(opened.raw, "messages")]
    assert members["messages"] is opened.raw
    assert open_body(written).opened is not None


MESSAGE = '{"role":"user","content":"' + LONG + '"}'


@pytest.mark.parametrize(
    "body",
    [
        # twice: at the top, in a message, the messages themselves, by another spelling, by a name it does not know
        '{"model":"tiny","model":"tiny","messages":[%s]}',
        '{"model":"tiny","messages":[],"messages":[%s]}',
        '{"model":"tiny","messages":[%s],"m\\u006fdel":"tiny"}',
        '{"model":"tiny","messages":[%s],"cache_salt":"a","cache_salt":"b"}',
        '{"model":"tiny","messages":[{"role":"user","role":"user","content":"x"},%s]}',
        '{"model":"tiny","messages":[{"role":"user","r\\u006fle":"system","content":"x"},%s]}',
        # other names, other forms
        '{"model":"tiny","messages":[%s],"cache_salt":"mine"}',
        '{"model":"tiny","m\\u0065ssages":[%s]}',
        '{"model":"tiny","messages":[{"\\u0072ole":"user","content":"x"},%s]}',
        '{"model":"tiny","messages":[{"é":"user","content":"x"},%s]}',
        '{"model":"tiny","messages":[%s] }',
        '{"model":"tiny","messages":[%s]}\n',
        '{"model":"tiny","messages":[{"role":"user", "content":"x"},%s]}',
        '{"model":"tiny","messages":{"a":%s}}',
        '{"model":"tiny","messages":[[%s]]}',
        '{"model":"tiny","messages":[%s,null]}',
        '{"model":"tiny","messages":null,"system":[%s]}',
        '{"model":"tiny","system":[%s]}',
        '[{"model":"tiny","messages":[%s]}]',
        # no JSON
        '{"model":"tiny","messages":[%s],}',
        '{"model":"tiny","messages":[%s]}}',
        '{"model":"tiny","messages":[%s]',
        '{"model":"tiny","messages":[%s],"stop":"\\x"}',
        '{"model":"tiny","messages":[%s],"stop":NaN}',
    ],
)
def test_whatever_else_is_left_to_two_passes(body: str) -> None:
    written = (body % MESSAGE).encode()
    assert open_at_once(written) is None
    for endpoint in ENDPOINTS:
        assert outcome(endpoint, open_body, written) == outcome(endpoint, level_by_level, written)


def test_who_sends_thousands_of_members_is_refused_as_ever() -> None:
    crowded = {str(number): 1 for number in range(MAX_MEMBERS_IN_ARRAYS + 1)}
    written = compact({"model": "tiny", "messages": [crowded, ASKED]})
    assert open_at_once(written) is None
    with pytest.raises(InvalidRequest) as refused:
        read_request(ENDPOINTS[0], open_body(written))
    assert refused.value.reason == "too_many_members"


TEXTS = st.text(max_size=6) | st.sampled_from(["text", "image_url", "http://x/y.png", "data:image/png;base64,aGk="])
PARTS = st.dictionaries(st.sampled_from(["type", "text", "image_url", "uuid", "url"]), TEXTS | st.none(), max_size=3)
MESSAGES = st.dictionaries(
    st.sampled_from(["role", "content", "name", "tool_calls", "cache_salt", "refusal", "reasoning", "é"]),
    st.sampled_from(["user", "system", "assistant", "tool"]) | TEXTS | st.none() | st.integers() | st.lists(PARTS),
    max_size=4,
)
OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "stream": st.booleans() | st.none(),
    "stream_options": st.dictionaries(st.just("include_usage"), st.booleans()),
    "max_tokens": st.integers(0, 99) | TEXTS,
    "temperature": st.floats(0, 2),
    "tools": st.lists(st.dictionaries(TEXTS, TEXTS, max_size=2), max_size=2),
    "system": TEXTS,
    "cache_salt": TEXTS,
    "echo": st.booleans(),
}
NAMES = ["model", "messages", *OTHERS]
BODIES = st.fixed_dictionaries(
    {"model": st.just("tiny"), "messages": st.lists(MESSAGES, max_size=4)},
    optional=OTHERS,
)


@settings(max_examples=150, deadline=None)
@given(body=BODIES, order=st.permutations(NAMES))
def test_a_request_is_the_same_whichever_way_it_was_opened(body: dict[str, Any], order: list[str]) -> None:
    body = body | {"messages": [*body["messages"], ASKED]}
    written = compact({name: body[name] for name in order if name in body})
    if (found := open_at_once(written)) is not None:
        assert same(found[0]) == same(read_object(written, None))
    for endpoint in ENDPOINTS:
        opened = open_body(written)
        once = partial(_given, opened)
        first = outcome(endpoint, once, written)
        assert first == outcome(endpoint, level_by_level, written)
        assert first == outcome(endpoint, once, written), "reading changes nothing in it"


def test_messages_that_were_put_in_another_place_are_looked_at_anew() -> None:
    """What was opened belongs to the bytes that it was opened from, and to no others."""
    opened = open_body(compact({"model": "tiny", "messages": [ASKED]}))
    forged = OpenBody(opened.model, {**opened.members, "messages": Raw(b'[{"role":"nobody"}]')}, opened.opened)
    with pytest.raises(InvalidRequest):
        read_request(ENDPOINTS[0], forged)


def test_images_that_were_fetched_are_in_the_request() -> None:
    parts = [{"type": "text", "text": LONG}, remote()]
    opened = open_body(compact({"model": "tiny", "messages": [{"role": "user", "content": parts}]}))
    assert opened.opened is not None
    unfetched = read_request(REMOTE, opened)
    assert isinstance(unfetched, UnfetchedRequest)
    whole = with_images(unfetched, {at(CAT): PNG})
    assert b"data:image/png;base64," in bytes(whole.fields["messages"])
    assert CAT.encode() not in bytes(whole.fields["messages"])
