"""Where a client is: chains of proxies, and words that nobody believes."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Literal

import pytest

from config.settings import Proxies
from proxy.peers import ClientAddresses, Peer, address_of, trusted_proxies
from proxy.refusals import InvalidRequest

TRUSTED = Proxies(trusted=("10.0.0.0/8", "2001:db8:ffff::/48", "unix"))
Header = Literal["Forwarded", "X-Forwarded-For"]


def client(header: Header | None, peer: str, *lines: str) -> str | None:
    place: Peer = "unix" if peer == "unix" else address_of(peer)
    found = ClientAddresses(trusted_proxies(TRUSTED), header).client(place, lines)
    return None if found is None else str(found)


@pytest.mark.parametrize(
    ("peer", "lines", "address"),
    [
        ("10.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("unix", ["192.0.2.7"], "192.0.2.7"),
        ("unix", [], None),
        ("10.0.0.1", [], "10.0.0.1"),
        ("::ffff:10.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["203.0.113.9, 192.0.2.7"], "192.0.2.7"),  # the first is what the client wrote
        ("10.0.0.1", ["203.0.113.9", "192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["192.0.2.7, 10.1.1.1", "10.2.2.2"], "192.0.2.7"),  # proxies in a row
        ("10.0.0.1", ["garbage, 192.0.2.7"], "192.0.2.7"),  # nobody looks at it
        ("10.0.0.1", ["10.3.3.3, 10.2.2.2"], "10.3.3.3"),  # a client among the proxies' addresses
        ("10.0.0.1", ["192.0.2.7:1234"], "192.0.2.7"),
        ("10.0.0.1", ["2001:db8::7"], "2001:db8::7"),
        ("10.0.0.1", ["[2001:db8::7]"], "2001:db8::7"),
        ("10.0.0.1", ["[2001:db8::7]:443"], "2001:db8::7"),
        ("10.0.0.1", ["::ffff:192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["192.0.2.7, 2001:db8:ffff::1"], "192.0.2.7"),
        ("10.0.0.1", ["192.0.2.7, unknown"], None),
        ("192.0.2.99", ["203.0.113.9"], "192.0.2.99"),  # not one of ours
        ("11.0.0.1", ["10.0.0.1"], "11.0.0.1"),
    ],
)
def test_x_forwarded_for(peer: str, lines: list[str], address: str | None) -> None:
    assert client("X-Forwarded-For", peer, *lines) == address


@pytest.mark.parametrize(
    ("peer", "lines", "address"),
    [
        ("10.0.0.1", ["for=192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["For=192.0.2.7;proto=https;by=10.0.0.1"], "192.0.2.7"),
        ("10.0.0.1", ['proto=https;for="192.0.2.7:4711"'], "192.0.2.7"),
        ("10.0.0.1", ['for="[2001:db8::7]:4711"'], "2001:db8::7"),
        ("10.0.0.1", ['for="[2001:db8::7]"'], "2001:db8::7"),
        ("10.0.0.1", ["for=203.0.113.9, for=192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["for=203.0.113.9", "for=192.0.2.7, for=10.7.7.7"], "192.0.2.7"),
        ("10.0.0.1", ['for="a, for=10.0.0.9", for=192.0.2.7'], "192.0.2.7"),  # a comma in quotes is none
        ("10.0.0.1", ['for="192.0.2.\\7"'], "192.0.2.7"),
        ("10.0.0.1", ["for=unknown"], None),
        ("10.0.0.1", ["for=_hidden"], None),
        ("10.0.0.1", ["proto=https"], None),
        ("10.0.0.1", [], "10.0.0.1"),
        ("192.0.2.99", ["for=203.0.113.9"], "192.0.2.99"),
        ("192.0.2.99", ['for="'], "192.0.2.99"),  # nobody looks at it
    ],
)
def test_forwarded(peer: str, lines: list[str], address: str | None) -> None:
    assert client("Forwarded", peer, *lines) == address


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("X-Forwarded-For", ""),
        ("X-Forwarded-For", "192.0.2.7,"),
        ("X-Forwarded-For", "host.example"),
        ("X-Forwarded-For", "192.0.2.7 192.0.2.8"),
        ("X-Forwarded-For", "fe80::1%eth0"),
        ("X-Forwarded-For", "[192.0.2.7"),
        ("X-Forwarded-For", "192.0.2.7:http"),
        ("Forwarded", ""),
        ("Forwarded", "192.0.2.7"),
        ("Forwarded", 'for="192.0.2.7'),
        ("Forwarded", 'for=", for=192.0.2.7'),  # a client's open quote before the proxy's word
        ("Forwarded", "for=192.0.2.7;for=203.0.113.9"),
        ("Forwarded", "for = 192.0.2.7"),
        ("Forwarded", "for=192.0.2.7,"),
        ("Forwarded", "for=192.0.2.7 x"),
        ("Forwarded", "for=[2001:db8::7]"),  # must be quoted
        ("Forwarded", "for=host.example"),
    ],
)
def test_a_trusted_proxys_word_that_is_none_is_refused(header: Header, line: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        client(header, "10.0.0.1", line)
    assert refused.value.reason == "forwarded_address"
    if line:
        assert line not in refused.value.message


def test_without_a_header_nobody_is_believed() -> None:
    assert client(None, "10.0.0.1", "192.0.2.7") == "10.0.0.1"
    assert client(None, "unix", "192.0.2.7") is None
    assert address_of("::ffff:192.0.2.7") == ip_address("192.0.2.7")
