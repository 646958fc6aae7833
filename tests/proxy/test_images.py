"""Images through a whole gate, to the byte: the identity that reaches the engine follows the border, as a salt does."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from config.settings import EngineLimits
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.directory.rotation import raise_unit
from proxy.isolation.unit import ProjectUnit
from tests.parts.gate_bed import GateBed, gate_bed
from tests.parts.hostile import media
from tests.parts.raw_engine import RawEngine, Send, json_answer
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import page_of
from tests.proxy.assurance.facade import Contents, Facade, Identities, Images
from tests.proxy.engines.test_media import EVIL, FORGED, GIF, PNG, image, raw_part

CHAT = "/v1/chat/completions"
ANSWER = json_answer(
    b'{"id":"x","object":"chat.completion","created":1,"model":"tiny","choices":[{"index":0,"message":{"role":'
    b'"assistant","content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":300,"completion_tokens":1,'
    b'"total_tokens":301}}'
)
MEDIA_MEMBERS = ("image_embeds", "image_pil", "audio_url", "input_audio", "video_url", "input_image", "prompt_embeds")


@asynccontextmanager
async def gate_and_engine(
    redis: RedisServer, folder: Path, *, media: bool = True, limits: EngineLimits | None = None
) -> AsyncIterator[tuple[GateBed, RawEngine]]:
    async with (
        RawEngine([Send(ANSWER)]) as engine,
        gate_bed(
            redis.settings(), [engine.url], folder, proof="off", models=("tiny",), media=media, limits=limits
        ) as bed,
    ):
        yield bed, engine


def chat(*parts: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": list(parts)}]}


async def post(bed: GateBed, body: bytes, path: str = CHAT) -> int:
    headers = {"Content-Type": "application/json", "Connection": "close", **bed.headers()}
    async with bed.session.post(bed.url + path, data=io.BytesIO(body), headers=headers) as answer:
        await answer.read()
        return answer.status


async def sent(bed: GateBed, engine: RawEngine, document: Any, headers: dict[str, str] | None = None) -> Any:
    number = len(engine.requests)
    status, _, answer = await bed.post(document=document, headers=headers)
    assert status == 200, answer
    return json.loads((await engine.request(number)).body)


def identity_in(document: Any, data: bytes = GIF) -> str:
    """What the salt that went up makes of an image, reckoned anew."""
    return hmac.new(document["cache_salt"].encode(), hashlib.sha256(data).digest(), "sha256").hexdigest()


def parts_of(document: Any) -> Iterator[dict[str, Any]]:
    for message in document.get("messages") or document.get("input") or ():
        if isinstance(message.get("content"), list):
            yield from message["content"]


async def test_the_identity_is_one_inside_the_unit_and_another_beyond_it(redis: RedisServer, tmp_path: Path) -> None:
    async with gate_and_engine(redis, tmp_path) as (bed, engine):
        callers = {
            "alice": bed.headers(),
            "carol": bed.headers("u-carol-0003"),
            "another project": bed.headers(project="ares"),
            "another workspace": bed.headers("u-mallory-0009", "vault", "globex"),
            "a narrower border": bed.headers() | {"X-Saltgate-Unit": "user"},
            "a collection": bed.headers() | {"X-Saltgate-Collection": "handbook"},
        }
        found = {}
        for name, headers in callers.items():
            document = await sent(bed, engine, chat(image(), image(PNG, "png")), headers)
            gif, png = parts_of(document)
            found[name] = (gif["uuid"], png["uuid"])
            assert (gif, png) == (
                image(uuid=identity_in(document)),
                image(PNG, "png", uuid=identity_in(document, PNG)),
            )
        assert found["alice"] == found["carol"]
        assert len({name for pair in found.values() for name in pair}) == 2 * (len(callers) - 1)
        await bed.change(raise_unit(ProjectUnit("acme", "apollo")))
        async with asyncio.timeout(20):
            while (document := await sent(bed, engine, chat(image())))["messages"][0]["content"][0]["uuid"] in (
                found["alice"]
            ):
                await asyncio.sleep(0.01)
        (raised,) = parts_of(document)
        assert raised["uuid"] == identity_in(document)
        assert raised["uuid"] not in {name for pair in found.values() for name in pair}


async def test_no_client_s_identity_comes_through(redis: RedisServer, tmp_path: Path) -> None:
    async with gate_and_engine(redis, tmp_path) as (bed, engine):
        for number, part in enumerate(FORGED):
            assert await post(bed, raw_part(part)) == 200
            request = await engine.request(number)
            document = json.loads(request.body)
            assert list(parts_of(document)) == [image(uuid=identity_in(document))]
            assert EVIL.encode() not in request.body


async def test_the_hostile_corpus_gets_nothing_up_but_images_under_our_identity(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with gate_and_engine(redis, tmp_path) as (bed, engine):
        passed = set()
        for name, case in media.CASES.items():
            head, _, body = case.partition(b"\r\n\r\n")
            if await post(bed, body, head.split(b" ")[1].decode()) == 200:
                passed.add(name)
            else:
                assert len(engine.requests) == len(passed), name
        assert {name for name in passed if "image" in name} == {
            "an image by data",
            "an image with another's identity",
            "a tool's result with an image",
        }
        for request in engine.requests:
            document = json.loads(request.body)
            for part in parts_of(document):
                assert part.keys().isdisjoint(MEDIA_MEMBERS)
                assert part.get("uuid") == (identity_in(document) if "image_url" in part else None)


async def test_the_same_corpus_is_refused_where_images_are_off(redis: RedisServer, tmp_path: Path) -> None:
    async with gate_and_engine(redis, tmp_path, media=False) as (bed, engine):
        for part in FORGED:
            assert await post(bed, raw_part(part)) == 400
        for name, case in media.CASES.items():
            head, _, body = case.partition(b"\r\n\r\n")
            status = await post(bed, body, head.split(b" ")[1].decode())
            assert status == 400 or "image" not in name, name
        assert all("image_url" not in part for r in engine.requests for part in parts_of(json.loads(r.body)))


async def test_a_large_image_goes_up_whole_and_a_larger_one_is_refused(redis: RedisServer, tmp_path: Path) -> None:
    async with gate_and_engine(redis, tmp_path, limits=EngineLimits(media_bytes=700 * 2**10)) as (bed, engine):
        large = PNG + bytes(700 * 2**10 - len(PNG))
        assert await post(bed, json.dumps(chat(image(large, "png"))).encode()) == 200
        document = json.loads(engine.requests[0].body)
        assert list(parts_of(document)) == [image(large, "png", uuid=identity_in(document, large))]
        assert await post(bed, json.dumps(chat(image(large + b"\0", "png"))).encode()) == 400
        assert len(engine.requests) == 1


SHAPE = EngineShape(models=("tiny",), pace=AT_ONCE, answer_tokens=2)


async def test_an_engine_that_is_proven_with_images_gets_them(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        Simulator(SHAPE) as simulator,
        Facade([simulator], images=Identities()) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, media=True) as bed,
    ):
        assert (await bed.post(document=chat(image())))[0] == 200
        assert media_states(bed) == {"proven"}
        await engine.stop()
        while media_states(bed) != {"unknown"}:
            await asyncio.sleep(0.005)


def media_states(bed: GateBed) -> set[str]:
    """What the metrics say of the engine's media cache."""
    page = page_of(bed.gate.metrics)
    said = re.findall(r'saltgate_engine_proof\{.*endpoint="images".*state="([a-z ]+)".*\} 1', page)
    return set(said)


@pytest.mark.parametrize(
    ("images", "check", "state"),
    [
        (Contents(), "another salt had sent", "failed"),
        (None, "mm_cache_queries_total", "unknown"),
    ],
)
async def test_an_engine_that_is_not_gets_texts_alone(
    images: Images | None, check: str, state: str, redis: RedisServer, tmp_path: Path
) -> None:
    async with (
        Simulator(SHAPE) as simulator,
        Facade([simulator], images=images) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, media=True) as bed,
    ):
        assert (await bed.post())[0] == 200
        posts = len(simulator.requests)
        status, _, answer = await bed.post(document=chat(image()))
        error = json.loads(answer)["error"]
        assert (status, error["code"]) == (503, "engine_unavailable")
        assert check in error["message"]
        assert len(simulator.requests) == posts
        assert media_states(bed) == {state}
