"""The proof that a listener is out of everybody else's reach.

A provider whose people and passwords are printed on a terminal must not be reachable from another machine. Whoever
holds a `LoopbackAddress` holds an address that cannot be: there is no other way to make one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import urlsplit

_LISTEN: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9.-]+)):(?P<port>[0-9]{1,5})", re.ASCII)
_LOCALHOST: Final = "localhost"


class NotLoopback(ValueError):  # noqa: N818 - said of an address, in the standards' words
    """The address could be reached from another machine, or is no address."""


@dataclass(frozen=True, slots=True)
class LoopbackAddress:
    """A loopback host (127.0.0.0/8, ::1, or `localhost`) and a port; port 0 lets the system choose.

    Raises NotLoopback for any other host, so that a value of this type is the proof.
    """

    host: str
    port: int

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise NotLoopback(f"{self.port} is no port")
        if self.host != _LOCALHOST and not _is_loopback(self.host):
            raise NotLoopback(f"{self.host!r} is not loopback; use 127.0.0.1, ::1 or localhost")

    @property
    def authority(self) -> str:
        """What a browser sends as Host (RFC 9110 section 7.2): the default port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 80 else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """The origin of everything served here; it is the issuer identifier too."""
        return f"http://{self.authority}"

    @property
    def bind_host(self) -> str:
        """The literal address to bind. `localhost` is never looked up: a hosts file may say anything (RFC 6761 6.3)."""
        return "127.0.0.1" if self.host == _LOCALHOST else self.host

    def at(self, port: int) -> LoopbackAddress:
        return LoopbackAddress(self.host, port)


def loopback_address(listen: str) -> LoopbackAddress:
    """The address written as `host:port`, `[::1]:port`. Raises NotLoopback."""
    match = _LISTEN.fullmatch(listen)
    if match is None:
        raise NotLoopback(f"{listen!r} is no address; write 127.0.0.1:PORT, [::1]:PORT or localhost:PORT")
    return LoopbackAddress(match["six"] or match["host"], int(match["port"]))


def address_of_issuer(issuer: str) -> LoopbackAddress:
    """Where the provider named by `issuer` (`http://127.0.0.1:9400`) listens. Raises NotLoopback."""
    host, port = _host_and_port(issuer)
    address = LoopbackAddress(host, port)
    if address.origin != issuer:
        raise NotLoopback(f"{issuer!r} is no loopback issuer; write {address.origin}, without a path")
    return address


def _host_and_port(issuer: str) -> tuple[str, int]:
    try:
        parts = urlsplit(issuer)
        port = parts.port
    except ValueError as error:
        raise NotLoopback(f"{issuer!r} is no address") from error
    return parts.hostname or "", 80 if port is None else port


def _is_loopback(host: str) -> bool:
    """Only canonical spellings: an IPv4 address inside an IPv6 one, a zone, or `127.1` is not taken."""
    try:
        return str(IPv6Address(host)) == "::1" == host if ":" in host else IPv4Address(host).is_loopback
    except ValueError:
        return False
