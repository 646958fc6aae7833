"""`GET /account` through a whole gate: each sees himself, by the credential that he shows and by nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from config.settings import Issuer, Login
from proxy.account.account import LISTED_AT_MOST, account_document
from proxy.directory.changes import block
from proxy.directory.membership import OwnProject
from proxy.directory.model import user
from proxy.identity import Identity
from proxy.isolation.unit import Level
from tests.parts.gate_bed import GateBed, gate_bed
from tests.parts.introspection_server import IntrospectionServer
from tests.parts.raw_engine import RawEngine
from tests.parts.redis_server import RedisServer

ALICE = Identity("https://sso.example.com", "u-alice-0001", frozenset({"b", "a"}), True, 1_800_000_000.0, "cli")


@asynccontextmanager
async def gate(redis: RedisServer, folder: Path, **more: Any) -> AsyncIterator[GateBed]:
    async with (
        RawEngine() as engine,
        gate_bed(redis.settings(), [engine.url], folder, proof="off", models=("tiny",), **more) as bed,
    ):
        yield bed


async def account(bed: GateBed, **headers: str) -> tuple[int, Any]:
    async with bed.session.get(f"{bed.url}/account?x=1", headers=headers) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        return answer.status, json.loads(await answer.read())


async def test_each_sees_whom_the_gate_takes_him_for_and_what_he_may_act_for(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with gate(redis, tmp_path) as bed:
        status, found = await account(bed, Authorization=f"Bearer {bed.token()}")
        assert status == 200
        assert found["identity"] | {"expires_at": 0} == {
            "issuer": bed.mint.issuer,
            "subject": "u-alice-0001",
            "groups": [],
            "groups_complete": True,
            "client": "chat-ui",
            "method": "jwt",
            "expires_at": 0,
        }
        assert found["memberships"] == [
            {"workspace": "acme", "project": "apollo", "unit": "project"},
            {"workspace": "acme", "project": "ares", "unit": "project"},
        ]
        assert found["more"] is False
        _, bob = await account(bed, Authorization=f"Bearer {bed.token('u-bob-0002')}")
        assert bob["memberships"] == [{"workspace": "acme", "project": "hermes", "unit": "user"}]
        _, stranger = await account(bed, Authorization=f"Bearer {bed.token('u-nobody')}")
        assert stranger["memberships"] == []


async def test_who_shows_nothing_or_what_is_no_token_of_ours_sees_nothing(redis: RedisServer, tmp_path: Path) -> None:
    async with gate(redis, tmp_path) as bed:
        for headers in (
            {},
            {"Cookie": f"__Host-saltgate={bed.token()}"},
            {"Authorization": "Bearer " + bed.mint.token(audience="another")},
            {"OpenAI-Organization": "acme", "OpenAI-Project": "apollo"},
        ):
            status, found = await account(bed, **headers)
            assert status == 401, headers
            assert set(found) == {"error"}


async def test_of_several_issuers_the_one_of_the_named_workspace_is_asked_about_an_opaque_token(
    redis: RedisServer, tmp_path: Path
) -> None:
    """As at every other endpoint: the refusal without a workspace says that naming one helps."""
    async with (
        IntrospectionServer() as server,
        IntrospectionServer() as other,
        gate(redis, tmp_path, introspection=server.issuer().introspection, issuers=[other.issuer()]) as bed,
    ):
        server.active["of-alice"] = server.claims("u-alice-0001")
        credential = {"Authorization": "Bearer of-alice"}
        status, refused = await account(bed, **credential)
        assert (status, refused["error"]["code"]) == (400, "scope_required")
        assert "OpenAI-Organization" in refused["error"]["message"]
        status, found = await account(bed, **credential, **{"OpenAI-Organization": "acme"})
        assert (status, found["identity"]["subject"]) == (200, "u-alice-0001")
        assert (await account(bed, **credential, **{"OpenAI-Organization": "nowhere"}))[0] == 401
    assert server.hits["of-alice"] == 1
    assert "of-alice" not in other.hits


async def test_nobody_is_sent_to_a_browser_where_no_browser_can_sign_in(redis: RedisServer, tmp_path: Path) -> None:
    async with gate(redis, tmp_path) as bed:
        for headers in ({}, {"Accept": "text/html,application/xhtml+xml"}):
            status, found = await account(bed, **headers)
            assert (status, found["error"]["code"]) == (401, "credential_required")
            assert "Authorization: Bearer" in found["error"]["message"]
            assert "open this address" not in found["error"]["message"]
            assert "no sign-in for browsers" in found["error"]["message"]


async def test_a_program_without_a_credential_is_told_of_the_browser_where_people_sign_in_with_one(
    redis: RedisServer, tmp_path: Path
) -> None:
    web = Issuer(issuer="http://127.0.0.1:8", audiences=("saltgate",), login=Login(client_id="web"))
    async with gate(redis, tmp_path, issuers=(web,)) as bed:
        status, found = await account(bed)
    assert (status, found["error"]["code"]) == (401, "credential_required")
    assert "open this address in a browser" in found["error"]["message"]


async def test_who_is_blocked_is_told_so_and_nothing_else(redis: RedisServer, tmp_path: Path) -> None:
    async with gate(redis, tmp_path) as bed:
        await bed.change(block(bed.mint.issuer, user("u-alice-0001")))
        headers = {"Authorization": f"Bearer {bed.token()}"}
        async with asyncio.timeout(10):
            while (answer := await account(bed, **headers))[0] == 200:
                await asyncio.sleep(0.01)
        status, found = answer
        assert (status, found["error"]["code"]) == (403, "blocked")
        assert "memberships" not in found


async def test_an_empty_directory_is_not_passed_off_as_no_membership(redis: RedisServer, tmp_path: Path) -> None:
    async with gate(redis, tmp_path, filled=False, ready=False) as bed:
        async with bed.session.get(bed.url + "/account") as warm:
            assert warm.status == 401
        status, found = await account(bed, Authorization=f"Bearer {bed.token()}")
        assert (status, found["error"]["code"]) in {(503, "salt_unavailable"), (503, "directory_unavailable")}


async def test_the_metadata_tell_a_command_line_where_to_sign_in(redis: RedisServer, tmp_path: Path) -> None:
    native = Issuer(
        issuer="http://127.0.0.1:9",
        audiences=("saltgate",),
        login=Login(native_client_id="cli", native_scopes=("openid",), resource="urn:llm"),
    )
    for_browsers = replace(native, issuer="http://127.0.0.1:8", login=Login(client_id="web"))
    async with (
        gate(redis, tmp_path, issuers=(native, for_browsers)) as bed,
        bed.session.get(f"{bed.url}/.well-known/oauth-protected-resource") as answer,
    ):
        assert (await answer.json())["saltgate_sign_in"] == [
            {"issuer": "http://127.0.0.1:9", "client_id": "cli", "scopes": ["openid"], "resource": "urn:llm"}
        ]


def test_the_deployments_unit_is_told_where_nothing_narrower_holds() -> None:
    found = json.loads(account_document(ALICE, [OwnProject("acme", "apollo", Level.WORKSPACE)]))
    assert found["identity"]["groups"] == ["a", "b"]
    assert found["memberships"] == [{"workspace": "acme", "project": "apollo", "unit": "workspace"}]


def test_thousands_of_projects_are_listed_up_to_a_bound_and_that_is_told() -> None:
    many = [OwnProject("acme", f"p{number}", Level.PROJECT) for number in range(LISTED_AT_MOST + 1)]
    found = json.loads(account_document(ALICE, many))
    assert (len(found["memberships"]), found["more"]) == (LISTED_AT_MOST, True)
    assert json.loads(account_document(ALICE, many[:-1]))["more"] is False
