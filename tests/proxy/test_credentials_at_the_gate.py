"""What counts as a credential at a whole gate, and whose it is: never that of somebody with nearly the same token."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from tests.parts.gate_bed import DIRECTORY, GateBed, chat, gate_bed
from tests.parts.redis_server import RedisServer

PEOPLE = ("u-alice-0001", "u-bob-0002", "u-dora-0005")
BORDERS = (
    DIRECTORY + '\n[workspaces.acme.projects.each]\nmembers = ["user:u-alice-0001", "user:u-bob-0002"]\nunit = "user"\n'
)
SCOPE = {"OpenAI-Organization": "acme", "OpenAI-Project": "each"}


@pytest.fixture
async def engine() -> AsyncIterator[Simulator]:
    async with Simulator(EngineShape(pace=AT_ONCE, answer_tokens=2)) as running:
        yield running


@pytest.fixture
async def bed(redis: RedisServer, tmp_path: Path, engine: Simulator) -> AsyncIterator[GateBed]:
    async with gate_bed(redis.settings(), [engine.url], tmp_path, document=BORDERS) as running:
        yield running


def filled(bed: GateBed, subject: str) -> str:
    """A token of 16 KiB that says who its owner is at its very end."""
    claims: dict[str, object] = {"a": "x" * 11_000, "iss": bed.mint.issuer, "aud": "saltgate"}
    claims |= {"exp": int(time.time()) + 300, "sub": subject}
    header = {"alg": "RS256", "typ": "at+jwt", "kid": bed.mint.key("RS256").key_id}
    return bed.mint.key("RS256").sign(json.dumps(header).encode(), json.dumps(claims).encode())


async def test_two_tokens_with_a_long_common_beginning_never_share_an_identity(bed: GateBed, engine: Simulator) -> None:
    tokens = {subject: filled(bed, subject) for subject in PEOPLE}
    assert len({token[:14_000] for token in tokens.values()}) == 1
    salts: dict[str, set[str | None]] = {subject: set() for subject in PEOPLE}
    for _ in range(3):
        for subject, token in tokens.items():
            status, _, _ = await bed.post(headers=SCOPE | {"Authorization": f"Bearer {token}"})
            assert status == (403 if subject == "u-dora-0005" else 200)
            if status == 200:
                salts[subject].add(engine.last.salt)
    assert [len(each) for each in salts.values()] == [1, 1, 0]
    assert salts["u-alice-0001"] != salts["u-bob-0002"]


async def test_a_verified_token_with_another_end_is_nobodys(bed: GateBed) -> None:
    token = filled(bed, "u-alice-0001")
    assert (await bed.post(headers=SCOPE | {"Authorization": f"Bearer {token}"}))[0] == 200
    for other in (token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB"), token[:-1], token + "A"):
        assert (await bed.post(headers=SCOPE | {"Authorization": f"Bearer {other}"}))[0] == 401


@pytest.mark.parametrize("name", ["access_token", "api_key", "key", "api-key", "Authorization"])
async def test_no_token_in_a_query_or_a_body_or_a_cookie_is_a_credential(bed: GateBed, name: str) -> None:
    token = bed.token()
    cookie = SCOPE | {"Cookie": f"{name}={token}; __Host-saltgate={token}"}
    assert await code(bed, cookie) == "credential_required"
    assert await code(bed, SCOPE, query=f"?{name}={token}") == "credential_required"
    assert await code(bed, SCOPE, document=chat() | {name: token}) == "credential_required"


async def code(bed: GateBed, headers: Mapping[str, str], *, query: str = "", document: object = None) -> str:
    _, _, body = await bed.post("/v1/chat/completions" + query, document, headers)
    told: str = json.loads(body)["error"]["code"]
    return told
