"""What is wrong with a configuration, said so that an operator can mend it at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


def printable(text: str) -> str:
    """The text on one line, with nothing in it that a terminal would obey or hide: a file may quote anything."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: the dotted key it is about (`engines.0.urls`), and what is wrong with the remedy.

    Where the file itself cannot be read, `key` is its path. A message never repeats a value that may be a secret.
    """

    key: str
    message: str

    def __str__(self) -> str:
        return printable(f"{self.key}: {self.message}")


class ConfigurationFaults(Exception):  # noqa: N818 - it carries several, and is named for them
    """A configuration that may not be used, with every fault that one run could find. Its text is one line each."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(dict.fromkeys(faults))
        super().__init__("\n".join(map(str, self.faults)))
