"""A whole gate with an audit: one record for each request, however it ends, and none that is not told of goes up."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from config.secret import Secret
from config.settings import Audit, AuditKey, Capacity
from observability.audit.subjects import pseudonym
from proxy.demo.simulator import AT_ONCE, EngineShape, Fault, FaultKind, Simulator
from tests.observability.audit.writing import KEY, faults, requests, unwritable, verdict, written
from tests.parts.gate_bed import KEY as SALT_KEY
from tests.parts.gate_bed import GateBed, chat, gate_bed
from tests.parts.redis_server import RedisServer

pytestmark = pytest.mark.slow

KEY_BYTES = SALT_KEY.value
AUDIT_SECRET = b"0123456789abcdef0123456789abcdef"
SHAPE = EngineShape(models=("tiny",), pace=AT_ONCE, answer_tokens=4)


def settings(directory: Path, **more: object) -> Audit:
    key = AuditKey(id="a1", secret=Secret(AUDIT_SECRET, "test"))
    return Audit(directory=directory, keys=(key,), sync_interval=0.005, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def audited(
    redis: RedisServer, folder: Path, *, shape: EngineShape = SHAPE, audit: Audit | None = None, **more: object
) -> AsyncIterator[tuple[GateBed, Simulator, Path]]:
    place = folder / "audit"
    async with (
        Simulator(shape) as engine,
        gate_bed(
            redis.settings(),
            [engine.url],
            folder,
            audit=audit or settings(place),
            **more,  # type: ignore[arg-type]
        ) as bed,
    ):
        engine.requests.clear()
        yield bed, engine, place


async def told(place: Path, number: int) -> list[dict[str, object]]:
    """So many requests' records, as soon as they are there."""
    async with asyncio.timeout(10):
        while len(found := requests(place)) < number:
            await asyncio.sleep(0.01)
    return found


async def test_a_chat_leaves_one_record_that_says_who_for_what_and_why(redis: RedisServer, tmp_path: Path) -> None:
    async with audited(redis, tmp_path) as (bed, _, place):
        status, headers, _ = await bed.post()
        assert status == 200
        (line,) = await told(place, 1)
    assert line["request_id"] == headers["X-Request-Id"]
    assert line["subject"] == pseudonym(KEY, bed.mint.issuer, "u-alice-0001")
    assert (line["event"], line["outcome"], line["policy"], line["unit"]) == (
        "request.granted",
        "ok",
        "deployment",
        "project:acme/apollo",
    )
    assert line["tokens_known"] is True
    assert int(str(line["output_tokens"])) > 0
    assert verdict(place).intact, faults(place)
    events = [line["event"] for line in written(place)]
    assert events[:2] == ["chain.opened", "configuration.loaded"]
    assert events[-1] == "chain.closed"


async def test_why_the_border_is_where_it_is_is_told(redis: RedisServer, tmp_path: Path) -> None:
    async with audited(redis, tmp_path) as (bed, _, place):
        await bed.post(headers=bed.headers() | {"X-Saltgate-Unit": "user"})
        await bed.post(headers=bed.headers("u-bob-0002", "hermes"))
        await bed.post(headers=bed.headers() | {"X-Saltgate-Collection": "handbook"})
        lines = await told(place, 3)
    why = [(line["policy"], line.get("turned"), line["unit"]) for line in lines]
    assert why == [
        ("deployment", ["caller"], "user:acme/apollo"),
        ("project", None, "user:acme/hermes"),
        ("deployment", ["collection"], "collection:acme/handbook"),
    ]


async def test_each_way_in_which_a_request_ends_leaves_one_record_like_its_line_in_the_log(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with audited(redis, tmp_path) as (bed, engine, place):
        await bed.post()
        await bed.post(document=chat(stream=True))
        await bed.post(headers={"Authorization": "Bearer nonsense"})
        await bed.post(headers=bed.headers("u-mallory-0009"))
        await bed.post("/v1/nothing")
        await bed.post(document={"model": 5})
        async with bed.session.get(bed.url + "/v1/models", headers=bed.headers()) as answer:
            assert answer.status == 200
        for kind in (FaultKind.STATUS_500, FaultKind.DIE_BEFORE_HEAD):
            engine.faults.add(Fault(kind))
            await bed.post()
        engine.faults.add(Fault(FaultKind.DIE_MID_STREAM))
        with suppress(aiohttp.ClientPayloadError):
            await bed.post(document=chat(stream=True))
        lines = await told(place, 10)
        logged = await bed.completed(10)
    assert len(lines) == len({line["request_id"] for line in lines}) == 10
    by_request = {line["request_id"]: line for line in lines}
    for line in logged:
        record = by_request[line["request_id"]]
        for name in ("outcome", "status", "code", "reason", "workspace", "project", "model", "prompt_tokens"):
            assert record.get(name) == line.get(name), name
    assert verdict(place).intact
    assert Counter(str(line["event"]) for line in lines) == {"request.granted": 6, "request.refused": 4}


async def test_a_client_that_leaves_leaves_one_record(redis: RedisServer, tmp_path: Path) -> None:
    async with audited(redis, tmp_path, shape=EngineShape(models=("tiny",))) as (bed, _, place):
        async with bed.session.post(
            bed.url + "/v1/chat/completions", json=chat(stream=True, max_tokens=2000), headers=bed.headers()
        ) as answer:
            await answer.content.readany()
            assert answer.connection is not None
            answer.connection.close()
        (line,) = await told(place, 1)
    assert (line["event"], line["outcome"], line["status"]) == ("request.granted", "client_gone", 200)


async def test_while_the_audit_cannot_be_written_nothing_goes_up_and_nothing_is_lost(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with audited(redis, tmp_path, audit=linked(tmp_path)) as (bed, engine, place):
        await bed.post()
        with unwritable(place):
            await bed.post()  # the first one that finds out was let in before
            await down(bed)
            sent = len(engine.requests)
            status, headers, body = await bed.post()
            assert (status, headers["Retry-After"]) == (503, "5")
            assert json.loads(body)["error"]["code"] == "audit_unavailable"
            async with bed.session.get(bed.url + "/v1/models", headers=bed.headers()) as answer:
                assert answer.status == 503
            assert len(engine.requests) == sent
            assert bed.gate.waits_for() == ("audit",)
        async with asyncio.timeout(10):
            while bed.gate.waits_for():
                await asyncio.sleep(0.01)
        assert (await bed.post())[0] == 200
        lines = await told(place, 5)
    assert [line["outcome"] for line in lines].count("ok") == 3
    assert [line.get("code") for line in lines].count("audit_unavailable") == 2
    assert verdict(place).intact, faults(place)


async def test_a_policy_to_go_on_serves_on(redis: RedisServer, tmp_path: Path) -> None:
    async with audited(redis, tmp_path, audit=linked(tmp_path, on_failure="continue")) as (bed, _, place):
        with unwritable(place):
            await bed.post()
            await down(bed)
            assert (await bed.post())[0] == 200
            assert bed.gate.waits_for() == ()
        lines = await told(place, 2)
        failing = [line for line in bed.lines() if line["event"] == "audit.failing"]
    assert [line["outcome"] for line in lines] == ["ok", "ok"]
    assert len(failing) == 1


async def test_no_more_go_up_than_can_be_told_of(redis: RedisServer, tmp_path: Path) -> None:
    """The journal has as many slots as there are places at engines: here both are one, and the line waits long."""
    audit = settings(tmp_path / "audit")
    audit = replace(audit, sync_interval=1.0)
    async with audited(redis, tmp_path, audit=audit, of_all=Capacity(requests=1)) as (bed, engine, place):
        await bed.post()
        status, _, body = await bed.post()
        assert (status, json.loads(body)["error"]["code"]) == (503, "audit_unavailable")
        assert len(engine.requests) == 1
        lines = await told(place, 2)
    assert [line["outcome"] for line in lines] == ["ok", "refused"]


async def test_nothing_secret_is_in_the_audit(redis: RedisServer, tmp_path: Path) -> None:
    async with audited(redis, tmp_path) as (bed, engine, place):
        token = bed.token()
        await bed.post(
            document=chat("the-prompt-canary"), headers={**bed.headers(), "Authorization": f"Bearer {token}"}
        )
        await told(place, 1)
        salt = str(json.loads(engine.requests[0].body)["cache_salt"])
    data = b"".join(path.read_bytes() for path in place.iterdir())
    for secret in (token.encode(), b"the-prompt-canary", salt.encode(), KEY_BYTES, AUDIT_SECRET, b"u-alice-0001"):
        assert secret not in data


async def down(bed: GateBed) -> None:
    async with asyncio.timeout(10):
        while (state := bed.gate.gateway.accounting.state()) is None or state.up:
            await asyncio.sleep(0.01)


def linked(folder: Path, **more: object) -> Audit:
    (folder / "real").mkdir()
    (folder / "audit").symlink_to(folder / "real")
    return settings(folder / "audit", **more)
