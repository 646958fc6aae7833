"""What of a prompt says where it may have been computed before: the same in every turn, and nothing of its text."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engines.beginning import LOOK_BYTES, WORTHWHILE_BYTES, Beginning, beginning
from proxy.engines.body import read_body
from proxy.engines.profile import Operation
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit
from tests.proxy.engines.asking import ENDPOINT, SALT

OTHER_SALT = salt_for(ProjectUnit("acme", "ares"), epoch=0, key=SaltKey("k1", b"0123456789abcdef0123456789abcdef"))
LONG = "You answer questions about the handbook. " * 100


def of(operation: Operation = Operation.CHAT, *, separators: tuple[str, str] | None = None, **fields: Any) -> Beginning:
    body = json.dumps({"model": "tiny"} | fields, separators=separators).encode()
    return beginning(read_body(ENDPOINT[operation], body), SALT)


def said(*texts: Any, system: str | None = None) -> list[dict[str, object]]:
    """Turns of user and assistant, the user first."""
    first: list[dict[str, object]] = [] if system is None else [{"role": "system", "content": system}]
    roles = ("user", "assistant")
    return first + [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]


@pytest.mark.parametrize("separators", [None, (",", ":")], ids=["spaced", "dense"])
@pytest.mark.parametrize("system", [None, "Be brief.", LONG])
@pytest.mark.parametrize("first", ["Hi", "]}],{ ", "a" * 9000, [{"type": "text", "text": "Hi"}]])
def test_a_conversation_begins_the_same_in_every_turn(
    first: Any, system: str | None, separators: tuple[str, str] | None
) -> None:
    turns = [
        said(first, *more, system=system) for more in ((), ("Hello!", "And?"), ("Hello!", "And?", "[{", '"role":'))
    ]
    assert len({of(messages=turn, separators=separators) for turn in turns}) == 1


@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=6), system=st.none() | st.text(max_size=60))
def test_whatever_is_said_later_changes_nothing(texts: list[str], system: str | None) -> None:
    messages = said(*texts, system=system)
    shortest = messages[: 1 if system is None else 2]
    assert of(messages=messages) == of(messages=shortest)


def test_conversations_under_the_same_instructions_share_these_and_no_more() -> None:
    one, other = of(messages=said("Hi", system=LONG)), of(messages=said("Bye", system=LONG))
    assert one.shared == other.shared
    assert one.own != other.own
    assert of(messages=said("Hi", system=LONG[1:])).shared != one.shared


def test_who_asks_about_the_same_text_in_his_first_message_begins_the_same() -> None:
    one, other = (of(messages=said(f"{'a document ' * 1000} {question}?")) for question in ("Who", "When"))
    assert one == other


@pytest.mark.parametrize(("system", "worthwhile"), [(None, False), ("Be brief.", False), (LONG, True)])
def test_only_long_instructions_are_worth_being_kept_together(system: str | None, worthwhile: bool) -> None:
    assert of(messages=said("Hi", system=system)).worthwhile is worthwhile


def test_tools_are_instructions() -> None:
    tools = [{"type": "function", "function": {"name": "look", "description": "x" * WORTHWHILE_BYTES}}]
    one = of(messages=said("Hi"), tools=tools)
    assert one.worthwhile
    assert one.shared != of(messages=said("Hi")).shared
    assert one.shared == of(messages=said("Bye"), tools=tools).shared


@pytest.mark.parametrize(
    ("operation", "one", "other"),
    [
        (Operation.RESPONSES, {"instructions": LONG, "input": "Hi"}, {"instructions": LONG, "input": "Bye"}),
        (Operation.RESPONSES, {"input": said("Hi", system=LONG)}, {"input": said("Bye", system=LONG)}),
        (
            Operation.MESSAGES,
            {"system": LONG, "messages": said("Hi"), "max_tokens": 9},
            {"system": LONG, "messages": said("Bye"), "max_tokens": 8},
        ),
    ],
)
def test_it_is_the_same_on_the_other_endpoints(
    operation: Operation, one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = of(operation, **one), of(operation, **other)
    assert first.worthwhile
    assert first.shared == second.shared
    assert first.own != second.own


@pytest.mark.parametrize(("operation", "name"), [(Operation.COMPLETIONS, "prompt"), (Operation.EMBEDDINGS, "input")])
def test_a_prompt_without_roles_goes_by_its_own_beginning(operation: Operation, name: str) -> None:
    one, other = (of(operation, **_field(name, "a text " * 1000 + end)) for end in ("one", "other"))
    assert one == other
    assert not one.worthwhile
    assert one != of(operation, **_field(name, "another text " * 1000))


def _field(name: str, text: str) -> dict[str, Any]:
    return {name: text}


def test_another_salt_or_model_is_another_beginning() -> None:
    body = json.dumps({"model": "tiny", "messages": said("Hi", system=LONG)}).encode()
    request = read_body(ENDPOINT[Operation.CHAT], body)
    here, there = beginning(request, SALT), beginning(request, OTHER_SALT)
    model = beginning(read_body(ENDPOINT[Operation.CHAT], body.replace(b"tiny", b"tall")), SALT)
    assert len({here.shared, there.shared, model.shared}) == 3
    assert len({here.own, there.own, model.own}) == 3


def test_it_is_the_same_in_every_process_and_release() -> None:
    """A number that changes moves everybody from where their prefixes are: it may not change unnoticed."""
    one = of(messages=said("Hi", system=LONG))
    assert (one.shared.hex(), one.own.hex()) == (
        "4f2c240059b6f32ccfd3b06a7d7a8350",
        "b0609105f8d77527bb8ee2e99d10efe4",
    )


def test_nothing_of_the_prompt_or_the_salt_is_in_it() -> None:
    one = of(messages=said("the secret plan", system=LONG))
    assert len(one.shared) == len(one.own) == 16
    assert repr(one) == "Beginning(worthwhile=True)"


def test_a_prompt_of_megabytes_costs_no_more_than_one_that_fills_the_look() -> None:
    """Counted against a prompt of the bound's size, of which all is looked at."""

    def cost(characters: int) -> float:
        request = read_body(
            ENDPOINT[Operation.CHAT],
            json.dumps({"model": "tiny", "messages": said("y" * characters, system="x" * characters)}).encode(),
        )
        times = []
        for _ in range(50):
            began = time.perf_counter()
            beginning(request, SALT)
            times.append(time.perf_counter() - began)
        return min(times)

    assert cost(4_000_000) < 10 * cost(LOOK_BYTES)
