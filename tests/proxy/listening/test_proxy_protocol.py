"""The header that a balancer writes before a client's first byte, whole, in pieces, and forged."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.listening.proxy_protocol import SIGNATURE, NoProxyHeader, Told, belonging, is_complete, told

V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n"
LONGEST_V1 = (
    b"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n"
)


def v2(
    command: int = 0x21, family: int = 0x11, addresses: bytes = b"\xc0\x00\x02\x07\xc6\x33\x64\x01\xdc\x04\x01\xbb"
) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(addresses).to_bytes(2, "big") + addresses


V6 = ip_address("2001:db8::7").packed + ip_address("2001:db8::1").packed + b"\xdc\x04\x01\xbb"

GOOD = [
    (V1, "192.0.2.7"),
    (LONGEST_V1, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 1 2\r\n", "2001:db8::7"),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
    (v2(), "192.0.2.7"),
    (v2(family=0x21, addresses=V6), "2001:db8::7"),
    (v2(addresses=v2()[16:] + b"\x04\x00\x03abc"), "192.0.2.7"),  # what balancers add is skipped
    (v2(command=0x20, family=0x00, addresses=b""), None),  # the balancer's own look
    (v2(command=0x20), None),
    (v2(family=0x00, addresses=b""), None),
    (v2(family=0x31, addresses=b"/" + bytes(215)), None),
]


def taken(data: bytes, pieces: list[int]) -> tuple[bytes, bytes]:
    """The header and the rest, where the data comes in pieces of these sizes, then of one byte."""
    seen, rest, sizes = b"", data, iter(pieces)
    while not is_complete(seen):
        waiting = rest[: next(sizes, 1)]
        if not waiting:
            raise EOFError
        count = belonging(seen, waiting)
        assert 1 <= count <= len(waiting)
        seen, rest = seen + rest[:count], rest[count:]
    return seen, rest


@pytest.mark.parametrize(("header", "address"), GOOD)
def test_a_whole_header_tells_the_client(header: bytes, address: str | None) -> None:
    assert taken(header, [256]) == (header, b"")
    assert told(header) == Told(None if address is None else ip_address(address))


@given(
    header=st.sampled_from([header for header, _ in GOOD]),
    rest=st.binary(max_size=300),
    pieces=st.lists(st.integers(1, 256), max_size=20),
)
def test_not_a_byte_of_what_follows_is_taken_however_it_comes(header: bytes, rest: bytes, pieces: list[int]) -> None:
    assert taken(header + rest, pieces) == (header, rest)


@pytest.mark.parametrize(
    "header",
    [
        b"GET / HTTP/1.1\r\nHost: gate\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20),  # TLS
        b"\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        b"proxy TCP4 192.0.2.7 198.51.100.1 1 2\r\n",
        b"PROXY  TCP4 192.0.2.7 198.51.100.1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2 3\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1 65536\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 01 2\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 2\r\n",
        b"PROXY TCP4 192.0.2.07 198.51.100.1 1 2\r\n",
        b"PROXY TCP4 192.0.2 198.51.100.1 1 2\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n",
        b"PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n",
        b"PROXY TCP6 fe80::1%eth0 2001:db8::1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r\r\n",
        b"PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n",
        b"PROXY UNKNOWN\x00\r\n",
        b"PROXY UNKNOWN" + b" " * 93 + b"\r\n",  # 108 bytes
        b"PROXY UNKNOWN" + b"x" * 10_000,  # no end
        v2(command=0x22),
        v2(command=0x11),
        v2(command=0x01),
        v2(family=0x12),
        v2(family=0x41),
        v2(family=0x21),  # addresses too short for it
        v2(addresses=b"\xc0\x00\x02"),
        v2(addresses=bytes(5000)),
    ],
)
def test_whatever_else_it_is_it_is_no_header(header: bytes) -> None:
    with pytest.raises(NoProxyHeader):
        told(taken(header, [256] * 100)[0])


@given(st.binary(min_size=1, max_size=400))
def test_noise_is_refused_or_waited_for_and_nothing_else(data: bytes) -> None:
    with suppress(NoProxyHeader, EOFError):
        told(taken(data, [])[0])


def test_what_cannot_become_a_header_is_refused_at_its_first_byte() -> None:
    with pytest.raises(NoProxyHeader):
        belonging(b"", b"G")
    with pytest.raises(NoProxyHeader):
        belonging(b"PROX", b"I")
