"""A secret that was read from its place: a file or an environment variable, never the configuration file itself."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret's bytes, undecoded and less one trailing newline, and the place they came from.

    Its repr tells the place and never the bytes. `source` is for messages, for example `file /run/secrets/salt`.
    """

    value: bytes = field(repr=False)
    source: str
