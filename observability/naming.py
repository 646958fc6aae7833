"""What scopes are called in metrics: by their names, or by pseudonyms that only the holder of a key can make."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from observability.names import OTHER

PSEUDONYM_CHARACTERS: Final = 12

Naming = Callable[[tuple[str, ...], tuple[str, ...]], str]
"""Label names and values, as the text formats write them between the braces."""


def plain(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join([f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True)])


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """A workspace is the first 12 hex digits of HMAC-SHA-256(key, its name), a project those of
    HMAC-SHA-256(key, workspace + "/" + project). Without the key nobody can try out names.
    """

    key: bytes = field(repr=False)

    def __call__(self, names: tuple[str, ...], values: tuple[str, ...]) -> str:
        if names[:2] != ("workspace", "project") or values[0] in _NOBODY:
            return plain(names, values)
        workspace, project, *rest = values
        return plain(names, (self._of(workspace), self._of(f"{workspace}/{project}"), *rest))

    def _of(self, name: str) -> str:
        return hmac.digest(self.key, name.encode(), "sha256").hex()[:PSEUDONYM_CHARACTERS]


_NOBODY: Final = frozenset({"", OTHER})


def escaped(text: str) -> str:
    """As a label's value: both text formats escape alike."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
