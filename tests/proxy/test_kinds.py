"""Engines of every kind through a whole gate: proven by behaviour, asked for by their own profile, told apart by nobody
who may not use them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from config.settings import AddedField, Engine, EngineLimits
from proxy.demo.simulator import AT_ONCE, EngineShape, Fault, FaultKind, Simulator
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit
from tests.parts.gate_bed import BASE_EPOCH, KEY, GateBed, Kind, chat, gate_bed
from tests.parts.imitations import Imitation
from tests.parts.raw_engine import RawEngine, Send, json_answer
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import page_of

pytestmark = pytest.mark.slow

SALT = salt_for(ProjectUnit("acme", "apollo"), epoch=BASE_EPOCH, key=SaltKey("k1", KEY.value)).value
EVIL = "sg1-k1-evil"
SHAPE = EngineShape(pace=AT_ONCE, answer_tokens=2)
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, COUNTING, EMBEDDINGS = "/v1/messages", "/v1/messages/count_tokens", "/v1/embeddings"
DOCUMENTS: dict[str, dict[str, Any]] = {
    CHAT: chat(),
    COMPLETIONS: {"model": "tiny", "prompt": "Hello"},
    RESPONSES: {"model": "tiny", "input": "Hello"},
    MESSAGES: chat(max_tokens=4),
    COUNTING: chat(),
    EMBEDDINGS: {"model": "tiny", "input": "Hello"},
}
SERVED: Mapping[Kind, frozenset[str]] = {
    "vllm": frozenset(DOCUMENTS),
    "sglang": frozenset({CHAT, COMPLETIONS}),
    "tensorrt-llm": frozenset({CHAT}),
    "dynamo": frozenset({CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS}),
}
OTHERS: tuple[Kind, ...] = ("sglang", "tensorrt-llm", "dynamo")


@asynccontextmanager
async def bed_of(
    kind: Kind, redis: RedisServer, folder: Path, *, deaf: bool = False, silent: bool = False, **more: Any
) -> AsyncIterator[tuple[GateBed, Imitation]]:
    async with (
        Simulator(SHAPE) as engine,
        Imitation(kind, engine, deaf=deaf, silent=silent) as imitation,
        gate_bed(redis.settings(), [imitation.url], folder, kind=kind, **more) as bed,
    ):
        await for_nothing_but_engines(bed)
        yield bed, imitation


async def for_nothing_but_engines(bed: GateBed) -> None:
    """Until the rest of the gate is ready: what is refused then is refused for the engine's sake."""
    async with asyncio.timeout(20.0):
        while not set(bed.gate.waits_for()) <= {"engines"}:
            await asyncio.sleep(0.01)


def error(body: bytes) -> dict[str, object]:
    found = json.loads(body)["error"]
    assert isinstance(found, dict)
    return found


async def settled(bed: GateBed) -> dict[str, str]:
    """The verdicts, as soon as every endpoint was probed."""
    (engine,) = bed.gate.engines.engines
    (replica,) = engine.replicas
    async with asyncio.timeout(20.0):
        while len(replica.findings) < len(engine.profile.salted):
            await asyncio.sleep(0.01)
    return {operation.value: finding.verdict.value for operation, finding in replica.findings.items()}


@pytest.mark.parametrize("kind", OTHERS)
async def test_a_kind_is_proven_by_behaviour_on_its_own_endpoints(
    kind: Kind, redis: RedisServer, tmp_path: Path
) -> None:
    async with bed_of(kind, redis, tmp_path) as (bed, imitation):
        verdicts = await settled(bed)
        # Dynamo's embeddings tell of no reuse in any way, and that is what is said.
        assert verdicts.pop("embeddings", "unknown") == "unknown"
        assert set(verdicts.values()) == {"proven"}
        assert {got.path for got in imitation.requests} <= SERVED[kind]
        assert all(got.salt is not None for got in imitation.requests), "a probe without a salt"


@pytest.mark.parametrize("kind", OTHERS)
async def test_a_kind_that_ignores_the_salt_is_found_out(kind: Kind, redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of(kind, redis, tmp_path, deaf=True, ready=False) as (bed, imitation):
        assert (await settled(bed))["chat"] == "failed"
        imitation.requests.clear()
        status, _, body = await bed.post()
        assert (status, error(body)["code"]) == (503, "engine_unavailable")
        assert not imitation.requests
        assert bed.gate.waits_for() == ("engines",)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("sglang", "--enable-cache-report"),
        ("tensorrt-llm", "cached_tokens"),
        ("dynamo", "--enable-prompt-tokens-details"),
    ],
)
async def test_a_kind_that_reports_no_reuse_is_unknown_with_its_own_remedy(
    kind: Kind, remedy: str, redis: RedisServer, tmp_path: Path
) -> None:
    async with bed_of(kind, redis, tmp_path, silent=True, ready=False) as (bed, _):
        assert (await settled(bed))["chat"] == "unknown"
        status, _, body = await bed.post()
        assert status == 503
        assert remedy in str(error(body)["message"])


async def test_what_cannot_be_proven_is_refused_under_strict_and_says_so(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_of("dynamo", redis, tmp_path) as (bed, _):
        await settled(bed)
        status, _, body = await bed.post(EMBEDDINGS, DOCUMENTS[EMBEDDINGS])
        assert status == 503
        assert "Dynamo reports no reuse on this endpoint" in str(error(body)["message"])


@pytest.mark.parametrize("kind", SERVED)
@pytest.mark.parametrize("path", DOCUMENTS)
async def test_an_endpoint_that_the_models_engine_lacks_is_404_and_nothing_is_sent(
    kind: Kind, path: str, redis: RedisServer, tmp_path: Path
) -> None:
    raw = RawEngine([Send(json_answer(b'{"object":"x"}'))])
    async with raw, gate_bed(redis.settings(), [raw.url], tmp_path, kind=kind, proof="off") as bed:
        status, _, body = await bed.post(path, DOCUMENTS[path])
        if path in SERVED[kind]:
            assert status == 200, body
            return
        assert status == 404
        assert error(body)["code"] == "endpoint_not_allowed"
        assert all(offered in str(error(body)["message"]) for offered in SERVED[kind])
        assert not raw.requests


async def test_who_may_not_use_a_model_does_not_learn_its_engines_kind(redis: RedisServer, tmp_path: Path) -> None:
    one, other = RawEngine(shape=EngineShape(models=("tiny",))), RawEngine(shape=EngineShape(models=("big",)))
    async with one, other:
        more = Engine(name="other", kind="tensorrt-llm", urls=(other.url,), models=("big",), proof="off")
        document = (
            '[workspaces.acme]\nissuer = "{issuer}"\n[workspaces.acme.projects.apollo]\n'
            'members = ["user:u-alice-0001"]\nmodels = ["tiny"]\n'
        )
        async with gate_bed(
            redis.settings(), [one.url], tmp_path, proof="off", models=("tiny",), also=(more,), document=document
        ) as bed:
            seen = set()
            for path in (MESSAGES, COUNTING, RESPONSES):
                for model in ("big", "no-such"):
                    # Also a body that one table takes and another refuses must not tell which it met.
                    for extra in ({}, {"n": 9000}, {"temperature": "hot"}):
                        status, _, body = await bed.post(path, DOCUMENTS[path] | extra | {"model": model})
                        seen.add((path.startswith(MESSAGES), status, error(body)["code"], error(body)["message"]))
            assert {(status, code) for _, status, code, _ in seen} == {(403, "model_not_allowed")}
            assert len(seen) == 2  # the two dialects


async def test_the_body_is_checked_by_the_profile_of_the_engine_that_serves_its_model(
    redis: RedisServer, tmp_path: Path
) -> None:
    answer = [Send(json_answer(b'{"object":"x"}'))]
    one, other = RawEngine(answer, shape=EngineShape(models=("tiny",))), RawEngine(answer)
    async with one, other:
        more = Engine(name="other", kind="sglang", urls=(other.url,), models=("big",), proof="off")
        async with gate_bed(redis.settings(), [one.url], tmp_path, proof="off", models=("tiny",), also=(more,)) as bed:
            fields: dict[str, Any] = {"regex": "a+", "lora_path": "x", "include_reasoning": True}
            status, _, body = await bed.post(CHAT, chat(**fields))
            assert status == 200, body
            assert (await one.request()).body.count(b"include_reasoning") == 1
            assert b"regex" not in (await one.request()).body
            status, _, body = await bed.post(CHAT, chat(model="big", **fields))
            assert (status, error(body)["param"]) == (400, "lora_path")
            del fields["lora_path"]
            status, _, body = await bed.post(CHAT, chat(model="big", **fields))
            assert status == 200, body
            sent = json.loads((await other.request()).body)
            assert sent["regex"] == "a+"
            assert "include_reasoning" not in sent
            assert "request_id" not in sent


# The salt, in every place and in no other.

HOSTILE: dict[str, Any] = {
    "cache_salt": EVIL,
    "extra_key": EVIL,
    "nvext": {"cache_salt": EVIL, "agent_hints": {"priority": 9}, "token_data": [1]},
    "rid": EVIL,
    "priority": 9,
    "kv_transfer_params": {"cache_salt": EVIL, "remote_host": "10.0.0.1"},
    "disaggregated_params": {"ctx_info_endpoint": EVIL},
    "conversation_params": {"conversation_id": EVIL},
    "bootstrap_host": EVIL,
    "routed_dp_rank": 1,
    "session_id": EVIL,
    "backend_instance_id": 1,
    "x-tenant-id": EVIL,
    "Cache_Salt": EVIL,
    "a_field_of_tomorrow": EVIL,
}
HEADERS = {
    "x-tenant-id": EVIL,
    "X-Tenant-Id ".strip(): EVIL,
    "X-Cache-Salt": EVIL,
    "x-dynamo-worker-instance-id": "1",
    "x-worker-instance-id": "1",
    "x-dp-rank": "1",
    "x-data-parallel-rank": "1",
    "x-body-compressed": "zstd",
}
PLACES: Mapping[Kind, tuple[bytes, tuple[bytes, ...]]] = {
    "vllm": (b'"cache_salt":"%b"', ()),
    "sglang": (b'"cache_salt":"%b"', ()),
    "tensorrt-llm": (b'"cache_salt":"%b"', ()),
    "dynamo": (b'"nvext":{"cache_salt":"%b"},"cache_salt":"%b"', (b"x-tenant-id",)),
}


@pytest.mark.parametrize("kind", PLACES)
async def test_exactly_the_places_that_a_kind_reads_carry_our_salt(
    kind: Kind, redis: RedisServer, tmp_path: Path
) -> None:
    """Byte for byte, on an engine that keeps every byte."""
    salt = SALT.encode()
    places, headers = PLACES[kind]
    raw = RawEngine([Send(json_answer(b'{"object":"x"}'))])
    async with raw, gate_bed(redis.settings(), [raw.url], tmp_path, kind=kind, proof="off") as bed:
        for path in sorted(SERVED[kind] - {COUNTING}):
            raw.requests.clear()
            status, _, body = await bed.post(path, DOCUMENTS[path] | HOSTILE, bed.headers() | HEADERS)
            assert status == 200, body
            (got,) = raw.requests
            assert got.line == b"POST %b HTTP/1.1" % path.encode()
            assert got.body.endswith(places.replace(b"%b", salt) + b"}")
            assert got.body.count(salt) == places.count(b"%b")
            assert got.head.count(salt) == len(headers)
            for name in headers:
                assert got.header(name) == [salt]
            assert EVIL.encode() not in got.head + got.body
            names = {line.partition(b":")[0].lower() for line in got.head.split(b"\r\n")[1:]}
            assert names <= {
                *(b"host", b"accept", b"accept-encoding", b"x-request-id", b"traceparent"),
                *(b"content-type", b"content-length", *headers),
            }


@pytest.mark.parametrize("kind", OTHERS)
async def test_two_projects_never_share_and_one_project_does(kind: Kind, redis: RedisServer, tmp_path: Path) -> None:
    text = " ".join(f"word{number}" for number in range(200))
    async with bed_of(kind, redis, tmp_path) as (bed, imitation):
        imitation.requests.clear()

        async def reused(project: str, **more: Any) -> int:
            status, _, body = await bed.post(CHAT, chat(text, max_tokens=1, **more), bed.headers(project=project))
            assert status == 200, body
            return int(json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"])

        assert await reused("apollo") == 0
        assert await reused("apollo") > 100
        assert await reused("ares") == 0
        # Whoever names the other's salt gets his own.
        theirs = imitation.requests[0].document["cache_salt"]
        assert await reused("ares", cache_salt=theirs, extra_key=theirs, nvext={"cache_salt": theirs}) > 100
        assert len({got.salt for got in imitation.requests}) == 2


@pytest.mark.parametrize("kind", OTHERS)
async def test_streams_of_each_kind_pass_with_the_usage_that_was_asked_for(
    kind: Kind, redis: RedisServer, tmp_path: Path
) -> None:
    async with bed_of(kind, redis, tmp_path) as (bed, imitation):
        status, _, body = await bed.post(CHAT, chat(stream=True))
        assert status == 200
        assert b'"usage"' not in body
        assert body.endswith(b"data: [DONE]\n\n")
        options = {"include_usage": True}
        status, _, body = await bed.post(CHAT, chat(stream=True, stream_options=options))
        assert body.count(b'"cached_tokens"') == 1
        told = [got.document["stream_options"] for got in imitation.requests[-2:]]
        assert told == [{"include_usage": True, "continuous_usage_stats": False}] * 2


# Counting tokens.


async def test_tokens_are_counted_without_a_salt_and_before_any_proof(redis: RedisServer, tmp_path: Path) -> None:
    raw = RawEngine([Send(json_answer(b'{"input_tokens":7,"context_management":null}'))])
    async with raw, gate_bed(redis.settings(), [raw.url], tmp_path, ready=False) as bed:
        (replica,) = bed.gate.engines.engines[0].replicas
        await for_nothing_but_engines(bed)
        async with asyncio.timeout(20.0):
            while not replica.reachable:
                await asyncio.sleep(0.01)
        for prefix in ("", "/w/acme/p/apollo"):
            raw.requests.clear()
            tools = [{"name": "f", "input_schema": {"properties": {"cache_salt": {"const": "uuid"}}}}]
            document = chat(max_tokens=9, stream=True, tools=tools) | HOSTILE
            status, _, body = await bed.post(prefix + COUNTING, document, bed.headers() | HEADERS)
            assert status == 200, body
            assert json.loads(body)["input_tokens"] == 7
            got = next(request for request in raw.requests if request.line.startswith(b"POST /v1/messages/count"))
            assert json.loads(got.body) == chat(tools=tools)
            assert SALT.encode() not in got.head + got.body
            assert b"sg1-" not in got.head + got.body


async def test_counting_asks_for_membership_and_takes_no_media(redis: RedisServer, tmp_path: Path) -> None:
    async with Simulator(SHAPE) as engine, gate_bed(redis.settings(), [engine.url], tmp_path) as bed:
        engine.requests.clear()
        status, _, body = await bed.post(COUNTING, chat(), bed.headers("u-mallory-0009"))
        assert (status, error(body)["code"], json.loads(body)["type"]) == (403, "not_a_member", "error")
        status, _, body = await bed.post(COUNTING, chat(model="no-such"))
        assert (status, error(body)["code"]) == (403, "model_not_allowed")
        image = {"type": "image", "source": {"type": "base64", "data": ""}}
        status, _, body = await bed.post(
            COUNTING, {"model": "tiny", "messages": [{"role": "user", "content": [image]}]}
        )
        assert (status, error(body)["type"]) == (400, "invalid_request_error")
        assert not engine.requests
        before = (await bed.post())[0]
        assert before == 200
        assert b'saltgate_usage_unknown_total{model="tiny",reason="not_told"} 0' in _metrics(bed)
        assert (await bed.post(COUNTING, chat()))[0] == 200
        page = _metrics(bed)
        assert b'saltgate_usage_unknown_total{model="tiny",reason="not_told"} 0' in page
        lines = await bed.completed(5)
        assert lines[-1]["operation"] == "count_tokens"


def _metrics(bed: GateBed) -> bytes:
    return page_of(bed.gate.metrics).encode()


# What an operator sets.


async def test_an_engines_own_limits_and_added_fields_hold(redis: RedisServer, tmp_path: Path) -> None:
    limits = EngineLimits(n=2, max_tokens=16, fields=(AddedField(name="fast_mode", type="boolean"),))
    raw = RawEngine([Send(json_answer(b'{"object":"x"}'))])
    async with raw, gate_bed(redis.settings(), [raw.url], tmp_path, proof="off", limits=limits) as bed:
        wrong: tuple[tuple[str, object], ...] = (("n", 3), ("max_tokens", 17), ("fast_mode", "yes"))
        for field, value in wrong:
            status, _, body = await bed.post(CHAT, chat() | {field: value})
            assert (status, error(body)["param"]) == (400, field)
        assert not raw.requests
        status, _, _ = await bed.post(CHAT, chat(n=2, max_tokens=16, fast_mode=True))
        assert status == 200
        assert json.loads((await raw.request()).body)["fast_mode"] is True


# A grammar that an engine cannot use.

SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}}
FORCED = {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"}


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"response_format": SCHEMA}, "response_format"),
        (CHAT, {"structured_outputs": {"grammar": "root ::= root"}}, "structured_outputs"),
        (CHAT, FORCED, "tools"),
        (RESPONSES, {"text": {"format": {"type": "json_schema", "schema": {}}}}, "text"),
        (MESSAGES, {"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config"),
    ],
)
async def test_an_engine_that_fails_on_a_grammar_is_told_so_that_nobody_sends_it_for_ever(
    path: str, fields: dict[str, Any], param: str, redis: RedisServer, tmp_path: Path
) -> None:
    async with Simulator(SHAPE) as engine, gate_bed(redis.settings(), [engine.url], tmp_path, proof="off") as bed:
        engine.faults.add(Fault(FaultKind.STATUS_500))
        status, headers, body = await bed.post(path, DOCUMENTS[path] | fields)
        assert (status, error(body)["code"]) == (502, "engine_failed")
        assert param in str(error(body)["message"])
        assert "unchanged, it fails again" in str(error(body)["message"])
        assert headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": {"type": "text"}},
        {"response_format": None},
        {"tools": FORCED["tools"]},
        {"tools": FORCED["tools"], "tool_choice": "auto"},
    ],
)
async def test_a_failure_without_a_grammar_may_be_sent_again(
    fields: Mapping[str, Any], redis: RedisServer, tmp_path: Path
) -> None:
    async with Simulator(SHAPE) as engine, gate_bed(redis.settings(), [engine.url], tmp_path, proof="off") as bed:
        engine.faults.add(Fault(FaultKind.STATUS_500))
        status, headers, body = await bed.post(CHAT, chat(**fields))
        assert (status, error(body)["code"]) == (502, "engine_failed")
        assert "Send it again" in str(error(body)["message"])
        assert "x-should-retry" not in headers
