"""Engines that cannot be reached, or not trusted: what the client is told, and what the operator."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from config.secret import Secret
from config.settings import ClientCertificate, Engine
from proxy.tls import listener_context
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import Close, RawEngine, Reset, Send, Sever, Sleep, Step, json_answer
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, TOKEN, outcome
from tests.proxy.test_tls import Authority

GOOD = (Send(json_answer(ANSWER)),)
KEY = "engine-key-4711"


def settings(url: str, *, ca: Path | None = None, certificate: ClientCertificate | None = None) -> Engine:
    return Engine(
        name="away",
        urls=(url,),
        models=("away",),
        proof="off",
        api_key=Secret(KEY.encode(), "test"),
        ca=ca,
        client_cert=certificate,
    )


@asynccontextmanager
async def gate_before(redis: RedisServer, folder: Path, engine: Engine) -> AsyncIterator[GateBed]:
    """A gate with a good engine and this one, which it has asked by then."""
    async with (
        RawEngine(GOOD) as good,
        gate_bed(
            redis.settings(), [good.url], folder, proof="off", models=("tiny",), also=[engine], ready=False
        ) as bed,
    ):
        async with asyncio.timeout(10):
            while not heard_of(bed) or "directory" in bed.gate.waits_for():
                await asyncio.sleep(0.01)
        yield bed


def heard_of(bed: GateBed) -> list[dict[str, object]]:
    return [
        line for line in bed.lines() if line["event"] in ("engine.lost", "engine.reached") and line["engine"] == "away"
    ]


def shown(authority: Authority) -> ClientCertificate:
    """A certificate for saltgate to show."""
    tls = authority.tls("127.0.0.9")
    return ClientCertificate(certificate=tls.certificate, key=tls.key)


@contextmanager
def insisting_engine(authority: Authority) -> Iterator[str]:
    """An engine that lets nobody in without a certificate of its authority, and says so as TLS has it."""
    context = listener_context(authority.tls("127.0.0.1", client_ca=authority.file))
    context.verify_mode = ssl.CERT_REQUIRED

    def serve() -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                turn_away(listener.accept()[0])

    def turn_away(connection: socket.socket) -> None:
        with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


async def check_refusal(bed: GateBed, why: str, *, status: int = 503, code: str = "engine_unavailable") -> None:
    """The client hears that it is not his fault, and no more; the operator hears why."""
    got, headers, body = await bed.post(document=chat() | {"model": "away"})
    assert (got, json.loads(body)["error"]["code"]) == (status, code)
    assert ("Retry-After" in headers) is (status == 503)
    assert why not in body.decode()
    (line, *_) = heard_of(bed)
    assert line["event"] == "engine.lost"
    assert why in str(line["why"])
    log = bed.log.read_text()
    assert KEY not in log
    assert "PRIVATE KEY" not in log


@pytest.mark.parametrize(
    ("host", "expired", "trust", "why"),
    [
        ("127.0.0.1", False, False, "unable to get local issuer certificate"),
        ("127.0.0.1", True, True, "certificate has expired"),
        ("127.0.0.3", False, True, "IP address mismatch"),
    ],
    ids=["of a stranger", "expired", "for another name"],
)
async def test_an_engine_whose_certificate_is_not_good_gets_no_request_and_the_log_says_why(
    host: str, expired: bool, trust: bool, why: str, redis: RedisServer, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    async with RawEngine(GOOD, tls=listener_context(authority.tls(host, expired=expired))) as engine:
        away = settings(engine.url, ca=authority.file if trust else None)
        async with gate_before(redis, tmp_path, away) as bed:
            await check_refusal(bed, why)
        assert not engine.requests
        assert not any(connection.received for connection in engine.connections)


@pytest.mark.parametrize("has", ["no certificate", "another authority's"])
async def test_an_engine_that_wants_another_certificate_of_ours_says_so_in_the_log(
    has: str, redis: RedisServer, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    certificate = None if has == "no certificate" else shown(Authority(tmp_path / "other"))
    why = "alert certificate required" if certificate is None else "tlsv1 alert"
    with insisting_engine(authority) as url:
        away = settings(url, ca=authority.file, certificate=certificate)
        async with gate_before(redis, tmp_path, away) as bed:
            await check_refusal(bed, why, status=502, code="engine_failed")


async def test_an_engine_that_wants_a_certificate_and_gets_it_answers(redis: RedisServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = listener_context(authority.tls("127.0.0.1", client_ca=authority.file))
    context.verify_mode = ssl.CERT_REQUIRED
    async with RawEngine(GOOD, tls=context) as engine:
        away = settings(engine.url, ca=authority.file, certificate=shown(authority))
        async with gate_before(redis, tmp_path, away) as bed:
            for _ in range(2):
                assert (await bed.post(document=chat() | {"model": "away"}))[0] == 200
        assert len({request.connection for request in engine.requests}) == 1


@pytest.mark.parametrize(
    "death",
    [(Close(),), (Sleep(0.05), Close()), (Sever(),), (Sleep(0.05), Sever()), (Reset(),), (Sleep(0.05), Reset())],
    ids=["goodbye", "a late goodbye", "FIN", "a late FIN", "RST", "a late RST"],
)
async def test_behind_tls_a_request_that_an_engine_may_have_begun_is_not_sent_again(
    death: Sequence[Step], redis: RedisServer, tmp_path: Path
) -> None:
    """On no connection: nobody can tell whether it had the request when it ended."""
    authority = Authority(tmp_path)
    async with (
        RawEngine(GOOD, death, GOOD, tls=listener_context(authority.tls("127.0.0.1"))) as engine,
        gate_before(redis, tmp_path, settings(engine.url, ca=authority.file)) as bed,
    ):
        document = chat() | {"model": "away"}
        assert [(await bed.post(document=document))[0] for _ in range(3)] == [200, 502, 200]
        assert len(engine.requests) == 3
        assert engine.requests[0].connection == engine.requests[1].connection


HALF: Mapping[str, tuple[bool, bytes]] = {
    "whole answer": (False, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + ANSWER[:-1]),
    "stream": (True, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + TOKEN),
}


@pytest.mark.parametrize("end", [(Close(),), (Sleep(0.05), Sever())], ids=["goodbye", "none"])
@pytest.mark.parametrize(("streaming", "half"), HALF.values(), ids=HALF.keys())
async def test_half_an_answer_that_ends_with_its_connection_is_not_whole_whoever_cut_it(
    streaming: bool, half: bytes, end: Sequence[Step], redis: RedisServer, tmp_path: Path
) -> None:
    """Without TLS's goodbye the FIN may be anybody's (RFC 8446 section 6.1); with it, the engine's own."""
    authority = Authority(tmp_path)
    script = (Send(half), *end)
    document = chat(stream=streaming) | {"model": "away"}
    async with (
        RawEngine(script, tls=listener_context(authority.tls("127.0.0.1"))) as engine,
        gate_before(redis, tmp_path, settings(engine.url, ca=authority.file)) as bed,
        GoneClient.to(bed.url) as client,
    ):
        await client.send(post("/v1/chat/completions", document, bed.headers() | {"Connection": "close"}))
        got = await client.read_to_end()
        assert b'"engine_failed"' in got
        assert got.startswith(b"HTTP/1.1 200 " if streaming else b"HTTP/1.1 502 ")
        assert (await outcome(bed))["outcome"] == ("truncated" if streaming else "engine_failed")


async def test_an_engine_that_speaks_tls_where_plain_http_is_configured_is_a_502(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with RawEngine(GOOD, tls=listener_context(Authority(tmp_path).tls("127.0.0.1"))) as engine:
        away = settings(engine.url.replace("https", "http"))
        async with gate_before(redis, tmp_path, away) as bed:
            await check_refusal(bed, "the connection broke", status=502, code="engine_failed")
        assert not engine.requests


@pytest.mark.parametrize("place", ["no socket", "no listener", "no folder"])
async def test_an_engine_behind_a_unix_socket_that_takes_no_connection_is_a_503(
    place: str, redis: RedisServer, tmp_path: Path
) -> None:
    path = tmp_path / "engine.sock"
    words = {"no socket": "No such file", "no listener": "Connection refused", "no folder": "Not a directory"}
    if place == "no listener":
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(str(path))
    elif place == "no folder":
        path.write_bytes(b"")
        path /= "engine.sock"
    async with gate_before(redis, tmp_path, settings(f"unix:{path}")) as bed:
        await check_refusal(bed, words[place])


@pytest.mark.slow
async def test_an_engine_that_refuses_the_connection_is_a_503(redis: RedisServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    async with gate_before(redis, tmp_path, settings(url)) as bed:
        await check_refusal(bed, "Connection refused")
