"""TLS of listeners and of connections to engines, issuers and Redis: what is shown, and whom one trusts."""

from __future__ import annotations

import asyncio
import os
import pty
import ssl
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from config.client_tls import client_context
from config.secret import Secret
from config.settings import (
    ClientCertificate,
    Directory,
    Engine,
    Isolation,
    IsolationKey,
    Issuer,
    Public,
    Settings,
    Telemetry,
    Tls,
)
from proxy.tls import faulty_certificates, listener_context


class Authority:
    """A private authority that signs certificates for a name or an address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed("authority", self._key, is_authority=True)
        self.file = self._written("authority.pem", self._certificate)

    def tls(
        self,
        host: str,
        *,
        password: bytes | None = None,
        client_ca: Path | None = None,
        expired: bool = False,
        key: ec.EllipticCurvePrivateKey | None = None,
    ) -> Tls:
        """A certificate of that key, else of a new one."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        certificate = self._written(f"{host}.pem", self._signed(host, key, expired=expired))
        return Tls(certificate=certificate, key=Secret(pem, "test"), client_ca=client_ca)

    def _written(self, name: str, certificate: x509.Certificate) -> Path:
        (self._folder / name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return self._folder / name

    def _signed(
        self, host: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False, expired: bool = False
    ) -> x509.Certificate:
        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

        now = datetime.now(UTC) - timedelta(days=2 if expired else 0)
        builder = x509.CertificateBuilder().subject_name(named(host)).issuer_name(named("authority"))
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        if not is_authority:
            names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def shake_hands(listener: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Connect with TLS to 127.0.0.1: the version that was agreed on. Raises ssl.SSLError."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=listener)
    try:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        version: str = writer.get_extra_info("ssl_object").version()
        writer.close()
        await writer.wait_closed()
        return version
    finally:
        server.close()
        await server.wait_closed()


async def test_a_client_of_the_authority_trusts_the_listener(authority: Authority) -> None:
    listener = listener_context(authority.tls("127.0.0.1"))
    assert await shake_hands(listener, client_context(authority.file, None)) == "TLSv1.3"


async def test_a_client_trusts_neither_another_authority_nor_another_name(authority: Authority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await shake_hands(listener_context(authority.tls("127.0.0.1")), client_context(None, None))
    with pytest.raises(ssl.SSLCertVerificationError):
        await shake_hands(listener_context(authority.tls("127.0.0.2")), client_context(authority.file, None))


async def test_versions_before_1_2_are_refused_on_both_sides(authority: Authority) -> None:
    listener, client = listener_context(authority.tls("127.0.0.1")), client_context(authority.file, None)
    assert listener.minimum_version == client.minimum_version == ssl.TLSVersion.TLSv1_2
    assert client.verify_mode is ssl.CERT_REQUIRED
    assert client.check_hostname


def test_a_private_authority_replaces_the_systems(authority: Authority) -> None:
    assert len(client_context(authority.file, None).get_ca_certs()) == 1


def test_a_key_leaves_no_descriptor_and_no_file_behind(authority: Authority, tmp_path: Path) -> None:
    tls = authority.tls("127.0.0.1")
    before, files = _descriptors(), set(tmp_path.iterdir())
    listener_context(tls)
    with pytest.raises(OSError):
        listener_context(replace(tls, key=Secret(b"no key", "test")))
    assert _descriptors() == before
    assert set(tmp_path.iterdir()) == files


def _descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def settings(**more: object) -> Settings:
    return replace(
        Settings(
            engines=(Engine(name="main", urls=("https://127.0.0.1:1",)),),
            issuers=(Issuer(issuer="https://sso.example.com", audiences=("saltgate",)),),
            directory=Directory(redis="rediss://127.0.0.1:1/0"),
            isolation=Isolation(keys=(IsolationKey(id="k1", secret=Secret(b"s" * 32, "test")),)),
        ),
        **more,  # type: ignore[arg-type]
    )


def test_certificates_that_fit_are_no_fault(authority: Authority) -> None:
    tls = authority.tls("127.0.0.1")
    shown = ClientCertificate(certificate=tls.certificate, key=tls.key)
    plain = settings()
    good = settings(
        public=Public(tls=tls),
        engines=(replace(plain.engines[0], ca=authority.file, client_cert=shown),),
        issuers=(replace(plain.issuers[0], ca=authority.file, client_cert=shown),),
        directory=replace(plain.directory, ca=authority.file, client_cert=shown),
    )
    assert list(faulty_certificates(plain)) == []
    assert list(faulty_certificates(good)) == []


def test_a_certificate_of_which_nobody_can_say_when_it_ends_is_refused(authority: Authority) -> None:
    """OpenSSL takes it, and the worker that shows it would end with it."""
    tls = authority.tls("127.0.0.1")
    pem = tls.certificate.read_bytes().replace(b" CERTIFICATE", b" TRUSTED CERTIFICATE")
    tls.certificate.write_bytes(pem)
    listener_context(tls)
    (fault,) = faulty_certificates(settings(public=Public(tls=tls)))
    assert fault.key == "public.tls"
    assert "write PEM files" in fault.message


async def test_an_encrypted_key_is_refused_and_its_password_not_asked_for_on_the_terminal(
    authority: Authority, tmp_path: Path
) -> None:
    tls = authority.tls("127.0.0.1", password=b"secret-password")
    (tmp_path / "key.pem").write_bytes(tls.key.value)
    program = f"""
import os
from pathlib import Path
os.open(os.ttyname(0), os.O_RDWR)  # now it is the session's own terminal
from config.secret import Secret
from config.settings import Tls
from proxy.tls import listener_context
try:
    listener_context(Tls(certificate=Path({str(tls.certificate)!r}), key=Secret(Path("key.pem").read_bytes(), "")))
except OSError:
    print("refused")
"""
    ours, terminal = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", program),
            cwd=tmp_path,
            stdin=terminal,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        async with asyncio.timeout(30):
            output, _ = await process.communicate()
        assert output == b"refused\n"
    finally:
        os.close(terminal)
        os.close(ours)


def test_authorities_of_clients_that_cannot_be_used_are_told_by_their_own_key(
    authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").touch()
    good = authority.tls("127.0.0.1", client_ca=authority.file)
    assert list(faulty_certificates(settings(public=Public(tls=good)))) == []
    for client_ca in (tmp_path / "empty.pem", tmp_path / "gone.pem"):
        tls = replace(good, client_ca=client_ca)
        (fault,) = faulty_certificates(settings(public=Public(tls=tls)))
        assert fault.key == "public.tls.client_ca"


def test_a_listener_asks_for_a_certificate_only_where_it_knows_authorities_and_never_insists(
    authority: Authority,
) -> None:
    assert listener_context(authority.tls("127.0.0.1")).verify_mode is ssl.CERT_NONE
    asking = listener_context(authority.tls("127.0.0.1", client_ca=authority.file))
    assert asking.verify_mode is ssl.CERT_OPTIONAL
    assert len(asking.get_ca_certs()) == 1  # not the system's beside it


def test_every_certificate_that_cannot_be_used_is_told_by_its_key(authority: Authority, tmp_path: Path) -> None:
    encrypted = authority.tls("127.0.0.1", password=b"secret-password")
    other = ClientCertificate(certificate=authority.tls("127.0.0.2").certificate, key=authority.tls("127.0.0.1").key)
    (tmp_path / "empty.pem").touch()
    plain = settings()
    faulty = settings(
        public=Public(tls=encrypted),
        engines=(
            replace(plain.engines[0], media_private_ca=tmp_path / "empty.pem"),
            replace(plain.engines[0], ca=tmp_path / "empty.pem", client_cert=other),
        ),
        issuers=(replace(plain.issuers[0], client_cert=other),),
        directory=replace(plain.directory, ca=tmp_path / "gone.pem"),
        telemetry=Telemetry(otlp_ca=tmp_path / "empty.pem", otlp_client_cert=other),
    )
    faults = list(faulty_certificates(faulty))
    keys = [
        "public.tls",
        "engines.0.media_private_ca",
        "telemetry.otlp_ca",
        "engines.1.ca",
        "engines.1.client_cert",
        "issuers.0.client_cert",
        "directory.ca",
        "telemetry.otlp_client_cert",
    ]
    assert [fault.key for fault in faults] == keys
    assert all("PEM" in fault.message for fault in faults)
    assert not [fault for fault in faults if "PRIVATE" in fault.message or "secret-password" in fault.message]
