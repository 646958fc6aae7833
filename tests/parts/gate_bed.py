"""A whole gate on real parts, in this process: a real Redis, a real issuer, an engine, and saltgate's own listener
between.

The listener is the one that `saltgate serve` uses in its workers, on a real socket; nothing of it is a test's.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal

import aiohttp
from yarl import URL

from config.secret import Secret
from config.settings import (
    Admin,
    Administrator,
    Audit,
    Capacity,
    Cors,
    Drain,
    Engine,
    EngineCapacity,
    EngineLimits,
    EngineTimeouts,
    FrontGate,
    Introspection,
    Isolation,
    IsolationKey,
    Issuer,
    Login,
    ModelTimeouts,
    Proxies,
    Public,
    Sessions,
    Settings,
    Telemetry,
    Timeouts,
    Tokens,
    TrustedFront,
)
from config.settings import Directory as DirectorySettings
from config.settings import Logs as LogSettings
from observability.logs import Logs, configure_logs
from proxy.app import open_gate
from proxy.directory.changes import Deed, fresh_ring, import_directory
from proxy.directory.connect import open_store, removal_policy
from proxy.directory.model import directory_from_toml
from proxy.gate import Gate
from proxy.tls import listener_context
from tests.parts.emitted import search_files
from tests.parts.tokens import IssuerServer, TokenMint

KEY = Secret(b"0123456789abcdef0123456789abcdef", "test")
BASE_EPOCH = 1_700_000_000
Kind = Literal["vllm", "sglang", "tensorrt-llm", "dynamo"]

DIRECTORY = """
[workspaces.acme]
issuer = "{issuer}"

[workspaces.acme.projects.apollo]
members = ["user:u-alice-0001", "group:eng"]
team = "red"

[workspaces.acme.projects.ares]
members = ["user:u-alice-0001"]
team = "red"

[workspaces.acme.projects.hermes]
members = ["user:u-bob-0002"]
unit = "user"

[workspaces.acme.teams.red]
members = ["user:u-carol-0003"]

[workspaces.acme.collections.handbook]
projects = ["apollo", "ares"]

[workspaces.globex]
issuer = "{issuer}"

[workspaces.globex.projects.vault]
members = ["user:u-mallory-0009"]
"""


@dataclass(slots=True)
class GateBed:
    """A running gate and what is around it. `url` is its public address."""

    url: str
    port: int
    gate: Gate
    settings: Settings
    mint: TokenMint
    issuer: IssuerServer
    session: aiohttp.ClientSession
    log: Path
    logs: Logs

    def token(self, subject: str = "u-alice-0001", groups: Sequence[str] = ()) -> str:
        return self.mint.token(subject=subject, groups=groups)

    def headers(
        self, subject: str = "u-alice-0001", project: str = "apollo", workspace: str = "acme"
    ) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.token(subject)}",
            "OpenAI-Organization": workspace,
            "OpenAI-Project": project,
        }

    async def post(
        self, path: str = "/v1/chat/completions", document: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One request of alice's, by default a small chat: status, headers, body."""
        body = json.dumps(chat() if document is None else document).encode()
        sent = {"Content-Type": "application/json"} | dict(self.headers() if headers is None else headers)
        target = URL(self.url + path, encoded=True)  # as it is: the client would mend what is escaped oddly
        async with self.session.post(target, data=body, headers=sent) as answer:
            return answer.status, answer.headers, await answer.read()

    async def change(self, deed: Deed) -> None:
        """An administrator's deed on the directory."""
        store = open_store(self.settings.directory, removal_policy(self.settings.isolation))
        try:
            await store.change(deed)
        finally:
            await store.close()

    async def until_ready(self, seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while self.gate.waits_for():
                await asyncio.sleep(0.01)

    def lines(self) -> list[dict[str, object]]:
        """The log so far, a line each. A request's line may come after its answer: see completed."""
        self.gate.entrance.recorder.tell()  # requests are told of some milliseconds after they ended
        sink = self.logs._sink
        while sink._lines or sink._being_written:  # lines gather for a moment before they are written
            time.sleep(0.001)
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    async def completed(self, requests: int, seconds: float = 10.0) -> list[dict[str, object]]:
        """The lines of at least so many requests, as soon as they are there. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while len(found := [line for line in self.lines() if line["event"] == "request.completed"]) < requests:
                await asyncio.sleep(0.01)
        return found


def chat(text: str = "Hello", **more: object) -> dict[str, object]:
    return {"model": "tiny", "messages": [{"role": "user", "content": text}]} | more


@asynccontextmanager
async def gate_bed(
    directory: DirectorySettings,
    engines: Sequence[str],
    folder: Path,
    *,
    document: str = DIRECTORY,
    proof: Literal["strict", "warn", "off"] = "strict",
    ready: bool = True,
    filled: bool = True,
    issuer_answers: bool = True,
    isolation: Isolation | None = None,
    timeouts: Timeouts | None = None,
    telemetry: Telemetry | None = None,
    public: Public | None = None,
    models: tuple[str, ...] | None = None,
    api_key: Secret | None = None,
    gates: Sequence[str] = (),
    fronts: Sequence[TrustedFront] = (),
    kind: Kind = "vllm",
    limits: EngineLimits | None = None,
    engine_timeouts: EngineTimeouts | None = None,
    model_timeouts: tuple[ModelTimeouts, ...] = (),
    capacity: EngineCapacity | None = None,
    of_all: Capacity | None = None,
    media: bool = False,
    private_hosts: tuple[str, ...] | None = None,
    hosts: tuple[str, ...] | None = None,
    private_ca: Path | None = None,
    also: Sequence[Engine] = (),
    proxies: Proxies | None = None,
    cors: Cors | None = None,
    streams_end_on_revoke: bool = True,
    introspection: Introspection | None = None,
    issuers: Sequence[Issuer] = (),
    port: int = 0,
    tokens: Tokens | None = None,
    administrators: Sequence[str] = (),
    issuer_server: IssuerServer | None = None,
    login: Login | None = None,
    public_url: str = "http://gate.test",
    sessions: Sessions | None = None,
    audit: Audit | None = None,
) -> AsyncIterator[GateBed]:
    """A gate in front of `engines` (one URL each a replica of one engine) and those of `also`, on the directory that
    `document` describes. Without `filled` the directory is left as it is; without `issuer_answers` the issuer is
    faulty. `hosts` and `private_hosts` are those that images are fetched from. `gates` are the subjects that are
    saltgates in front of this one, `fronts` the chat UIs, of this issuer. With `introspection` the issuer is also asked
    about opaque tokens; `issuers` are further ones, `administrators` members of the first one. A gate at a chosen
    `port` has that as its public address, as clients that check it need it. People sign in with a browser at
    `issuer_server` by `login`. `telemetry.trusted_callers` are callers of this issuer.
    """
    mint = TokenMint(algorithms=("RS256", "ES256")) if issuer_server is None else issuer_server.mint
    async with issuer_server or IssuerServer(mint) as issuer, aiohttp.ClientSession() as session:
        engine = Engine(
            name="main",
            kind=kind,
            urls=tuple(engines),
            proof=proof,
            models=models,
            api_key=api_key,
            limits=limits or EngineLimits(),
            timeouts=engine_timeouts or EngineTimeouts(),
            model_timeouts=model_timeouts,
            capacity=capacity or EngineCapacity(),
            media=media,
            media_hosts=hosts,
            media_private_hosts=private_hosts,
            media_private_ca=private_ca,
        )
        settings = Settings(
            streams_end_on_revoke=streams_end_on_revoke,
            public=replace(
                public or Public(), listen="127.0.0.1:0", url=f"http://127.0.0.1:{port}" if port else public_url
            ),
            engines=(engine, *also),
            issuers=(replace(issuer.settings(), introspection=introspection, login=login), *issuers),
            sessions=sessions or Sessions(),
            directory=directory,
            capacity=of_all or Capacity(),
            isolation=isolation or Isolation(keys=(IsolationKey(id="k1", secret=KEY),)),
            timeouts=timeouts or Timeouts(),
            telemetry=_trusting(telemetry or Telemetry(), issuer.mint.issuer),
            audit=audit or Audit(),
            drain=Drain(limit=5.0),
            logs=LogSettings(level="debug"),
            tokens=tokens or Tokens(),
            admin=Admin(administrators=_administrators(issuer.mint.issuer, administrators)),
            proxies=proxies or Proxies(),
            cors=cors or Cors(),
            gates=tuple(FrontGate(issuer=issuer.mint.issuer, subject=subject) for subject in gates),
            fronts=tuple(replace(front, issuer=issuer.mint.issuer) for front in fronts),
        )
        if filled:
            await _fill(settings, document.format(issuer=issuer.mint.issuer))
        if not issuer_answers:
            issuer.faults |= {"discovery": "status", "jwks": "status"}
        log = folder / f"gate-{secrets.token_hex(4)}.log"
        with log.open("wb") as stream, closing(_logs(settings, stream)) as logs:
            async with open_gate(settings, instance="test", logs=logs) as gate:
                tls = None if settings.public.tls is None else listener_context(settings.public.tls)
                server = await asyncio.get_running_loop().create_server(gate.front, "127.0.0.1", port, ssl=tls)
                port = server.sockets[0].getsockname()[1]
                url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
                bed = GateBed(url, port, gate, settings, mint, issuer, session, log, logs)
                try:
                    if ready:
                        await bed.until_ready()
                    yield bed
                finally:
                    server.close()
                    await gate.drain(0.0)
        search_files((log, *(() if settings.audit.directory is None else settings.audit.directory.rglob("*"))))


def _trusting(telemetry: Telemetry, issuer: str) -> Telemetry:
    return replace(telemetry, trusted_callers=tuple(replace(one, issuer=issuer) for one in telemetry.trusted_callers))


def _administrators(issuer: str, members: Sequence[str]) -> tuple[Administrator, ...]:
    return (Administrator(issuer=issuer, members=tuple(members)),) if members else ()


def _logs(settings: Settings, stream: BinaryIO) -> Logs:
    return configure_logs(settings.logs, stream, monotonic_ns=time.monotonic_ns, instance="test")


async def _fill(settings: Settings, document: str) -> None:
    store = open_store(settings.directory, removal_policy(settings.isolation))
    try:
        ring = fresh_ring(settings.isolation.keys[0].id, now=BASE_EPOCH)
        await store.change(import_directory(directory_from_toml(document), ring))
    finally:
        await store.close()
