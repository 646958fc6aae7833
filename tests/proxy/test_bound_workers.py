"""Bound tokens at two worker processes of `saltgate serve`: one proof for both, and certificates through their TLS."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from config.client_tls import client_context
from config.settings import ClientCertificate
from tests.parts.dpop import DpopClient
from tests.parts.gate_bed import chat
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import base64url
from tests.proxy.test_server import Served, serving
from tests.proxy.test_tls import Authority

pytestmark = pytest.mark.process

PROJECT = {"OpenAI-Project": "apollo"}


async def test_a_proof_is_used_up_for_all_workers(redis: RedisServer, tmp_path: Path) -> None:
    """Each request over a connection of its own, so that both workers get some."""
    client = DpopClient()
    async with serving(redis, tmp_path, workers=2) as served:
        await served.until("/readyz", 200)
        token = client.token(served.mint)
        url = served.url + "/v1/chat/completions"

        async def ask(proof: str) -> int:
            headers = PROJECT | {"Authorization": f"DPoP {token}", "DPoP": proof}
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
                session.post(url, json=chat(), headers=headers) as answer,
            ):
                return answer.status

        for _ in range(5):
            proof = client.proof(token, url)
            assert sorted(await asyncio.gather(*(ask(proof) for _ in range(20)))) == [200] + [401] * 19
            assert await ask(proof) == 401
        fresh = await asyncio.gather(*(ask(client.proof(token, url)) for _ in range(20)))
        assert fresh == [200] * 20


async def test_certificates_of_clients_reach_the_gate_in_a_worker(redis: RedisServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls, mine = authority.tls("127.0.0.1"), authority.tls("127.0.0.3")
    (tmp_path / "key.pem").write_bytes(tls.key.value)
    lines = (
        f'tls = {{ certificate = "{tls.certificate}", key = {{ file = "key.pem" }}, client_ca = "{authority.file}" }}'
    )
    thumbprint = base64url(sha256(ssl.PEM_cert_to_DER_cert(mine.certificate.read_text())).digest())
    shown = ClientCertificate(certificate=mine.certificate, key=mine.key)
    async with serving(redis, tmp_path, more=lines) as served:
        await served.until("/readyz", 200)
        token = served.mint.token(groups=(), claims={"cnf": {"x5t#S256": thumbprint}})
        headers = PROJECT | {"Authorization": f"Bearer {token}"}
        for certificate, status in ((shown, 200), (None, 401), (shown, 200)):
            context = client_context(authority.file, certificate)
            # The second connection resumes the session of the first, where the client can.
            for _ in range(2):
                async with (
                    aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
                    session.post(served.url + "/v1/chat/completions", json=chat(), headers=headers) as answer,
                ):
                    assert answer.status == status


@pytest.mark.parametrize(("trusted", "status"), [("127.0.0.1", 200), ("unix", 401)])
async def test_a_front_is_known_by_its_address_in_a_worker_too(
    redis: RedisServer, tmp_path: Path, trusted: str, status: int
) -> None:
    proxies = f'[proxies]\ntrusted = ["{trusted}"]\nclient_certificate_header = "Client-Cert"'
    async with serving(redis, tmp_path, more=proxies) as served:
        await served.until("/readyz", 200)
        await _told(served, served.session, served.url, status)


@pytest.mark.parametrize(("trusted", "status"), [("127.0.0.0/8", 401), ("unix", 200)])
async def test_a_front_at_our_unix_socket_is_one_in_a_worker_too(
    redis: RedisServer, tmp_path: Path, trusted: str, status: int
) -> None:
    public = 'url = "https://gate.test"\n'
    proxies = f'[proxies]\ntrusted = ["{trusted}"]\nclient_certificate_header = "Client-Cert"'
    socket = tmp_path / "s"
    async with (
        serving(redis, tmp_path, more=public + proxies, listen=f"unix:{socket}") as served,
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
    ):
        await served.until("/readyz", 200)
        await _told(served, session, "http://gate", status)


async def _told(served: Served, session: aiohttp.ClientSession, url: str, status: int) -> None:
    """What a request gets whose certificate stands in a header."""
    cnf = {"x5t#S256": base64url(sha256(b"certificate").digest())}
    headers = PROJECT | {
        "Authorization": f"Bearer {served.mint.token(groups=(), claims={'cnf': cnf})}",
        "Client-Cert": f":{b64encode(b'certificate').decode()}:",
    }
    async with session.post(url + "/v1/chat/completions", json=chat(), headers=headers) as answer:
        assert answer.status == status
