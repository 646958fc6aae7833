"""A client that sends FIN during its stream, where the gate is to look whether it has left (`half_close = "probe"`)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from config.settings import Public, Timeouts
from proxy.relay.keep_alive import COMMENT
from tests.parts.gate_bed import GateBed, chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import (
    LAST_CHUNK,
    STREAM_HEAD,
    RawEngine,
    Send,
    Sleep,
    Step,
    Wait,
    WaitForPeer,
    chunk,
    json_answer,
)
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, DONE, TOKEN, ask, on, outcome, until_paused
from tests.proxy.test_tls import Authority

pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
PLAIN: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
PROBE = Timeouts(half_close="probe")
END: Sequence[Step] = (Send(chunk(DONE)), Send(LAST_CHUNK))


# Who only has nothing more to say.


@pytest.mark.parametrize("pause", [0.0, 0.02, 1.5], ids=["at once", "running", "silent"])
async def test_who_half_closes_gets_the_whole_stream(pause: float, redis: RedisServer, tmp_path: Path) -> None:
    """Also after the last of the first three looks, with an engine that sends nothing until then."""
    goes_on = asyncio.Event()
    count = 50 if pause < 1 else 1
    tokens = [step for _ in range(count) for step in (Sleep(pause), Send(chunk(TOKEN)))]
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), Wait(goes_on), *tokens, *END))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(post(PATH, chat(**PLAIN), bed.headers()))
            got = await client.read_until(TOKEN)
            client.half_close()
            goes_on.set()
            got += await client.read_to_end()
        body = unchunked(got)
        assert body.count(COMMENT) == 1
        assert body.replace(COMMENT, b"") == TOKEN * (count + 1) + DONE
        assert (await outcome(bed))["outcome"] == "ok"

    await on(redis, tmp_path, engine, use, PROBE)


def unchunked(got: bytes) -> bytes:
    _, _, body = got.partition(b"\r\n\r\n")
    pieces = []
    while size := int(body.partition(b"\r\n")[0], 16):
        body = body.partition(b"\r\n")[2]
        pieces.append(body[:size])
        body = body[size + 2 :]
    assert body == b"0\r\n\r\n"
    return b"".join(pieces)


@pytest.mark.slow
async def test_who_half_closes_and_reads_slowly_gets_every_byte(redis: RedisServer, tmp_path: Path) -> None:
    pieces = [b"data: %06d " % number + b"x" * 60_000 + b"\n\n" for number in range(300)]
    engine = RawEngine((Send(STREAM_HEAD), *(Send(chunk(piece)) for piece in pieces), *END))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=16_384) as client:
            await client.send(post(PATH, chat(**PLAIN), bed.headers()))
            await until_paused(bed)
            client.half_close()
            await asyncio.sleep(1.5)
            got = await client.read_to_end(seconds=60)
        assert unchunked(got).replace(COMMENT, b"") == b"".join(pieces) + DONE
        assert (await outcome(bed))["outcome"] == "ok"

    await on(redis, tmp_path, engine, use, PROBE)


async def test_the_comment_stands_before_an_event_that_has_only_begun(redis: RedisServer, tmp_path: Path) -> None:
    goes_on, ends = asyncio.Event(), asyncio.Event()
    script = (Send(chunk(TOKEN[:30])), Wait(goes_on), Send(chunk(TOKEN[30:])), Wait(ends), *END)
    engine = RawEngine((Send(STREAM_HEAD), *script))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(post(PATH, chat(**PLAIN), bed.headers()))
            got = await client.read_until(b"\r\n\r\n")
            client.half_close()
            got += await client.read_until(COMMENT)
            goes_on.set()
            got += await client.read_until(TOKEN)
            ends.set()
            got += await client.read_to_end()
        assert unchunked(got) == COMMENT + TOKEN + DONE

    await on(redis, tmp_path, engine, use, PROBE)


async def test_after_its_stream_the_connection_ends_and_nothing_more_is_asked(
    redis: RedisServer, tmp_path: Path
) -> None:
    """A second request in the pipeline has no answer yet when the FIN comes: then FIN means gone."""
    goes_on = asyncio.Event()
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), Wait(goes_on), *END))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(post(PATH, chat(**PLAIN), bed.headers()) * 2)
            got = await client.read_until(TOKEN)
            client.half_close()
            await client.read_until(COMMENT)
            goes_on.set()
            got += await client.read_to_end()
        assert got.endswith(LAST_CHUNK)
        assert len(engine.requests) == 1

    await on(redis, tmp_path, engine, use, PROBE)


async def test_an_engine_that_breaks_or_hangs_is_told_to_who_half_closed(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=True)
            await client.read_until(TOKEN)
            client.half_close()
            assert b"engine_timeout" in await client.read_to_end()
        assert (await outcome(bed))["outcome"] == "engine_timeout"

    await on(redis, tmp_path, engine, use, Timeouts(half_close="probe", idle=0.5))


async def test_who_half_closes_and_never_reads_is_cut(redis: RedisServer, tmp_path: Path) -> None:
    flood = [Send(chunk(b": " + b"x" * 65_000 + b"\n\n")) for _ in range(1000)]
    engine = RawEngine((Send(STREAM_HEAD), *flood, WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=4096) as client:
            await ask(bed, client, streaming=True)
            await until_paused(bed)
            client.half_close()
            await engine.peer_closed()
        assert (await outcome(bed))["outcome"] == "client_gone"

    await on(redis, tmp_path, engine, use, Timeouts(half_close="probe", stall=0.5))


# Who has left.


@pytest.mark.parametrize("leave", ["leave_by_fin", "leave_by_rst"])
@pytest.mark.parametrize("when", ["before the first event", "mid-stream", "mid-event", "running", "paused"])
async def test_who_has_left_frees_the_engine(
    leave: Literal["leave_by_fin", "leave_by_rst"], when: str, redis: RedisServer, tmp_path: Path
) -> None:
    flood = [Send(chunk(b": " + b"x" * 65_000 + b"\n\n")) for _ in range(1000)]
    sent: dict[str, Sequence[Step]] = {
        "before the first event": (WaitForPeer(),),
        "mid-stream": (Send(chunk(TOKEN)), WaitForPeer()),
        "mid-event": (Send(chunk(TOKEN + TOKEN[:20])), Sleep(0.2), Send(chunk(TOKEN[20:])), WaitForPeer()),
        "running": [step for _ in range(1000) for step in (Send(chunk(TOKEN)), Sleep(0.02))],
        "paused": (*flood, WaitForPeer()),
    }
    engine = RawEngine((Send(STREAM_HEAD), *sent[when]))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=4096 if when == "paused" else None) as client:
            await client.send(post(PATH, chat(**PLAIN), bed.headers()))
            if when == "paused":
                await until_paused(bed)
            else:
                await client.read_until(b"\r\n\r\n" if when == "before the first event" else TOKEN)
            getattr(client, leave)()
            await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "client_gone"

    await on(redis, tmp_path, engine, use, PROBE)


@pytest.mark.parametrize("leave", ["leave_by_fin", "leave_by_rst", "half_close"])
@pytest.mark.parametrize("streaming", [False, True])
async def test_before_the_head_and_without_a_stream_fin_means_gone(
    leave: str, streaming: bool, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((WaitForPeer(),))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=streaming)
            await engine.request()
            getattr(client, leave)()
            await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "client_gone"

    await on(redis, tmp_path, engine, use, PROBE)


@pytest.mark.slow
async def test_who_half_closed_and_resets_much_later_frees_a_silent_engine(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=True)
            await client.read_until(TOKEN)
            client.half_close()
            await client.read_until(COMMENT)
            await asyncio.sleep(2.5)
            client.leave_by_rst()
            await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "client_gone"

    await on(redis, tmp_path, engine, use, PROBE)


async def test_who_half_closes_during_an_answer_that_is_no_stream_is_gone(redis: RedisServer, tmp_path: Path) -> None:
    engine = RawEngine((Send(json_answer(ANSWER)[:-1]), WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=False)
            await engine.request()
            await asyncio.sleep(0.05)
            client.half_close()
            await engine.peer_closed(seconds=5)

    await on(redis, tmp_path, engine, use, PROBE)


# What is no TCP.


@pytest.mark.parametrize("leave", ["half_close", "leave_by_fin"])
async def test_over_a_unix_socket_a_write_tells_at_once(leave: str, redis: RedisServer, tmp_path: Path) -> None:
    goes_on = asyncio.Event()
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), Wait(goes_on), *END))

    async def use(bed: GateBed) -> None:
        path = str(tmp_path / "gate.sock")
        server = await asyncio.get_running_loop().create_unix_server(bed.gate.front, path)
        async with GoneClient(unix_path=path) as client:
            await client.send(post(PATH, chat(**PLAIN), bed.headers()))
            got = await client.read_until(TOKEN)
            getattr(client, leave)()
            if leave == "half_close":
                await client.read_until(COMMENT)
                goes_on.set()
                assert (got + await client.read_to_end()).endswith(LAST_CHUNK)
            else:
                await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == ("ok" if leave == "half_close" else "client_gone")
        server.close()

    await on(redis, tmp_path, engine, use, PROBE)


@pytest.mark.parametrize("half", ["FIN", "close_notify"])
async def test_over_tls_fin_means_gone(half: str, redis: RedisServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()))

    async def use(bed: GateBed) -> None:
        request = post(PATH, chat(**PLAIN), bed.headers())
        await asyncio.to_thread(leave_over_tls, bed.port, authority.file, request, half)
        await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "client_gone"

    await on(redis, tmp_path, engine, use, PROBE, public=Public(tls=authority.tls("127.0.0.1")))


def leave_over_tls(port: int, authority: Path, request: bytes, half: str) -> None:
    context = ssl.create_default_context(cafile=str(authority))
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    with closing(context.wrap_socket(plain, server_hostname="127.0.0.1")) as client:
        client.sendall(request)
        got = b""
        while TOKEN not in got:
            got += client.recv(65536)
        if half == "FIN":
            client.shutdown(socket.SHUT_WR)
        else:
            client.settimeout(0)
            # It does not wait for the gate's own close_notify, which may be there already.
            with suppress(ssl.SSLError):
                client.unwrap()
        client.settimeout(10)
        while client.recv(65536):
            pass
