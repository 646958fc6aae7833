"""The pages of the admin listener: what a browser loads before it asks for data. One shell, and what the shell names.

    shell = pages.assets()[pages.SHELL]     # the answer at /, /scopes/{workspace}/{project}, /requests/{request_id}
    style = pages.assets()["style.css"]     # the answer at /assets/style.css

Nothing in them is about anybody: who loads them has seen nothing yet. They are written by hand and need no build.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

SHELL: Final = "index.html"

# Everything from here, and no script or style inside the shell: a name that is shown can never become one.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)

_CONTENT_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is served. `etag` is a strong one, in quotes (RFC 9110 section 8.8.3)."""

    body: bytes
    content_type: str
    etag: str


@cache
def assets() -> Mapping[str, Asset]:
    """All files by name, read once. A name that is not in here is no file."""
    found = {
        entry.name: _asset(entry.name, entry.read_bytes()) for entry in files(__name__).joinpath("assets").iterdir()
    }
    return MappingProxyType(found)


def _asset(name: str, body: bytes) -> Asset:
    _, _, kind = name.rpartition(".")
    return Asset(body, _CONTENT_TYPES[kind], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
