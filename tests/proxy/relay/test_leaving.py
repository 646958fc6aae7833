"""A client that leaves: during its upload, while a connection is made, within an answer, or while it takes nothing."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from config.settings import Timeouts
from proxy.directory.changes import revoke
from proxy.directory.model import user
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


@asynccontextmanager
async def gate_before_a_deaf_engine(redis: RedisServer, folder: Path) -> AsyncIterator[GateBed]:
    """A gate that has a minute for the connection to its engine, where none is taken and none refused."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        # With its queue full, the kernel answers no further connection: neither yes nor no.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with (
            RawEngine() as ready,
            gate_bed(
                redis.settings(),
                [url, ready.url],
                folder,
                proof="off",
                models=("tiny",),
                timeouts=Timeouts(connect=60),
            ) as bed,
        ):
            # Only the one that takes no connection counts for the relay.
            deaf, other = bed.gate.engines.engines[0].replicas
            deaf.reachable, other.reachable = True, False
            yield bed
            await nothing_held(bed)
            assert bed.gate.gateway.entries.capacity.taken == 0
            assert not ready.requests


@pytest.mark.parametrize("leave", LEAVING)
async def test_a_client_that_leaves_while_a_connection_is_made_sends_nothing_up_and_holds_nothing(
    leave: Leave, redis: RedisServer, tmp_path: Path
) -> None:
    async with gate_before_a_deaf_engine(redis, tmp_path) as bed, GoneClient.to(bed.url) as client:
        await ask(bed, client, streaming=False)
        await open_exchanges(bed)
        getattr(client, leave)()
        assert (await outcome(bed))["outcome"] == "client_gone"


async def test_a_drain_and_a_revocation_do_not_wait_for_a_connection_either(redis: RedisServer, tmp_path: Path) -> None:
    async with gate_before_a_deaf_engine(redis, tmp_path) as bed:
        asked = asyncio.create_task(bed.post(headers=bed.headers("u-bob-0002", "hermes")))
        await open_exchanges(bed)
        await bed.change(revoke("acme", "hermes", user("u-bob-0002")))
        async with asyncio.timeout(10):
            assert (await asked)[0] == 403
        asked = asyncio.create_task(bed.post())
        await open_exchanges(bed)
        async with asyncio.timeout(10):
            await bed.gate.drain(0.0)
            status, _, body = await asked
        assert (status, json.loads(body)["error"]["code"]) == (503, "draining")
