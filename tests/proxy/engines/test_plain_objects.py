"""Objects of strings alone are let pass by one look; it must be the look that the rules themselves would take."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from config.settings import EngineLimits
from proxy.engines.kinds.dynamo import dynamo
from proxy.engines.kinds.sglang import sglang
from proxy.engines.kinds.tensorrt_llm import tensorrt_llm
from proxy.engines.kinds.vllm import vllm, vllm_with_images
from proxy.engines.members import read_objects
from proxy.engines.rules import Opens, Rule, Shape
from proxy.refusals import InvalidRequest

LIMITS = EngineLimits()
PROFILES = (vllm_with_images(LIMITS), vllm(LIMITS), sglang(LIMITS), tensorrt_llm(LIMITS), dynamo(LIMITS))


def opened(rule: Rule) -> Iterator[Opens]:
    """The rule and those inside it, where they open arrays of objects."""
    if isinstance(rule, Opens):
        yield rule
        for shape in rule.shapes.values():
            for inner in inside(shape):
                yield from opened(inner)


def inside(shape: Shape) -> Iterator[Opens]:
    yield from shape.opens.values()
    for inner in shape.inner.values():
        yield from inside(inner)


ALL = {
    f"{profile.kind} {endpoint.path} {name} {number}": opens
    for profile in PROFILES
    for endpoint in profile.endpoints
    for name, line in endpoint.fields.items()
    for number, opens in enumerate(opened(line.rule))
}
VALUES = [b'"user"', b'"a text"', b'""', b'"data:,"', b"null", b"true", b"1", b"[]", b"{}", b'["x"]', b'{"a":1}']


@pytest.mark.parametrize("opens", ALL.values(), ids=ALL)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_what_passes_by_one_look_passes_by_its_rules_unchanged(opens: Opens, data: st.DataObject) -> None:
    tag = data.draw(st.sampled_from([*opens.shapes, "nobody"]))
    shape = opens.shapes.get(tag)
    names = sorted({*(shape.members if shape else ()), *opens.signs, opens.tag, "unknown"})
    members = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from(VALUES), max_size=4))
    document = {name: Raw(value) for name, value in members.items()}
    document[opens.tag] = Raw(msgspec.json.encode(tag))
    (found,) = read_objects(msgspec.json.encode([document]), "messages")
    if opens._is_plain(found):
        assert opens._admit_object("messages[0]", found) is found


def test_a_message_is_one_of_them() -> None:
    """Else the look would be for nothing."""
    opens = ALL["vllm /v1/chat/completions messages 0"]
    (found,) = read_objects(b'[{"role":"user","content":"hello","name":"u"}]', "messages")
    assert opens._is_plain(found)


@pytest.mark.parametrize(
    "written",
    [
        b'[{"role":"user","content":1}]',
        b'[{"role":"user","content":null}]',
        b'[{"role":"user","content":["x"]}]',
        b'[{"role":"us\\u0065r","content":"spelled in another way"}]',
        b'[{"role":"user","content":"hello","cache_salt":"mine"}]',
        b'[{"content":"no role"}]',
        b'[{"role":null,"content":"no role"}]',
    ],
)
def test_anything_else_goes_by_the_rules(written: bytes) -> None:
    opens = ALL["vllm /v1/chat/completions messages 0"]
    (found,) = read_objects(written, "messages")
    assert not opens._is_plain(found)


def test_of_several_faults_the_first_in_the_message_is_told() -> None:
    """Else which one would depend on the worker that was asked: names in a set have another order in each process."""
    found = []
    for opens in ALL.values():
        for tag, shape in opens.shapes.items():
            for names in (sorted(shape.texts), sorted(shape.flags), sorted(opens.signs - shape.members)):
                for order in (names, names[::-1]) if len(names) > 1 else ():
                    document = {opens.tag: tag, **dict.fromkeys(shape.needed, "x"), **dict.fromkeys(order, 1)}
                    with pytest.raises(InvalidRequest) as refused:
                        opens.admit("messages", Raw(msgspec.json.encode([document])))
                    assert refused.value.param == f"messages[0].{order[0]}"
                    found.append(order)
    assert len(found) > 4
