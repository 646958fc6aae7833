"""saltgate's barrier inside the real vLLM: who goes round the gate gets nothing, and the gate does not feel it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Final

import aiohttp
import pytest
import pytest_asyncio

from config.secret import Secret
from proxy.isolation.unit import ProjectUnit
from tests.engine.client import Vllm
from tests.engine.endpoints import CHAT, COMPLETIONS, SALTED, Endpoint
from tests.engine.gate import ALICE, BOB, CAROL, GateClient, fresh_prompt, gate_before, salt_of
from tests.engine.server import BARRIER_KEY, MODEL
from tests.parts.redis_server import RedisServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY: Final = {"Authorization": f"Bearer {BARRIER_KEY.decode()}"}
SALT: Final = salt_of(ProjectUnit("acme", "apollo"))

each_endpoint = pytest.mark.parametrize("endpoint", SALTED, ids=lambda endpoint: endpoint.name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gate(barred_vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GateClient]:
    """saltgate in front of the barred engine, with the barrier's key as the engine's `api_key`."""
    folder = tmp_path_factory.mktemp("gate")
    with RedisServer(folder) as redis:
        key = Secret(BARRIER_KEY, "test")
        async with gate_before(barred_vllm, redis.settings(), folder, api_key=key) as client:
            yield client


async def straight(
    vllm: Vllm, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = KEY
) -> tuple[int, bytes]:
    """Round the gate, with the key unless said otherwise."""
    sent = {"Content-Type": "application/json"} | dict(headers)
    async with aiohttp.ClientSession(vllm.url) as session, session.request(method, path, data=body, headers=sent) as a:
        return a.status, await a.read()


def is_barred(answer: tuple[int, bytes]) -> bool:
    return answer[0] == 403 and json.loads(answer[1])["error"]["code"] == "saltgate_barrier"


@each_endpoint
async def test_a_request_without_a_salt_is_refused_inside_the_engine(barred_vllm: Vllm, endpoint: Endpoint) -> None:
    for members in ({}, {"cache_salt": None}, {"cache_salt": "tenant-a"}, {"messages_": {"cache_salt": SALT}}):
        body = json.dumps(endpoint.body("hello") | members).encode()
        assert is_barred(await straight(barred_vllm, "POST", endpoint.path, body))


async def test_a_salt_without_the_key_is_refused_on_every_path_but_health(barred_vllm: Vllm) -> None:
    body = json.dumps(CHAT.body("hello") | {"cache_salt": SALT}).encode()
    assert is_barred(await straight(barred_vllm, "POST", CHAT.path, body, headers={}))
    for path in ("/metrics", "/v1/models", "/version", "/openapi.json"):
        assert is_barred(await straight(barred_vllm, "GET", path, headers={}))
    assert (await straight(barred_vllm, "GET", "/health", headers={}))[0] == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/invocations"),
        ("POST", "/%69nvocations"),
        ("POST", "/v1/chat/completions/batch"),
        ("POST", "/v1/systemone"),
        ("POST", "/generative_scoring"),
        ("POST", "/inference/v1/generate"),
        ("POST", "/tokenize"),
        ("POST", "/scale_elastic_ep"),
        ("GET", "/v1/responses/resp_1"),
        ("GET", "/metricsfoo"),
        ("GET", "/docs"),
        ("OPTIONS", "/v1/chat/completions"),
    ],
)
async def test_the_engines_other_doors_are_shut_for_who_has_key_and_salt(
    barred_vllm: Vllm, method: str, path: str
) -> None:
    body = json.dumps({"model": MODEL, "prompt": "hello", "cache_salt": SALT}).encode()
    assert is_barred(await straight(barred_vllm, method, path, body))


async def test_what_vllm_would_read_differently_is_refused(barred_vllm: Vllm) -> None:
    """vLLM takes the last of two members, and UTF-16 whatever was said."""
    text = json.dumps(COMPLETIONS.body("hello") | {"cache_salt": SALT})
    for body in (text[:-1].encode() + b',"cache_salt":null}', text.encode("utf-16"), b"\xef\xbb\xbf" + text.encode()):
        assert is_barred(await straight(barred_vllm, "POST", COMPLETIONS.path, body))


async def test_a_websocket_is_refused(barred_vllm: Vllm) -> None:
    async with aiohttp.ClientSession(barred_vllm.url, headers=KEY) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect("/v1/realtime")
    assert refused.value.status == 403


async def test_the_gate_behind_the_barrier_proves_the_engine_as_ever(gate: GateClient) -> None:
    (replica,) = gate.bed.gate.engines.engines[0].replicas
    verdicts = {operation.value: finding.verdict.value for operation, finding in replica.findings.items()}
    assert {verdicts[name] for name in ("chat", "completions", "responses", "messages")} == {"proven"}


@each_endpoint
@pytest.mark.parametrize("stream", [False, True])
async def test_through_the_gate_everything_is_as_without_the_barrier(
    gate: GateClient, endpoint: Endpoint, stream: bool
) -> None:
    prompt = fresh_prompt()
    assert not await gate.shares(ALICE, endpoint, prompt, stream=stream)
    assert await gate.shares(CAROL, endpoint, prompt, stream=stream)
    assert not await gate.shares(BOB, endpoint, prompt, stream=stream)


async def test_a_stream_comes_token_by_token(gate: GateClient) -> None:
    """An answer that was kept back until its end would come when the engine works no more."""
    await gate.until_running(0)
    body = CHAT.body("hello", max_tokens=4_000, stream=True) | {"ignore_eos": True}
    async with gate.bed.session.post(gate.bed.url + CHAT.path, json=body, headers=gate.headers(ALICE)) as answer:
        assert await answer.content.readany()
        await gate.until_running(1)


async def test_a_client_that_leaves_frees_the_engine_through_the_barrier(gate: GateClient) -> None:
    await gate.until_running(0)
    before = await gate.generated_tokens()
    body = CHAT.body("hello", max_tokens=12_000, stream=True) | {"ignore_eos": True}
    async with gate.bed.session.post(gate.bed.url + CHAT.path, json=body, headers=gate.headers(ALICE)) as answer:
        await answer.content.readany()
        answer.close()
    await gate.until_recorded("outcome", "client_gone")
    await gate.until_running(0)
    # Tokens, not requests: meanwhile the gate may prove again what other requests disturbed.
    assert await gate.generated_tokens() - before < 12_000
