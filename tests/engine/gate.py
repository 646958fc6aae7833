"""saltgate in front of the real vLLM: who there is to ask, and how they ask."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import aiohttp

from config.secret import Secret
from config.settings import Directory, Isolation, IsolationKey, Telemetry, UnitName
from proxy.isolation.salt import SaltKey, salt_for
from proxy.isolation.unit import Unit
from tests.engine.client import EngineClient, Vllm
from tests.engine.endpoints import Endpoint, Json, Usage
from tests.engine.server import BLOCK_TOKENS
from tests.parts.gate_bed import BASE_EPOCH, KEY, GateBed, gate_bed

MEDIUM_LINES: Final = 170
LONG_LINES: Final = 445
"""Of `fresh_prompt`: some 2,300 and 6,100 tokens, the two prompts of the published table."""

_DIRECTORY: Final = """
[workspaces.acme]
issuer = "{issuer}"

[workspaces.acme.projects.apollo]
members = ["user:u-alice-0001"]
team = "red"

[workspaces.acme.projects.ares]
members = ["user:u-alice-0001"]
team = "red"

[workspaces.acme.projects.hermes]
members = ["user:u-bob-0002", "user:u-dave-0004"]
unit = "user"

[workspaces.acme.projects.athena]
team = "blue"
unit = "team"

[workspaces.acme.projects.hera]
team = "blue"
unit = "team"

[workspaces.acme.projects.zeus]
team = "red"
unit = "team"

[workspaces.acme.teams.red]
members = ["user:u-carol-0003"]

[workspaces.acme.teams.blue]
members = ["user:u-erin-0005", "user:u-frank-0006"]

[workspaces.acme.collections.handbook]
projects = ["apollo", "ares"]

[workspaces.acme.projects.janus]
members = ["user:u-alice-0001", "user:u-bob-0002"]
model_units = {{ tiny = "user" }}

[workspaces.initech]
issuer = "{issuer}"
unit = "workspace"

[workspaces.initech.projects.tps]
members = ["user:u-peter-0011"]

[workspaces.initech.projects.y2k]
members = ["user:u-milton-0012"]

[workspaces.initech.projects.basement]
members = ["user:u-milton-0012"]
unit = "project"

[workspaces.globex]
issuer = "{issuer}"

[workspaces.globex.projects.vault]
members = ["user:u-mallory-0009"]
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """A person who asks for a project. `headers` are those that name more than workspace and project."""

    subject: str
    project: str
    workspace: str = "acme"
    headers: Mapping[str, str] = field(default_factory=dict)

    def under(self, **headers: str) -> Caller:
        """The same caller with these headers of saltgate's: `unit="user"` is `X-Saltgate-Unit: user`."""
        return replace(self, headers={f"X-Saltgate-{name.title()}": value for name, value in headers.items()})

    def on(self, project: str) -> Caller:
        return replace(self, project=project)


ALICE: Final = Caller("u-alice-0001", "apollo")
CAROL: Final = Caller("u-carol-0003", "apollo")
BOB: Final = Caller("u-bob-0002", "hermes")
DAVE: Final = Caller("u-dave-0004", "hermes")
ERIN: Final = Caller("u-erin-0005", "athena")
FRANK: Final = Caller("u-frank-0006", "hera")
PETER: Final = Caller("u-peter-0011", "tps", workspace="initech")
MILTON: Final = Caller("u-milton-0012", "y2k", workspace="initech")
MALLORY: Final = Caller("u-mallory-0009", "vault", workspace="globex")


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """What came back through the gate: `body` is the whole of it, also of a stream."""

    status: int
    request_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class GateClient:
    """Asks saltgate as its callers do. `engine` goes round it, as no caller can."""

    bed: GateBed
    engine: EngineClient

    def headers(self, caller: Caller) -> dict[str, str]:
        """The token and the scope of a caller."""
        return self.bed.headers(caller.subject, caller.project, caller.workspace) | dict(caller.headers)

    async def post(self, caller: Caller, path: str, body: Json | bytes) -> GateAnswer:
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        headers = {"Content-Type": "application/json"} | self.headers(caller)
        async with self.bed.session.post(self.bed.url + path, headers=headers, **sent) as answer:
            return GateAnswer(answer.status, answer.headers["X-Request-Id"], await answer.read())

    async def usage(
        self, caller: Caller, endpoint: Endpoint, prompt: str, *, stream: bool = False, more: Json | None = None
    ) -> Usage:
        """What the answer to `prompt` counts. `more` are further members of the body."""
        answer = await self.post(caller, endpoint.path, endpoint.body(prompt, stream=stream) | (more or {}))
        assert answer.status == 200, answer.body
        return endpoint.usage(answer.body)

    async def shares(self, caller: Caller, endpoint: Endpoint, prompt: str, *, stream: bool = False) -> bool:
        """Whether the caller finds `prompt` in the cache: all of it, or nothing. Anything else fails."""
        usage = await self.usage(caller, endpoint, prompt, stream=stream)
        assert usage.reused in (0, reusable(usage.prompt)), usage
        return usage.reused > 0

    async def until_recorded(self, field: str, value: str, *, after: int = 0) -> Mapping[str, object]:
        """The first request's line in the log that says so, `after` lines having been there before."""
        async with asyncio.timeout(30):
            while True:
                for line in self.bed.lines()[after:]:
                    if line["event"] == "request.completed" and line.get(field) == value:
                        return line
                await asyncio.sleep(0.02)

    async def until_running(self, requests: int) -> None:
        """Returns as soon as the engine works at so many requests. Raises TimeoutError."""
        async with asyncio.timeout(30):
            while sum(await self._counts("num_requests_running")) != requests:
                await asyncio.sleep(0.02)

    async def generated_tokens(self) -> float:
        """How many tokens the engine has generated so far, for whomever."""
        return sum(await self._counts("generation_tokens_total"))

    async def _counts(self, name: str) -> list[float]:
        metrics = (await self.engine.get("/metrics")).body.decode()
        return [float(value) for value in re.findall(rf"^vllm:{name}{{[^}}]*}} (\S+)$", metrics, re.MULTILINE)]


@asynccontextmanager
async def gate_before(
    vllm: Vllm,
    directory: Directory,
    folder: Path,
    *,
    unit: UnitName = "project",
    api_key: Secret | None = None,
    media: bool = False,
    telemetry: Telemetry | None = None,
    private_hosts: tuple[str, ...] | None = None,
) -> AsyncIterator[GateClient]:
    """A gate of the strictest kind in front of `vllm`, ready: it has proven every endpoint that it will serve.

    `unit` is the deployment's policy; `api_key` is the engine's. `private_hosts`: where images are fetched from.
    """
    isolation = Isolation(unit=unit, keys=(IsolationKey(id="k1", secret=KEY),))
    key = {} if api_key is None else {"Authorization": f"Bearer {api_key.value.decode()}"}
    async with (
        gate_bed(
            directory,
            [vllm.url],
            folder,
            document=_DIRECTORY,
            proof="strict",
            isolation=isolation,
            api_key=api_key,
            media=media,
            telemetry=telemetry,
            private_hosts=private_hosts,
        ) as bed,
        aiohttp.ClientSession(vllm.url, headers=key) as session,
    ):
        yield GateClient(bed, EngineClient(session))


def salt_of(unit: Unit) -> str:
    """The salt that this gate stamps for a unit whose epoch was never raised: what an attacker would want to know."""
    return salt_for(unit, epoch=BASE_EPOCH, key=SaltKey("k1", KEY.value)).value


def fresh_prompt(lines: int = 50) -> str:
    """A prompt that nobody has sent, different from any other from its first token on. A line has some 13 tokens."""
    return f"{uuid.uuid4().hex} " + " ".join(f"line {number}: the quick brown fox" for number in range(lines))


def reusable(prompt_tokens: int) -> int:
    """All that can be reused of a prompt: its whole blocks, less the last token, which is always computed."""
    return (prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS
