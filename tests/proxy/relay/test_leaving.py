"""A client that leaves: during its upload, while a connection is made, within an answer, or while it takes nothing."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Literal

import pytest

from config.settings import Timeouts
from proxy.relay.exchange import Exchange
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import STREAM_HEAD, RawEngine, Send, WaitForPeer, chunk, json_answer
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, ask, nothing_held, on, outcome, until_paused

Leave = Literal["leave_by_fin", "leave_by_rst", "half_close"]
LEAVING: tuple[Leave, ...] = ("leave_by_fin", "leave_by_rst", "half_close")


@pytest.mark.parametrize("leave", LEAVING)
async def test_a_client_that_leaves_during_its_upload_costs_the_engine_nothing(
    leave: Leave, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((Send(json_answer(ANSWER)),))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            request = post("/v1/chat/completions", chat(), bed.headers() | {"Expect": "100-continue"})
            await client.send(request[:-3])
            await client.read_until(b"100 Continue\r\n\r\n")
            getattr(client, leave)()
            assert (await outcome(bed))["outcome"] == "client_gone"
        assert not engine.requests

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("leave", LEAVING)
async def test_a_connection_that_a_client_left_carries_no_other_request(
    leave: Leave, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((WaitForPeer(),), (Send(json_answer(ANSWER)),))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=False)
            await engine.request()
            getattr(client, leave)()
            await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "client_gone"
        assert (await bed.post())[0] == 200
        assert (await outcome(bed, 1))["outcome"] == "ok"
        assert engine.requests[0].connection != engine.requests[1].connection
        assert len([line for line in bed.lines() if line["event"] == "request.completed"]) == 2

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("leave", LEAVING)
async def test_a_client_that_leaves_in_the_midst_of_a_whole_answer_frees_the_engine(
    leave: Leave, redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((Send(json_answer(ANSWER)[:-1]), WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await ask(bed, client, streaming=False)
            [exchange] = await open_exchanges(bed)
            async with asyncio.timeout(10):
                while not exchange._size:
                    await asyncio.sleep(0.01)
            getattr(client, leave)()
            await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "client_gone"

    await on(redis, tmp_path, engine, use)


async def open_exchanges(bed: GateBed) -> list[Exchange]:
    """Those of the relay, as soon as there are any."""
    async with asyncio.timeout(10):
        while not (found := list(bed.gate.gateway.relay._open)):
            await asyncio.sleep(0.01)
    return found


@pytest.mark.parametrize("leave", ["leave_by_fin", "leave_by_rst"])
async def test_a_client_that_leaves_while_it_takes_nothing_frees_the_engine(
    leave: Leave, redis: RedisServer, tmp_path: Path
) -> None:
    flood = [Send(chunk(b": " + b"x" * 65_000 + b"\n\n")) for _ in range(1000)]
    engine = RawEngine((Send(STREAM_HEAD), *flood, WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=4096) as client:
            await ask(bed, client, streaming=True)
            await until_paused(bed)
            getattr(client, leave)()
            await engine.peer_closed(seconds=5)
        assert (await outcome(bed))["outcome"] == "client_gone"
        async with asyncio.timeout(10):
            while bed.gate.front.downstreams:
                await asyncio.sleep(0.01)

    await on(redis, tmp_path, engine, use)


@pytest.mark.parametrize("leave", LEAVING)
async def test_a_client_that_leaves_while_a_connection_is_made_sends_nothing_up(
    leave: Leave, redis: RedisServer, tmp_path: Path
) -> None:
    with socket.socket() as full:
        # With its queue full, the kernel answers no further connection: neither yes nor no.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with (
            RawEngine() as ready,
            gate_bed(
                redis.settings(),
                [url, ready.url],
                tmp_path,
                proof="off",
                models=("tiny",),
                timeouts=Timeouts(connect=0.5),
            ) as bed,
        ):
            # Only the one that takes no connection counts for the relay.
            bed.gate.engines.engines[0].replicas[0].reachable = True
            async with GoneClient.to(bed.url) as client:
                await ask(bed, client, streaming=False)
                getattr(client, leave)()
                assert (await outcome(bed))["outcome"] == "client_gone"
            await nothing_held(bed)
            assert not ready.requests
        for one in waiting:
            one.close()
