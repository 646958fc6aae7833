"""Regular expressions that cost time in proportion to the text, whatever the pattern and whatever the text.

The engine is RE2, Google's own: it follows all ways through a pattern at once and never goes back, so no text can make
it take exponential time, and it lets other threads run meanwhile. One expression a pattern rather than its sets of
patterns: a set that runs out of memory answers "no match", an expression goes on without its cache.
"""

from __future__ import annotations

import re
from typing import Any, Final

import re2

MAXIMUM_PATTERN_CHARACTERS: Final = 1000
# A repeat such as \pL{40} multiplies: the time for a byte can grow with the instructions of the compiled pattern.
MAXIMUM_INSTRUCTIONS: Final = 5000
# Of the compiled pattern and of the cache of its states.
MAXIMUM_MEMORY_BYTES: Final = 4 * 1024**2

# `\A` and `\z` outside of an escaped backslash. Texts are looked at as lines of one text, so both would find nothing.
_ENDS_OF_TEXT: Final = re.compile(r"(?<!\\)(?:\\\\)*\\[Az]")
_PROBES: Final = (b"", b"a", b" ", b"a 0.\n")


class Expression:
    """A compiled pattern in RE2 syntax. `^` and `$` are the ends of a line, and groups capture nothing.

    Raises ValueError with the fault and the remedy where the pattern is none that may be used.
    """

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str, *, maximum_instructions: int = MAXIMUM_INSTRUCTIONS) -> None:
        self.pattern = pattern
        self._compiled = _compiled(pattern)
        if self.instructions > maximum_instructions:
            raise ValueError(
                f"is too large ({self.instructions} instructions, {maximum_instructions} are allowed); "
                "shorten its repeats, or divide it"
            )

    def __repr__(self) -> str:
        return f"Expression({self.pattern!r})"

    @property
    def instructions(self) -> int:
        """How many of them the compiled pattern has: a hostile text can make each byte cost this many steps."""
        return int(self._compiled.programsize)

    def is_in(self, text: bytes) -> bool:
        """Whether it matches anywhere in the UTF-8 of `text`."""
        return self._compiled.search(text) is not None

    def span(self, text: bytes, begin: int = 0) -> tuple[int, int] | None:
        """Where its first match from byte `begin` on lies."""
        match = self._compiled.search(text, begin)
        if match is None:
            return None
        first, behind = match.span()
        return int(first), int(behind)


def literal(text: str) -> str:
    """The pattern that matches the text itself."""
    return str(re2.escape(text))


def operators_expression(pattern: str) -> Expression:
    """A pattern as an operator wrote it. Raises ValueError also for what would match without a character."""
    if len(pattern) > MAXIMUM_PATTERN_CHARACTERS:
        raise ValueError(f"is longer than {MAXIMUM_PATTERN_CHARACTERS} characters; divide it")
    if _ENDS_OF_TEXT.search(pattern):
        raise ValueError(r"has \A or \z, but a request holds many texts; use ^ and $, the ends of a line")
    expression = Expression(pattern)
    if any(found is not None and found[0] == found[1] for found in map(expression.span, _PROBES)):
        raise ValueError("matches where there is no character, so it would match every request; ask for one at least")
    return expression


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.max_mem = MAXIMUM_MEMORY_BYTES
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile("(?m)" + pattern, options)
    except re2.error as error:
        (message,) = error.args
        shown = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        raise ValueError(f"is no RE2 pattern: {shown}; see github.com/google/re2/wiki/Syntax") from error
    except UnicodeEncodeError as error:
        raise ValueError("holds half a character; write the whole one") from error
