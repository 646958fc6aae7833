"""A gate with people who have personal access tokens, and their calls of `/account/tokens`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.parts.gate_bed import DIRECTORY, GateBed, gate_bed
from tests.parts.raw_engine import RawEngine
from tests.parts.redis_server import RedisServer

ALICE, BOB, CAROL, MALLORY = "u-alice-0001", "u-bob-0002", "u-carol-0003", "u-mallory-0009"
ADMIN = "u-root-0000"
# Erin has her one project through a group alone.
PEOPLE = (
    DIRECTORY
    + """
[workspaces.initech]
issuer = "{issuer}"

[workspaces.initech.projects.tps]
members = ["group:cube"]
"""
)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """What was refused."""
        code: str = self.document["error"]["code"]
        return code


class Desk:
    """The account pages of a gate, as a program calls them."""

    def __init__(self, bed: GateBed) -> None:
        self.bed = bed

    def sign_in(self, subject: str = ALICE, groups: Sequence[str] = (), **claims: object) -> str:
        return self.bed.mint.token(subject=subject, groups=groups, **claims)  # type: ignore[arg-type]

    async def ask(
        self, method: str, path: str, credential: str | None, document: object = None, **headers: str
    ) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if credential is not None:
            sent["Authorization"] = f"Bearer {credential}"
        body = None
        if method == "POST":
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            sent.setdefault("Content-Type", "application/json")
        async with self.bed.session.request(method, self.bed.url + path, data=body, headers=sent) as answer:
            return Answer(answer.status, dict(answer.headers), await answer.read())

    async def make(self, credential: str | None = None, **wish: object) -> Answer:
        return await self.ask("POST", "/account/tokens", credential or self.sign_in(), {"name": "ci"} | wish)

    async def made(self, credential: str | None = None, **wish: object) -> str:
        """A new token's secret."""
        answer = await self.make(credential, **wish)
        assert answer.status == 201, answer.body
        token: str = answer.document["token"]
        return token

    async def listed(self, credential: str | None = None) -> list[dict[str, Any]]:
        answer = await self.ask("GET", "/account/tokens", credential or self.sign_in())
        assert answer.status == 200, answer.body
        tokens: list[dict[str, Any]] = answer.document["tokens"]
        return tokens

    async def revoke(self, token_id: str, credential: str | None = None) -> Answer:
        return await self.ask("POST", "/account/tokens/revoke", credential or self.sign_in(), {"id": token_id})

    async def models(self, credential: str, **headers: str) -> Answer:
        """A request that is served or refused by who asks and for what, without an engine."""
        return await self.ask("GET", "/v1/models", credential, **headers)

    async def until_refused(self, credential: str, **headers: str) -> Answer:
        async with asyncio.timeout(10):
            while (answer := await self.models(credential, **headers)).status == 200:
                await asyncio.sleep(0.005)
        return answer


APOLLO = {"OpenAI_Organization": "acme", "OpenAI_Project": "apollo"}


def id_of(token: str) -> str:
    return token[4:12]


@asynccontextmanager
async def desk(redis: RedisServer, folder: Path, **more: Any) -> AsyncIterator[Desk]:
    async with (
        RawEngine() as engine,
        gate_bed(
            more.pop("directory", redis.settings()),
            [engine.url],
            folder,
            proof="off",
            models=("tiny",),
            **({"document": PEOPLE} | more),
        ) as bed,
    ):
        yield Desk(bed)
