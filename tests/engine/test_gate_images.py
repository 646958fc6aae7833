"""Images through saltgate, on a real engine whose model takes them: whose caches are whose.

vLLM's caches of images are seen from outside in three ways: `cached_tokens` (the blocks, whose hashes hold the image's
identity), the counters of the processor's cache, and the answer itself, whose probabilities depend on the pixels that
were looked at. The encoder's cache shows in none of them alone, so it is asked itself (`media_identities.py`).
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import struct
import zlib
from asyncio.subprocess import PIPE
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio

from proxy.assurance.verdict import Verdict
from proxy.engines.media import identity
from proxy.engines.profile import Operation
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit
from tests.engine.client import EngineClient, Vllm
from tests.engine.gate import ALICE, BOB, CAROL, DAVE, MALLORY, Caller, GateClient, gate_before, reusable
from tests.parts.gate_bed import BASE_EPOCH, KEY
from tests.parts.image_origin import ImageOrigin, image_answer
from tests.parts.raw_engine import Send
from tests.parts.redis_server import RedisServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

IDENTITIES: Final = Path(__file__).with_name("media_identities.py")
APOLLO: Final = salt_for(ProjectUnit("acme", "apollo"), epoch=BASE_EPOCH, key=SaltKey("k1", KEY.value))
VAULT: Final = salt_for(ProjectUnit("globex", "vault"), epoch=BASE_EPOCH, key=SaltKey("k1", KEY.value))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def origin() -> AsyncIterator[ImageOrigin]:
    """A host that images may be fetched from; it has none yet."""
    async with ImageOrigin({}) as origin:
        yield origin


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gate(
    image_vllm: Vllm, origin: ImageOrigin, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GateClient]:
    """saltgate with `media`, in front of an engine whose model takes images."""
    folder, hosts = tmp_path_factory.mktemp("images"), (origin.authority,)
    with RedisServer(folder) as redis:
        async with gate_before(image_vllm, redis.settings(), folder, media=True, private_hosts=hosts) as client:
            yield client


@pytest_asyncio.fixture(loop_scope="module")
async def engine(image_vllm: Vllm) -> AsyncIterator[EngineClient]:
    async with aiohttp.ClientSession(image_vllm.url) as session:
        yield EngineClient(session)


def png(*, dark: bool) -> bytes:
    """A picture that nobody has sent: one colour, and a corner that is like no other's."""
    colour, corner = bytes([16, 16, 16] if dark else [240, 240, 240]), secrets.token_bytes(12)
    row = colour * 64
    rows = b"\0" + corner + row[12:] + (b"\0" + row) * 63
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    framed = (struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def body(image: bytes, uuid: str | None = None, **more: object) -> dict[str, Any]:
    url = f"data:image/png;base64,{b64encode(image).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}} | ({} if uuid is None else {"uuid": uuid})
    message = {"role": "user", "content": [part, {"type": "text", "text": "What is to be seen here?"}]}
    return {"model": "tiny", "messages": [message], "max_tokens": 1, "logprobs": True, "temperature": 0} | more


@dataclass(frozen=True, slots=True)
class Seen:
    """What one answer shows: its tokens, how many of them were reused, and what the model saw."""

    prompt: int
    reused: int
    probability: float


def seen(status: int, answer: bytes) -> Seen:
    assert status == 200, answer
    document = json.loads(answer)
    usage = document["usage"]
    found = document["choices"][0]["logprobs"]["content"][0]["logprob"]
    return Seen(usage["prompt_tokens"], (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0, found)


async def asked(engine: EngineClient, image: bytes, uuid: str | None, salt: str) -> Seen:
    answer = await engine.post("/v1/chat/completions", body(image, uuid, cache_salt=salt))
    return seen(answer.status, answer.body)


async def through(gate: GateClient, caller: Caller, image: bytes, uuid: str | None = None) -> Seen:
    answer = await gate.post(caller, "/v1/chat/completions", body(image, uuid))
    return seen(answer.status, answer.body)


async def processor_hits(engine: EngineClient) -> float:
    page = (await engine.get("/metrics")).body.decode()
    return sum(float(n) for n in re.findall(r"^vllm:mm_cache_hits_total\{[^}]*\} (\S+)$", page, re.MULTILINE))


async def vllm_told(python: Path, folder: Path, *arguments: str) -> Any:
    """What `media_identities.py` says, run away from this repository."""
    command = (str(python), "-P", str(IDENTITIES), *arguments)
    run = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(300):
        told, log = await run.communicate()
    assert run.returncode == 0, log.decode()[-2000:]
    return json.loads(told.splitlines()[-1])


def fresh() -> str:
    return secrets.token_hex(32)


class TestWhyTheGateStampsIdentities:
    """What vLLM does with an identity, without a gate: the same words hold for the client's and for ours."""

    async def test_whoever_names_another_salt_s_image_is_answered_about_it(self, engine: EngineClient) -> None:
        dark, light, name = png(dark=True), png(dark=False), fresh()
        theirs = await asked(engine, dark, name, "salt-a")
        own = await asked(engine, light, None, "salt-b")
        assert abs(theirs.probability - own.probability) > 0.01
        # The pixels that are sent are not the ones that are looked at.
        assert (await asked(engine, light, name, "salt-c")).probability == theirs.probability

    async def test_the_processor_s_cache_knows_no_salt(self, engine: EngineClient) -> None:
        image = png(dark=True)
        await asked(engine, image, None, "salt-a")
        before = await processor_hits(engine)
        await asked(engine, image, None, "salt-b")
        assert await processor_hits(engine) == before + 1

    async def test_one_image_under_two_identities_is_in_no_cache_the_same(self, engine: EngineClient) -> None:
        image, name = png(dark=True), fresh()
        first = await asked(engine, image, name, "salt-a")
        before = await processor_hits(engine)
        again = await asked(engine, image, name, "salt-a")
        assert (first.reused, again.reused) == (0, reusable(first.prompt))
        assert await processor_hits(engine) == before + 1
        other = await asked(engine, image, fresh(), "salt-a")
        assert (other.reused, await processor_hits(engine)) == (0, before + 1)
        assert other.probability == first.probability

    async def test_vllm_s_code_takes_our_identity_as_it_is_everywhere(
        self, engine_python: Path, tmp_path: Path
    ) -> None:
        image = png(dark=True)
        (tmp_path / "image.png").write_bytes(image)
        ours, other = identity(image, APOLLO), identity(image, VAULT)
        told = await vllm_told(engine_python, tmp_path, str(tmp_path / "image.png"), ours, other)
        assert told["hashes"] == [ours, ours, other]
        assert told["content"][0] == told["content"][1]  # without an identity all would share it
        first, second, apart = told["extra_keys"]
        assert first == second
        assert first.count(ours) == 2  # the first block's hash and the next one's, which holds no salt
        assert ours not in apart
        assert told["encoder"] == [True, False]


class TestThroughTheGate:
    async def test_the_media_cache_is_proven_beside_the_endpoints(self, gate: GateClient) -> None:
        (engine,) = gate.bed.gate.engines.engines
        (replica,) = engine.replicas
        assert replica.finding(Operation.CHAT).verdict is Verdict.PROVEN
        assert replica.media.verdict is Verdict.PROVEN, replica.media

    async def test_an_image_by_its_address_is_to_the_engine_the_one_that_a_colleague_sent(
        self, gate: GateClient, origin: ImageOrigin
    ) -> None:
        image = png(dark=True)
        origin.pages["/image.png"] = [Send(image_answer(image))]
        first = await through(gate, ALICE, image)
        named = body(image)
        named["messages"][0]["content"][0]["image_url"]["url"] = f"http://{origin.authority}/image.png"
        answer = await gate.post(CAROL, "/v1/chat/completions", named)
        again = seen(answer.status, answer.body)
        assert (first.reused, again.reused) == (0, reusable(first.prompt))
        assert origin.targets == ["/image.png"]

    async def test_a_colleague_reuses_the_image_and_a_stranger_nothing(
        self, gate: GateClient, engine: EngineClient
    ) -> None:
        image = png(dark=True)
        first = await through(gate, ALICE, image)
        before = await processor_hits(engine)
        colleague = await through(gate, CAROL, image)
        assert (first.reused, colleague.reused) == (0, reusable(first.prompt))
        assert await processor_hits(engine) == before + 1
        for stranger in (ALICE.on("ares"), BOB, DAVE, MALLORY, ALICE.under(unit="user")):
            other = await through(gate, stranger, image)
            assert (other.reused, other.probability) == (0, first.probability)
            assert await processor_hits(engine) == before + 1, stranger

    async def test_who_names_another_s_image_is_answered_about_his_own(self, gate: GateClient) -> None:
        dark, light = png(dark=True), png(dark=False)
        theirs, own = await through(gate, ALICE, dark), await through(gate, BOB, light)
        for name in (identity(dark, APOLLO), identity(dark, VAULT), APOLLO.value):
            forged = await through(gate, MALLORY, light, name)
            assert forged.probability == own.probability != theirs.probability

    async def test_nobody_puts_another_image_under_a_colleague_s(self, gate: GateClient) -> None:
        dark, light = png(dark=True), png(dark=False)
        poison = await through(gate, CAROL, light, identity(dark, APOLLO))
        assert (await through(gate, ALICE, dark)).probability != poison.probability
        assert (await through(gate, ALICE, light)).reused == reusable(poison.prompt)

    async def test_what_the_engine_knows_the_image_by_is_what_the_salt_says(
        self, gate: GateClient, engine: EngineClient
    ) -> None:
        image, salt = png(dark=True), APOLLO
        first = await through(gate, ALICE, image)
        hit = await asked(engine, image, identity(image, salt), salt.value)
        assert hit.reused == reusable(first.prompt)

    async def test_what_is_no_such_image_never_reaches_the_engine(self, gate: GateClient) -> None:
        for url in ("http://127.0.0.1:1/x.png", "file:///etc/passwd", "data:image/svg+xml;base64,PHN2Zy8+"):
            document = body(b"")
            document["messages"][0]["content"][0]["image_url"]["url"] = url
            answer = await gate.post(ALICE, "/v1/chat/completions", document)
            assert (answer.status, json.loads(answer.body)["error"]["param"]) == (
                400,
                "messages[0].content[0].image_url.url",
            )
