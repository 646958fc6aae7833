"""A chat front end through a whole gate: each of its people has his own border; what it forwards goes no further."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.directory.changes import block
from proxy.directory.model import user
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import ProjectUnit, UserUnit
from tests.parts.assertions import HEADER, SERVICE, assertion, front
from tests.parts.gate_bed import BASE_EPOCH, KEY, GateBed, gate_bed
from tests.parts.redis_server import RedisServer
from tests.parts.wire_tap import WireTap

pytestmark = pytest.mark.slow

DIRECTORY = """
[workspaces.acme]
issuer = "{issuer}"
[workspaces.acme.projects.apollo]
members = ["user:front:webui/alice", "user:front:webui/bob", "user:service-account-webui"]
[workspaces.acme.projects.hermes]
members = ["user:front:webui/alice", "user:front:webui/bob", "user:alice"]
unit = "user"
[workspaces.globex]
issuer = "{issuer}"
[workspaces.globex.projects.vault]
members = ["user:front:webui/alice"]
"""


@pytest.fixture
async def engine() -> AsyncIterator[Simulator]:
    async with Simulator(EngineShape(pace=AT_ONCE, answer_tokens=2)) as running:
        yield running


@pytest.fixture
async def bed(redis: RedisServer, tmp_path: Path, engine: Simulator) -> AsyncIterator[GateBed]:
    async with gate_bed(redis.settings(), [engine.url], tmp_path, document=DIRECTORY, fronts=[front()]) as running:
        yield running


def as_front(bed: GateBed, person: str | None = "alice", project: str = "apollo", **more: str) -> dict[str, str]:
    asserted = {} if person is None else {HEADER: assertion(person)}
    return bed.headers(SERVICE, project) | asserted | more


async def asked(bed: GateBed, headers: dict[str, str]) -> tuple[int, bytes]:
    status, _, body = await bed.post(headers=headers)
    return status, body


async def test_people_of_one_project_share_its_border_and_where_it_is_each_persons_they_do_not(
    bed: GateBed, engine: Simulator
) -> None:
    salts: dict[tuple[str, str], str | None] = {}
    for project in ("apollo", "hermes"):
        for person in ("alice", "bob"):
            assert (await asked(bed, as_front(bed, person, project)))[0] == 200
            salts[project, person] = engine.last.salt
    key = SaltKey("k1", KEY.value)
    shared = salt_for(ProjectUnit("acme", "apollo"), epoch=BASE_EPOCH, key=key).value
    assert salts["apollo", "alice"] == salts["apollo", "bob"] == shared
    alices = UserUnit("acme", "hermes", bed.mint.issuer, "front:webui/alice")
    assert salts["hermes", "alice"] == salt_for(alices, epoch=BASE_EPOCH, key=key).value
    assert salts["hermes", "alice"] != salts["hermes", "bob"]


async def test_the_issuers_own_alice_is_another_person(bed: GateBed, engine: Simulator) -> None:
    assert (await asked(bed, as_front(bed, "alice", "hermes")))[0] == 200
    behind_the_front = engine.last.salt
    assert (await asked(bed, bed.headers("alice", "hermes")))[0] == 200
    assert engine.last.salt != behind_the_front


@pytest.mark.parametrize("subject", ["front:webui/alice", "front:webui/bob", "front:"])
async def test_a_token_whose_subject_is_spelt_like_a_fronts_person_is_refused(bed: GateBed, subject: str) -> None:
    """At some issuers people choose their own names: `front:webui/alice` is none that one of them can have."""
    for more in ({}, {HEADER: assertion("alice")}):
        status, body = await asked(bed, bed.headers(subject) | more)
        assert (status, b'"invalid_token"' in body) == (401, True)


async def test_a_front_acts_only_in_its_workspaces_also_where_its_people_are_members(bed: GateBed) -> None:
    elsewhere = as_front(bed, "alice", "vault") | {"OpenAI-Organization": "globex"}
    nowhere = as_front(bed, "alice", "vault") | {"OpenAI-Organization": "nowhere"}
    refused = await asked(bed, elsewhere)
    assert refused[0] == 403
    assert refused == await asked(bed, nowhere)


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"X-OpenWebUI-User-Id": "alice", "X-OpenWebUI-User-Email": "a@b.test", "X-OpenWebUI-User-Role": "admin"},
        {"X-Forwarded-User": "alice", "X-Remote-User": "alice", "X-Forwarded-Email": "a@b.test"},
        {HEADER: "alice"},
        {HEADER: "eyJhbGciOiJub25lIn0.eyJpc3MiOiJvcGVuLXdlYnVpIiwic3ViIjoiYWxpY2UifQ.AAAA"},
    ],
)
async def test_a_front_is_nobody_without_its_signed_word_though_it_is_a_member_itself(
    bed: GateBed, engine: Simulator, forged: dict[str, str]
) -> None:
    engine.requests.clear()
    status, body = await asked(bed, as_front(bed, None) | forged)
    assert status == 401
    assert b"operator" in body
    assert not engine.requests


async def test_a_signed_word_without_the_fronts_own_credential_is_worth_nothing(bed: GateBed) -> None:
    named = {"OpenAI-Organization": "acme", "OpenAI-Project": "apollo"}
    word = assertion("alice")
    assert (await asked(bed, named | {HEADER: word}))[0] == 401
    for credential in ({"Authorization": f"Bearer {word}"}, {"x-api-key": word}):
        assert (await asked(bed, named | {HEADER: word} | credential))[0] == 401
    # Somebody else's credential with it is his own.
    assert (await asked(bed, bed.headers("u-mallory-0009") | {HEADER: word}))[0] == 403


async def test_an_assertion_that_is_too_old_is_refused(bed: GateBed) -> None:
    old = {HEADER: assertion("alice", iat=1_000_000_000, exp=9_000_000_000)}
    assert (await asked(bed, as_front(bed) | old))[0] == 401


async def test_whoever_blocks_the_person_or_the_front_stops_him(bed: GateBed) -> None:
    assert (await asked(bed, as_front(bed)))[0] == 200
    await bed.change(block(bed.mint.issuer, user("front:webui/alice")))
    await until(bed, as_front(bed), 403)
    assert (await asked(bed, as_front(bed, "bob")))[0] == 200
    await bed.change(block(bed.mint.issuer, user(SERVICE)))
    await until(bed, as_front(bed, "bob"), 403)


async def until(bed: GateBed, headers: dict[str, str], status: int) -> None:
    for _ in range(300):
        if (await asked(bed, headers))[0] == status:
            return
    raise AssertionError("the block did not come into force")


async def test_nothing_that_a_front_forwards_of_its_people_reaches_the_engine(
    redis: RedisServer, tmp_path: Path, engine: Simulator
) -> None:
    forwarded = {
        "Cookie": "token=session-jwt; oauth_id_token=eyJ.id.token",
        "X-OpenWebUI-User-Id": "u-1",
        "X-OpenWebUI-User-Name": "Alice",
        "X-OpenWebUI-User-Email": "alice@example.test",
        "X-OpenWebUI-User-Role": "admin",
        "X-OpenWebUI-Chat-Id": "chat-77",
        "X-Forwarded-User": "alice",
        "X-Forwarded-For": "192.0.2.7",
        "Forwarded": "for=192.0.2.7",
    }
    async with (
        WireTap(engine.url) as tap,
        gate_bed(redis.settings(), [tap.url], tmp_path, document=DIRECTORY, fronts=[front()]) as bed,
    ):
        assert (await asked(bed, as_front(bed) | forwarded))[0] == 200
        sent = tap.posts[-1].headers
        assert {name.lower() for name in sent} <= {
            *(b"host", b"content-type", b"content-length", b"accept", b"accept-encoding"),
            *(b"x-request-id", b"traceparent", b"user-agent", b"connection"),
        }
        tap.check()


async def test_the_log_says_which_front_spoke_and_never_for_whom(bed: GateBed) -> None:
    assert (await asked(bed, as_front(bed)))[0] == 200
    (line,) = await bed.completed(1)
    assert (line["client"], line["auth_method"]) == ("front:webui", "front")
    assert "alice" not in bed.log.read_text()
