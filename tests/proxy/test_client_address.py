"""Where clients are, at a whole gate: told only where the operator wants it, and only by whom he trusts."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from config.settings import Proxies, Telemetry
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from tests.parts.gate_bed import chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.redis_server import RedisServer
from tests.parts.tokens import base64url
from tests.proxy.test_server import serving

PROXY = Proxies(trusted=("127.0.0.0/8",), client_address_header="X-Forwarded-For")
TOLD = Telemetry(client_address=True)


@pytest.mark.parametrize(
    ("proxies", "telemetry", "line", "address"),
    [
        (PROXY, Telemetry(), "192.0.2.7", None),
        (Proxies(), TOLD, "192.0.2.7", "127.0.0.1"),
        (PROXY, TOLD, "192.0.2.7", "192.0.2.7"),
        (PROXY, TOLD, "10.0.0.9, 192.0.2.7", "192.0.2.7"),
        (
            Proxies(trusted=("10.0.0.0/8", "unix"), client_address_header="X-Forwarded-For"),
            TOLD,
            "192.0.2.7",
            "127.0.0.1",
        ),
    ],
)
async def test_the_line_of_a_request_tells_the_address_where_that_is_wanted_and_known(
    redis: RedisServer, tmp_path: Path, proxies: Proxies, telemetry: Telemetry, line: str, address: str | None
) -> None:
    async with (
        Simulator(EngineShape(pace=AT_ONCE)) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, proxies=proxies, telemetry=telemetry) as bed,
    ):
        status, _, _ = await bed.post(headers=bed.headers() | {"X-Forwarded-For": line})
        assert status == 200
        await bed.post(path="/nothing", headers={"X-Forwarded-For": line})
        told = [each.get("client_address") for each in await bed.completed(2)]
        assert told == [address, address]
        assert "192.0.2.7" not in bed.log.read_text() or address == "192.0.2.7"
        assert all("x-forwarded-for" not in str(each.headers).lower() for each in engine.requests)


async def test_a_proxys_word_that_is_none_is_the_clients_fault_and_nothing_of_it_is_told(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with (
        Simulator(EngineShape(pace=AT_ONCE)) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, proxies=PROXY, telemetry=TOLD) as bed,
    ):
        before = len(engine.requests)
        status, _, body = await bed.post(headers=bed.headers() | {"X-Forwarded-For": "canary-4711"})
        assert (status, b"canary" in body) == (400, False)
        (line,) = await bed.completed(1)
        assert (line["reason"], line.get("client_address")) == ("forwarded_address", None)
        assert "canary" not in bed.log.read_text()
        assert len(engine.requests) == before


@pytest.mark.process
async def test_behind_a_balancer_of_connections_clients_are_judged_by_what_it_tells(
    redis: RedisServer, tmp_path: Path
) -> None:
    """Such a balancer passes headers on as clients wrote them: who is trusted as a proxy is not who is behind it."""
    proxies = (
        '[proxies]\ntrusted = ["127.0.0.1"]\nproxy_protocol = true\nclient_certificate_header = "Client-Cert"\n'
        "[telemetry]\nclient_address = true"
    )
    async with serving(redis, tmp_path, workers=2, tables=proxies) as served:
        await served.until("/readyz", 200)
        cnf = {"x5t#S256": base64url(sha256(b"certificate").digest())}
        bound = {
            "OpenAI-Project": "apollo",
            "Authorization": f"Bearer {served.mint.token(groups=(), claims={'cnf': cnf})}",
            "Client-Cert": f":{b64encode(b'certificate').decode()}:",
        }
        request = post("/v1/chat/completions", chat(), bound)
        told = (
            (b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n", 401, "192.0.2.7"),
            (b"PROXY UNKNOWN\r\n", 401, None),
            (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", 200, "127.0.0.1"),
        )
        for count, (header, status, address) in enumerate(told, start=1):
            async with GoneClient.to(served.url) as client:
                await client.send(header + request)
                assert (await client.read_answer()).status == status
            # Each worker writes its lines when it likes: the next request waits for the line of this one.
            async with asyncio.timeout(10):
                while len(lines := served.events("request.completed")) < count:
                    await asyncio.sleep(0.05)
            assert lines[-1].get("client_address") == address
        async with GoneClient.to(served.url) as client:
            await client.send(request)
            with pytest.raises((ConnectionError, EOFError)):
                await client.read_answer()
        async with asyncio.timeout(10):
            while not (alone := served.events("worker.no_proxy_header")):
                await asyncio.sleep(0.05)
        assert len(alone) == 1


@pytest.mark.process
async def test_a_header_of_the_proxy_protocol_from_anybody_else_is_a_bad_request(
    redis: RedisServer, tmp_path: Path
) -> None:
    proxies = '[proxies]\ntrusted = ["10.0.0.0/8"]\nproxy_protocol = true'
    async with serving(redis, tmp_path, tables=proxies) as served:
        await served.until("/readyz", 200)
        request = post("/v1/chat/completions", chat(), served.headers())
        for header in (b"PROXY TCP4 10.0.0.1 127.0.0.1 1 2\r\n", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"):
            async with GoneClient.to(served.url) as client:
                await client.send(header + request)
                assert (await client.read_answer()).status == 400
        assert await served.ask() == 200
