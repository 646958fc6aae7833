"""The address at which a browser reached the admin listener, and whether it is one of ours. Pure.

A page elsewhere whose name was made to lead here (DNS rebinding) has that name in `Host`: so names are compared, also
on loopback. The names of this machine are ours at any port, for a tunnel may end at another one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from config.addresses import origin_of

_HOST: Final = re.compile(r"(\[::1\]|localhost|127\.0\.0\.1)(?::[0-9]{1,5})?")
_ANY_HOST: Final = re.compile(r"(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Address:
    """`origin` is as the browser writes it (RFC 6454 section 6.2)."""

    origin: str

    @property
    def is_secure(self) -> bool:
        return self.origin.startswith("https://")

    @property
    def cookie(self) -> str:
        """The session's cookie: its prefix lets no other host, path or plain http set it (RFC 6265bis section 4.1.3.2).
        On loopback there is none, and the port is in the name, because browsers share cookies between ports.
        """
        return "__Host-saltgate-admin" if self.is_secure else f"saltgate-admin-{self.origin.rpartition(':')[2]}"


def address_of(hosts: Sequence[str], ours: str | None) -> Address | None:
    """Of a request with these `Host` lines. `ours` is the origin that the configuration gives, where it gives one. None
    where the request was meant for somebody else.
    """
    host = hosts[0].lower() if len(hosts) == 1 else ""
    if ours is not None and _ANY_HOST.fullmatch(host) and _origin(ours.partition("://")[0], host) == ours:
        return Address(ours)
    local = _origin("http", host) if _HOST.fullmatch(host) else ""
    return Address(local) if local else None


def is_of_another_page(origins: Sequence[str], address: Address | None) -> bool:
    """Whether a page that is not ours made a request with these `Origin` lines: `null` (a sandbox, a file) is none of
    ours. Programs send no such line, nor do browsers for what a page of ours only reads.
    """
    return bool(origins) and (address is None or list(origins) != [address.origin])


def _origin(scheme: str, host: str) -> str:
    try:
        origin = origin_of(f"{scheme}://{host}")
    except ValueError:  # no such port
        return ""
    return origin
