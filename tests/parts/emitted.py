"""Whatever a gate of any test emits is searched at that gate's end: log lines, spans, metrics, audit.

So that the whole suite is one search for secrets, beside the tests that search one gate closely (`canaries`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# What opens something, by its form: a JWT or a JWE, also cut; a salt; a personal access token; a credential in a
# header; a cookie of ours.
_SECRET: Final = re.compile(
    rb"eyJ[\w-]{6,}"
    rb"|sg1-[\w-]{1,32}-[\w-]{16,}"
    rb"|sgp_[\w-]{16,}"
    rb"|(?i:bearer|basic) [\w.~+/=-]{16,}"
    rb"|__(?:Host|Secure)-[\w-]+=[\w-]{16,}"
)


def search_emitted(where: str, data: bytes, known: Iterable[str] = ()) -> None:
    """Raises AssertionError, which quotes no secret, where one is in the data. `known` are whole secrets of no form."""
    found = _SECRET.search(data)
    assert found is None, f"{where} holds a secret behind {data[max(0, found.start() - 60) : found.start()]!r}"
    for secret in known:
        at = data.find(secret.encode())
        assert at < 0, f"{where} holds a secret behind {data[max(0, at - 60) : at]!r}"


def search_files(files: Iterable[Path], known: Iterable[str] = ()) -> None:
    """Each of them that is there. Raises as `search_emitted`."""
    secrets = tuple(known)
    for file in files:
        if file.is_file():
            search_emitted(file.name, file.read_bytes(), secrets)
