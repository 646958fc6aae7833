"""The header that a balancer writes before a client's first byte: the PROXY protocol, versions 1 and 2. Pure.

As the specification has it (haproxy.org, proxy-protocol.txt, sections 2.1 and 2.2), and no more: what a receiver may
ignore is skipped, what it does not say is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_WORD: Final = b"PROXY "
# "PROXY UNKNOWN" and its line's end: no header is shorter.
_SHORTEST_BYTES: Final = 15
_LONGEST_LINE_BYTES: Final = 107
_FIXED_BYTES: Final = 16
# Addresses of Unix sockets take 216; the rest is for what balancers add (TLVs), of which nothing is read.
MOST_BYTES: Final = 4096

_LINE: Final = re.compile(
    rb"PROXY (?:UNKNOWN(?: [ -~]*)?|TCP([46]) ([0-9A-Fa-f:.]+) ([0-9A-Fa-f:.]+) (0|[1-9]\d{0,4}) (0|[1-9]\d{0,4}))\r\n"
)
_LOCAL: Final = 0x20
_PROXY: Final = 0x21
# Bytes of the addresses by family and transport; datagrams do not come over a stream.
_ADDRESS_BYTES: Final = {0x00: 0, 0x11: 12, 0x21: 36, 0x31: 216}


class NoProxyHeader(Exception):  # noqa: N818 - what it says
    """The connection does not begin with a header of the PROXY protocol."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the header tells: where the client connects from. None where the balancer speaks for itself, or the client
    has no internet address.
    """

    address: IPv4Address | IPv6Address | None


def belonging(seen: bytes, waiting: bytes) -> int:
    """How many of the bytes that wait certainly belong to the header of which `seen` was taken; 0: it is complete.

    Raises NoProxyHeader as soon as it is none. `waiting` is not empty.
    """
    if len(seen) < _SHORTEST_BYTES:
        count = min(_SHORTEST_BYTES - len(seen), len(waiting))
        _check_beginning(seen + waiting[:count])
        return count
    if seen.startswith(_WORD):
        return _belonging_to_line(seen, waiting)
    return min(_whole_bytes(seen) - len(seen), len(waiting))


def is_complete(seen: bytes) -> bool:
    if len(seen) < _SHORTEST_BYTES:
        return False
    return seen.endswith(b"\n") if seen.startswith(_WORD) else len(seen) == _whole_bytes(seen)


def told(header: bytes) -> Told:
    """What a complete header tells. Raises NoProxyHeader for one that is not well-formed."""
    return _told_by_line(header) if header.startswith(_WORD) else _told_by_bytes(header)


def _check_beginning(seen: bytes) -> None:
    for beginning in (_WORD, SIGNATURE):
        if seen[: len(beginning)] == beginning[: len(seen)]:
            return
    raise NoProxyHeader("begins otherwise")


def _belonging_to_line(seen: bytes, waiting: bytes) -> int:
    if seen.endswith(b"\n"):
        return 0
    end = waiting.find(b"\n")
    count = len(waiting) if end < 0 else end + 1
    if len(seen) + count > _LONGEST_LINE_BYTES:
        raise NoProxyHeader("its line has no end")
    return count


def _whole_bytes(seen: bytes) -> int:
    if len(seen) < _FIXED_BYTES:
        return _FIXED_BYTES
    whole = _FIXED_BYTES + int.from_bytes(seen[14:16], "big")
    if whole > MOST_BYTES:
        raise NoProxyHeader("is too long")
    return whole


def _told_by_line(header: bytes) -> Told:
    match = _LINE.fullmatch(header)
    if match is None:
        raise NoProxyHeader("its line is not well-formed")
    if match[1] is None:
        return Told(None)
    if int(match[4]) > 65535 or int(match[5]) > 65535:
        raise NoProxyHeader("has a port that is none")
    kind = IPv4Address if match[1] == b"4" else IPv6Address
    try:
        source, _ = kind(match[2].decode("ascii")), kind(match[3].decode("ascii"))
    except ValueError as error:
        raise NoProxyHeader("has an address that is none") from error
    return Told(source)


def _told_by_bytes(header: bytes) -> Told:
    command, family = header[12], header[13]
    if command == _LOCAL:
        return Told(None)
    if command != _PROXY or family not in _ADDRESS_BYTES:
        raise NoProxyHeader("has a command or family that is none")
    if len(header) - _FIXED_BYTES < _ADDRESS_BYTES[family]:
        raise NoProxyHeader("is too short for its addresses")
    if family == 0x11:
        return Told(IPv4Address(header[16:20]))
    return Told(IPv6Address(header[16:32]) if family == 0x21 else None)
