"""Where a client is: the other end of its connection, or what a trusted proxy in between says of it. Pure.

A proxy is believed as far as it is trusted, and nobody beyond it: of a chain of proxies each is judged by the word of
the one after it, from ours outwards, and the first that is not trusted is the client.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Literal

from config.proxy_rules import UNIX
from config.settings import Proxies
from proxy.refusals import InvalidRequest

Address = IPv4Address | IPv6Address
# The other end of a connection to our Unix socket has no address, nor has one whose balancer does not tell it, nor one
# that nothing is known of.
Peer = Address | Literal["unix", "untold"] | None


@dataclass(frozen=True, slots=True)
class Trusted:
    """Whose word counts: who is at one of `networks`; `unix` is whether who connects to our Unix socket is."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    unix: bool = False

    def holds(self, peer: Peer) -> bool:
        if peer is None or isinstance(peer, str):
            return peer == UNIX and self.unix
        return any(peer in network for network in self.networks)


def trusted_proxies(proxies: Proxies) -> Trusted:
    """What the settings say of it."""
    return Trusted(
        networks=tuple(ip_network(place) for place in proxies.trusted if place != UNIX), unix=UNIX in proxies.trusted
    )


def address_of(host: str) -> Address | None:
    """The address that `host` writes; an IPv4 address that is mapped into IPv6 is an IPv4 address."""
    try:
        return unmapped(ip_address(host))
    except ValueError:
        return None


def unmapped(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


@dataclass(frozen=True, slots=True)
class ClientAddresses:
    """`header` is the one in which trusted proxies tell the client's address; None: none of them does."""

    trusted: Trusted = Trusted()
    header: Literal["Forwarded", "X-Forwarded-For"] | None = None

    def client(self, peer: Peer, lines: Sequence[str]) -> Address | None:
        """The address of the client whose request came from `peer` with these lines of the header; None where it has
        none, or a proxy says that it does not tell.

        Raises InvalidRequest where a trusted proxy's word is not well-formed: perhaps a client wrote a part of it.
        """
        nearest: Peer = peer
        if self.header is not None and self.trusted.holds(peer):
            hops = _forwarded(lines) if self.header == "Forwarded" else _forwarded_for(lines)
            for hop in hops:
                nearest = _address(hop)
                if not self.trusted.holds(nearest):
                    break
        return None if isinstance(nearest, str) else nearest


# RFC 7239 sections 4 and 6.
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - the syntax of a token
_PAIR: Final = re.compile(rf'({_TOKEN})=({_TOKEN}|"(?:[\t !#-\[\]-~]|\\[\t -~])*")')
_SEPARATOR: Final = re.compile(r"[ \t]*([;,])[ \t]*")
_OBFUSCATED: Final = re.compile(r"_[A-Za-z0-9._-]+")
_PORT: Final = r"(?::(?:\d{1,5}|_[A-Za-z0-9._-]+))?"
_NODE: Final = re.compile(rf"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)){_PORT}")


def _forwarded(lines: Sequence[str]) -> Iterator[str]:
    """The `for` of each element, the nearest proxy's word first."""
    hops: list[str | None] = []
    for line in lines:
        hops += _elements(line)
    for hop in reversed(hops):
        yield "unknown" if hop is None else hop


def _elements(line: str) -> Iterator[str | None]:
    """The whole line is read from its beginning, since quotes hide commas; what is no element spoils all of it."""
    at, names, hop = 0, set[str](), None
    while True:
        pair = _PAIR.match(line, at)
        if pair is None or pair[1].lower() in names:
            raise _doubtful()
        names.add(pair[1].lower())
        if pair[1].lower() == "for":
            hop = re.sub(r"\\(.)", r"\1", pair[2][1:-1]) if pair[2].startswith('"') else pair[2]
        at = pair.end()
        separator = _SEPARATOR.match(line, at)
        if separator is None or separator[1] == ",":
            yield hop
            names, hop = set(), None
        if separator is None:
            if line[at:].strip(" \t"):
                raise _doubtful()
            return
        at = separator.end()


def _forwarded_for(lines: Sequence[str]) -> Iterator[str]:
    """Each address, the nearest proxy's word first."""
    for line in reversed(lines):
        for hop in reversed(line.split(",")):
            yield hop.strip(" \t")


def _address(hop: str) -> Address | None:
    """None where the proxy does not tell. Proxies write IPv6 addresses with brackets and without."""
    if hop.lower() == "unknown" or _OBFUSCATED.fullmatch(hop):
        return None
    node = _NODE.fullmatch(hop)
    address = address_of(hop if node is None else node[1] or node[2])
    if address is None or "%" in hop:
        raise _doubtful()
    return address


def _doubtful() -> InvalidRequest:
    return InvalidRequest(
        "A proxy in front of this gateway passed an address of yours that is none. Tell your administrator.",
        reason="forwarded_address",
    )
