"""The form of a text that a reader sees: whatever a spelling hides is in the open, and plain text stays as it is."""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.isolation.escapes import ESCAPE_LEVELS
from proxy.isolation.folding import (
    COMPOSED_CHARACTERS,
    LONGEST_RUN,
    PIECE_CHARACTERS,
    _pieces,
    _without_foreign_marks,
    bare,
    folded,
    plain,
    readings,
)

CARD = "4111 1111 1111 1111"


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in CARD), CARD),  # full width
        ("".join(chr(0x0660 + int(c)) if c.isdigit() else c for c in CARD), CARD),  # Arabic-Indic
        ("".join(chr(0x1D7CE + int(c)) if c.isdigit() else c for c in CARD), CARD),  # mathematical bold
        (CARD.replace(" ", "\u00a0"), CARD),
        (CARD.replace(" ", "\u2003"), CARD),
        ("\u200b".join(CARD), CARD),
        ("\u200d".join(CARD), CARD),
        ("\u2060".join(CARD), CARD),
        ("\ufe0f".join(CARD), CARD),
        ("\U000e0041".join(CARD), CARD),
        ("\u0336".join(CARD), CARD),  # struck through
        ("\u20e3".join(CARD), CARD),  # keycaps
        ("\x00".join(CARD), CARD),
        ("\x1f".join(CARD), CARD),
        ("\x7f".join(CARD), CARD),
        ("\x80".join(CARD), CARD),
        ("\u0488".join(CARD), CARD),
        ("\u0483".join(CARD), CARD),
        ("\u0941".join(CARD), CARD),  # a vowel's sign of another script
        ("\u0301\u0941\x07\u05b0".join(CARD), CARD),
        ("\u0941".join("Сокол"), "Сокол"),
        ("fal" + "\u0941" * 3000 + "con", "falcon"),
        ("a\x0bb\x85c\u2028d\u1680e\u2800f", "a b c d e f"),
        ("fal\ufff9con\ufffa\ufffb", "falcon"),  # interlinear annotation
        ("a\x1fb", "ab"),
        (r"fal\u0000con", "falcon"),
        (r"fal\bcon", "falcon"),
        (r"fal\\u0007con", "falcon"),
        ("e\u0301t\u200be\u0301", "été"),
        ("ｐａｓｓｗｏｒｄ：ａ１", "password:a1"),  # noqa: RUF001
        ("ﬁle", "file"),
        (r"\u0034\u0031", "41"),
        (r"\\u0034", "4"),
        (r"\\\\u0034", "4"),
        (r"one\ntwo\tthree\/", "one\ntwo\tthree/"),
        (r"\ud83d\ude00", "😀"),
        (r"\uff14", "4"),
    ],
)
def test_what_a_reader_sees_is_found(written: str, seen: str) -> None:
    assert plain(written) == seen


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "a\tb\nc\r\n",
        "कमल में हिन्दी",
        "שָׁלוֹם",
        "مُحَمَّد",
        "ภาษาไทยที่",
        "क\u094d\u0937ि",
        "Zażółć gęślą jaźń",
        "漢字かな交じり文",
        "مرحبا",
        "😀 — “quoted”",
        r"C:\users",
    ],
)
def test_what_is_plain_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


def test_each_level_of_escapes_is_a_reading_of_its_own() -> None:
    assert readings(r"falcon\\u0061").plain == (r"falcon\\u0061", r"falcon\u0061", "falcona")
    assert readings(r"f\u0061lcon\\u0061").plain[1] == r"falcon\u0061"
    assert readings("plain").plain == ("plain",)


def test_escapes_are_undone_no_further_than_that() -> None:
    assert len(readings("\\" * 4096 + "u0061").plain) == 1 + ESCAPE_LEVELS


@pytest.mark.parametrize(
    ("written", "without"),
    [
        ("f\u0301a\u0301l\u0301con", "falcon"),  # letters that compose with the mark
        ("Mu\u0308\u0301ller", "Muller"),
        ("Mü\u0301ller", "Muller"),
        ("4\u0300111", "4111"),
        ("и\u0306", "и"),
        (r"f\u0061\u0301lcon", "falcon"),
    ],
)
def test_a_text_with_marks_on_its_letters_is_read_without_them_also(written: str, without: str) -> None:
    assert without in readings(written).bare
    assert bare(written) == without


def test_a_letter_that_is_written_as_one_with_its_mark_stays_what_it_is() -> None:
    assert readings("fálcon ❤\ufe0f").bare == ()
    assert bare("fálcon") == "falcon"


def test_folding_is_done_where_an_expression_cannot_do_it_by_itself() -> None:
    assert folded("Straße") == "strasse"
    assert folded("STRASSE") == "STRASSE"
    assert folded("Ärger, ΣΊΣΥΦΟΣ") == "Ärger, ΣΊΣΥΦΟΣ"


def test_every_character_that_folds_to_several_is_known() -> None:
    for character in map(chr, (*range(0x80, 0xD800), *range(0xE000, 0x20000))):
        if len(character.casefold()) > 1:
            assert folded(character) == character.casefold()


def test_half_a_character_in_an_escape_breaks_nothing() -> None:
    assert plain(r"a\ud800b é").encode() == "a\ufffdb é".encode()


def test_json_in_json_is_undone_as_deep_as_tools_nest_it() -> None:
    text = "Müller"
    for _ in range(ESCAPE_LEVELS):
        text = json.dumps(text)
    assert "Müller" in plain(text)


@settings(max_examples=15, deadline=None)
@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\\"), max_size=40))
@example("\ua66f")
def test_a_long_text_folds_as_its_parts_do(text: str) -> None:
    """Pieces are cut where nothing composes across the cut. Each part begins with a letter, on which a mark stands in
    the long text as it does alone."""
    times = PIECE_CHARACTERS // (len(text) + 2) + 2
    assert plain(f"x{text} " * times) == plain(f"x{text} ") * times


def test_a_composition_is_never_cut() -> None:
    for shift in range(4):
        text = "a" * (PIECE_CHARACTERS - shift) + "e\u0301" + "x"
        assert plain(text) == "a" * (PIECE_CHARACTERS - shift) + "éx"


@given(st.text(max_size=60).filter(lambda text: text.isprintable() and "\\" not in text))
def test_the_plain_form_is_in_compatibility_composition(text: str) -> None:
    seen = plain(text)
    assert unicodedata.is_normalized("NFKC", seen) or seen != text


@pytest.mark.parametrize("unit", ["\u304b\u3099", "\u1112\u1161\u11ab", "é̖̀", "4\uff11"])
def test_what_composes_is_not_cut_where_no_ascii_is_near(unit: str) -> None:
    for shift in range(4):
        text = "я" * shift + unit * (3 * COMPOSED_CHARACTERS)
        assert plain(text) == "я" * shift + plain(unit) * (3 * COMPOSED_CHARACTERS)


def test_no_more_is_composed_at_once_than_a_short_piece() -> None:
    """Canonical ordering takes the square of a run of marks, and keeps every other thread waiting meanwhile."""
    for marks in ("\u0300\u0316" * 20_000, "क" + "\u0941" * 20_000):
        assert max(map(len, _pieces(marks))) <= 2 * COMPOSED_CHARACTERS + LONGEST_RUN
        assert "".join(_pieces(marks)) == marks


def test_marks_of_other_scripts_cost_a_long_text_little() -> None:
    """One mark anywhere lets the whole text be looked through for others, and every other thread waits for a call."""
    text = "a" * 200_000 + "e\u0301"
    one_look = re.compile("[b\u0300]+")
    assert seconds(lambda: _without_foreign_marks(text)) < 20 * seconds(lambda: one_look.sub("", text))


@pytest.mark.parametrize("mark", ["\u0670", "\u0941", "\U0001e8d0"])
@pytest.mark.parametrize("at", [0, COMPOSED_CHARACTERS - 2, 2 * COMPOSED_CHARACTERS - 2, PIECE_CHARACTERS - 2])
def test_a_mark_of_another_script_hides_nothing_wherever_a_piece_is_cut(mark: str, at: int) -> None:
    for shift in range(4):
        for filler in ("x", "я", "\u200b"):
            text = filler * (at + shift) + "fal" + mark * 3 + "con" + "e\u0301"
            assert any("falcon" in reading for reading in readings(text).plain), (at + shift, filler)


def test_marks_stay_on_letters_of_their_own_script() -> None:
    for text in ("\u0915\u0941", "\u0628\u0670", "\U0001e800\U0001e8d0"):
        assert text in readings(text + "e\u0301").plain[0]


def seconds(work: Callable[[], object]) -> float:
    """The least that this thread needed for it, of three times."""
    took: list[float] = []
    for _ in range(3):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return min(took)
