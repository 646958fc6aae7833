"""What `saltgate check` says of an issuer that is asked about opaque tokens, and what an operator is told to do."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from config.secret import Secret
from proxy.cli.check_introspection import introspection_lines
from proxy.cli.lines import Level, Line
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from tests.parts.introspection_server import SECRET, IntrospectionServer, http
from tests.parts.redis_server import RedisServer
from tests.proxy.cli.test_check import Deployment, engine, issuer_and_directory


async def line(server: IntrospectionServer, **settings: object) -> Line:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        (found,) = [line async for line in introspection_lines(server.issuer(**settings), session, None)]  # type: ignore[arg-type]
    assert SECRET not in repr(found)
    return found


async def test_an_endpoint_that_answers_is_said_to_and_was_asked_once() -> None:
    async with IntrospectionServer() as server:
        found = await line(server)
        assert (found.level, found.about) == (Level.OK, "introspection")
        assert (server.probes, server.asked) == (1, [])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"client_secret": Secret(b"wrong", "test")}, ("401", "`client_id` and `client_secret`", "client_auth")),
        ({"client_id": "somebody"}, ("401", "`client_id`")),
        ({"client_auth": "client_secret_post"}, ("401", "client_secret_post", "set `client_auth`")),
        ({"endpoint": "http://127.0.0.1:1/introspect"}, ("cannot connect", "http://127.0.0.1:1/introspect")),
    ],
    ids=str,
)
async def test_a_slip_in_the_settings_is_told_with_the_remedy(
    settings: dict[str, object], words: tuple[str, ...]
) -> None:
    async with IntrospectionServer() as server:
        found = await line(server, **settings)
    assert found.level is Level.FAULT
    for word in words:
        assert word in found.message


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (http(b"", status="403 Forbidden"), "may introspect"),
        (http(b'{"error":"unauthorized_client"}', status="400 Bad Request"), "may introspect"),
        (http(b"", status="404 Not Found"), "is the introspection endpoint"),
        (http(b"<html>", media_type="text/html"), "is the introspection endpoint"),
        (http(b'{"active":true,"sub":"a","aud":"saltgate"}'), "cannot exist"),
        (http(b"", status="302 Found", more="Location: /login\r\n"), "302"),
    ],
    ids=str,
)
async def test_an_answer_that_is_none_is_told_with_the_remedy(raw: bytes, word: str) -> None:
    async with IntrospectionServer() as server:
        server.raw, server.probes_too = raw, True
        found = await line(server)
    assert found.level is Level.FAULT
    assert word in found.message


async def test_discovery_without_the_endpoint_is_told_with_the_remedy() -> None:
    async with IntrospectionServer() as server:
        server.discovery = b'{"issuer":"%s"}' % server.url.encode()
        found = await line(server, endpoint=None)
    assert found.level is Level.FAULT
    assert "introspection_endpoint" in found.message
    assert "`endpoint`" in found.message


async def test_the_command_tells_it_beside_the_issuers_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis: RedisServer
) -> None:
    deployment = Deployment(tmp_path, capsys)
    async with (
        IntrospectionServer() as server,
        issuer_and_directory(redis) as issuer,
        Simulator(EngineShape(pace=AT_ONCE)) as simulator,
    ):
        (tmp_path / "right").write_text(SECRET)
        (tmp_path / "wrong").write_text("wrong-secret")
        answers = {}
        for secret in ("right", "wrong"):
            deployment.configure(
                engines=engine(simulator.url),
                issuer=issuer,
                redis=redis.url,
                introspection=(
                    "[issuers.introspection]\n"
                    f'client_id = "saltgate"\nclient_secret = {{ file = "{secret}" }}\nendpoint = "{server.endpoint}"'
                ),
            )
            answers[secret] = await deployment.check("--json")
    assert (answers["right"].code, answers["right"].lines("fault")) == (0, [])
    assert f"issuer {issuer} introspection: answers the client saltgate" in answers["right"].lines("ok")
    (fault,) = answers["wrong"].lines("fault")
    assert fault.startswith(f"issuer {issuer} introspection: it answered 401")
    assert answers["wrong"].code == 1
    assert "wrong-secret" not in answers["wrong"].out + answers["wrong"].err


async def test_a_key_that_cannot_sign_is_a_fault_of_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis: RedisServer
) -> None:
    deployment = Deployment(tmp_path, capsys)
    (tmp_path / "key.pem").write_text("none")
    deployment.configure(
        engines=engine("http://127.0.0.1:1"),
        issuer="http://127.0.0.1:1",
        redis=redis.url,
        introspection=(
            '[issuers.introspection]\nclient_id = "saltgate"\nclient_auth = "private_key_jwt"\n'
            'client_key = { file = "key.pem" }'
        ),
    )
    answer = await deployment.check()
    assert answer.code == 2
    assert "saltgate.toml: issuers.0.introspection.client_key: " in answer.err
