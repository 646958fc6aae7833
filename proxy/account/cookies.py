"""The two cookies of saltgate's own pages: one for a sign-in on its way, one for the session. Pure.

Both hold 256 random bits and nothing else.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Cookie:
    """One cookie. With `secure` its name has the prefix `__Host-` (RFC 6265bis section 4.1.3.2): no other host, no
    other path and no plain http can set it.
    """

    name: str
    secure: bool

    def value(self, headers: Iterable[tuple[str, str]]) -> str | None:
        """The cookie's value in a request's header lines; None where it is not there, or there in two ways."""
        found = {
            value
            for name, line in headers
            if name.lower() == "cookie"
            for key, _, value in (pair.strip(" \t").partition("=") for pair in line.split(";"))
            if key == self.name
        }
        if len(found) != 1:
            return None
        value = found.pop()
        return value if _VALUE.fullmatch(value) else None

    def set_to(self, value: str, *, seconds: int | None = None) -> tuple[str, str]:
        """The header line that sets it; without `seconds` it ends with the browser."""
        age = "" if seconds is None else f"; Max-Age={seconds}"
        return "Set-Cookie", f"{self.name}={value}; Path=/{age}; HttpOnly; SameSite=Lax{'; Secure' * self.secure}"

    def ended(self) -> tuple[str, str]:
        """The header line that takes it away."""
        return self.set_to("", seconds=0)


@dataclass(frozen=True, slots=True)
class Cookies:
    """`sign_in` binds a sign-in to the browser that began it, `session` is the session's secret."""

    sign_in: Cookie
    session: Cookie


def cookies_of(public_url: str) -> Cookies:
    """The cookies for pages at this address.

    The configuration lets it be plain http on loopback only. There no `Secure` cookie is possible, so the prefix is
    not either; the port is part of the name, because browsers share cookies between the ports of a host.
    """
    parts = urlsplit(public_url)
    if parts.scheme == "https":
        return Cookies(Cookie("__Host-saltgate-sign-in", secure=True), Cookie("__Host-saltgate", secure=True))
    port = parts.port or 80
    return Cookies(Cookie(f"saltgate-{port}-sign-in", secure=False), Cookie(f"saltgate-{port}", secure=False))


def fresh_value() -> str:
    return secrets.token_urlsafe(32)
