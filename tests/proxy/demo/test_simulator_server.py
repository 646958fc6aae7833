"""The simulated engine as a server: heads, leaving clients, faults, and a process of its own."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.demo.simulator import AT_ONCE, Endpoint, EngineShape, Fault, FaultKind, Pace, Simulator, serve
from tests.parts.gone_client import GoneClient, post

ENDPOINTS = sorted(Endpoint, key=lambda endpoint: endpoint.value)
STREAMING = [endpoint for endpoint in ENDPOINTS if endpoint is not Endpoint.EMBEDDINGS]
GLACIAL = Pace(prefill_tokens_per_second=0.001, seconds_per_token=0.0)
LEAVING: list[Callable[[GoneClient], None]] = [
    GoneClient.leave_by_fin,
    GoneClient.leave_by_rst,
    GoneClient.half_close,
]


def ask(**more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "input": "hi", "max_tokens": 9999} | more


@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_client_that_leaves_before_the_first_token_aborts_and_frees_the_engine(
    endpoint: Endpoint, stream: bool, leave: Callable[[GoneClient], None]
) -> None:
    async with Simulator(EngineShape(pace=GLACIAL)) as engine, GoneClient.to(engine.url) as client:
        await client.send(post(endpoint.value, ask(stream=stream)))
        await engine.wait_for(lambda: bool(engine.requests))
        leave(client)
        await engine.wait_for(lambda: engine.last.aborted)
        assert not engine.last.finished
        assert engine.engine.counters.waiting == engine.engine.counters.running == 0


@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize("endpoint", STREAMING)
async def test_a_client_that_leaves_in_the_stream_aborts_the_generation_at_once(
    endpoint: Endpoint, leave: Callable[[GoneClient], None]
) -> None:
    async with Simulator(EngineShape(pace=AT_ONCE, answer_tokens=1_000_000)) as engine:
        async with GoneClient.to(engine.url, receive_buffer=4096) as client:
            await client.send(post(endpoint.value, ask(stream=True, max_tokens=30_000, max_output_tokens=30_000)))
            await client.read_until(b" said")
            leave(client)
            await engine.wait_for(lambda: engine.last.aborted)
        counters = engine.engine.counters
        assert (counters.aborted, counters.running, counters.cut_short) == (1, 0, 0)
        assert 0 < engine.last.generated < 30_000


async def test_an_aborted_prefill_lets_the_next_one_go_on() -> None:
    shape = EngineShape(pace=Pace(prefill_tokens_per_second=0.001, seconds_per_token=0.0))
    async with Simulator(shape) as engine, GoneClient.to(engine.url) as first, GoneClient.to(engine.url) as second:
        await first.send(post("/v1/completions", ask()))
        await engine.wait_for(lambda: len(engine.requests) == 1)
        await second.send(post("/v1/completions", ask()))
        await engine.wait_for(lambda: len(engine.requests) == 2)
        first.leave_by_rst()
        await engine.wait_for(lambda: engine.requests[0].aborted)
        async with asyncio.timeout(10):
            while engine.engine.counters.prefix_queries < 2:
                await asyncio.sleep(0.001)
        assert engine.engine.counters.waiting == 0


@pytest.mark.parametrize("endpoint", STREAMING)
async def test_the_head_of_a_stream_comes_before_prefill(endpoint: Endpoint) -> None:
    async with Simulator(EngineShape(pace=GLACIAL)) as engine, GoneClient.to(engine.url) as client:
        await client.send(post(endpoint.value, ask(stream=True)))
        assert b"200 OK" in await client.read_until(b"\r\n\r\n")
        assert engine.last.reused is None


async def test_a_request_is_recorded_as_it_came() -> None:
    async with Simulator(EngineShape(pace=AT_ONCE)) as engine, GoneClient.to(engine.url) as client:
        request = post("/v1/completions?x=%2F", ask(cache_salt="one"), {"X-Odd": "a", "x-odd": "b"})
        await client.send(request)
        await client.read_answer()
        assert engine.last.target == "/v1/completions?x=%2F"
        assert engine.last.body == request.partition(b"\r\n\r\n")[2]
        assert engine.last.headers[-2:] == ((b"X-Odd", b"a"), (b"x-odd", b"b"))
        assert engine.last.header("x-odd") == [b"a", b"b"]
        assert (engine.last.salt, engine.last.status, engine.last.finished) == ("one", 200, True)


async def test_requests_on_one_connection_are_answered_in_order() -> None:
    async with Simulator(EngineShape(pace=AT_ONCE)) as engine, GoneClient.to(engine.url) as client:
        await client.send(post("/v1/completions", ask(prompt="a", max_tokens=1)) + post("/v1/embeddings", ask()))
        assert json.loads((await client.read_answer()).body)["object"] == "text_completion"
        assert json.loads((await client.read_answer()).body)["object"] == "list"


async def test_a_fault_happens_as_often_as_it_was_asked_for_and_only_there() -> None:
    async with Simulator(EngineShape(pace=AT_ONCE)) as engine, GoneClient.to(engine.url) as client:
        engine.faults.add(Fault(FaultKind.STATUS_503, endpoint=Endpoint.COMPLETIONS, times=2))
        statuses = []
        for path in ("/v1/embeddings", "/v1/completions", "/v1/completions", "/v1/completions"):
            await client.send(post(path, ask(max_tokens=1)))
            statuses.append((await client.read_answer()).status)
        assert statuses == [200, 503, 503, 200]


@pytest.mark.parametrize("kind", [FaultKind.DIE_BEFORE_HEAD, FaultKind.DIE_MID_STREAM])
async def test_an_engine_that_dies_ends_with_rst_and_blames_nobody(kind: FaultKind) -> None:
    async with Simulator(EngineShape(pace=AT_ONCE)) as engine, GoneClient.to(engine.url) as client:
        engine.faults.add(Fault(kind))
        await client.send(post("/v1/completions", ask(stream=True)))
        with pytest.raises(ConnectionResetError):
            await client.read_to_end()
        assert (engine.last.aborted, engine.last.finished) == (False, False)


@pytest.mark.parametrize(
    ("endpoint", "kind", "ends", "lacks"),
    [
        (Endpoint.CHAT, FaultKind.CUT_MID_STREAM, b"\n\n\r\n", b"[DONE]"),
        (Endpoint.CHAT, FaultKind.ERROR_MID_STREAM, b"data: [DONE]\n\n\r\n0\r\n\r\n", b'"finish_reason":"stop"'),
        (Endpoint.COMPLETIONS, FaultKind.ERROR_MID_STREAM, b"data: [DONE]\n\n\r\n0\r\n\r\n", b'"finish_reason":"stop"'),
        (Endpoint.RESPONSES, FaultKind.ERROR_MID_STREAM, b"\n\n\r\n", b"response.completed"),
        (Endpoint.MESSAGES, FaultKind.ERROR_MID_STREAM, b"\n\n\r\n0\r\n\r\n", b"message_stop"),
        (Endpoint.CHAT, FaultKind.GARBAGE_MID_STREAM, b"data: [DONE]\n\n\r\n0\r\n\r\n", b"error"),
        (Endpoint.CHAT, FaultKind.GARBAGE, b"\r\n\r\n", b"HTTP/1.1"),
    ],
)
async def test_a_broken_stream_ends_as_the_route_ends_it(
    endpoint: Endpoint, kind: FaultKind, ends: bytes, lacks: bytes
) -> None:
    async with Simulator(EngineShape(pace=AT_ONCE)) as engine, GoneClient.to(engine.url) as client:
        engine.faults.add(Fault(kind))
        await client.send(post(endpoint.value, ask(stream=True), {"Connection": "close"}))
        answer = await client.read_to_end()
        assert answer.endswith(ends)
        assert lacks not in answer
        assert not engine.last.aborted


@pytest.mark.parametrize("kind", [FaultKind.HANG, FaultKind.HANG_MID_STREAM])
async def test_an_engine_that_hangs_ends_when_the_client_leaves(kind: FaultKind) -> None:
    async with Simulator(EngineShape(pace=AT_ONCE)) as engine, GoneClient.to(engine.url) as client:
        engine.faults.add(Fault(kind))
        await client.send(post("/v1/completions", ask(stream=True)))
        await engine.wait_for(
            lambda: bool(engine.requests) and engine.last.generated == (0 if kind is FaultKind.HANG else 2)
        )
        client.leave_by_fin()
        await engine.wait_for(lambda: engine.last.aborted)


async def test_it_listens_on_a_unix_socket(tmp_path: Path) -> None:
    async with Simulator(EngineShape(pace=AT_ONCE), unix_path=tmp_path / "engine.sock") as engine:
        assert engine.url == f"unix:{tmp_path}/engine.sock"
        async with GoneClient.to(engine.url) as client:
            await client.send(post("/v1/completions", ask(max_tokens=1)))
            assert (await client.read_answer()).status == 200


def test_the_default_pace_is_that_of_the_measured_engine() -> None:
    pace = Pace()
    assert pace.prefill_seconds(prompt=2275, reused=0) == pytest.approx(0.28, abs=0.02)
    assert pace.prefill_seconds(prompt=6087, reused=0) == pytest.approx(1.2, abs=0.05)
    assert pace.prefill_seconds(prompt=6087, reused=6016) < 0.03


async def test_it_serves_in_a_spawned_process_until_sigterm() -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(EngineShape(pace=AT_ONCE),), kwargs={"ready": there})
    process.start()
    try:
        assert await asyncio.to_thread(here.poll, 30)
        async with GoneClient.to(here.recv()) as client:
            await client.send(post("/v1/completions", ask(max_tokens=1)))
            assert (await client.read_answer()).status == 200
    finally:
        process.terminate()
        await asyncio.to_thread(process.join, 30)
    assert process.exitcode == 0
