"""Rules that give a request with sensitive content a narrower border, and what they find in its texts.

`narrowing.md` says what they are for and what they do not see. They never widen and never refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from config.expressions import operators_expression
from proxy.isolation.detectors import Detector, Sieve, bare_word_detectors, sieve, word_detectors
from proxy.isolation.folding import folded, readings
from proxy.isolation.named_set import Entry
from proxy.isolation.personal_data import PERSONAL_DATA
from proxy.isolation.scope import narrowest
from proxy.isolation.secrets_in_text import SECRETS
from proxy.isolation.unit import Level

NAMED_SETS: Final[Mapping[str, tuple[Entry, ...]]] = {"personal-data": PERSONAL_DATA, "secrets": SECRETS}


class Unseen(Enum):
    """Why no rule could look at a request. Then it is treated as if every rule had found something.

    The values are no rule's name: those have no underscore.
    """

    OVER_LIMIT = "__over_limit__"
    UNSCANNABLE = "__unscannable__"


@dataclass(frozen=True, slots=True)
class Rule:
    """What it finds, where it holds (None: in every workspace), and the border that it gives.

    `in_folded` are its words, which disregard case, so they look at texts without it; `in_bare` are those whose letters
    have marks, without these; all others look at plain texts.
    `own_instructions` is how large the operator's own patterns are together, which bounds what they cost.
    """

    name: str
    workspaces: frozenset[str] | None
    level: Level
    in_folded: tuple[Detector, ...] = field(repr=False)
    in_plain: tuple[Detector | Sieve, ...] = field(repr=False)
    own_instructions: int = 0
    in_bare: tuple[Detector, ...] = field(repr=False, default=())

    def holds_in(self, workspace: str) -> bool:
        return self.workspaces is None or workspace in self.workspaces

    def finds(self, forms: Forms, go_on: Callable[[], None]) -> bool:
        """Whether it finds something. `go_on` is called before each search, and may raise."""
        places = ((self.in_folded, forms.folded), (self.in_plain, forms.plain), (self.in_bare, forms.bare))
        for detectors, texts in places:
            for detector in detectors:
                for text in texts:
                    go_on()
                    if detector.is_in(text):
                        return True
        return False


@dataclass(frozen=True, slots=True)
class Forms:
    """Some texts in UTF-8, each as it is and, where they differ, in its readings; `bare` are those without marks."""

    plain: tuple[bytes, ...]
    folded: tuple[bytes, ...]
    bare: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        """How much there is to look at: a text with escapes and marks has many readings."""
        return sum(map(len, self.plain))


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What the rules say of one request: the border they give (None: none), and which of them found something."""

    level: Level | None
    by: tuple[str, ...]


NOTHING_FOUND: Final = Narrowed(None, ())


def isolation_rule(
    name: str,
    *,
    workspaces: Sequence[str] | None = None,
    words: Sequence[str] = (),
    patterns: Sequence[str] = (),
    sets: Sequence[str] = (),
    level: Level = Level.USER,
) -> Rule:
    """A rule as an operator writes it. Raises ValueError for a pattern that cannot be used."""
    own = tuple(Detector(operators_expression(pattern)) for pattern in patterns)
    listed = [entry.detector for one in dict.fromkeys(sets) for entry in NAMED_SETS[one]]
    return Rule(
        name,
        None if workspaces is None else frozenset(workspaces),
        level,
        in_folded=word_detectors(words),
        in_plain=(*own, sieve(listed)) if listed else own,
        own_instructions=sum(detector.expression.instructions for detector in own),
        in_bare=bare_word_detectors(words),
    )


def narrowed(
    rules: Sequence[Rule], texts: Sequence[str] | Unseen, go_on: Callable[[], None] = lambda: None
) -> Narrowed:
    """What rules, at least one, say of a request with these texts, or of one that they could not see. `go_on` is called
    time and again, and may raise where nobody waits for the answer any more.
    """
    return narrowed_by(rules, texts if isinstance(texts, Unseen) else forms_of(texts), go_on)


def narrowed_by(rules: Sequence[Rule], forms: Forms | Unseen, go_on: Callable[[], None] = lambda: None) -> Narrowed:
    """The same, where the forms of the texts were made already."""
    if isinstance(forms, Unseen):
        return Narrowed(narrowest(rule.level for rule in rules), (forms.value,))
    found = [rule for rule in rules if rule.finds(forms, go_on)]
    if not found:
        return NOTHING_FOUND
    return Narrowed(narrowest(rule.level for rule in found), tuple(rule.name for rule in found))


def forms_of(texts: Sequence[str]) -> Forms:
    """The forms in which rules look at texts; in time proportional to these."""
    plains: list[str] = []
    foldeds: list[str] = []
    bares: list[str] = []
    for text in texts:
        seen = readings(text)
        bare = tuple(map(folded, seen.bare))
        plains += _each_once((text, *seen.plain, *seen.bare))
        foldeds += _each_once((text, *map(folded, seen.plain), *bare))
        bares += bare
    return Forms(_encoded(plains), _encoded(foldeds), _encoded(bares))


def _each_once(forms: Sequence[str]) -> Sequence[str]:
    return tuple(form for number, form in enumerate(forms) if form not in forms[:number])


def _encoded(forms: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(form.encode() for form in forms)
