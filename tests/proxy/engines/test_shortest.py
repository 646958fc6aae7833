"""The length by which doubled members are found without writing anything again."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from proxy.engines.members import WRITTEN_AGAIN_BYTES, read_object, read_objects, shortest_array, shortest_object
from proxy.refusals import InvalidRequest

NAMES = st.text(max_size=4) | st.sampled_from(["role", "content"])
VALUES = st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2))
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=4)


def written(pairs: list[tuple[str, object]], *, compact: bool, escaped: bool) -> str:
    colon, comma = (":", ",") if compact else (" : ", " , ")
    members = (
        json.dumps(name, ensure_ascii=escaped) + colon + json.dumps(value, separators=(",", ":"), ensure_ascii=escaped)
        for name, value in pairs
    )
    return "{" + comma.join(members) + "}"


@settings(max_examples=300, deadline=None)
@given(pairs=PAIRS, compact=st.booleans(), escaped=st.booleans(), large=st.booleans())
def test_a_doubled_name_is_found_however_it_is_written(
    pairs: list[tuple[str, object]], compact: bool, escaped: bool, large: bool
) -> None:
    if large:
        pairs = [*pairs, ("a long text", "x" * WRITTEN_AGAIN_BYTES)]
    data = written(pairs, compact=compact, escaped=escaped).encode("utf-8", "surrogatepass")
    is_doubled = len({name for name, _ in pairs}) != len(pairs)
    for read in (read_object, lambda one, where: read_objects(b"[" + one + b"," + one + b"]", where)):
        if is_doubled:
            with pytest.raises(InvalidRequest) as refused:
                read(data, "messages")
            assert refused.value.reason == "doubled_member"
        else:
            read(data, "messages")


@settings(max_examples=200, deadline=None)
@given(objects=st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=1, max_size=3))
def test_nothing_is_written_in_less(objects: list[dict[str, object]]) -> None:
    raw = [{name: Raw(msgspec.json.encode(value)) for name, value in one.items()} for one in objects]
    assert shortest_array(raw) <= len(msgspec.json.encode(raw))
    for one in raw:
        assert shortest_object(one) <= len(msgspec.json.encode(one))


@given(text=st.text() | st.characters())
def test_no_text_can_be_written_in_less_than_it_is_written_again(text: str) -> None:
    shortest = sum(2 if char in _SHORT else 6 if char < " " else len(char.encode()) for char in text)
    assert len(msgspec.json.encode(text)) == 2 + shortest


_SHORT = '"\\\b\f\n\r\t'


@pytest.mark.parametrize("data", [b'{"a":1}', b'{"a":1,"b":"x"}', b'{"role":"user","content":"hello"}'])
def test_what_clients_write_has_just_this_length(data: bytes) -> None:
    """Else every pair of every body would be looked at, which takes ten times as long."""
    assert shortest_object(read_object(data, None)) == len(data)
    assert shortest_array(read_objects(b"[" + data + b"," + data + b"]", "messages")) == 2 * len(data) + 3
