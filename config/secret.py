"""A secret that was read from its place: a file or an environment variable, never the configuration file itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret's bytes, undecoded and less one trailing newline, and the place they came from.

    Its repr tells the place and never the bytes. `source` is for messages, for example `file /run/secrets/salt`; `path`
    is where it can be read anew.
    """

    value: bytes = field(repr=False)
    source: str
    path: Path | None = field(default=None, compare=False, repr=False)
