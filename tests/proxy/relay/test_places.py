"""Engines behind a Unix socket and behind TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from config.client_tls import client_context
from proxy.relay.pool import Address, Pool
from proxy.relay.question import EngineUnreachable, ask, ask_on
from tests.parts.raw_engine import Close, RawEngine, Send, Step, json_answer
from tests.proxy.relay.test_leg import ANSWER, OK, request


def certificate(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for this address, as an authority's file and as a server's context."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "engine")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(name))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    authority, secret = folder / f"{name}.pem", folder / f"{name}.key"
    authority.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, secret)
    return authority, context


@asynccontextmanager
async def tls_pool(folder: Path, *script: Step, name: str = "127.0.0.1", trust: bool = True) -> AsyncIterator[Pool]:
    authority, server = certificate(folder, name)
    async with RawEngine(script, tls=server) as engine:
        tls = client_context(authority if trust else None, None)
        pool = Pool(Address(host="127.0.0.1", port=engine.port, tls=tls), connect_seconds=5.0)
        try:
            yield pool
        finally:
            pool.close()


async def test_an_engine_behind_a_unix_socket_answers_and_its_connection_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    async with RawEngine((Send(json_answer(ANSWER)),), unix=path) as engine:
        pool = Pool(Address(host="localhost", port=0, unix=str(path)), connect_seconds=5.0)
        for _ in range(2):
            leg = pool.idle_leg() or await pool.new_leg()
            assert (await ask_on(leg, pool, request(), seconds=5.0)).body == ANSWER
        assert len(engine.connections) == 1
        assert engine.requests[0].header(b"host") == [b"localhost"]
        pool.close()


async def test_an_engine_behind_tls_answers_where_its_authority_is_trusted(tmp_path: Path) -> None:
    async with tls_pool(tmp_path, Send(json_answer(ANSWER))) as pool:
        assert (await ask(pool, request(), seconds=5.0)).body == ANSWER


async def test_a_large_request_and_answer_go_through_tls(tmp_path: Path) -> None:
    answer = b'{"text":"' + b"x" * 3_000_000 + b'"}'
    async with tls_pool(tmp_path, Send(json_answer(answer))) as pool:
        assert (await ask(pool, request("y" * 3_000_000), seconds=20.0)).body == answer


@pytest.mark.parametrize(("name", "trust"), [("127.0.0.1", False), ("127.0.0.2", True)], ids=["stranger", "other name"])
async def test_an_engine_that_is_not_who_it_should_be_gets_no_request(name: str, trust: bool, tmp_path: Path) -> None:
    async with tls_pool(tmp_path, Send(json_answer(ANSWER)), name=name, trust=trust) as pool:
        with pytest.raises(EngineUnreachable, match="certificate"):
            await ask(pool, request(), seconds=5.0)


async def test_an_answer_until_close_is_whole_behind_tls_when_tls_was_ended(tmp_path: Path) -> None:
    async with tls_pool(tmp_path, Send(OK + b"\r\n" + ANSWER), Close()) as pool:
        assert (await ask(pool, request(), seconds=5.0)).body == ANSWER
