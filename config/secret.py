"""A secret by its place: a file or an environment variable, never the configuration file itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """Where a secret's bytes are. Exactly one of `file` and `env`. Its repr names the place, never the content."""

    file: Path | None = None
    env: str | None = None

    def read(self) -> bytes:
        """The bytes less one trailing newline, undecoded. Raises OSError or KeyError naming the place."""
        raise NotImplementedError
