"""What a text looks like to a reader: other spellings of the same characters made one, what nobody sees taken out.

Rules look at the text as it is and at this form of it, so that full-width digits, a zero-width joiner inside a name, a
line drawn through each letter or the escapes of JSON inside a string hide nothing. Letters of another script that look
alike are not made one, and no encoding (base64, percent signs, HTML) is undone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from config.expressions import Expression

# Some functions below keep every other thread waiting for one call, so a call gets only so much at once.
PIECE_CHARACTERS: Final = 32 * 1024
COMPOSED_CHARACTERS: Final = 512
# UAX 15 section 13: a stream-safe text has at most 30 combining marks in a row.
LONGEST_RUN: Final = 64
# JSON in a string in JSON: as deep as tools nest it. Each pass undoes one level.
ESCAPE_LEVELS: Final = 3

# Default_Ignorable_Code_Point (Unicode 16, DerivedCoreProperties.txt): zero-width marks, joiners, variation selectors,
# tags. Then the five blocks of combining diacritical marks: what is left of them after composition is mere overlay.
_UNSEEN_RANGES: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_OVERLAY_RANGES: Final = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_UNSEEN: Final = re.compile(f"[{_UNSEEN_RANGES}]+")
_OVERLAYS: Final = re.compile(f"[{_OVERLAY_RANGES}]+")
_OTHER_DIGITS: Final = re.compile(r"[^\D0-9]")  # Decimal digits of other scripts, for patterns that say 0-9.
# Any of the three, in one quick look that does not keep other threads waiting.
_HIDING: Final = Expression(rf"[{_UNSEEN_RANGES}{_OVERLAY_RANGES}]|[^\P{{Nd}}0-9]")
# Characters whose full case folding is several (status F in CaseFolding.txt); expressions know only the simple one.
_FOLDS_TO_SEVERAL: Final = Expression(
    "[\u00df\u0130\u0149\u01f0\u0390\u03b0\u0587\u1e96-\u1e9a\u1e9e\u1f50\u1f52\u1f54\u1f56\u1f80-\u1faf\u1fb2-\u1fb4\u1fb6-\u1fb7\u1fbc\u1fc2-\u1fc4\u1fc6-\u1fc7\u1fcc\u1fd2-\u1fd3\u1fd6-\u1fd7\u1fe2-\u1fe4\u1fe6-\u1fe7\u1ff2-\u1ff4\u1ff6-\u1ff7\u1ffc\ufb00-\ufb06\ufb13-\ufb17]"
)
_ASCII: Final = re.compile(r"[\x00-\x7f]")
_JAMO: Final = re.compile("[\u1161-\u1175\u11a8-\u11c2]")  # vowels and final consonants, which have no combining class
_ESCAPE: Final = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|(["\\/bfnrt]))')
_SHORT_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": " ", "f": " ", "n": "\n", "r": "\n", "t": "\t"}


def plain(text: str) -> str:
    """The text as a reader sees it; the same object where it is so already."""
    unescaped = _unescaped(text)
    if unescaped.isascii():
        return unescaped
    return "".join(map(_plain_piece, _pieces(unescaped)))


def folded(plain_text: str) -> str:
    """A plain text in which ß is ss and the like: Unicode's full case folding, where it is more than the simple one
    that an expression with `(?i)` does by itself."""
    if plain_text.isascii() or not _FOLDS_TO_SEVERAL.is_in(plain_text.encode()):
        return plain_text
    pieces = range(0, len(plain_text), PIECE_CHARACTERS)
    return "".join(plain_text[at : at + PIECE_CHARACTERS].casefold() for at in pieces)


def _plain_piece(piece: str) -> str:
    if unicodedata.is_normalized("NFKC", piece) and not _HIDING.is_in(piece.encode()):
        return piece
    # Out before composition, which they would hinder, and after it, for compositions bring some in.
    composed = unicodedata.normalize("NFKC", _UNSEEN.sub("", piece))
    without = _OVERLAYS.sub("", _UNSEEN.sub("", composed))
    return _OTHER_DIGITS.sub(lambda digit: str(unicodedata.decimal(digit[0])), without)


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
    while end < min(at + LONGEST_RUN, len(text)) and (unicodedata.combining(text[end]) or _JAMO.match(text, end)):
        end += 1
    return end


def _unescaped(text: str) -> str:
    for _ in range(ESCAPE_LEVELS):
        if "\\" not in text:
            break
        fewer = _ESCAPE.sub(_character, text)
        if fewer == text:
            break
        text = _whole_characters(fewer)
    return text


def _character(escape: re.Match[str]) -> str:
    code, short = escape.groups()
    return _SHORT_ESCAPES[short] if code is None else chr(int(code, 16))


def _whole_characters(text: str) -> str:
    """Two surrogates in a row are one character; one alone is none, and could not be encoded."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
