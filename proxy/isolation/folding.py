"""What a text looks like to a reader: other spellings of the same characters made one, what nobody sees taken out.

Rules look at the text as it is and at its readings, so that full-width digits, a zero-width joiner or a control
character inside a name, a line drawn through each letter or the escapes of JSON inside a string hide nothing. Letters
of another script that look alike are not made one, and no encoding (base64, percent signs, HTML) is undone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import filterfalse
from typing import Final, Literal

from config.expressions import Expression
from proxy.isolation.escapes import levels

# Some functions below keep every other thread waiting for one call, so a call gets only so much at once.
PIECE_CHARACTERS: Final = 32 * 1024
COMPOSED_CHARACTERS: Final = 512
# UAX 15 section 13: a stream-safe text has at most 30 combining marks in a row.
LONGEST_RUN: Final = 64

# Control characters that are no white space: nothing shows them. (Unicode counts U+001C to U+001F as white space, but
# nobody writes them.)
_CONTROL_RANGES: Final = "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
# Default_Ignorable_Code_Point (Unicode 16, DerivedCoreProperties.txt): zero-width marks, joiners, variation selectors,
# tags; and the three marks of interlinear annotation, which nothing shows either. Then the five blocks of combining
# diacritical marks and Cyrillic's own: what is left of them after composition is mere overlay.
_UNSEEN_RANGES: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_OVERLAY_RANGES: Final = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_UNSEEN: Final = re.compile(f"[{_UNSEEN_RANGES}{_CONTROL_RANGES}]+")
_OVERLAYS: Final = re.compile(f"[{_OVERLAY_RANGES}]+")
# White space that expressions do not take for any, and that compatibility composition leaves as it is; and the Braille
# pattern without dots, which looks like it.
_SPACE_RANGES: Final = "\x0b\x85\u1680\u2028\u2029\u2800"
_OTHER_SPACES: Final = re.compile(f"[{_SPACE_RANGES}]")
_OTHER_DIGITS: Final = re.compile(r"[^\D0-9]")  # Decimal digits of other scripts, for patterns that say 0-9.
# Latin, Greek and Cyrillic, digits and signs: marks of other scripts do not belong on them.
_LETTER_RANGES: Final = " -\u02af\u0370-\u0482\u048a-\u052f\u1c80-\u1c8f\u1e00-\u1fff\u2c60-\u2c7f\ua720-\ua7ff"
# Quick looks that do not keep other threads waiting: for what is taken out or made one, and for marks.
_HIDING: Final = Expression(rf"[{_UNSEEN_RANGES}{_CONTROL_RANGES}{_SPACE_RANGES}{_OVERLAY_RANGES}]|[^\P{{Nd}}0-9]")
_HIDING_IN_ASCII: Final = Expression(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_MARK: Final = Expression(r"[\p{Mn}\p{Me}]")
# Characters whose full case folding is several (status F in CaseFolding.txt); expressions know only the simple one.
_FOLDS_TO_SEVERAL: Final = Expression(
    "[\u00df\u0130\u0149\u01f0\u0390\u03b0\u0587\u1e96-\u1e9a\u1e9e\u1f50\u1f52\u1f54\u1f56\u1f80-\u1faf\u1fb2-\u1fb4\u1fb6-\u1fb7\u1fbc\u1fc2-\u1fc4\u1fc6-\u1fc7\u1fcc\u1fd2-\u1fd3\u1fd6-\u1fd7\u1fe2-\u1fe4\u1fe6-\u1fe7\u1ff2-\u1ff4\u1ff6-\u1ff7\u1ffc\ufb00-\ufb06\ufb13-\ufb17]"
)
_ASCII: Final = re.compile(r"[\x00-\x7f]")
_JAMO: Final = re.compile("[\u1161-\u1175\u11a8-\u11c2]")  # vowels and final consonants, which are no marks


@dataclass(frozen=True, slots=True)
class Readings:
    """What a text says to a reader, each level of escapes for itself.

    `bare` has those in which marks stand on letters, without any: `fa\u0301lcon` could be taken for `fálcon` or for
    `falcon` with something above. Letters that are written as one with their mark stay what they are.
    """

    plain: tuple[str, ...]
    bare: tuple[str, ...]


def readings(text: str) -> Readings:
    """The readings of a text, the first of them the text itself where it is plain; in time proportional to it."""
    plains: list[str] = []
    bares: list[str] = []
    for level in levels(text):
        if level.isascii():
            plains.append(_shown(level) if _HIDING_IN_ASCII.is_in(level.encode()) else level)
        elif _is_marked(level):
            ours = _without_foreign_marks(level)
            plains.append(_plain(ours))
            bares.append(_bare(ours))
        else:
            plains.append(_plain(level))
    return Readings(tuple(plains), tuple(bares))


def plain(text: str) -> str:
    """The text as a reader sees it, with no escapes left; the same object where it is so already."""
    return readings(text).plain[-1]


def bare(text: str) -> str:
    """The text without any mark on its letters, also where a letter and its mark are written as one."""
    return _bare(plain(text))


def folded(plain_text: str) -> str:
    """A plain text in which ß is ss and the like: Unicode's full case folding, where it is more than the simple one
    that an expression with `(?i)` does by itself."""
    if plain_text.isascii() or not _FOLDS_TO_SEVERAL.is_in(plain_text.encode()):
        return plain_text
    pieces = range(0, len(plain_text), PIECE_CHARACTERS)
    return "".join(plain_text[at : at + PIECE_CHARACTERS].casefold() for at in pieces)


def _plain(text: str) -> str:
    return "".join(map(_plain_piece, _pieces(text)))


def _bare(text: str) -> str:
    return "".join(map(_bare_piece, _pieces(text)))


def _is_marked(text: str) -> bool:
    """Whether there is any mark in it but variation selectors and the like."""
    return _MARK.is_in(text.encode()) and _MARK.is_in(_seen(text).encode())


def _plain_piece(piece: str) -> str:
    if unicodedata.is_normalized("NFKC", piece) and not _HIDING.is_in(piece.encode()):
        return piece
    return _without_overlays(piece, "NFKC")


def _bare_piece(piece: str) -> str:
    return piece if piece.isascii() else unicodedata.normalize("NFC", _without_overlays(piece, "NFKD"))


def _without_overlays(piece: str, form: Literal["NFKC", "NFKD"]) -> str:
    # Out before composition, which they would hinder, and after it, for compositions bring some in.
    composed = unicodedata.normalize(form, _shown(piece))
    without = _OVERLAYS.sub("", _shown(composed))
    return _OTHER_DIGITS.sub(lambda digit: str(unicodedata.decimal(digit[0])), without)


def _shown(text: str) -> str:
    return _OTHER_SPACES.sub(" ", _seen(text))


def _seen(text: str) -> str:
    """The text without what nobody sees."""
    if len(text) <= PIECE_CHARACTERS:
        return _UNSEEN.sub("", text)
    pieces = range(0, len(text), PIECE_CHARACTERS)
    return "".join(_UNSEEN.sub("", text[at : at + PIECE_CHARACTERS]) for at in pieces)


def _without_foreign_marks(text: str) -> str:
    marks, seen = _foreign_marks(), _seen(text)
    kept: list[str] = []
    begin = 0
    while begin < len(seen):
        end = begin + PIECE_CHARACTERS
        while end < len(seen) and unicodedata.category(seen[end])[0] == "M":
            end += 1  # a run of marks belongs to the letter before it, however long it is
        kept.append(marks.sub("", seen[begin:end]))
        begin = end
    return "".join(kept)


@cache
def _foreign_marks() -> re.Pattern[str]:
    """Marks of other scripts, where they stand on a letter of these.

    Marks first, which are few, for letters first would be tried at every character; and those beyond U+FFFF apart, for
    a set that has any of them is searched one by one.
    """
    own = re.compile(f"[{_OVERLAY_RANGES}]")
    marks = (chr(code) for code in range(0x300, 0x1EA00) if unicodedata.category(chr(code)) in ("Mn", "Me"))
    foreign = [mark for mark in marks if not own.match(mark)]
    near, far = (f"[{''.join(some)}]" for some in (filter(_is_near, foreign), filterfalse(_is_near, foreign)))
    mark = rf"(?:{near}|(?=[\U00010000-\U0010ffff]){far})"
    return re.compile(f"{mark}(?<=[{_LETTER_RANGES}{_OVERLAY_RANGES}].){mark}*")


def _is_near(character: str) -> bool:
    return character <= "\uffff"


def _pieces(text: str) -> Iterator[str]:
    """The text, cut before characters that compose with nothing before them: ASCII where there is any nearby.

    Short, because normalization takes the square of a run of combining marks (Unicode, canonical ordering).
    """
    begin = 0
    while begin < len(text):
        cut = _ASCII.search(text, begin + COMPOSED_CHARACTERS, begin + 2 * COMPOSED_CHARACTERS)
        end = _beginning(text, begin + 2 * COMPOSED_CHARACTERS) if cut is None else cut.start()
        yield text[begin:end]
        begin = end


def _beginning(text: str, at: int) -> int:
    """Where the next character begins that combines with none before it; no word has a run longer than is looked at."""
    end = at
    while end < min(at + LONGEST_RUN, len(text)) and (
        unicodedata.category(text[end])[0] == "M" or _JAMO.match(text, end)
    ):
        end += 1
    return end
