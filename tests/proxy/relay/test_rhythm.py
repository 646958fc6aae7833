"""What the record says of a stream's times, over real sockets: each told by the event that it is about."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.parts.gate_bed import GateBed, chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import LAST_CHUNK, STREAM_HEAD, RawEngine, Send, Sleep, Step, Wait, chunk
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import DONE, TOKEN, on, outcome, until_paused

pytestmark = pytest.mark.slow

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
THOUGHT = b'data: {"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}\n\n'
PLAIN: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


async def told(redis: RedisServer, folder: Path, *steps: Step) -> dict[str, Any]:
    """The line of one stream of these steps."""
    lines: list[dict[str, Any]] = []

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            await client.send(post("/v1/chat/completions", chat(**PLAIN), bed.headers()))
            lines.append(await outcome(bed))

    await on(redis, folder, RawEngine((Send(STREAM_HEAD), *steps, Send(LAST_CHUNK))), use)
    return lines[0]


async def test_reasoning_is_a_first_token_and_what_a_person_sees_comes_later(
    redis: RedisServer, tmp_path: Path
) -> None:
    thinking = (Send(chunk(ROLE)), Send(chunk(THOUGHT)), Sleep(0.2), Send(chunk(THOUGHT)), Sleep(0.2))
    line = await told(redis, tmp_path, *thinking, Send(chunk(TOKEN)), Send(chunk(DONE)))
    assert line["ttft_kind"] == "reasoning"
    assert line["ttft_visible_ms"] - line["ttft_ms"] >= 390
    assert line["events"] == 5
    assert line["max_gap_ms"] >= 190


async def test_who_never_says_anything_visible_has_no_time_for_it(redis: RedisServer, tmp_path: Path) -> None:
    line = await told(redis, tmp_path, Send(chunk(THOUGHT)), Send(chunk(DONE)))
    assert "ttft_ms" in line
    assert "ttft_visible_ms" not in line


async def test_what_follows_the_last_token_is_no_time_of_a_token(redis: RedisServer, tmp_path: Path) -> None:
    tokens = (Send(chunk(TOKEN)), Sleep(0.03), Send(chunk(TOKEN)))
    line = await told(redis, tmp_path, *tokens, Sleep(0.9), Send(chunk(USAGE)), Send(chunk(DONE)))
    assert line["tpot_ms"] < 300  # 10 for each of the three that follow the first, and not 310
    assert line["max_gap_ms"] < 900
    assert line["duration_ms"] >= 900


async def test_a_role_a_comment_or_usage_ends_no_gap(redis: RedisServer, tmp_path: Path) -> None:
    silence = (Sleep(0.15), Send(chunk(b": still here\n\n")), Sleep(0.15), Send(chunk(ROLE)), Sleep(0.15))
    line = await told(redis, tmp_path, Send(chunk(TOKEN)), *silence, Send(chunk(TOKEN + USAGE + DONE)))
    assert line["max_gap_ms"] >= 440
    assert line["events"] == 5


async def test_a_token_without_a_blank_line_behind_it_is_one(redis: RedisServer, tmp_path: Path) -> None:
    line = await told(redis, tmp_path, Send(chunk(TOKEN[:-2])))
    assert line["ttft_kind"] == "content"
    assert "ttft_ms" in line
    assert line["events"] == 1


@pytest.mark.parametrize("together", [1, 3])
async def test_events_that_came_in_one_read_came_at_once(redis: RedisServer, tmp_path: Path, together: int) -> None:
    line = await told(redis, tmp_path, Send(chunk(TOKEN * together)), Send(chunk(USAGE + DONE)))
    assert line.get("max_gap_ms") == (None if together == 1 else 0.0)


async def test_a_client_that_takes_nothing_is_told_apart_from_a_slow_engine(redis: RedisServer, tmp_path: Path) -> None:
    last = asyncio.Event()
    flood: list[Step] = [Send(chunk(TOKEN * 400)) for _ in range(200)]
    script: tuple[Step, ...] = (
        Send(STREAM_HEAD),
        *flood,
        Wait(last),
        Send(chunk(TOKEN + USAGE + DONE)),
        Send(LAST_CHUNK),
    )

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url, receive_buffer=16_384) as client:
            await client.send(post("/v1/chat/completions", chat(**PLAIN), bed.headers()))
            await client.read_until(b"\r\n\r\n")
            await until_paused(bed)
            await asyncio.sleep(1.0)
            last.set()
            await client.read_until(LAST_CHUNK, seconds=60)
        line: dict[str, Any] = await outcome(bed)
        assert line["held_ms"] >= 900
        assert line["max_gap_ms"] < 900
        assert "tpot_ms" not in line

    await on(redis, tmp_path, RawEngine(script), use)


async def test_the_body_of_a_request_is_counted_as_it_came(redis: RedisServer, tmp_path: Path) -> None:
    async def use(bed: GateBed) -> None:
        sent = post("/v1/chat/completions", chat("x" * 5000), bed.headers())
        async with GoneClient.to(bed.url) as client:
            await client.send(sent)
            await client.read_until(b"\r\n\r\n")
        line = await outcome(bed)
        assert line["bytes_in"] == len(sent.partition(b"\r\n\r\n")[2])

    await on(redis, tmp_path, RawEngine((Send(STREAM_HEAD), Send(LAST_CHUNK))), use)
