"""What scopes are called in metrics: by their names, or by pseudonyms that only the holder of a key can make."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from observability.layouts import Labels
from observability.names import OTHER

PSEUDONYM_CHARACTERS: Final = 12

Naming = Callable[[Labels], Labels]
"""The label values of a scope's row, as they are shown."""


def plain(labels: Labels) -> Labels:
    """By their names."""
    return labels


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """A workspace is the first 12 hex digits of HMAC-SHA-256(key, its name), a project those of
    HMAC-SHA-256(key, workspace + "/" + project). Without the key nobody can try out names.
    """

    key: bytes = field(repr=False)

    def __call__(self, labels: Labels) -> Labels:
        workspace, project, model = labels
        if workspace in _NOBODY:
            return labels
        return self._of(workspace), self._of(f"{workspace}/{project}"), model

    def _of(self, name: str) -> str:
        return hmac.digest(self.key, name.encode(), "sha256").hex()[:PSEUDONYM_CHARACTERS]


_NOBODY: Final = frozenset({"", OTHER})
