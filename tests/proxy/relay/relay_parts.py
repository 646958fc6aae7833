"""The whole data path with a byte-exact engine behind it, and what must be true of it whatever happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from config.settings import EngineTimeouts, ModelTimeouts, Public, Timeouts
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import LAST_CHUNK, STREAM_HEAD, RawEngine, Send, Step, chunk
from tests.parts.redis_server import RedisServer

TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"\xe3\x81\x93"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
ANSWER = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}'


def stream(*events: bytes) -> Sequence[Step]:
    return (Send(STREAM_HEAD), *(Send(chunk(event)) for event in events), Send(LAST_CHUNK))


async def ask(bed: GateBed, client: GoneClient, *, streaming: bool, path: str = "/v1/chat/completions") -> None:
    document = chat(stream=streaming) if path != "/v1/messages" else chat(stream=streaming, max_tokens=9)
    await client.send(post(path, document, bed.headers()))


async def on(
    redis: RedisServer,
    folder: Path,
    engine: RawEngine,
    use: Callable[[GateBed], Awaitable[None]],
    timeouts: Timeouts | None = None,
    public: Public | None = None,
    *,
    models: tuple[str, ...] = ("tiny",),
    engine_timeouts: EngineTimeouts | None = None,
    model_timeouts: tuple[ModelTimeouts, ...] = (),
) -> None:
    """A gate in front of this engine, used so. Nothing may be held afterwards, and no fault be in the log."""
    async with (
        engine,
        gate_bed(
            redis.settings(),
            [engine.url],
            folder,
            proof="off",
            models=models,
            timeouts=timeouts,
            engine_timeouts=engine_timeouts,
            model_timeouts=model_timeouts,
            public=public,
        ) as bed,
    ):
        await use(bed)
        await nothing_held(bed)
        assert not [line for line in bed.lines() if line["level"] in ("error", "critical") and not _is_exporters(line)]


def _is_exporters(line: Mapping[str, object]) -> bool:
    """Whether another test's exporter, whose thread ends later, speaks of its collector."""
    return str(line.get("logger", "")).startswith("opentelemetry")


async def outcome(bed: GateBed, number: int = 0, seconds: float = 10.0) -> dict[str, object]:
    """The record of the request, when it is there."""
    return (await bed.completed(number + 1, seconds))[number]


async def nothing_held(bed: GateBed, seconds: float = 5.0) -> None:
    """Returns when no request, no connection under way and no client's listener is left."""
    pools = [replica.pool for engine in bed.gate.engines.engines for replica in engine.replicas]
    async with asyncio.timeout(seconds):
        while (
            bed.gate.gateway.relay.open_exchanges
            or any(pool.outstanding for pool in pools)
            or any(downstream.listener for downstream in bed.gate.front.downstreams)
        ):
            await asyncio.sleep(0.01)


async def until_paused(bed: GateBed, connections: int = 1) -> None:
    """Returns when so many clients have not taken what waits for them."""
    async with asyncio.timeout(20):
        while sum(downstream.writing_paused for downstream in bed.gate.front.downstreams) < connections:
            await asyncio.sleep(0.01)
