"""The demo's stage: every part started on loopback, wired together, and ended with nothing left behind.

The gate on it is `saltgate serve` with a configuration file like anybody's: nothing in the gate knows of the demo.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from proxy.demo.cast import AUDIENCE, clients, directory_toml, people
from proxy.demo.provider.address import loopback_address
from proxy.demo.provider.server import open_provider
from proxy.demo.simulator.process import serve as serve_simulator
from proxy.demo.simulator.shape import EngineShape

START_SECONDS: Final = 60.0
ENGINE_START_SECONDS: Final = 600.0
STOP_SECONDS: Final = 15.0
# Asked for first, so that a second start looks like the first; a free one is taken where one is not to be had.
PUBLIC_PORT, ADMIN_PORT, ISSUER_PORT, ENGINE_PORT, REDIS_PORT = 8080, 9080, 9090, 8100, 6390


class StageFailed(Exception):  # noqa: N818 - what the person at the keyboard reads
    """A part of the demo did not start. The message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where everything is. `directory` says what keeps the memberships; `folder` holds configuration and log."""

    public: str
    admin: str
    issuer: str
    engine: str
    directory: str
    folder: Path
    model: str
    service_secret: str

    @property
    def configuration(self) -> Path:
        return self.folder / "saltgate.toml"

    @property
    def log(self) -> Path:
        return self.folder / "saltgate.log"


@asynccontextmanager
async def open_stage(*, engine_url: str | None, model: str | None) -> AsyncIterator[Stage]:
    """Everything running and ready, for as long as the context is open. Raises StageFailed."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="saltgate-demo-")))
        service_secret = secrets.token_urlsafe(24)
        provider = await stack.enter_async_context(
            open_provider(
                loopback_address(f"127.0.0.1:{_port(ISSUER_PORT)}"),
                people=await asyncio.to_thread(people),
                clients=clients(service_secret=service_secret),
                clock=time.time,  # noqa: TID251 - the clock is handed out here
            )
        )
        directory, directory_table = await stack.enter_async_context(_directory(folder))
        engine = await stack.enter_async_context(_simulator()) if engine_url is None else engine_url
        stage = Stage(
            public=f"http://127.0.0.1:{_port(PUBLIC_PORT)}",
            admin=f"http://127.0.0.1:{_port(ADMIN_PORT)}",
            issuer=provider.issuer,
            engine=engine,
            directory=directory,
            folder=folder,
            model=model or await _served_model(engine),
            service_secret=service_secret,
        )
        _write_configuration(stage, directory_table)
        await _import_directory(stage)
        await stack.enter_async_context(_gate(stage, START_SECONDS if engine_url is None else ENGINE_START_SECONDS))
        yield stage


def _port(wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            chosen: int = probe.getsockname()[1]
            return chosen
    raise StageFailed("no free port on 127.0.0.1")


def redis_server() -> str | None:
    """A redis-server to run: the machine's own, else the Valkey of the `demo` extra, else None."""
    found = shutil.which("redis-server")
    if found is not None:
        return found
    beside = Path(sys.executable).with_name("redis-server")
    return str(beside) if beside.exists() else None


@asynccontextmanager
async def _directory(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """What keeps the memberships, and its table in the configuration."""
    program = redis_server()
    if program is None:
        table = f'[directory]\nfile = "{folder}/directory.toml"\nstate = "{folder}/state"\n'
        yield "a file (no redis-server was found)", table
        return
    port = _port(REDIS_PORT)
    process = await asyncio.create_subprocess_exec(
        *(program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"),
        *("--dir", str(folder), "--logfile", str(folder / "redis.log")),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        await _until_accepting(port, process)
        yield f"redis://127.0.0.1:{port}/0", f'[directory]\nredis = "redis://127.0.0.1:{port}/0"\n'
    finally:
        await _end(process)


@asynccontextmanager
async def _simulator() -> AsyncIterator[str]:
    """The engine simulator in a process of its own: its prefill must not slow the demo's clock."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    process = spawn.Process(
        target=serve_simulator, args=(EngineShape(),), kwargs={"port": _port(ENGINE_PORT), "ready": theirs}, daemon=True
    )
    process.start()
    theirs.close()
    try:
        if not await asyncio.to_thread(ours.poll, START_SECONDS):
            raise StageFailed("the engine simulator did not start")
        try:
            url: str = ours.recv()
        except EOFError as error:
            raise StageFailed("the engine simulator did not start") from error
        yield url
    finally:
        process.terminate()
        await asyncio.to_thread(process.join, STOP_SECONDS)
        process.close()


async def _served_model(engine: str) -> str:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{engine}/v1/models") as answer:
            document = await answer.json()
            return str(document["data"][0]["id"])
    except (aiohttp.ClientError, KeyError, IndexError, TypeError, ValueError) as error:
        raise StageFailed(f"the engine at {engine} does not list its models; is it running?") from error


def _write_configuration(stage: Stage, directory_table: str) -> None:
    (stage.folder / "salt.key").write_text(secrets.token_urlsafe(32) + "\n")
    (stage.folder / "salt.key").chmod(0o600)
    (stage.folder / "directory.toml").write_text(directory_toml(stage.issuer))
    stage.configuration.write_text(
        f"""\
[public]
listen = "{stage.public.removeprefix("http://")}"

[admin]
listen = "{stage.admin.removeprefix("http://")}"

[[engines]]
name = "main"
urls = ["{stage.engine}"]

[[issuers]]
issuer = "{stage.issuer}"
audiences = ["{AUDIENCE}"]

{directory_table}
[[isolation.keys]]
id = "demo"
secret = {{ file = "salt.key" }}

[drain]
limit = "3s"
"""
    )


async def _import_directory(stage: Stage) -> None:
    """What an operator does: `saltgate directory import`. It also makes the salt ring."""
    process = await asyncio.create_subprocess_exec(
        *_saltgate("directory", "import", str(stage.folder / "directory.toml"), "-c", str(stage.configuration)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    if process.returncode != 0:
        raise StageFailed(f"saltgate directory import: {errors.decode(errors='replace').strip()}")


@asynccontextmanager
async def _gate(stage: Stage, seconds: float) -> AsyncIterator[None]:
    with stage.log.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *_saltgate("serve", "-c", str(stage.configuration)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        await _until_ready(stage, process, seconds)
        yield
    finally:
        await _end(process)


async def _until_ready(stage: Stage, process: asyncio.subprocess.Process, seconds: float) -> None:
    async with aiohttp.ClientSession() as session:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and process.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{stage.admin}/readyz") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.05)
    last = stage.log.read_text(errors="replace").splitlines()[-3:]
    raise StageFailed("saltgate serve did not become ready; it said last:\n  " + "\n  ".join(last))


async def _until_accepting(port: int, process: asyncio.subprocess.Process) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.returncode is None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()
            return
        await asyncio.sleep(0.02)
    raise StageFailed("redis-server did not start")


def _saltgate(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "from proxy.cli import main; main()", *arguments)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
