"""An engine that answers before it has read the request: the client hears it, and the rest of the request nobody."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import LAST_CHUNK, STREAM_HEAD, chunk, json_answer
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import ANSWER, DONE, TOKEN, nothing_held, outcome

pytestmark = pytest.mark.slow

LARGE = "x" * 20_000_000
MODELS = json_answer(b'{"object":"list","data":[{"id":"tiny","object":"model"}]}')


@dataclass(slots=True)
class HastyEngine:
    """Reads the beginning of a POST and no more, says this piece by piece, and ends so."""

    says: tuple[bytes, ...]
    then: Literal["stays", "RST"]
    posts: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1000)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for writer in self.writers:
                writer.transport.abort()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):  # the gate closes what it has no use for
            while not (await reader.readuntil(b"\r\n")).startswith(b"POST "):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(MODELS)
            await self._answer(writer)

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        self.posts += 1
        for piece in self.says:
            writer.write(piece)
            await asyncio.sleep(0.01)
        if self.then == "RST":  # what a close over bytes that were not read becomes
            writer.close()


@asynccontextmanager
async def before(redis: RedisServer, folder: Path, engine: HastyEngine) -> AsyncIterator[GateBed]:
    async with (
        engine.listening() as url,
        gate_bed(redis.settings(), [url], folder, proof="off", models=("tiny",)) as bed,
    ):
        yield bed
        await nothing_held(bed)


async def ask(bed: GateBed, **more: object) -> tuple[int, bytes]:
    body = io.BytesIO(json.dumps(chat(LARGE, **more)).encode())
    headers = bed.headers() | {"Content-Type": "application/json"}
    async with bed.session.post(f"{bed.url}/v1/chat/completions", data=body, headers=headers) as answer:
        return answer.status, await answer.content.read()


@pytest.mark.parametrize("then", ["stays", "RST"])
async def test_a_refusal_that_comes_before_the_request_was_read_is_the_clients(
    then: Literal["stays", "RST"], redis: RedisServer, tmp_path: Path
) -> None:
    told = b'{"error":{"message":"too long"}}'
    engine = HastyEngine((json_answer(told, "413 Content Too Large"),), then)
    async with before(redis, tmp_path, engine) as bed:
        for number in range(10):
            status, body = await ask(bed)
            assert (status, body) == (413, told)
            assert engine.posts == number + 1


@pytest.mark.parametrize("then", ["stays", "RST"])
async def test_a_stream_that_begins_and_ends_before_the_request_was_read_is_whole(
    then: Literal["stays", "RST"], redis: RedisServer, tmp_path: Path
) -> None:
    engine = HastyEngine((STREAM_HEAD, chunk(TOKEN), chunk(TOKEN), chunk(DONE), LAST_CHUNK), then)
    async with before(redis, tmp_path, engine) as bed:
        for number in range(3):
            status, body = await ask(bed, stream=True)
            assert (status, body) == (200, TOKEN + TOKEN + DONE)
            assert (await outcome(bed, number))["outcome"] == "ok"
            assert engine.posts == number + 1  # on a new connection each: what is left of the request ends the other


async def test_a_whole_answer_that_comes_before_the_request_was_read_is_the_clients(
    redis: RedisServer, tmp_path: Path
) -> None:
    engine = HastyEngine((json_answer(ANSWER),), "stays")
    async with before(redis, tmp_path, engine) as bed:
        status, body = await ask(bed)
        assert (status, body) == (200, ANSWER)


@pytest.mark.parametrize("says", [(STREAM_HEAD, chunk(TOKEN)), (b"HTTP/1.1 200 OK\r\n",)], ids=["stream", "head"])
async def test_an_engine_that_begins_to_answer_and_ends_before_it_has_read_has_broken_off(
    says: tuple[bytes, ...], redis: RedisServer, tmp_path: Path
) -> None:
    engine = HastyEngine(says, "RST")
    async with before(redis, tmp_path, engine) as bed:
        async with GoneClient.to(bed.url) as client:
            document = chat(LARGE, stream=True, stream_options={"include_usage": True})
            await client.send(post("/v1/chat/completions", document, bed.headers() | {"Connection": "close"}))
            head, _, body = (await client.read_to_end()).partition(b"\r\n\r\n")
        if len(says) == 1:
            assert head.startswith(b"HTTP/1.1 502 ")
        else:
            assert TOKEN in body
            assert b'"engine_failed"' in body
            assert b"[DONE]" not in body
            assert not body.endswith(LAST_CHUNK)
        assert engine.posts == 1
