"""Addresses as the configuration writes them: where saltgate listens, and whether a place is on this machine only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_PLAIN_URL: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host without brackets, and a port; port 0 lets the system choose."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return is_loopback_host(self.host)


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The absolute path of a Unix socket."""

    path: str


def listen_address(text: str) -> TcpAddress | UnixAddress:
    """What a `listen` key says: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080` or `unix:/path`. Raises ValueError."""
    if text.startswith("unix:"):
        return UnixAddress(_socket_path(text))
    host, separator, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not separator or not _is_port(port) or not _is_host(bare, bracketed=bare != host):
        raise ValueError("write an address and a port, for example 127.0.0.1:8080 or [::1]:8080")
    return TcpAddress(bare, int(port))


def web_address(text: str) -> SplitResult:
    """An http or https URL with a host, and without a user or password. Raises ValueError, never repeating the URL."""
    parts = _split(text)
    if parts is None or parts.scheme not in {"http", "https"}:
        raise ValueError("write an http:// or https:// address with a host")
    if "@" in parts.netloc:
        raise ValueError("leave out the user and password; secrets have keys of their own")
    return parts


def upstream_address(text: str) -> SplitResult | UnixAddress:
    """An engine's base address: http, https or unix:/path, and nothing after the port. Raises ValueError."""
    if text.startswith("unix:"):
        return UnixAddress(_socket_path(text))
    if not text.startswith(("http://", "https://")):
        raise ValueError("write http://host:port, https://host:port or unix:/path")
    parts = web_address(text)
    if parts.path or "?" in text or "#" in text:
        raise ValueError("write scheme, host and port only; saltgate adds the path")
    return parts


def is_loopback_host(host: str | None) -> bool:
    """Whether only this machine can be behind `host`: localhost, 127.0.0.0/8 or ::1."""
    if host is None:
        return False
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def origin_of(url: str) -> str:
    """As browsers write an origin (RFC 6454 section 6.2): in lower case, without the scheme's own port."""
    parts = urlsplit(url.lower())
    standard = {"https": 443, "http": 80}.get(parts.scheme)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if parts.port in (None, standard) else f":{parts.port}")


def _socket_path(text: str) -> str:
    path = text.removeprefix("unix:")
    if not path.startswith("/") or path.startswith("//") or path.endswith("/") or "\0" in path:
        raise ValueError("write a Unix socket as unix:/path, with an absolute path")
    return path


def _split(text: str) -> SplitResult | None:
    """The parts of a URL with a sound host and port. urlsplit drops control characters, so they are refused first."""
    if not _PLAIN_URL.fullmatch(text):
        return None
    try:
        parts = urlsplit(text)
        sound = _is_host(parts.hostname or "", bracketed="[" in parts.netloc) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is no number or above 65535
        return None
    return parts if sound else None


def _is_port(text: str) -> bool:
    return _PORT.fullmatch(text) is not None and int(text) <= 65535


def _is_host(text: str, *, bracketed: bool) -> bool:
    if bracketed or ":" in text:
        return bracketed and _is_ipv6(text)
    return _HOST_NAME.fullmatch(text) is not None


def _is_ipv6(text: str) -> bool:
    try:
        return IPv6Address(text).scope_id is None
    except ValueError:
        return False
