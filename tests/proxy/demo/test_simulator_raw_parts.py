"""The raw engine and the raw client do to each other what they say."""

from __future__ import annotations

import asyncio

import pytest

from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import (
    LAST_CHUNK,
    STREAM_HEAD,
    Close,
    HalfClose,
    RawEngine,
    Reset,
    Send,
    Step,
    Wait,
    WaitForPeer,
    chunk,
    json_answer,
)


async def test_the_raw_engine_records_every_byte_and_plays_its_scripts_in_turn() -> None:
    async with RawEngine([Send(json_answer(b"1"))], [Send(json_answer(b"2"))]) as engine:
        async with GoneClient.to(engine.url) as client:
            request = post("/v1/completions", {"a": 1})
            chunked = b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            await client.send(request + chunked + request)
            assert [(await client.read_answer()).body for _ in range(3)] == [b"1", b"2", b"2"]
        assert engine.requests[0].head + b"\r\n\r\n" + engine.requests[0].body == request
        assert (engine.requests[1].line, engine.requests[1].body) == (b"POST /x HTTP/1.1", b"abc")
        assert engine.requests[0].header(b"content-length") == [b"8"]
        assert engine.connections[0].received == request + chunked + request


async def test_the_raw_engine_answers_an_engines_own_pages_without_a_script() -> None:
    async with RawEngine([Reset()]) as engine, GoneClient.to(engine.url) as client:
        for path in (b"/v1/models", b"/health", b"/version", b"/metrics", b"/openapi.json"):
            await client.send(b"GET " + path + b" HTTP/1.1\r\n\r\n")
            assert (await client.read_answer()).status == 200
        assert engine.requests == []


async def test_a_stream_can_stop_anywhere_and_go_on_when_the_test_says() -> None:
    go = asyncio.Event()
    script: list[Step] = [Send(STREAM_HEAD + chunk(b"one")), Wait(go), Send(chunk(b"two") + LAST_CHUNK)]
    async with RawEngine(script) as engine, GoneClient.to(engine.url) as client:
        await client.send(post("/v1/completions", {}))
        await client.read_until(b"one\r\n")
        with pytest.raises(TimeoutError):
            await client.read_until(b"two", seconds=0.05)
        go.set()
        await client.read_until(LAST_CHUNK)


async def test_the_raw_engine_ends_by_fin_or_by_rst() -> None:
    scripts: list[list[Step]] = [[Send(b"x"), Close()], [Reset()], [HalfClose(), WaitForPeer()]]
    async with RawEngine(*scripts) as engine:
        async with GoneClient.to(engine.url) as client:
            await client.send(post("/", {}))
            assert await client.read_to_end() == b"x"
        async with GoneClient.to(engine.url) as client:
            await client.send(post("/", {}))
            with pytest.raises(ConnectionResetError):
                await client.read_to_end()
        async with GoneClient.to(engine.url) as client:
            await client.send(post("/", {}))
            assert await client.read_to_end() == b""
            await client.send(b"still heard")
            client.leave_by_fin()
            assert await engine.peer_closed(2) == "fin"
            assert engine.connections[2].received.endswith(b"still heard")


async def test_the_raw_client_leaves_by_fin_half_close_or_rst() -> None:
    async with RawEngine([Wait(asyncio.Event())]) as engine:
        for number, (leave, end) in enumerate(
            [(GoneClient.leave_by_fin, "fin"), (GoneClient.half_close, "fin"), (GoneClient.leave_by_rst, "rst")]
        ):
            async with GoneClient.to(engine.url) as client:
                await client.send(post("/", {}))
                await engine.request(number)
                leave(client)
                assert await engine.peer_closed(number) == end


async def test_a_client_that_does_not_read_fills_the_pipe() -> None:
    flood = Send(b"x" * 20_000_000)
    async with RawEngine([flood, Close()]) as engine, GoneClient.to(engine.url, receive_buffer=4096) as client:
        await client.send(post("/", {}))
        await engine.request()
        await asyncio.sleep(0.05)
        assert engine.connections[0].unsent > 1_000_000
