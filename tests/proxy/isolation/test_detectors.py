"""Words and phrases are found as whole ones, in any case and script; other detectors do not stop at a false start."""

from __future__ import annotations

import pytest

from config.expressions import Expression
from proxy.isolation.detectors import CHARACTERS_AT_ONCE, MAXIMUM_TRIES, Detector, sieve, word_detectors
from proxy.isolation.folding import folded, plain


def finds(words: list[str], text: str) -> bool:
    forms = (text, folded(plain(text)))
    return any(detector.is_in(form.encode()) for detector in word_detectors(words) for form in forms)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("Falcon", "falcon"),
        ("falcon", "the FALCON, landed"),
        ("falcon", "falcon_key=1"),
        ("falcon", "x\nfalcon\ny"),
        ("falcon", "(falcon)"),
        ("falcon", "Falconの計画"),
        ("falcon", "fal\u200bcon"),
        ("falcon", "falcon\u200bx"),  # as it is, the mark ends the word
        ("Straße", "STRASSE"),
        ("Strasse", "Straße"),
        ("Müller", "MU\u0308LLER"),
        ("Mu\u0308ller", "Müller"),
        ("項目", "本項目の"),
        ("김철수", "김철수는"),
        ("Сокол", "СОКОЛ!"),
        ("Σίσυφος", "ΣΊΣΥΦΟΣ"),
        ("C++", "I like c++."),
        (".env", "the .env file"),
        ("project x", "Project\n   X"),
        ("project\u00a0x", "project x"),
        ("a.b", "a.b"),
        (r"\Qx", r"see \Qx"),
    ],
)
def test_a_word_is_found(word: str, text: str) -> None:
    assert finds([word], text)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("falcon", "falconry"),
        ("falcon", "gyrfalcon"),
        ("falcon", "falcon2"),
        ("falcon", "fal con"),
        ("falcon", "falco\u0301n"),
        ("Müller", "Müllerin"),
        ("a.b", "axb"),
        ("project x", "projectx"),
        ("сокол", "cokol"),  # letters of another script
    ],
)
def test_part_of_another_word_is_none(word: str, text: str) -> None:
    assert not finds([word], text)


def test_very_many_words_are_all_found() -> None:
    words = [f"codename{number:05}" for number in range(1000)]
    assert len(word_detectors(words)) > 1
    assert sum(map(len, words)) > CHARACTERS_AT_ONCE
    assert all(finds(words, f"is {word} here") for word in (words[0], words[500], words[-1]))
    assert not finds(words, "codename0000 codename01000")


def test_the_search_goes_on_behind_a_match_that_does_not_hold() -> None:
    detector = Detector(Expression("[0-9]{3}"), lambda match: match == "345")
    assert detector.is_in("é12345".encode())
    assert not detector.is_in("12 ééé 346".encode())
    ended = Detector(Expression("."), lambda match: False)
    assert not ended.is_in("aé😀".encode())


def test_a_sieve_finds_what_each_detector_finds_alone() -> None:
    some = [Detector(Expression(pattern)) for pattern in ("(?i)abc", "DEF", "x|y")]
    one = sieve(some)
    assert len(one.then) == 1
    assert [one.is_in(text) for text in (b"ABC", b"DEF", b"def", b"y", b"z")] == [True, True, False, True, False]
    checked = sieve([*some, Detector(Expression("[0-9]"), lambda match: match == "7")])
    assert [checked.is_in(text) for text in (b"7", b"17", b"1", b"1y", b"")] == [True, True, False, True, False]


def test_a_text_of_very_many_matches_that_do_not_hold_counts_as_having_one() -> None:
    tried = 0

    def never(_: str) -> bool:
        nonlocal tried
        tried += 1
        return False

    assert Detector(Expression("[0-9]"), never).is_in(b"1" * (3 * MAXIMUM_TRIES))
    assert tried == MAXIMUM_TRIES
    assert not Detector(Expression("[0-9]"), never).is_in(b"1" * 100)
