"""A front end's own credential of every kind: it lets in its people, never itself, and what limits it limits them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.account.tokens import Wish, new_token
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.directory.changes import end
from proxy.directory.connect import open_tokens
from proxy.directory.endings import Ending
from proxy.identity.personal_records import Owner
from tests.parts.assertions import HEADER, SERVICE, assertion, front
from tests.parts.dpop import DpopClient
from tests.parts.gate_bed import GateBed, gate_bed
from tests.parts.introspection_server import IntrospectionServer
from tests.parts.redis_server import RedisServer
from tests.proxy.test_fronts import DIRECTORY

pytestmark = pytest.mark.slow

CHAT = "http://gate.test/v1/chat/completions"
CLIENT = DpopClient()
KINDS = ("signed", "signed_dpop", "opaque", "opaque_dpop", "personal")
SESSION = "sid-of-the-front"

NONE: Mapping[str, str] = {}
ACME = {"OpenAI-Organization": "acme"}
APOLLO, HERMES, VAULT = ({"OpenAI-Project": name} for name in ("apollo", "hermes", "vault"))
GLOBEX = {"OpenAI-Organization": "globex"}


@dataclass(slots=True)
class Scene:
    bed: GateBed
    personal: str

    def credential(self, kind: str) -> dict[str, str]:
        match kind:
            case "signed":
                return {"Authorization": f"Bearer {self.bed.mint.token(SERVICE, groups=(), sid=SESSION)}"}
            case "signed_dpop":
                token = CLIENT.token(self.bed.mint, SERVICE, sid=SESSION)
                return {"Authorization": f"DPoP {token}", "DPoP": CLIENT.proof(token, CHAT)}
            case "opaque_dpop":
                return {"Authorization": "DPoP opaque-bound", "DPoP": CLIENT.proof("opaque-bound", CHAT)}
            case "opaque":
                return {"Authorization": "Bearer opaque-of-front"}
            case _:
                return {"Authorization": f"Bearer {self.personal}"}

    async def asked(self, kind: str, named: Mapping[str, str], person: str | None = "alice") -> tuple[int, str]:
        word = {} if person is None else {HEADER: assertion(person)}
        status, _, body = await self.bed.post(headers={**self.credential(kind), **named, **word})
        return status, "" if status == 200 else json.loads(body)["error"]["code"]


@asynccontextmanager
async def scene(redis: RedisServer, folder: Path) -> AsyncIterator[Scene]:
    """The front's personal access token is limited to one project."""
    async with (
        IntrospectionServer() as server,
        Simulator(EngineShape(pace=AT_ONCE, answer_tokens=2)) as engine,
        gate_bed(
            redis.settings(),
            [engine.url],
            folder,
            document=DIRECTORY,
            fronts=[front()],
            introspection=server.issuer().introspection,
        ) as bed,
    ):
        server.active["opaque-of-front"] = server.claims(SERVICE, sid=SESSION)
        server.active["opaque-bound"] = server.claims(SERVICE, sid=SESSION, cnf={"jkt": CLIENT.thumbprint})
        store = open_tokens(bed.settings.directory)
        made = new_token(Owner(bed.mint.issuer, SERVICE), Wish("ui", 3600, (("acme", "apollo"),)), now=time.time())
        await store.create(made.record, limit=5)
        await store.close()
        yield Scene(bed, made.token.text())


async def test_of_every_kind_it_lets_in_its_people_in_its_workspaces_and_never_itself(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with scene(redis, tmp_path) as at:
        for kind in KINDS:
            assert await at.asked(kind, ACME | APOLLO) == (200, ""), kind
            assert await at.asked(kind, ACME | APOLLO, person=None) == (401, "credential_required"), kind
            for named in (VAULT, GLOBEX, GLOBEX | VAULT):
                assert await at.asked(kind, named) == (403, "not_a_member"), (kind, named)


async def test_a_personal_access_token_limits_those_for_whom_it_is_shown_whatever_they_name(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with scene(redis, tmp_path) as at:
        for named in (NONE, ACME, APOLLO, ACME | APOLLO):  # also where nothing else would be the only choice
            assert await at.asked("personal", named) == (200, ""), named
        for named in (HERMES, ACME | HERMES):
            assert await at.asked("personal", named) == (403, "not_a_member"), named
            assert await at.asked("signed", named) == (200, ""), named


async def test_a_bound_one_that_is_stolen_lets_in_nobody(redis: RedisServer, tmp_path: Path) -> None:
    async with scene(redis, tmp_path) as at:
        headers = {"Authorization": "Bearer opaque-bound", HEADER: assertion("alice"), **ACME, **APOLLO}
        assert (await at.bed.post(headers=headers))[0] == 401


@pytest.mark.parametrize("kind", KINDS)
async def test_when_it_is_over_its_people_are_out_too(redis: RedisServer, tmp_path: Path, kind: str) -> None:
    async with scene(redis, tmp_path) as at:
        assert await at.asked(kind, ACME | APOLLO) == (200, "")
        now = int(time.time())  # after what is ended was issued
        endings = (
            Ending("session", at.bed.mint.issuer, SESSION, now, now + 3600),
            Ending("token", "", at.personal[4:12], now, now + 3600),
        )
        await at.bed.change(end(*endings))
        async with asyncio.timeout(5):
            while (refused := await at.asked(kind, ACME | APOLLO))[0] == 200:
                pass
        assert refused == (401, "invalid_token")


async def test_for_nobody_a_front_speaks_for_are_tokens_made(redis: RedisServer, tmp_path: Path) -> None:
    async with scene(redis, tmp_path) as at:
        for kind in ("signed", "opaque", "personal"):
            headers = {**at.credential(kind), HEADER: assertion("alice")}
            async with at.bed.session.post(
                at.bed.url + "/account/tokens", json={"name": "mine"}, headers=headers
            ) as answer:
                assert answer.status == 401
