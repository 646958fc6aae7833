"""What rules say of a request: which found something, and the narrowest border that these give."""

from __future__ import annotations

import random

import pytest

from proxy.isolation.narrowing import NOTHING_FOUND, Narrowed, Unseen, isolation_rule, narrowed
from proxy.isolation.unit import Level

CODENAMES = isolation_rule("codenames", words=["falcon"], level=Level.PROJECT)
PEOPLE = isolation_rule("people", sets=["personal-data"], level=Level.USER)
TICKETS = isolation_rule("tickets", patterns=["^TICKET-[0-9]+$", "Straße [0-9]"], level=Level.TEAM)
RULES = (CODENAMES, PEOPLE, TICKETS)


def test_the_rules_that_found_something_are_named_and_the_narrowest_border_holds() -> None:
    assert narrowed(RULES, ["Hello"]) == NOTHING_FOUND
    assert narrowed(RULES, ["Falcon"]) == Narrowed(Level.PROJECT, ("codenames",))
    assert narrowed(RULES, ["x", "Falcon\nTICKET-1\n"]) == Narrowed(Level.PROJECT, ("codenames", "tickets"))
    assert narrowed(RULES, ["4111111111111111", "falcon"]) == Narrowed(Level.USER, ("codenames", "people"))


@pytest.mark.parametrize("reason", Unseen)
def test_what_no_rule_could_see_gets_the_narrowest_border_of_them_all(reason: Unseen) -> None:
    assert narrowed(RULES, reason) == Narrowed(Level.USER, (reason.value,))
    assert narrowed((CODENAMES, TICKETS), reason) == Narrowed(Level.PROJECT, (reason.value,))


def test_patterns_look_at_lines_at_the_text_as_it_is_and_as_it_is_seen() -> None:
    assert narrowed(RULES, ["a\nTICKET-77\nb"]).by == ("tickets",)
    assert narrowed(RULES, ["a TICKET-77"]) == NOTHING_FOUND
    assert narrowed(RULES, ["ticket-77"]) == NOTHING_FOUND  # case counts in patterns
    assert narrowed(RULES, ["\uff34ICKET-\uff17"]).by == ("tickets",)
    assert narrowed(RULES, ["Straße 7"]).by == ("tickets",)  # not folded away
    as_it_is = isolation_rule("as-it-is", patterns=["\u200bx"])
    assert narrowed([as_it_is], ["a\u200bx"]).by == ("as-it-is",)


@pytest.mark.parametrize(
    "text",
    [
        "fal\x00con",
        "fal\x1bcon",
        "fal\x9dcon",
        "fal\u0483con",
        "fa\u0301lcon",
        "fa\u0301\u0323l\u0310con",
        "fal\u0941con",
        r"f\u0061lcon\\u0061",
        r"fal\\u0000con",
        "Mu\u0308\u0301ller",
        "M\u0301u\u0308ller",
        "Mu\u0308ller",
        "4\u030111\x001\u0941 1111 1111 1111",
        "Ward\x0b7",
    ],
)
def test_nothing_put_between_or_upon_its_letters_hides_a_word(text: str) -> None:
    rules = [isolation_rule("words", words=["falcon", "Müller", "ward 7"]), PEOPLE]
    assert narrowed(rules, [f"see {text} there"]) != NOTHING_FOUND


def test_a_word_with_marks_is_another_one_than_that_without() -> None:
    bear = isolation_rule("bear", words=["Bär"])
    assert narrowed([bear], ["at the bar"]) == NOTHING_FOUND
    assert narrowed([CODENAMES], ["fálcon"]) == NOTHING_FOUND  # the document says so
    assert narrowed([bear], ["ba\u0308\u0323r"]).by == ("bear",)


def test_base64_and_letters_that_look_alike_are_not_undone() -> None:
    """The document says so; whoever changes it changes the document."""
    assert narrowed(RULES, ["ZmFsY29u"]) == NOTHING_FOUND
    assert narrowed(RULES, ["f\u0430lcon"]) == NOTHING_FOUND
    assert narrowed(RULES, ["%66alcon &#102;alcon"]) == NOTHING_FOUND


def test_a_pattern_that_would_explode_elsewhere_ends() -> None:
    """Each of these takes a backtracking engine longer than the world will last."""
    evil = isolation_rule("evil", patterns=["(a+)+$", "(a|aa)+c", "(.*a){20}b", "([a-z]+)*[0-9]"])
    texts = ["a" * 20_000 + "!", "".join(random.Random(7).choices("ab", k=5_000))]
    assert narrowed([evil], texts).by == ("evil",)  # ended, with the first; now those that do not match
    failing = isolation_rule("failing", patterns=["(a|aa)+c", "(x+x+)+y", "([a-z]+)*[0-9]"])
    assert narrowed([failing], texts) == NOTHING_FOUND


def test_no_rule_shows_its_words_or_patterns() -> None:
    assert "falcon" not in repr(CODENAMES)
    assert "TICKET" not in repr(TICKETS)


def test_a_pattern_that_cannot_be_used_makes_no_rule() -> None:
    for pattern in ("(", "x*", r"\b", r"\Ax"):
        with pytest.raises(ValueError, match=r"\w"):
            isolation_rule("bad", patterns=[pattern])
