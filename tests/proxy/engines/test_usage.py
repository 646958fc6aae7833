from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.engines.profile import Operation
from proxy.engines.usage import UnreadableAnswer, Usage, hide_reuse, holds_salt, read_answer, read_usage
from proxy.isolation.salt import SaltKey, salt_for
from tests.proxy.engines.asking import ENDPOINT, SALT, SALTED

OPENAI = (Operation.CHAT, Operation.COMPLETIONS, Operation.EMBEDDINGS)


def answer(**members: Any) -> bytes:
    return json.dumps({"id": "x", "model": "tiny", **members}).encode()


@pytest.mark.parametrize("operation", OPENAI)
def test_openai_usage_counts_the_whole_prompt(operation: Operation) -> None:
    usage = {
        "prompt_tokens": 10,
        "total_tokens": 12,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    assert read_usage(operation, answer(usage=usage)) == Usage(prompt=10, reused=8, output=2)


def test_responses_usage_counts_the_whole_prompt() -> None:
    usage = {
        "input_tokens": 10,
        "output_tokens": 2,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 8},
    }
    assert read_usage(Operation.RESPONSES, answer(usage=usage)) == Usage(prompt=10, reused=0, output=2, cache_written=8)


def test_messages_usage_adds_what_the_cache_gave_and_took() -> None:
    usage = {"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2}
    assert read_usage(Operation.MESSAGES, answer(usage=usage)) == Usage(prompt=10, reused=5, output=2, cache_written=2)


@pytest.mark.parametrize(
    ("operation", "usage"),
    [
        (Operation.CHAT, {"prompt_tokens": 10}),
        (Operation.CHAT, {"prompt_tokens": 10, "completion_tokens": None, "prompt_tokens_details": None}),
        (Operation.CHAT, {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": None}}),
        (Operation.RESPONSES, {"input_tokens": 10}),
        (Operation.MESSAGES, {"input_tokens": 10}),
    ],
)
def test_what_the_engine_does_not_tell_is_unknown_and_not_zero(operation: Operation, usage: dict[str, Any]) -> None:
    assert read_usage(operation, answer(usage=usage)) == Usage(prompt=10, reused=None, output=None)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', answer(), answer(usage=None), answer(usage={}), b"[" * 9999]
)
@pytest.mark.parametrize("operation", SALTED)
def test_an_answer_without_usage_tells_none(operation: Operation, body: bytes) -> None:
    assert read_usage(operation, body) is None


@pytest.mark.parametrize("operation", SALTED)
def test_an_answer_with_nothing_to_hide_is_the_engines_own_bytes(operation: Operation) -> None:
    body = (
        b'{ "id" : "x", "kv_transfer_params": null, "prompt_logprobs":null, "n": 1e2, "usage": {"prompt_tokens": 1} }'
    )
    assert read_answer(ENDPOINT[operation], body, show_reuse=True).body is body
    assert read_answer(ENDPOINT[operation], body, show_reuse=False).body is body


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b"[" * 9999])
def test_an_answer_that_cannot_be_read_is_not_given_out(body: bytes) -> None:
    with pytest.raises(UnreadableAnswer):
        read_answer(ENDPOINT[Operation.CHAT], body, show_reuse=True)


@pytest.mark.parametrize("usage", [[8], "8", {"prompt_tokens_details": "[" * 5}])
def test_a_usage_that_cannot_be_read_tells_nothing_where_reuse_is_hidden(usage: Any) -> None:
    told = json.loads(read_answer(ENDPOINT[Operation.CHAT], answer(usage=usage), show_reuse=False).body)["usage"]
    assert told in (None, {})


@pytest.mark.parametrize("operation", SALTED)
@pytest.mark.parametrize(
    "name",
    ["kv_transfer_params", "ec_transfer_params", "metrics", "prompt_token_ids", "prompt_text", "prompt_logprobs"],
)
def test_what_speaks_of_the_engine_is_hidden(operation: Operation, name: str) -> None:
    body = answer(choices=[{"text": "ä", "logprob": 1.50}], **{name: {"remote_host": "10.0.0.1"}})
    cleaned = read_answer(ENDPOINT[operation], body, show_reuse=True).body
    document = json.loads(body)
    del document[name]
    assert json.loads(cleaned) == document


@pytest.mark.parametrize(
    ("operation", "usage", "hidden"),
    [
        (
            Operation.CHAT,
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}},
            {"prompt_tokens": 10, "completion_tokens": 2},
        ),
        (
            Operation.RESPONSES,
            {
                "input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2, "cached_tokens_per_turn": [8]},
                "output_tokens": 2,
            },
            {
                "input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 2,
            },
        ),
        (
            Operation.MESSAGES,
            {"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2},
            {"input_tokens": 10, "output_tokens": 2},
        ),
        (
            Operation.MESSAGES,
            {"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 0},
            {"input_tokens": 10, "output_tokens": 2},
        ),
    ],
)
def test_reuse_is_hidden_from_who_may_not_see_it(operation: Operation, usage: Any, hidden: Any) -> None:
    body = answer(usage=usage)
    assert json.loads(read_answer(ENDPOINT[operation], body, show_reuse=False).body)["usage"] == hidden
    assert read_answer(ENDPOINT[operation], body, show_reuse=True).body is body
    assert read_usage(operation, body) is not None


@pytest.mark.parametrize("operation", SALTED)
@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": {"cached_tokens": 640}},
        {"completion_tokens": 4, "input_tokens_details": {"cached_tokens": 640}},
        {"output_tokens": 4, "cache_read_input_tokens": 640},
        {"cache_creation_input_tokens": 640},
        {"cache_creation": {"ephemeral_5m_input_tokens": 640}},
    ],
)
def test_reuse_is_hidden_where_the_usage_tells_nothing_else(operation: Operation, usage: Any) -> None:
    body = answer(usage=usage)
    assert b"640" not in read_answer(ENDPOINT[operation], body, show_reuse=False).body
    assert read_answer(ENDPOINT[operation], body, show_reuse=True).body is body


def test_an_input_that_tells_the_reuse_by_what_it_leaves_out_is_hidden_where_the_whole_cannot_be_counted() -> None:
    told = hide_reuse(Operation.MESSAGES, b'{"input_tokens":16,"cache_read_input_tokens":"640","output_tokens":4}')
    assert told == b'{"output_tokens":4}'


def test_hiding_what_is_not_told_changes_nothing() -> None:
    assert hide_reuse(Operation.CHAT, b'{"prompt_tokens": 1, "prompt_tokens_details": null}') is None
    assert hide_reuse(Operation.CHAT, b"null") is None


VALUE = SALT.value.encode()


def test_a_salt_is_found_anywhere_in_an_answer() -> None:
    assert holds_salt(SALT, b'{"x":["' + VALUE + b'"]}')


@pytest.mark.parametrize("echo", [VALUE[:-1], VALUE[1:], VALUE[:25], VALUE[-25:], VALUE[:25] + b"..." + VALUE[-25:]])
def test_a_salt_that_is_cut_as_error_messages_cut_values_is_found(echo: bytes) -> None:
    assert holds_salt(SALT, b'{"error":"bad value: ' + echo + b'"}')


def test_what_every_salt_of_a_key_begins_with_is_no_salt() -> None:
    assert not holds_salt(SALT, b"sg1-k1-")
    assert not holds_salt(SALT, salt_for(SALT.unit, epoch=1, key=SaltKey("k1", bytes(32))).value.encode())
