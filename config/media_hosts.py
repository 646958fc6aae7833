"""Hosts that images may be fetched from, as the configuration writes them, and which addresses may be behind them.

A name in the configuration says who is meant, not where it leads: whoever answers for the name chooses the address. So
each address is judged by itself. What is not known to be allowed is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from config.addresses import is_loopback_host

HTTPS_PORT: Final = 443


class Reach(Enum):
    """Which addresses a host may have."""

    PUBLIC = "public"
    PRIVATE = "private"  # those of private networks, and public ones
    LOOPBACK = "loopback"


@dataclass(frozen=True, slots=True)
class MediaHost:
    """A host without brackets, and its port; None is the scheme's own. `authority` is how a URL writes both."""

    authority: str
    host: str
    port: int | None
    reach: Reach


def media_host(text: str) -> MediaHost:
    """An entry of `media_hosts`: `images.example.com` or `images.example.com:8443`. Raises ValueError."""
    host, port = _split(text)
    if is_loopback_host(host) or not _NAME.fullmatch(host):
        raise ValueError("write the name of a host; loopback and addresses go to `media_private_hosts`")
    return MediaHost(text, host, port, Reach.PUBLIC)


def media_private_host(text: str) -> MediaHost:
    """An entry of `media_private_hosts`: a name or an address, with a port or without. Raises ValueError."""
    host, port = _split(text)
    reach = Reach.LOOPBACK if is_loopback_host(host) else Reach.PRIVATE
    if not _NAME.fullmatch(host) and not _is_address(host, reach):
        raise ValueError(
            "write the name of a host or one plain address of it; no image is fetched from link-local addresses, "
            "where clouds keep their credentials, nor from reserved ones"
        )
    return MediaHost(text, host, port, reach)


def may_be_behind(address: str, reach: Reach) -> bool:
    """Whether a host of this reach may have the address. False for what is no address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if reach is Reach.LOOPBACK:
        return _is_in(parsed, _LOOPBACK)
    if _is_in(parsed, _NEVER):
        return False
    return _is_public(parsed) or (reach is Reach.PRIVATE and _is_in(parsed, _PRIVATE))


_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
# The last label begins with a letter: whatever ends in a number, some reader takes for an address (127.1, 0x7f.1).
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z)(?:{_LABEL}\.)*(?![0-9_]){_LABEL}")
_ENTRY: Final = re.compile(r"(?P<host>[a-z0-9._-]+|\[[0-9a-f.]*:[0-9a-f:.]*\])(?::(?P<port>[1-9][0-9]{0,4}))?")


def _split(text: str) -> tuple[str, int | None]:
    if "*" in text:
        raise ValueError("write each host by its whole name; there are no wildcards")
    match = _ENTRY.fullmatch(text)
    port = int(match["port"]) if match is not None and match["port"] else None
    if match is None or (port is not None and port > 65535):
        raise ValueError("write a host in small letters, with a :port or without, and nothing else")
    if port == HTTPS_PORT:
        raise ValueError("leave out :443; addresses are compared as they are written, and nobody writes it")
    return match["host"].strip("[]"), port


def _is_address(host: str, reach: Reach) -> bool:
    """Whether it is an address in its one usual spelling, and one that may be reached."""
    return may_be_behind(host, reach) and str(ip_address(host)) == host


_Networks = tuple[IPv4Network | IPv6Network, ...]
_LOOPBACK: Final[_Networks] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
# Beside what Python knows of: its list differs from version to version. Clouds answer with credentials at link-local
# addresses, and at some that look like any other.
_NEVER: Final[_Networks] = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "192.0.0.0/24",  # RFC 6890; Oracle's metadata at .192
            "192.88.99.0/24",  # 6to4 relays
            "224.0.0.0/4",
            "240.0.0.0/4",
            "100.100.100.200/32",  # Alibaba's metadata
            "168.63.129.16/32",  # Azure's
            "2001::/23",  # Teredo and other assignments of protocols
            "2001:db8::/32",
            "2002::/16",  # 6to4: any IPv4 address may be inside
            "3fff::/20",
            "fd00:ec2::/32",  # Amazon's
            "fd20:ce::254/128",  # Google's
            "fd00:42::42/128",  # Scaleway's
            "fd00:a9fe:a9fe::1/128",  # Akamai's (Linode)
        ),
    )
)
# Of IPv6 only what is given out as global unicast (RFC 4291). That leaves out every form which an IPv4 address may hide
# in: mapped (::ffff:0:0/96), compatible (::/96), translated (64:ff9b::/96 and 64:ff9b:1::/48).
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_PRIVATE: Final[_Networks] = tuple(
    map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    return address.is_global and (isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST)


def _is_in(address: IPv4Address | IPv6Address, networks: _Networks) -> bool:
    return any(address in network for network in networks if network.version == address.version)
