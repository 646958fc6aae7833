"""Contract sections 5 and 6 on a whole gate: a real Redis, a real issuer, the engine simulator, real sockets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from yarl import URL

from config.secret import Secret
from config.settings import Directory, Isolation, IsolationKey, Public, Timeouts
from proxy.demo.simulator import AT_ONCE, EngineShape, Fault, FaultKind, Simulator
from proxy.directory.changes import Change, block, grant, revoke
from proxy.directory.model import user
from proxy.directory.redis_store import GENERATION, RING
from proxy.isolation.unit import ProjectUnit, WorkspaceUnit
from tests.parts.gate_bed import DIRECTORY, KEY, GateBed, chat, gate_bed
from tests.parts.gone_client import GoneClient, post
from tests.parts.redis_server import RedisServer
from tests.parts.scraped import values_of

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
ALICE, BOB, CAROL, MALLORY = "u-alice-0001", "u-bob-0002", "u-carol-0003", "u-mallory-0009"
SHAPE = EngineShape(models=("tiny",), adapters={"org/lora": "tiny"}, pace=AT_ONCE, answer_tokens=4)

PEOPLE = (
    DIRECTORY
    + """
[workspaces.initech]
issuer = "{issuer}"
unit = "workspace"

[workspaces.initech.projects.tps]
members = ["user:u-peter-0004"]
team = "cube"
models = ["tiny", "org/lora", "gone"]
model_units = {{ "org/lora" = "user" }}

[workspaces.initech.projects.y2k]
members = ["user:u-peter-0004"]
models = ["org/lora"]

[workspaces.initech.teams.cube]
members = []

[workspaces.initech.collections.memos]
projects = ["tps"]
"""
)


@asynccontextmanager
async def bed_and_engine(
    redis: RedisServer, folder: Path, *, shape: EngineShape = SHAPE, document: str = PEOPLE, **more: object
) -> AsyncIterator[tuple[GateBed, Simulator]]:
    async with (
        Simulator(shape) as engine,
        gate_bed(redis.settings(), [engine.url], folder, document=document, **more) as bed,  # type: ignore[arg-type]
    ):
        engine.requests.clear()
        yield bed, engine


def named(bed: GateBed, subject: str = ALICE, **headers: str) -> dict[str, str]:
    """Headers with a token, and what else is given, underscores for hyphens."""
    return {"Authorization": f"Bearer {bed.token(subject)}"} | {k.replace("_", "-"): v for k, v in headers.items()}


def error(body: bytes) -> dict[str, object]:
    found = json.loads(body)["error"]
    assert isinstance(found, dict)
    return found


async def salt_of(
    bed: GateBed, engine: Simulator, headers: Mapping[str, str], path: str = CHAT, *, model: str = "tiny"
) -> str:
    """The salt that the engine got for one small request."""
    engine.requests.clear()
    status, _, answer = await bed.post(path, chat(model=model), headers)
    assert status == 200, answer
    (received,) = engine.requests
    assert received.salt is not None
    return received.salt


async def refused(
    bed: GateBed, engine: Simulator, headers: Mapping[str, str], path: str = CHAT, document: object = None
) -> tuple[int, object]:
    """The status and code of a refusal, of which the engine has heard nothing."""
    engine.requests.clear()
    status, answered, body = await bed.post(path, document, headers)
    assert not engine.requests
    assert answered["X-Request-Id"].startswith("req_")
    assert answered["Content-Type"] == "application/json"
    return status, error(body)["code"]


# Scope.


async def test_a_scope_is_named_by_headers_by_the_path_or_not_at_all(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        salt = await salt_of(bed, engine, bed.headers())
        both = {"OpenAI_Organization": "acme", "OpenAI_Project": "apollo"}
        assert salt == await salt_of(bed, engine, named(bed), "/w/acme/p/apollo/v1/chat/completions")
        assert salt == await salt_of(bed, engine, named(bed, **both), "/w/acme/p/apollo/v1/chat/completions")
        assert salt == await salt_of(bed, engine, named(bed, OpenAI_Project="apollo"))
        own = await salt_of(bed, engine, named(bed, BOB))  # his only membership
        assert own == await salt_of(bed, engine, bed.headers(BOB, "hermes"))
        assert own == await salt_of(bed, engine, named(bed, BOB, OpenAI_Organization="acme"))
        assert own != salt
        team = named(bed, CAROL, OpenAI_Organization="acme", OpenAI_Project="ares")  # a member by the team
        assert await salt_of(bed, engine, team) == await salt_of(bed, engine, bed.headers(ALICE, "ares"))
        group = {**bed.headers(), "Authorization": f"Bearer {bed.token('u-new', groups=['eng'])}"}
        assert salt == await salt_of(bed, engine, group)


async def test_several_memberships_and_none_named_is_told_with_the_callers_own(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        status, _, body = await bed.post(CHAT, None, named(bed))
        assert (status, error(body)["code"]) == (400, "scope_required")
        message = str(error(body)["message"])
        assert "acme/apollo" in message
        assert "acme/ares" in message
        assert not {"hermes", "globex", "initech"} & set(message.replace("/", " ").replace(",", " ").split())
        assert not engine.requests


async def test_a_scope_said_doubtfully_is_refused(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        path = "/w/acme/p/apollo/v1/chat/completions"
        assert await refused(bed, engine, named(bed, OpenAI_Project="ares"), path) == (400, "invalid_request")
        assert await refused(bed, engine, named(bed, OpenAI_Organization="globex"), path) == (400, "invalid_request")
        both = named(bed, OpenAI_Project="apollo", X_Saltgate_Unit="user", X_Saltgate_Collection="handbook")
        assert await refused(bed, engine, both) == (400, "invalid_request")
        assert await refused(bed, engine, named(bed, X_Saltgate_Unit="galaxy")) == (400, "invalid_request")
        twice = post(CHAT, chat(), {**bed.headers(), "openai-project": "ares"})
        async with GoneClient(bed.port) as client:
            await client.send(twice)
            answer = await client.read_answer()
        assert (answer.status, error(answer.body)["code"]) == (400, "invalid_request")
        assert not engine.requests


async def test_of_what_was_refused_is_told_what_was_asked_for_and_no_metric_has_a_model_of_nobodys(
    redis: RedisServer, tmp_path: Path
) -> None:
    cases = [
        ("no-such", "acme", "model_not_allowed"),
        ("what is salt?", "acme", "model_not_allowed"),
        ("gone", "initech", "model_not_found"),
        ("tiny", "acme", "invalid_request"),
    ]
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        callers = {"acme": bed.headers(), "initech": bed.headers("u-peter-0004", "tps", "initech")}
        for model, workspace, code in cases:
            document = chat(stream=True) | {"model": model, "n": "none"}
            status, _, body = await bed.post(CHAT, document, callers[workspace])
            assert error(body)["code"] == code, (status, body)
        told = [
            {name: line.get(name) for name in ("code", "model", "requested_model", "operation", "stream")}
            for line in await bed.completed(len(cases))
        ]
        asked = {"operation": "chat", "stream": True}
        texts = ("no-such", None, "gone")
        assert told == [
            *(
                {"code": code, "model": None, "requested_model": text, **asked}
                for text, (_, _, code) in zip(texts, cases[:3], strict=True)
            ),
            {"code": "invalid_request", "model": "tiny", "requested_model": None, **asked},
        ]
        assert {labels[2] for labels in values_of(bed.gate.metrics, "saltgate_requests_total")} == {"", "tiny"}
        assert not engine.requests


async def test_nobody_learns_which_workspaces_projects_collections_and_models_there_are(
    redis: RedisServer, tmp_path: Path
) -> None:
    """The whole answer is the same, but for the request's id, its timing and the date."""

    async def seen(headers: Mapping[str, str], path: str = CHAT, model: str = "tiny") -> tuple[object, ...]:
        status, answered, body = await bed.post(path, chat() | {"model": model}, headers)
        shown = {
            k.lower(): v for k, v in answered.items() if k.lower() not in ("x-request-id", "server-timing", "date")
        }
        return status, tuple(shown.items()), body

    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        scopes = [
            ("acme", "hermes"),  # there, and another's
            ("acme", "nowhere"),
            ("globex", "vault"),  # another workspace's
            ("globex", "nowhere"),
            ("nowhere", "apollo"),
            ("nowhere", "nowhere"),
            ("Acme", "apollo"),  # could be no name
            ("acme", "apollo/../hermes"),
            ("ac me", "apollo"),
            ("acme", "a" * 300),
        ]
        answers = {await seen(bed.headers(ALICE, project, workspace)) for workspace, project in scopes}
        answers |= {await seen(named(bed, OpenAI_Project=project)) for project in ("hermes", "vault", "nowhere")}
        answers |= {await seen(named(bed, OpenAI_Organization=workspace)) for workspace in ("globex", "nowhere")}
        answers |= {await seen(named(bed), f"/w/{w}/p/{p}{CHAT}") for w, p in (("acme", "hermes"), ("no", "no"))}
        answers |= {await seen(named(bed), f"/w/%61cme/p/apollo{CHAT}")}  # compared as sent
        answers |= {await seen(named(bed, "u-nobody", OpenAI_Project="apollo")), await seen(named(bed, "u-nobody"))}
        for collection in ("nowhere", "memos", "../handbook"):
            answers.add(await seen({**bed.headers(), "X-Saltgate-Collection": collection}))
        answers.add(await seen({**bed.headers(BOB, "hermes"), "X-Saltgate-Collection": "handbook"}))
        assert len(answers) == 1, answers
        ((status, _, body),) = answers
        assert (status, error(body)["code"]) == (403, "not_a_member")  # type: ignore[arg-type]

        models = {await seen(bed.headers(), model=model) for model in ("org/lora", "gone", "no-such")}
        models.add(await seen(bed.headers("u-peter-0004", "y2k", "initech"), model="tiny"))
        models.add(await seen(bed.headers("u-peter-0004", "y2k", "initech"), model="no-such"))
        assert len(models) == 1, models
        ((status, _, body),) = models
        assert (status, error(body)["code"]) == (403, "model_not_allowed")  # type: ignore[arg-type]
        assert not engine.requests


# Border.


async def test_the_border_is_the_models_else_the_projects_else_the_workspaces_else_the_deployments(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        apollo, ares = bed.headers(ALICE), bed.headers(ALICE, "ares")
        assert await salt_of(bed, engine, apollo) != await salt_of(bed, engine, ares)  # the deployment's: project
        assert await salt_of(bed, engine, apollo) == await salt_of(bed, engine, bed.headers(CAROL))
        tps, y2k = (bed.headers("u-peter-0004", project, "initech") for project in ("tps", "y2k"))
        by_workspace = await salt_of(bed, engine, tps)
        assert by_workspace == await salt_of(bed, engine, y2k, model="org/lora")  # the workspace's
        assert by_workspace != await salt_of(bed, engine, tps, model="org/lora")  # the model's: user
        records = await bed.completed(7)
        assert [line["unit"] for line in records[-3:]] == ["workspace:initech"] * 2 + ["user:initech/tps"]


async def test_a_caller_narrows_his_border_and_never_widens_it(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        peter = bed.headers("u-peter-0004", "tps", "initech")
        units = ("workspace", "team", "project", "user")
        salts = [await salt_of(bed, engine, peter | {"X-Saltgate-Unit": unit}) for unit in units]
        assert len(set(salts)) == 4
        assert salts[0] == await salt_of(bed, engine, peter)
        wider = peter | {"X-Saltgate-Unit": "deployment"}
        assert await refused(bed, engine, wider) == (403, "unit_too_wide")
        for unit in ("deployment", "workspace", "team"):
            assert await refused(bed, engine, bed.headers() | {"X-Saltgate-Unit": unit}) == (403, "unit_too_wide")
        # Bob's border is the user.
        for unit in ("project", "workspace"):
            wider = bed.headers(BOB, "hermes") | {"X-Saltgate-Unit": unit}
            assert await refused(bed, engine, wider) == (403, "unit_too_wide")


async def test_a_collection_joins_the_projects_that_it_lists(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        handbook = {"X-Saltgate-Collection": "handbook"}
        shared = await salt_of(bed, engine, bed.headers() | handbook)
        assert shared == await salt_of(bed, engine, bed.headers(CAROL, "ares") | handbook)
        assert shared != await salt_of(bed, engine, bed.headers())
        memos = bed.headers("u-peter-0004", "tps", "initech") | {"X-Saltgate-Collection": "memos"}
        assert await salt_of(bed, engine, memos) != await salt_of(
            bed, engine, bed.headers("u-peter-0004", "tps", "initech")
        )
        body = chat(model="org/lora")  # whose border is the user
        assert await refused(bed, engine, memos, document=body) == (403, "unit_too_wide")


# Endpoints and headers.


async def test_every_endpoint_carries_the_scopes_salt(redis: RedisServer, tmp_path: Path) -> None:
    documents: dict[str, object] = {
        CHAT: chat(),
        "/v1/completions": {"model": "tiny", "prompt": "Hello"},
        "/v1/responses": {"model": "tiny", "input": "Hello"},
        MESSAGES: chat(max_tokens=4),
        "/v1/embeddings": {"model": "tiny", "input": "Hello"},
    }
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        for prefix in ("", "/w/acme/p/apollo"):
            for path, document in documents.items():
                status, _, body = await bed.post(prefix + path, document, bed.headers())
                assert status == 200, body
                assert engine.last.target == path
        assert {received.salt for received in engine.requests} == {await salt_of(bed, engine, bed.headers())}


async def test_the_engine_gets_our_headers_and_no_other(redis: RedisServer, tmp_path: Path) -> None:
    hostile = {
        "X-Request-Id": "client-id",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=1",
        "baggage": "user=1",
        "X-Cache-Salt": "mine",
        "cache_salt": "mine",
        "cache-salt": "mine",
        "x-tenant-id": "other",
        "x-user-id": "other",
        "X-Request-Priority": "0",
        "priority": "0",
        "X-data-parallel-rank": "1",
        "X-Session-ID": "s",
        "X-Forwarded-For": "192.0.2.1",
        "Forwarded": "for=192.0.2.1",
        "Cookie": "session=1",
        "X-Custom": "1",
        "User-Agent": "client/1",
        "Accept-Encoding": "gzip",
        "Accept": "application/x-msgpack",
        "OpenAI-Beta": "x",
        "anthropic-beta": "x",
        "Connection": "keep-alive, X-Request-Id, Authorization",
        "TE": "trailers",
        "x-http-method-override": "DELETE",
    }
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        for path in (CHAT, MESSAGES):
            status, answered, body = await bed.post(path, chat(max_tokens=4), bed.headers() | hostile)
            assert status == 200, body
            names = [name.decode().lower() for name, _ in engine.last.headers]
            expected = ["host", "accept", "accept-encoding", "x-request-id", "traceparent", "content-type"]
            assert names == [*expected, "content-length"]
            assert engine.last.header("x-request-id") == [answered["X-Request-Id"].encode()]
            assert engine.last.header("accept-encoding") == [b"identity"]
            assert hostile["traceparent"][3:35].encode() not in engine.last.header("traceparent")[0]
            assert engine.last.header("host") == [engine.url.removeprefix("http://").encode()]
            sent = b"".join(name + value for name, value in engine.last.headers) + engine.last.body
            assert not any(value.encode() in sent for value in ("mine", "client-id", "192.0.2.1", "other", "vendor"))


async def test_the_engines_own_key_is_sent_and_never_the_clients(redis: RedisServer, tmp_path: Path) -> None:
    shape = replace(SHAPE, api_key="engine-key")
    async with bed_and_engine(redis, tmp_path, shape=shape, api_key=Secret(b"engine-key", "test")) as (bed, engine):
        status, _, _ = await bed.post()
        assert status == 200
        assert engine.last.header("authorization") == [b"Bearer engine-key"]


async def test_every_answer_has_our_request_id_and_the_gates_own_timing(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        _, answered, _ = await bed.post(CHAT, None, bed.headers() | {"X-Request-Id": "mine"})
        assert answered.getall("X-Request-Id") != ["mine"]  # type: ignore[attr-defined]
        assert answered["X-Request-Id"].startswith("req_")
        stages = [stage.partition(";dur=") for stage in answered["Server-Timing"].split(", ")]
        assert [name for name, _, _ in stages] == ["auth", "directory", "stamp"]
        assert all(float(duration) >= 0 for _, _, duration in stages)
        async with bed.session.post(bed.url + CHAT, json=chat(stream=True), headers=bed.headers()) as stream:
            assert stream.headers["X-Request-Id"].startswith("req_")
            assert "stamp;dur=" in stream.headers["Server-Timing"]
            assert "engine" not in str(stream.headers).lower()
            await stream.read()
        salt = engine.last.salt
        assert salt is not None
        assert salt not in f"{answered}{stream.headers}"


# Models.


async def test_the_model_list_is_what_the_scope_may_use(redis: RedisServer, tmp_path: Path) -> None:
    async def listed(headers: Mapping[str, str], prefix: str = "") -> list[str]:
        async with bed.session.get(f"{bed.url}{prefix}/v1/models", headers=headers) as answer:
            assert answer.status == 200
            document = await answer.json()
            assert document["object"] == "list"
            return [model["id"] for model in document["data"]]

    async def one(name: str, headers: Mapping[str, str]) -> tuple[int, object]:
        async with bed.session.get(f"{bed.url}/v1/models/{name}", headers=headers) as answer:
            document = await answer.json()
            return answer.status, document.get("id") or document["error"]["code"]

    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        alice = bed.headers()
        assert await listed(alice) == ["tiny"]  # no list: base models, no adapters
        assert await listed(named(bed), "/w/acme/p/apollo") == ["tiny"]
        tps, y2k = (bed.headers("u-peter-0004", project, "initech") for project in ("tps", "y2k"))
        assert sorted(await listed(tps)) == ["org/lora", "tiny"]  # "gone" is served by nobody
        assert await listed(y2k) == ["org/lora"]
        assert await one("tiny", alice) == (200, "tiny")
        assert await one("org/lora", y2k) == (200, "org/lora")
        assert await one("org%2Flora", y2k) == (200, "org/lora")
        assert await one("org/lora", alice) == await one("nothing", alice) == (403, "model_not_allowed")
        assert await one("tiny", y2k) == (403, "model_not_allowed")
        assert await one("gone", tps) == (404, "model_not_found")
        async with bed.session.get(bed.url + "/v1/models") as answer:
            assert answer.status == 401
        async with bed.session.get(bed.url + "/v1/models", headers=named(bed, "u-nobody")) as answer:
            assert answer.status == 403
        assert not engine.requests


async def test_while_no_engine_has_told_its_models_the_fault_is_ours(redis: RedisServer, tmp_path: Path) -> None:
    async with gate_bed(redis.settings(), ["http://127.0.0.1:9"], tmp_path, ready=False) as bed:
        await _until_admitted(bed)
        for path in ("/v1/models", "/v1/models/tiny"):
            async with bed.session.get(bed.url + path, headers=bed.headers()) as answer:
                assert (answer.status, error(await answer.read())["code"]) == (503, "engine_unavailable")
        status, answered, body = await bed.post()
        assert (status, error(body)["code"]) == (503, "engine_unavailable")
        assert answered["Retry-After"].isdigit()


# Refusals.


async def test_a_refusal_has_the_form_of_the_protocol_that_was_spoken(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, _):
        stranger = bed.headers(MALLORY)
        _, _, body = await bed.post(CHAT, None, stranger)
        document = json.loads(body)
        assert set(document) == {"error"}
        assert set(document["error"]) == {"message", "type", "code", "param"}
        assert document["error"]["type"] == "permission_error"
        _, _, body = await bed.post(MESSAGES, chat(max_tokens=1), stranger)
        document = json.loads(body)
        assert document["type"] == "error"
        assert document["error"]["type"] == "permission_error"
        assert document["error"]["code"] == "not_a_member"


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_missing_or_bad_credential_is_challenged_as_rfc_6750_and_rfc_9728_say(
    redis: RedisServer, tmp_path: Path, path: str
) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        metadata = 'resource_metadata="http://gate.test/.well-known/oauth-protected-resource"'
        now = int(time.time())
        tokens = {
            "": (401, "credential_required", None),
            "Basic YTpi": (401, "credential_required", None),
            "Bearer no.such.token": (401, "invalid_token", 'error="invalid_token"'),
            f"Bearer {bed.mint.token(iat=now - 7200, exp=now - 3600)}": (401, "token_expired", 'error="invalid_token"'),
            f"Bearer {bed.mint.token(audience='other')}": (401, "invalid_token", 'error="invalid_token"'),
        }
        for authorization, (status, code, challenge) in tokens.items():
            headers = {"Authorization": authorization} if authorization else {}
            got, answered, body = await bed.post(path, chat(max_tokens=1), headers)
            assert (got, error(body)["code"]) == (status, code)
            assert error(body)["type"] == "authentication_error"
            shown = answered["WWW-Authenticate"]
            assert shown.startswith("Bearer ")
            assert metadata in shown
            assert ("error=" in shown) == (challenge is not None)
            assert challenge is None or challenge in shown
            assert str(error(body)["message"]).endswith((".", ")"))
        assert not engine.requests


async def test_two_different_credentials_are_refused_and_equal_ones_are_one(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        headers = bed.headers()
        token = headers["Authorization"].removeprefix("Bearer ")
        assert (await bed.post(CHAT, None, headers | {"x-api-key": token}))[0] == 200
        assert (await bed.post(CHAT, None, {"api-key": token, "OpenAI-Project": "apollo"}))[0] == 200
        assert await refused(bed, engine, headers | {"x-api-key": bed.token(BOB)}) == (400, "invalid_request")


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_each_refusal_of_the_contract_that_a_caller_can_meet(
    redis: RedisServer, tmp_path: Path, path: str
) -> None:
    async with bed_and_engine(redis, tmp_path, public=Public(max_body=4096)) as (bed, engine):
        alice = bed.headers()
        tps = bed.headers("u-peter-0004", "tps", "initech")

        async def meets(status: int, code: str, headers: Mapping[str, str] = alice, document: object = None) -> str:
            got, answered, body = await bed.post(path, document or chat(max_tokens=1), headers)
            found = error(body)
            assert (got, found["code"]) == (status, code)
            assert ("Retry-After" in answered) == (status == 503)
            assert answered["Cache-Control"] == "no-store"
            return str(found["type"])

        anthropic = path == MESSAGES
        fault = "api_error" if anthropic else "server_error"
        overloaded = "overloaded_error" if anthropic else "server_error"
        wrong = {"model": "tiny", "messages": 1}
        assert await meets(400, "invalid_request", document=wrong) == "invalid_request_error"
        assert await meets(400, "scope_required", named(bed)) == "invalid_request_error"
        assert await meets(403, "model_not_allowed", document=chat(max_tokens=1, model="no")) == "permission_error"
        kind = await meets(404, "model_not_found", tps, chat(max_tokens=1, model="gone"))
        assert kind == ("not_found_error" if anthropic else "invalid_request_error")
        kind = await meets(413, "body_too_large", document=chat("x" * 5000, max_tokens=1))
        assert kind == ("request_too_large" if anthropic else "invalid_request_error")
        kind = await meets(415, "unsupported_media_type", alice | {"Content-Type": "text/plain"})
        assert kind == "invalid_request_error"
        assert not engine.requests
        engine.faults.add(Fault(FaultKind.STATUS_500))
        assert await meets(502, "engine_failed") == fault
        engine.faults.add(Fault(FaultKind.DIE_BEFORE_HEAD, times=3))
        assert await meets(502, "engine_failed") == fault
        engine.faults.clear()
        engine.faults.add(Fault(FaultKind.STATUS_503))
        assert await meets(503, "engine_busy") == overloaded
        bed.gate.entrance.draining = True
        assert await meets(503, "draining") == overloaded


async def test_what_is_no_endpoint_is_404_before_anybody_is_asked_who_he_is(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        assert await refused(bed, engine, {}, "/v1/nothing") == (404, "endpoint_not_allowed")
        assert await refused(bed, engine, {}, "/x/v1/messages") == (404, "endpoint_not_allowed")
        for path in ("/metrics", "/v1/models/", "/v1//models"):
            async with bed.session.get(URL(bed.url + path, encoded=True)) as answer:
                assert (answer.status, error(await answer.read())["code"]) == (404, "endpoint_not_allowed")


async def test_an_engine_that_does_not_answer_in_time_is_504(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path, timeouts=Timeouts(first_byte=0.2)) as (bed, engine):
        engine.faults.add(Fault(FaultKind.HANG))
        status, _, body = await bed.post()
        assert (status, error(body)["code"], error(body)["type"]) == (504, "engine_timeout", "server_error")


async def test_where_the_issuer_was_never_reached_it_is_503_and_no_401(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path, ready=False, issuer_answers=False) as (bed, engine):
        for path in (CHAT, MESSAGES):
            assert await refused(bed, engine, bed.headers(), path) == (503, "issuer_unavailable")
        assert "issuers" in bed.gate.waits_for()


async def test_a_directory_that_was_never_read_is_503_and_no_403(tmp_path: Path) -> None:
    nowhere = Directory(redis="redis://127.0.0.1:9/0")
    async with Simulator(SHAPE) as engine, gate_bed(nowhere, [engine.url], tmp_path, ready=False, filled=False) as bed:
        async with asyncio.timeout(15):
            while "issuers" in bed.gate.waits_for():
                await asyncio.sleep(0.01)
        engine.requests.clear()
        status, answered, body = await bed.post()
        assert (status, error(body)["code"]) == (503, "directory_unavailable")
        assert answered["Retry-After"].isdigit()
        assert not [received for received in engine.requests if b"Hello" in received.body]


@pytest.mark.slow
async def test_while_the_directory_is_away_known_memberships_serve(own_redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(own_redis, tmp_path) as (bed, _):
        own_redis.stop()
        async with asyncio.timeout(15):
            while not bed.gate.view.away:
                await asyncio.sleep(0.02)
        assert (await bed.post())[0] == 200
        assert (await bed.post(CHAT, None, bed.headers(MALLORY)))[0] == 403
        own_redis.start()


@pytest.mark.slow
async def test_a_stale_directory_is_503_with_a_retry(own_redis: RedisServer, tmp_path: Path) -> None:
    directory = own_redis.settings(max_stale=1.5)
    async with Simulator(SHAPE) as engine, gate_bed(directory, [engine.url], tmp_path) as bed:
        own_redis.stop()
        body = await _until_status(bed, 503)
        assert error(body)["code"] == "directory_unavailable"
        own_redis.start()
        await _until_status(bed, 200)


@pytest.mark.slow
async def test_a_ring_that_is_missing_or_names_a_key_that_is_not_configured_is_503(
    redis: RedisServer, tmp_path: Path
) -> None:
    keys = (IsolationKey(id="k1", secret=KEY), IsolationKey(id="k2", secret=Secret(b"2" * 32, "test")))
    async with bed_and_engine(redis, tmp_path, isolation=Isolation(keys=keys)) as (bed, engine):
        redis.command("HSET", RING, "first_key", "k9")
        redis.command("INCR", GENERATION)
        assert error(await _until_status(bed, 503))["code"] == "salt_unavailable"
        assert bed.gate.waits_for() == ("keys",)
        redis.command("HSET", RING, "first_key", "k2")
        redis.command("INCR", GENERATION)
        await _until_status(bed, 200)
        assert bed.gate.waits_for() == ()
        assert engine.last.salt is not None
        assert engine.last.salt.startswith("sg1-k2-")
        redis.command("DEL", RING)
        redis.command("INCR", GENERATION)
        assert error(await _until_status(bed, 503))["code"] == "salt_unavailable"
        assert await refused(bed, engine, bed.headers()) == (503, "salt_unavailable")


# Changes.


async def test_a_revoked_or_blocked_person_is_refused_within_a_second(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, _):
        assert (await bed.post(CHAT, None, bed.headers(BOB, "hermes")))[0] == 200
        await bed.change(revoke("acme", "hermes", user(BOB)))
        assert error(await _until_status(bed, 403, bed.headers(BOB, "hermes")))["code"] == "not_a_member"
        await bed.change(grant("acme", "hermes", user(BOB)))
        await _until_status(bed, 200, bed.headers(BOB, "hermes"))
        await bed.change(block(bed.mint.issuer, user(BOB)))
        assert error(await _until_status(bed, 403, bed.headers(BOB, "hermes")))["code"] == "blocked"


async def test_a_membership_revoked_while_the_body_is_on_its_way_counts(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        whole = post(CHAT, chat(), bed.headers(BOB, "hermes"))
        async with GoneClient(bed.port) as client:
            await client.send(whole[:-10])
            await asyncio.sleep(0.2)  # admitted, and its body read as far as it goes
            await bed.change(revoke("acme", "hermes", user(BOB)))
            await _until_status(bed, 403, bed.headers(BOB, "hermes"))
            engine.requests.clear()
            await client.send(whole[-10:])
            answer = await client.read_answer()
        assert (answer.status, error(answer.body)["code"]) == (403, "not_a_member")
        assert not engine.requests


async def test_a_raised_epoch_changes_the_salt_of_the_next_request(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        salts = [await salt_of(bed, engine, bed.headers())]
        for unit in (ProjectUnit("acme", "apollo"), WorkspaceUnit("acme")):
            await bed.change(lambda _, unit=unit: Change(raises=(unit,)))  # type: ignore[misc]
            async with asyncio.timeout(10):
                while (salt := await salt_of(bed, engine, bed.headers())) == salts[-1]:
                    await asyncio.sleep(0.02)
            salts.append(salt)
        assert len(set(salts)) == 3


async def test_a_raise_while_the_body_is_on_its_way_counts(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):
        old = await salt_of(bed, engine, bed.headers())
        whole = post(CHAT, chat(), bed.headers())
        async with GoneClient(bed.port) as client:
            await client.send(whole[:-10])
            await asyncio.sleep(0.2)
            await bed.change(lambda _: Change(raises=(ProjectUnit("acme", "apollo"),)))
            async with asyncio.timeout(10):
                while await salt_of(bed, engine, bed.headers()) == old:
                    await asyncio.sleep(0.02)
            engine.requests.clear()
            await client.send(whole[-10:])
            assert (await client.read_answer()).status == 200
        assert engine.last.salt != old


# Own pages.


async def test_the_resource_metadata_name_the_issuers_and_our_own_address(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, _):
        for suffix in ("", "/v1", "/w/acme/p/apollo/v1"):
            url = f"{bed.url}/.well-known/oauth-protected-resource{suffix}"
            async with bed.session.get(url, headers={"Host": "evil.example"}) as answer:
                assert answer.status == 200
                assert await answer.json() == {
                    "resource": f"http://gate.test{suffix}",
                    "resource_name": "saltgate",
                    "authorization_servers": [bed.mint.issuer],
                    "bearer_methods_supported": ["header"],
                    "dpop_signing_alg_values_supported": ["ES256", "Ed25519", "EdDSA"],
                    "tls_client_certificate_bound_access_tokens": False,
                }


async def test_a_failure_of_ours_is_500_and_quotes_nothing(redis: RedisServer, tmp_path: Path) -> None:
    async with bed_and_engine(redis, tmp_path) as (bed, engine):

        class Broken:
            def current(self) -> object:
                raise RuntimeError("secret-detail")

        bed.gate.gateway.admissions.directory = Broken()  # type: ignore[assignment]
        assert await _status_and_code(bed) == (500, "gate_error")
        assert [line["outcome"] for line in await bed.completed(1)] == ["gate_error"]
        assert "secret-detail" not in bed.log.read_text()
        assert not engine.requests


async def _status_and_code(bed: GateBed) -> tuple[int, object]:
    status, answered, body = await bed.post()
    assert answered["Content-Type"] == "application/json"
    return status, error(body)["code"]


async def _until_status(bed: GateBed, status: int, headers: Mapping[str, str] | None = None) -> bytes:
    async with asyncio.timeout(15):
        while True:
            got, _, body = await bed.post(CHAT, None, headers)
            if got == status:
                return body
            await asyncio.sleep(0.02)


async def _until_admitted(bed: GateBed) -> None:
    async with asyncio.timeout(15):
        while "directory" in bed.gate.waits_for() or "issuers" in bed.gate.waits_for():
            await asyncio.sleep(0.01)
