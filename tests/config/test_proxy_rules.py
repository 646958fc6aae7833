"""`[proxies]`: who may tell which certificate a client holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.configuration import changed, faults, good_table, loaded


def table(**proxies: object) -> dict[str, object]:
    return good_table() | {"proxies": proxies}


def test_fronts_load_as_they_are_written(tmp_path: Path) -> None:
    trusted = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "unix"]
    found = loaded(tmp_path, table(trusted=trusted, client_certificate_header="Client-Cert")).settings.proxies
    assert (found.trusted, found.client_certificate_header) == (tuple(trusted), "Client-Cert")
    assert loaded(tmp_path, good_table()).settings.proxies.trusted == ()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("0.0.0.0/0", "everybody"),
        ("::/0", "everybody"),
        ("10.0.0.1/8", "host bits"),
        ("10.0.0", "address"),
        ("localhost", "address"),
        ("*", "address"),
        ("all", "address"),
        ("unix:/run/saltgate.sock", "address"),
        ("UNIX", "address"),
        ("::ffff:10.0.0.0/104", "IPv4"),
        ("::ffff:192.0.2.7", "IPv4"),
        ("fe80::1%eth0", "%"),
        ("", "address"),
    ],
)
def test_a_place_that_is_none_or_everywhere_is_a_fault(tmp_path: Path, place: str, said: str) -> None:
    found = faults(tmp_path, table(trusted=["10.0.0.0/8", place], client_certificate_header="Client-Cert"))
    assert list(found) == ["proxies.trusted.1"]
    assert said in found["proxies.trusted.1"]


@pytest.mark.parametrize(
    "name",
    [
        *("Authorization", "dpop", "X-API-Key", "api-key", "Cookie", "Host", "Content-Type", "OpenAI-Project"),
        *("X-Saltgate-Unit", "Transfer-Encoding", "Origin", "a b", "a:b", "a\r\nb", "\u00e9", "-a", "a" * 65),
    ],
)
def test_a_header_with_another_meaning_or_no_name_is_a_fault(tmp_path: Path, name: str) -> None:
    found = faults(tmp_path, table(trusted=["10.0.0.0/8"], client_certificate_header=name))
    assert list(found) == ["proxies.client_certificate_header"]


def test_a_header_that_nobody_may_send_is_a_fault(tmp_path: Path) -> None:
    found = faults(tmp_path, table(client_certificate_header="Client-Cert"))
    assert "trusted" in found["proxies.client_certificate_header"]


def test_the_authorities_of_clients_are_a_file_that_is_there(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("anything")
    tls = {"certificate": "cert.pem", "key": {"file": "key.pem"}, "client_ca": "gone.pem"}
    assert list(faults(tmp_path, changed("public.tls", tls))) == ["public.tls.client_ca"]


def test_what_proxies_tell_of_addresses_loads_as_it_is_written_and_is_off(tmp_path: Path) -> None:
    written = table(trusted=["unix"], client_address_header="Forwarded", proxy_protocol=True)
    found = loaded(tmp_path, written).settings.proxies
    assert (found.client_address_header, found.proxy_protocol) == ("Forwarded", True)
    plain = loaded(tmp_path, good_table()).settings
    assert (plain.proxies.client_address_header, plain.proxies.proxy_protocol) == (None, False)
    assert plain.telemetry.client_address is False


def test_addresses_that_nobody_may_tell_are_a_fault(tmp_path: Path) -> None:
    found = faults(tmp_path, table(client_address_header="Forwarded", proxy_protocol=True))
    assert list(found) == ["proxies.client_address_header", "proxies.proxy_protocol"]


@pytest.mark.parametrize("name", ["forwarded", "X-Real-IP", "", True])
def test_another_header_of_addresses_is_a_fault(tmp_path: Path, name: object) -> None:
    assert list(faults(tmp_path, table(trusted=["unix"], client_address_header=name))) == [
        "proxies.client_address_header"
    ]


@pytest.mark.parametrize("name", ["Forwarded", "x-forwarded-for"])
def test_a_certificate_does_not_come_in_a_header_of_addresses(tmp_path: Path, name: str) -> None:
    found = faults(tmp_path, table(trusted=["unix"], client_certificate_header=name))
    assert list(found) == ["proxies.client_certificate_header"]
