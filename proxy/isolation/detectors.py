"""Detectors: what finds a word, a pattern or an entry of a named set in a text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from config.expressions import Expression, literal
from proxy.isolation.folding import bare, folded, plain

# Scripts whose words stand without spaces, or whose particles follow a name without one: no boundary is asked there.
_UNSPACED: Final = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_UNSPACED_CHARACTER: Final = Expression(_UNSPACED)
_NOT_IN_WORDS: Final = rf"[^\pL\pN\pM]|{_UNSPACED}"
_BEFORE: Final = f"(?:^|{_NOT_IN_WORDS})"
_BEHIND: Final = f"(?:{_NOT_IN_WORDS}|$)"
# So many characters of words go into one expression that its states fit into its memory.
CHARACTERS_AT_ONCE: Final = 4000
# For expressions that are made here, of parts with bounds of their own.
MAXIMUM_OWN_INSTRUCTIONS: Final = 200_000


MAXIMUM_TRIES: Final = 20_000


@dataclass(frozen=True, slots=True)
class Detector:
    """An expression, and what a match must be beyond it: one with a valid check digit, for example.

    `holds` gets the text that matched. Where it says no, the search goes on behind the first character of the match; a
    text with very many of such false matches counts as having one, since each costs another search.
    """

    expression: Expression
    holds: Callable[[str], bool] | None = None

    def is_in(self, text: bytes) -> bool:
        """Whether the UTF-8 of `text` has it."""
        if self.holds is None:
            return self.expression.is_in(text)
        span = self.expression.span(text)
        for _ in range(MAXIMUM_TRIES):
            if span is None:
                return False
            if self.holds(text[slice(*span)].decode("utf-8")):
                return True
            span = self.expression.span(text, _next_character(text, span[0]))
        return True


@dataclass(frozen=True, slots=True)
class Sieve:
    """Many detectors, of which most texts have nothing: one look tells whether any of them needs to look."""

    first: Expression
    then: tuple[Detector, ...]

    def is_in(self, text: bytes) -> bool:
        return self.first.is_in(text) and any(detector.is_in(text) for detector in self.then)


def sieve(detectors: Sequence[Detector]) -> Sieve:
    """Finds what any of the detectors finds, at least one. Those without a further check become one."""
    patterns = [detector.expression.pattern for detector in detectors if detector.holds is None]
    checked = tuple(detector for detector in detectors if detector.holds is not None)
    unchecked = (Detector(_one_expression(patterns)),) if patterns else ()
    return Sieve(_one_expression([detector.expression.pattern for detector in detectors]), (*unchecked, *checked))


def _one_expression(patterns: Sequence[str]) -> Expression:
    return Expression("|".join(f"(?:{pattern})" for pattern in patterns), maximum_instructions=MAXIMUM_OWN_INSTRUCTIONS)


def word_detectors(words: Sequence[str]) -> tuple[Detector, ...]:
    """What finds any of the words and phrases as a whole one, in any case, however it is spelt.

    What stands before and behind a word must be no letter, digit or mark, and may be an underscore. White space in a
    phrase stands for any white space.
    """
    return _detectors({spelling for word in words for spelling in _spellings(word)})


def bare_word_detectors(words: Sequence[str]) -> tuple[Detector, ...]:
    """What finds those words whose letters have marks in texts whose letters have none."""
    with_marks = (word for word in words if bare(word) != plain(word))
    return _detectors({spelling for word in with_marks for spelling in _spellings(bare(word))})


def _detectors(spellings: Collection[str]) -> tuple[Detector, ...]:
    return tuple(
        Detector(Expression(_any_of(some), maximum_instructions=MAXIMUM_OWN_INSTRUCTIONS))
        for some in _some(sorted(spellings))
    )


def _spellings(word: str) -> Iterator[str]:
    """The ways in which the word can stand in a text as it is and in its two forms; any case is found anyway."""
    forms = {form.lower() for form in (word, plain(word), folded(plain(word)))}
    for form in forms:
        joined = " ".join(form.split())
        if joined:
            yield joined


def _some(spellings: Sequence[str]) -> Iterator[list[str]]:
    some: list[str] = []
    for spelling in spellings:
        if some and sum(map(len, some)) + len(spelling) > CHARACTERS_AT_ONCE:
            yield some
            some = []
        some.append(spelling)
    if some:
        yield some


def _any_of(words: Sequence[str]) -> str:
    """Words with the same boundaries share them, which keeps the pattern small."""
    by_boundary: dict[tuple[str, str], list[str]] = {}
    for word in words:
        boundaries = (_BEFORE if _needs_boundary(word[0]) else "", _BEHIND if _needs_boundary(word[-1]) else "")
        by_boundary.setdefault(boundaries, []).append(r"\s+".join(map(literal, word.split(" "))))
    return "(?i)" + "|".join(f"{before}(?:{'|'.join(some)}){behind}" for (before, behind), some in by_boundary.items())


def _needs_boundary(edge: str) -> bool:
    return edge.isalnum() and not _UNSPACED_CHARACTER.is_in(edge.encode())


def _next_character(text: bytes, at: int) -> int:
    """The byte at which the character behind that at byte `at` begins."""
    at += 1
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at
