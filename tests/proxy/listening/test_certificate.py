"""The certificate that is shown is that of the files, as soon as they hold a pair: real handshakes."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from config.client_tls import client_context
from config.secret import Secret
from config.settings import ClientCertificate, Tls
from proxy.listening.certificate import ShownCertificate
from proxy.tls import read_pair
from tests.proxy.test_tls import Authority


@dataclass(slots=True)
class Files:
    """The files of `public.tls`, written anew by another authority each time."""

    folder: Path
    told: list[tuple[float, bool]] = field(default_factory=list)

    def write(self, name: str) -> Authority:
        """Certificate and key of a new authority of this name."""
        authority, tls = self._made(name)
        (self.folder / "cert.pem").write_bytes(tls.certificate.read_bytes())
        (self.folder / "key.pem").write_bytes(tls.key.value)
        return authority

    def write_certificate_only(self, name: str) -> Authority:
        authority, tls = self._made(name)
        (self.folder / "cert.pem").write_bytes(tls.certificate.read_bytes())
        return authority

    def _made(self, name: str) -> tuple[Authority, Tls]:
        (self.folder / name).mkdir()
        authority = Authority(self.folder / name)
        return authority, authority.tls("127.0.0.1")

    def tls(self, client_ca: Path | None = None) -> Tls:
        key = self.folder / "key.pem"
        secret = Secret(key.read_bytes(), "file", key)
        return Tls(certificate=self.folder / "cert.pem", key=secret, client_ca=client_ca)

    def shown(self, client_ca: Path | None = None) -> ShownCertificate:
        tls = self.tls(client_ca)
        return ShownCertificate(tls, read_pair(tls), lambda *told: self.told.append(told))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def is_shown(shown: ShownCertificate, authority: Authority, mine: ClientCertificate | None = None) -> bool:
    """Whether a new connection gets the authority's certificate, and the client's own is accepted."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=shown.context)
    try:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(authority.file, mine))
        writer.write(b"x")
        answered = await reader.read(1) == b"x"
        writer.close()
    except (ssl.SSLError, ConnectionError):
        return False
    else:
        return answered
    finally:
        server.close()
        await server.wait_closed()


async def test_a_renewed_pair_is_shown_and_the_old_one_no_more(files: Files) -> None:
    old = files.write("old")
    shown = files.shown()
    assert await is_shown(shown, old)
    new = files.write("new")
    assert await is_shown(shown, old)  # until it looks
    shown.look()
    assert await is_shown(shown, new)
    assert not await is_shown(shown, old)


async def test_halves_that_do_not_fit_leave_the_one_before_until_they_do(files: Files) -> None:
    old = files.write("old")
    shown = files.shown()
    files.write_certificate_only("half")
    shown.look()
    assert await is_shown(shown, old)
    assert files.told[-1][1] is False
    for broken in (b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        (files.folder / "cert.pem").write_bytes(broken)
        shown.look()
        assert await is_shown(shown, old)
        assert files.told[-1][1] is False
    (files.folder / "cert.pem").unlink()
    shown.look()
    assert await is_shown(shown, old)
    assert files.told[-1][1] is False
    new = files.write("new")
    shown.look()
    assert await is_shown(shown, new)
    assert files.told[-1][1] is True


async def test_the_old_pair_put_back_is_no_fault(files: Files) -> None:
    old = files.write("old")
    good = (files.folder / "cert.pem").read_bytes()
    shown = files.shown()
    files.write_certificate_only("half")
    shown.look()
    (files.folder / "cert.pem").write_bytes(good)
    shown.look()
    assert files.told[-1][1] is True
    assert await is_shown(shown, old)


async def test_when_it_ends_is_told(files: Files) -> None:
    files.write("old")
    files.shown()
    certificate = x509.load_pem_x509_certificate((files.folder / "cert.pem").read_bytes())
    assert files.told == [(certificate.not_valid_after_utc.timestamp(), True)]
    assert files.told[0][0] > datetime.now(UTC).timestamp()


async def test_a_worker_that_starts_while_the_files_are_broken_shows_what_the_configuration_was_read_with(
    files: Files,
) -> None:
    old = files.write("old")
    tls = files.tls()
    pair = read_pair(tls)
    files.write_certificate_only("half")
    shown = ShownCertificate(tls, pair, lambda *told: files.told.append(told))
    assert await is_shown(shown, old)
    assert files.told[-1][1] is False


async def test_the_authorities_of_clients_are_followed_too(files: Files, tmp_path: Path) -> None:
    listener = files.write("listener")
    clients = {}
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        authority = Authority(tmp_path / name)
        mine = authority.tls("127.0.0.3")
        clients[name] = (authority, ClientCertificate(certificate=mine.certificate, key=mine.key))
    client_ca = tmp_path / "clients.pem"
    client_ca.write_bytes(clients["one"][0].file.read_bytes())
    shown = files.shown(client_ca)
    assert await is_shown(shown, listener, clients["one"][1])
    assert not await is_shown(shown, listener, clients["other"][1])
    client_ca.write_bytes(clients["other"][0].file.read_bytes())
    shown.look()
    assert not await is_shown(shown, listener, clients["one"][1])
    assert await is_shown(shown, listener, clients["other"][1])


async def test_it_looks_by_itself(files: Files) -> None:
    files.write("old")
    shown = files.shown()
    following = asyncio.get_running_loop().create_task(shown.follow(0.01))
    new = files.write("new")
    before = shown.context
    async with asyncio.timeout(5):
        while shown.context is before:
            await asyncio.sleep(0.01)
    following.cancel()
    assert await is_shown(shown, new)
