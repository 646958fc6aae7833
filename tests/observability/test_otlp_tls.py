"""A collector behind TLS that asks for a certificate: who shows the right one is served, and nobody else."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from config.secret import Secret
from config.settings import ClientCertificate, Telemetry
from observability.otlp import collector
from tests.parts.otlp_sink import OtlpSink
from tests.proxy.test_tls import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def demanding(authority: Authority, *, of: Authority | None = None) -> ssl.SSLContext:
    """A listener's context, which ends the handshake of whoever shows no certificate of the authority `of`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls = authority.tls("127.0.0.1")
    key = tls.certificate.with_suffix(".key")
    key.write_bytes(tls.key.value)
    context.load_cert_chain(tls.certificate, key)
    context.load_verify_locations(cafile=(of or authority).file)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def shown(authority: Authority, name: str = "127.0.0.9") -> ClientCertificate:
    tls = authority.tls(name)
    return ClientCertificate(certificate=tls.certificate, key=tls.key)


async def post(telemetry: Telemetry) -> int:
    """How many of five were taken."""
    place = collector(telemetry, time.monotonic)
    assert place is not None
    place.stopping.set()  # nothing is tried again
    return await asyncio.to_thread(place.post, "/v1/other", b"message", 5)


async def test_who_shows_the_certificate_is_served(authority: Authority) -> None:
    async with OtlpSink(tls=demanding(authority)) as sink:
        telemetry = Telemetry(otlp_endpoint=sink.url, otlp_ca=authority.file, otlp_client_cert=shown(authority))
        assert await post(telemetry) == 5
        assert (sink.shown, sink.raw) == ({"127.0.0.9"}, [b"message"])


def without_certificate(telemetry: Telemetry, _: Authority) -> Telemetry:
    return replace(telemetry, otlp_client_cert=None)


def of_another_authority(telemetry: Telemetry, other: Authority) -> Telemetry:
    return replace(telemetry, otlp_client_cert=shown(other))


def trusting_another_authority(telemetry: Telemetry, other: Authority) -> Telemetry:
    return replace(telemetry, otlp_ca=other.file)


def trusting_the_system(telemetry: Telemetry, _: Authority) -> Telemetry:
    return replace(telemetry, otlp_ca=None)


@pytest.mark.parametrize(
    "change", [without_certificate, of_another_authority, trusting_another_authority, trusting_the_system]
)
async def test_nothing_goes_to_or_from_whom_the_other_does_not_know(
    change: Callable[[Telemetry, Authority], Telemetry], authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    async with OtlpSink(tls=demanding(authority)) as sink:
        right = Telemetry(otlp_endpoint=sink.url, otlp_ca=authority.file, otlp_client_cert=shown(authority))
        assert await post(change(right, other)) == 0
        assert sink.requests == 0


def test_a_certificate_that_is_not_the_keys_is_told_and_the_key_never(authority: Authority) -> None:
    certificate = replace(shown(authority), key=authority.tls("127.0.0.1").key)
    with pytest.raises(ssl.SSLError) as told:
        collector(Telemetry(otlp_endpoint="https://127.0.0.1:4318", otlp_client_cert=certificate), time.monotonic)
    assert "PRIVATE" not in str(told.value)


def test_over_plain_http_no_certificate_is_even_read(tmp_path: Path) -> None:
    gone = ClientCertificate(certificate=tmp_path / "gone.pem", key=Secret(b"none", "test"))
    place = collector(Telemetry(otlp_endpoint="http://127.0.0.1:4318", otlp_client_cert=gone), time.monotonic)
    assert place is not None
    assert place.tls is None
