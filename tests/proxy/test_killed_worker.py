"""A worker that is killed: each request that it had open leaves one line, one count and one entry of the pages."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.parts.gate_bed import chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import STREAM_HEAD, RawEngine, Send, WaitForPeer, chunk
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import TOKEN
from tests.proxy.test_admin_pages import Viewer
from tests.proxy.test_server import serving

pytestmark = pytest.mark.process

STREAMS = 40
ENGINE = """
[[engines]]
name = "many"
urls = ["{url}"]
models = ["many"]
proof = "off"
"""


async def test_each_stream_of_a_killed_worker_is_told_exactly_once_in_lines_counts_and_pages(
    redis: RedisServer, tmp_path: Path
) -> None:
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()))
    async with (
        engine,
        serving(redis, tmp_path, tables=ENGINE.replace("{url}", engine.url)) as served,
        AsyncExitStack() as stack,
    ):
        await served.until("/readyz", 200, seconds=90)
        assert await served.ask() == 200
        ids = set()
        for _ in range(STREAMS):
            client = await stack.enter_async_context(GoneClient.to(served.url))
            document = chat("x", stream=True) | {"model": "many"}
            await client.send(post("/v1/chat/completions", document, served.headers()))
            head = await client.read_until(TOKEN, seconds=60)
            (found,) = re.findall(rb"X-Request-Id: (\S+)", head, re.IGNORECASE)
            ids.add(found.decode())
        await served.until_told("request.completed")
        await asyncio.sleep(0.5)  # what has happened is told some milliseconds later
        (worker,) = served.workers()
        os.kill(worker, signal.SIGKILL)
        lines = await served.until_told("request.completed", times=STREAMS + 1, seconds=90)
        await served.until("/readyz", 200, seconds=90)
        assert await served.ask() == 200
        lines = await served.until_told("request.completed", times=STREAMS + 2, seconds=90)
        lost = [line for line in lines if line.get("error_type") == "worker_killed"]
        assert {line["request_id"] for line in lost} == ids
        assert len(lost) == STREAMS
        assert len(lines) == STREAMS + 2
        assert {(line["outcome"], line["workspace"], line["project"], line["model"]) for line in lost} == {
            ("gate_error", "acme", "apollo", "many")
        }
        assert all("prompt_tokens" not in line and line["tokens_known"] is False for line in lost)
        counted = await served.metric(r'saltgate_requests_total\{[^}]*model="many"[^}]*outcome="gate_error"[^}]*\}')
        assert counted == STREAMS
        async with Viewer(served) as viewer:
            total = await viewer.until_requests(STREAMS + 2)
            assert total["outcomes"] == {"ok": 2, "gate_error": STREAMS}
