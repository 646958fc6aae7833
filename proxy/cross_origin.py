"""Which web pages may call the gate, in the words of browsers (the Fetch standard, section 3.2: CORS). Pure.

It guards nothing of ours: a token does that. It guards people from pages that would use what only their browser can
reach. So a page that is not listed gets the same answer, and its browser keeps it from the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

# What the SDKs of OpenAI and Anthropic send from a browser; Firefox and Safari also ask for their own User-Agent.
_HEADERS: Final = frozenset(
    ("accept", "api-key", "authorization", "content-type", "dpop", "traceparent", "user-agent", "x-api-key")
)
_HEADERS_BY_BEGINNING: Final = ("anthropic-", "openai-", "x-saltgate-", "x-stainless-")
_EXPOSED: Final = b"X-Request-Id, Retry-After, WWW-Authenticate, Server-Timing, x-should-retry"
_MAXIMUM_NAMES: Final = 64
_NAME: Final = re.compile(r"[a-z0-9-]{1,64}")
_PREFLIGHT_SECONDS: Final = 600

_VARY: Final = b"Vary: Origin\r\n"
_VARY_PREFLIGHT: Final = b"Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers\r\n"


@dataclass(frozen=True, slots=True)
class CrossOrigin:
    """The origins of the pages that are let in, as browsers write them; at least one.

    No cookie counts at what they may call, so `Access-Control-Allow-Credentials` is never sent.
    """

    origins: frozenset[str]

    def lines(self, shown: Sequence[str]) -> bytes:
        """The header lines of an answer to a request with these `Origin` lines."""
        origin = self.allowed(shown)
        if origin is None:
            return _VARY
        return b"Access-Control-Allow-Origin: %b\r\nAccess-Control-Expose-Headers: %b\r\n%b" % (
            origin.encode("ascii"),
            _EXPOSED,
            _VARY,
        )

    def allowed(self, shown: Sequence[str]) -> str | None:
        """The one origin that is shown, where it is listed, byte for byte."""
        return shown[0] if len(shown) == 1 and shown[0] in self.origins else None


def preflight_lines(origin: str, method: str, asked: Sequence[str]) -> bytes:
    """The header lines of the answer to a preflight of a page that is let in, for a method that the path has.

    `asked` are the `Access-Control-Request-Headers` lines. Names that are not allowed are left out, so that the browser
    does not send the request; what is repeated is letters, digits and hyphens.
    """
    lines = (
        f"Access-Control-Allow-Origin: {origin}\r\n"
        f"Access-Control-Allow-Methods: {method}\r\n"
        f"Access-Control-Max-Age: {_PREFLIGHT_SECONDS}\r\n"
    )
    if names := ", ".join(_allowed_names(asked)):
        lines += f"Access-Control-Allow-Headers: {names}\r\n"
    return lines.encode("ascii") + _VARY_PREFLIGHT


def _allowed_names(asked: Sequence[str]) -> Iterator[str]:
    names = [name.strip(" \t").lower() for line in asked for name in line.split(",", _MAXIMUM_NAMES)]
    for name in dict.fromkeys(names[:_MAXIMUM_NAMES]):
        if _NAME.fullmatch(name) and (name in _HEADERS or name.startswith(_HEADERS_BY_BEGINNING)):
            yield name
