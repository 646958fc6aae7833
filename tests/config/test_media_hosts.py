"""Hosts that images may be fetched from: how they are written, and which addresses may be behind them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.media_hosts import MediaHost, Reach, may_be_behind, media_host, media_private_host


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("images.example.com", "images.example.com", None),
        ("images.example.com:8443", "images.example.com", 8443),
        ("a-b.c_d.example", "a-b.c_d.example", None),
        ("xn--bcher-kva.example", "xn--bcher-kva.example", None),
        ("minio", "minio", None),
        ("1.example", "1.example", None),
    ],
)
def test_a_host_is_written_by_its_whole_name(text: str, host: str, port: int | None) -> None:
    assert media_host(text) == MediaHost(text, host, port, Reach.PUBLIC)
    assert media_private_host(text) == MediaHost(text, host, port, Reach.PRIVATE)


WRONG = [
    "",
    "*.example.com",
    "*",
    "Images.example.com",
    "images.example.com.",
    ".example.com",
    "a..example.com",
    "-a.example.com",
    "a-.example.com",
    "bücher.example",
    "https://images.example.com",
    "images.example.com/",
    "images.example.com/a",
    "user@images.example.com",
    "images.example.com:443",
    "images.example.com:0",
    "images.example.com:080",
    "images.example.com:65536",
    "images.example.com:",
    "images.example.com:80:80",
    "images.example.com\n",
    " images.example.com",
    "images%2eexample.com",
    "a" * 64 + ".example",
    "a." * 126 + "example",
    # what some reader takes for an address
    "127.1",
    "2130706433",
    "0x7f.1",
    "0x7f000001",
    "0177.0.0.1",
    "example.1",
    "example.0x1",
    "127.0.0.1.",
    "::1",
    "[::1%lo]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:0:0:1]",
    "[fd00::0001]",
    "[10.0.0.1]",
]


@pytest.mark.parametrize("text", [*WRONG, "localhost", "localhost:9000", "127.0.0.1", "10.0.0.1", "8.8.8.8", "[::1]"])
def test_a_public_host_is_a_name_and_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|leave out"):
        media_host(text)


@pytest.mark.parametrize("text", [*WRONG, "169.254.169.254", "0.0.0.0", "[fe80::1]", "[fd00:ec2::254]", "[64:ff9b::1]"])
def test_a_private_host_is_a_name_or_a_plain_address_that_may_be_asked(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|leave out"):
        media_private_host(text)


@pytest.mark.parametrize(
    ("text", "host", "reach"),
    [
        ("localhost:9000", "localhost", Reach.LOOPBACK),
        ("127.0.0.2", "127.0.0.2", Reach.LOOPBACK),
        ("[::1]:9000", "::1", Reach.LOOPBACK),
        ("10.1.2.3:9000", "10.1.2.3", Reach.PRIVATE),
        ("[fd12::5]", "fd12::5", Reach.PRIVATE),
        ("1.1.1.1", "1.1.1.1", Reach.PRIVATE),
    ],
)
def test_addresses_are_of_private_hosts(text: str, host: str, reach: Reach) -> None:
    found = media_private_host(text)
    assert (found.authority, found.host, found.reach) == (text, host, reach)


PUBLIC = ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "2001:4860:4860::8888"]
PRIVATE = ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fd12:3456::1", "fc00::1"]
LOOPBACK = ["127.0.0.1", "127.255.255.254", "::1"]
NEVER = (
    "0.0.0.0 0.1.2.3 169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16 192.0.0.192 192.0.0.8 192.0.0.170",
    "192.88.99.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.1",
    ":: ::2 ff02::1 fe80::1 fe80::1%eth0 fe80::a9fe:a9fe fec0::1 fd00:ec2::254 fd20:ce::254 100::1",
    "fd00:42::42 fd00:a9fe:a9fe::1",
    "::ffff:169.254.169.254 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:8.8.8.8 ::127.0.0.1 ::ffff:0:127.0.0.1",
    "64:ff9b::169.254.169.254 64:ff9b::8.8.8.8 64:ff9b:1::10.0.0.1 2002:a9fe:a9fe:: 2002:7f00:1:: 2001::1 2001:db8::1",
    "3fff::1 2001:10::1 4000::1",
    "localhost 127.1 0x7f000001 2130706433 010.0.0.1",
)


@pytest.mark.parametrize("address", ["", "1.1.1.1 ", *(one for line in NEVER for one in line.split())])
def test_no_host_may_have_these(address: str) -> None:
    assert not any(may_be_behind(address, reach) for reach in Reach)


@pytest.mark.parametrize(
    ("addresses", "reaches"),
    [
        (PUBLIC, {Reach.PUBLIC, Reach.PRIVATE}),
        (PRIVATE, {Reach.PRIVATE}),
        (LOOPBACK, {Reach.LOOPBACK}),
    ],
)
def test_an_address_is_of_the_hosts_that_may_have_it(addresses: list[str], reaches: set[Reach]) -> None:
    for address in addresses:
        assert {reach for reach in Reach if may_be_behind(address, reach)} == reaches, address


@given(st.ip_addresses())
def test_no_public_host_leads_to_what_python_knows_as_special(address: IPv4Address | IPv6Address) -> None:
    if may_be_behind(str(address), Reach.PUBLIC):
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_link_local
        assert not address.is_reserved


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0", "::", "64:ff9b::", "64:ff9b:1::", "::ffff:0:0:0"]))
def test_no_ipv4_address_hides_in_an_ipv6_one(inner: IPv4Address, prefix: str) -> None:
    outer = str(IPv6Address(int(ip_address(prefix)) | int(inner)))
    assert not may_be_behind(outer, Reach.PUBLIC)
    assert not may_be_behind(outer, Reach.PRIVATE)
    assert not may_be_behind(str(IPv6Address(int(ip_address("2002::")) | int(inner) << 80)), Reach.PRIVATE)
