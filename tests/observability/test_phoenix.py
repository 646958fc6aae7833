"""Spans as a real backend takes them, and shows them: Arize Phoenix (`make phoenix`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from config.settings import Telemetry, TrustedCaller
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.phoenix import NoPhoenix, Phoenix, running_phoenix
from tests.parts.raw_engine import LAST_CHUNK, STREAM_HEAD, Close, RawEngine, Send, Sleep, chunk
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import DONE, TOKEN

pytestmark = pytest.mark.phoenix

USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":120,"completion_tokens":31,'
    b'"prompt_tokens_details":{"cached_tokens":96}}}\n\n'
)
ANSWER = (Send(STREAM_HEAD), Send(chunk(TOKEN)), Sleep(0.1), Send(chunk(TOKEN + USAGE + DONE)), Send(LAST_CHUNK))
THEIRS = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    try:
        with running_phoenix(tmp_path_factory.mktemp("phoenix")) as running:
            yield running
    except NoPhoenix as reason:
        pytest.skip(str(reason))


async def traced(bed: GateBed, number: int = 0) -> str:
    return str((await bed.completed(number + 1))[number]["trace_id"])


async def test_a_stream_is_a_model_call_with_its_tokens_inside_the_request(
    phoenix: Phoenix, redis: RedisServer, tmp_path: Path
) -> None:
    telemetry = Telemetry(otlp_endpoint=phoenix.url)
    async with (
        RawEngine(ANSWER) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",), telemetry=telemetry) as bed,
    ):
        assert (await bed.post(document=chat(stream=True)))[0] == 200
        spans = await phoenix.spans(await traced(bed), 2)
    server, call = spans["POST /v1/chat/completions"], spans["chat tiny"]
    assert call["parent_id"] == server["context"]["span_id"]
    assert server["parent_id"] is None
    # Phoenix's own reading of the GenAI names.
    assert call["span_kind"] == "LLM"
    counted = {name: value for name, value in call["attributes"].items() if name.startswith("llm.token_count.")}
    assert counted == {
        "llm.token_count.prompt": 120,
        "llm.token_count.prompt_details.cache_read": 96,
        "llm.token_count.completion": 31,
        "llm.token_count.total": 151,
    }
    assert call["attributes"]["llm.model_name"] == "tiny"
    assert call["attributes"]["saltgate.time_to_first_token.kind"] == "content"
    found = await phoenix.with_attribute("saltgate.workspace", "acme")
    assert {span["context"]["span_id"] for span in found} >= {
        server["context"]["span_id"],
        call["context"]["span_id"],
    }
    assert await phoenix.with_attribute("saltgate.workspace", "globex") == []


async def test_a_failure_is_shown_as_one_and_a_refusal_is_not(
    phoenix: Phoenix, redis: RedisServer, tmp_path: Path
) -> None:
    telemetry = Telemetry(otlp_endpoint=phoenix.url)
    async with (
        RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), Close())) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",), telemetry=telemetry) as bed,
    ):
        await bed.post(document=chat(stream=True), headers=bed.headers("u-mallory-0009"))
        refused = await phoenix.spans(await traced(bed), 1)
        with suppress(aiohttp.ClientPayloadError):
            await bed.post(document=chat(stream=True))
        broken = await phoenix.spans(await traced(bed, 1), 2)
    assert [span["status_code"] for span in refused.values()] == ["UNSET"]
    assert {span["status_code"] for span in broken.values()} == {"ERROR"}
    assert {span["attributes"]["saltgate.outcome"] for span in broken.values()} == {"truncated"}


async def test_a_trusted_callers_trace_is_one_with_ours(phoenix: Phoenix, redis: RedisServer, tmp_path: Path) -> None:
    telemetry = Telemetry(
        otlp_endpoint=phoenix.url, trusted_callers=(TrustedCaller(issuer="", client="chat-ui"),), trace_ratio=0.0
    )
    async with (
        RawEngine(ANSWER) as engine,
        gate_bed(redis.settings(), [engine.url], tmp_path, proof="off", models=("tiny",), telemetry=telemetry) as bed,
    ):
        sent = {"traceparent": f"00-{THEIRS}-b7ad6b7169203331-01"}
        assert (await bed.post(document=chat(stream=True), headers=bed.headers() | sent))[0] == 200
        spans = await phoenix.spans(THEIRS, 2)
    assert spans["POST /v1/chat/completions"]["parent_id"] == "b7ad6b7169203331"
