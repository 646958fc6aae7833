"""Opaque tokens at a whole gate: a real Redis, a real issuer that is also asked about tokens, real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.directory.changes import block, grant
from proxy.directory.model import user
from tests.parts.gate_bed import DIRECTORY, GateBed, gate_bed
from tests.parts.introspection_server import IntrospectionServer, http, until
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import page_of

pytestmark = pytest.mark.slow

OTHER = """
[workspaces.umbrella]
issuer = "{other}"

[workspaces.umbrella.projects.hive]
members = ["user:u-alice-0001"]
"""
ALICE = "opaque-token-of-alice"


@asynccontextmanager
async def bed_and_issuer(redis: RedisServer, folder: Path) -> AsyncIterator[tuple[GateBed, IntrospectionServer]]:
    async with (
        IntrospectionServer() as server,
        Simulator(EngineShape(pace=AT_ONCE, answer_tokens=2)) as engine,
        gate_bed(redis.settings(), [engine.url], folder, introspection=server.issuer().introspection) as bed,
    ):
        server.active[ALICE] = server.claims("u-alice-0001")
        yield bed, server


def named(token: str, workspace: str = "acme", project: str = "apollo") -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "OpenAI-Organization": workspace, "OpenAI-Project": project}


def code_of(answer: tuple[int, Mapping[str, str], bytes]) -> tuple[int, str]:
    return answer[0], json.loads(answer[2])["error"]["code"]


async def test_an_opaque_token_serves_as_a_signed_one_does(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_issuer(redis, tmp_path) as (bed, server):
        for headers in (named(ALICE), {"x-api-key": ALICE}, {"api-key": ALICE, "OpenAI-Project": "apollo"}):
            path = "/w/acme/p/apollo/v1/chat/completions" if len(headers) == 1 else "/v1/chat/completions"
            assert (await bed.post(path, headers=headers))[0] == 200
        lines = await bed.completed(3)
        assert {(line["issuer"], line["auth_method"]) for line in lines} == {(bed.mint.issuer, "introspection")}
        log = bed.log.read_text()
    assert server.hits == {ALICE: 1}
    assert ALICE not in log
    assert "introspection-password" not in log


async def test_an_opaque_and_a_signed_token_of_one_person_share_a_salt(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_issuer(redis, tmp_path) as (bed, _):
        await bed.post(headers=named(ALICE))
        await bed.post()
        lines = await bed.completed(2)
    assert len({line["salt_fingerprint"] for line in lines}) == 1


async def test_the_groups_of_the_answer_are_the_callers_groups(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_issuer(redis, tmp_path) as (bed, server):
        server.active["of-dave"] = server.claims("u-dave", groups=["eng"])
        server.active["of-erin"] = server.claims("u-erin", groups=["sales"])
        assert (await bed.post(headers=named("of-dave")))[0] == 200
        assert code_of(await bed.post(headers=named("of-erin"))) == (403, "not_a_member")


async def test_a_wrong_token_is_401_with_the_challenge_and_the_remedy(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_issuer(redis, tmp_path) as (bed, _):
        status, headers, body = await bed.post(headers=named("wrong-token"))
    assert status == 401
    assert 'error="invalid_token"' in headers["WWW-Authenticate"]
    assert "resource_metadata=" in headers["WWW-Authenticate"]
    assert "workspace" in json.loads(body)["error"]["message"]
    assert b"wrong-token" not in body


async def test_a_stranger_cannot_tell_which_workspaces_there_are(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_issuer(redis, tmp_path) as (bed, _):
        strangers = [await bed.post(headers=named("wrong", workspace)) for workspace in ("acme", "globex", "nothing")]
        members = [await bed.post(headers=named(ALICE, workspace)) for workspace in ("globex", "nothing")]
    assert len({body for _, _, body in strangers}) == 1
    assert {code_of(answer) for answer in strangers} == {(401, "invalid_token")}
    assert len({body for _, _, body in members}) == 1
    assert {code_of(answer) for answer in members} == {(403, "not_a_member")}


async def test_of_several_issuers_the_one_of_the_named_workspace_is_asked(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        IntrospectionServer() as server,
        IntrospectionServer() as other,
        Simulator(EngineShape(pace=AT_ONCE, answer_tokens=2)) as engine,
        gate_bed(
            redis.settings(),
            [engine.url],
            tmp_path,
            document=DIRECTORY + OTHER.replace("{other}", other.url),
            introspection=server.issuer().introspection,
            issuers=[other.issuer()],
        ) as bed,
    ):
        server.active[ALICE] = server.claims("u-alice-0001")
        other.active["of-other"] = other.claims("u-alice-0001")
        assert (await bed.post(headers=named(ALICE)))[0] == 200
        assert (await bed.post(headers=named("of-other", "umbrella", "hive")))[0] == 200
        # One subject, but of another issuer: who is known there is nobody here.
        for headers in (named("of-other"), named(ALICE, "umbrella", "hive"), named(ALICE, "nothing")):
            assert code_of(await bed.post(headers=headers)) == (401, "invalid_token")
        assert code_of(await bed.post(headers={"Authorization": f"Bearer {ALICE}"})) == (400, "scope_required")
        project_only = {"Authorization": f"Bearer {ALICE}", "OpenAI-Project": "apollo"}
        assert code_of(await bed.post(headers=project_only)) == (400, "scope_required")
        assert (await bed.post())[0] == 200
    assert server.hits[ALICE] == other.hits["of-other"] == 1
    assert server.hits["of-other"] == other.hits[ALICE] == 1


async def test_the_directory_decides_at_each_request_also_while_the_answer_is_remembered(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with bed_and_issuer(redis, tmp_path) as (bed, server):
        assert (await bed.post(headers=named(ALICE)))[0] == 200
        await bed.change(block(bed.mint.issuer, user("u-alice-0001")))
        async with _soon():
            while (answer := await bed.post(headers=named(ALICE)))[0] == 200:
                pass
        assert code_of(answer) == (403, "blocked")
    assert server.hits == {ALICE: 1}


async def test_a_service_account_can_be_a_member(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_issuer(redis, tmp_path) as (bed, server):
        server.active["of-batch"] = server.claims("svc-batch", client_id="svc-batch")
        await bed.change(grant("acme", "apollo", user("svc-batch")))
        async with _soon():
            while (await bed.post(headers=named("of-batch")))[0] != 200:
                pass


async def test_while_the_issuer_is_away_opaque_tokens_are_503_and_signed_ones_serve(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with bed_and_issuer(redis, tmp_path) as (bed, server):
        server.raw, server.probes_too = http(b"", status="503 Service Unavailable"), True
        for number in range(6):
            answer = await bed.post(headers=named(f"t-{number}"))
            assert code_of(answer) == (503, "issuer_unavailable")
            assert int(answer[1]["Retry-After"]) >= 1
            assert "WWW-Authenticate" not in answer[1]
        await until(lambda: not bed.gate.reception.opaque.introspectors[0].ready)
        assert bed.gate.waits_for() == ()
        assert (await bed.post())[0] == 200
        await until(lambda: _introspection_up(bed) == "0")


async def test_a_gate_whose_introspection_never_answered_is_ready(redis: RedisServer, tmp_path: Path) -> None:
    async with IntrospectionServer() as server, Simulator(EngineShape(pace=AT_ONCE)) as engine:
        server.raw, server.probes_too = http(b"", status="401 Unauthorized"), True
        settings = server.issuer().introspection
        async with gate_bed(redis.settings(), [engine.url], tmp_path, introspection=settings) as bed:
            assert (await bed.post())[0] == 200
            assert code_of(await bed.post(headers=named(ALICE))) == (503, "issuer_unavailable")
            lines = [line for line in bed.lines() if line["event"] == "introspection_failed"]
    assert len(lines) == 1
    assert "401" in str(lines[0]["cause"])


@pytest.mark.parametrize("token", ["a.b.c", "eyJhbGciOiJSUzI1NiJ9.e30.c2ln"])
async def test_a_signed_token_that_fails_is_never_asked_about(redis: RedisServer, tmp_path: Path, token: str) -> None:
    async with bed_and_issuer(redis, tmp_path) as (bed, server):
        server.active[token] = server.claims("u-alice-0001")
        assert (await bed.post(headers=named(token)))[0] == 401
    assert server.asked == []


def _introspection_up(bed: GateBed) -> str:
    page = page_of(bed.gate.metrics)
    (line,) = [line for line in page.splitlines() if line.startswith("saltgate_introspection_up{")]
    return line.rpartition(" ")[2].removesuffix(".0")


def _soon() -> asyncio.Timeout:
    return asyncio.timeout(10)
