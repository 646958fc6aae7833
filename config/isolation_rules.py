"""What an operator may write into `[[isolation.rules]]`. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from config.expressions import operators_expression
from config.faults import Fault
from config.settings import IsolationRule

# Each pattern is another pass over every text, so all have bounds; a word costs little, for all words are one pass.
MAXIMUM_RULES: Final = 50
MAXIMUM_PATTERNS: Final = 100
MAXIMUM_WORDS: Final = 1000
MAXIMUM_WORD_CHARACTERS: Final = 100

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
# As `proxy.isolation.unit.NAME`: only a name that a workspace can have is worth writing.
_WORKSPACE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def faults_of_rules(rules: Mapping[int, IsolationRule], faulty: Collection[int | str] = ()) -> Iterator[Fault]:
    """Every fault of the rules, which are given by their place in the file.

    Of those at `faulty` places only a part could be read, so what is not there is no fault.
    """
    if len(rules) > MAXIMUM_RULES:
        yield Fault("isolation.rules", f"are more than {MAXIMUM_RULES}; put patterns that belong together into one")
    if sum(len(rule.patterns or ()) for rule in rules.values()) > MAXIMUM_PATTERNS:
        yield Fault("isolation.rules", f"have more than {MAXIMUM_PATTERNS} patterns together; use words where you can")
    first: dict[str, int] = {}
    for number, rule in rules.items():
        place = f"isolation.rules.{number}"
        yield from _name_faults(place, rule, first.setdefault(rule.name, number), number)
        if number not in faulty and rule.words is None and rule.patterns is None and rule.sets is None:
            yield Fault(place, "finds nothing; write at least one of `words`, `patterns` and `sets`")
        yield from _workspace_faults(place, rule)
        yield from _word_faults(place, rule)
        yield from _pattern_faults(place, rule)


def _name_faults(place: str, rule: IsolationRule, first: int, number: int) -> Iterator[Fault]:
    if not _NAME.fullmatch(rule.name):
        yield Fault(f"{place}.name", "write 1 to 32 of a-z 0-9 -, a letter or digit first, for example patients")
    elif first != number:
        yield Fault(f"{place}.name", f"is also at isolation.rules.{first}.name; each rule is counted under its own")


def _workspace_faults(place: str, rule: IsolationRule) -> Iterator[Fault]:
    for position, workspace in enumerate(rule.workspaces or ()):
        if not _WORKSPACE.fullmatch(workspace):
            yield Fault(f"{place}.workspaces.{position}", "is no workspace's name; those are [a-z0-9][a-z0-9._-]{0,62}")


def _word_faults(place: str, rule: IsolationRule) -> Iterator[Fault]:
    if len(rule.words or ()) > MAXIMUM_WORDS:
        yield Fault(f"{place}.words", f"are more than {MAXIMUM_WORDS}; divide them over several rules")
    for position, word in enumerate(rule.words or ()):
        if len(word) > MAXIMUM_WORD_CHARACTERS:
            yield Fault(f"{place}.words.{position}", f"is longer than {MAXIMUM_WORD_CHARACTERS} characters; shorten it")
        elif not any(map(str.isalnum, word)):
            yield Fault(f"{place}.words.{position}", "has no letter or digit; write a pattern instead")


def _pattern_faults(place: str, rule: IsolationRule) -> Iterator[Fault]:
    for position, pattern in enumerate(rule.patterns or ()):
        try:
            operators_expression(pattern)
        except ValueError as error:
            yield Fault(f"{place}.patterns.{position}", str(error))
