"""The supervisor: it binds the public port, keeps N workers on it, and answers the admin listener for all of them.

Workers are fresh interpreters that inherit the listening socket: a new connection goes to whoever accepts it first,
and a worker that dies takes no connection with it that had not been accepted (a shared socket, not SO_REUSEPORT).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import pickle
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog
import uvloop
from aiohttp import web

from config.addresses import UnixAddress, listen_address
from config.settings import Settings
from observability.exposition import Snapshot, exposition, merge
from observability.logs import configure_logs
from proxy.app import WorkerState
from proxy.worker import Assignment, frame, read_frame

FIRST_RESTART_SECONDS: Final = 0.5
LONGEST_RESTART_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 5.0
# Beyond the drain limit: cut streams write their error event, telemetry flushes.
EXIT_SECONDS: Final = 8.0
BACKLOG: Final = 2048

_log = structlog.get_logger("saltgate.server")


class CannotListen(Exception):  # noqa: N818 - what the operator reads
    """An address that saltgate was told to listen on is not to be had."""


def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT, then drain. Raises CannotListen before anything was started."""
    logs = configure_logs(settings.logs, sys.stdout.buffer, monotonic_ns=time.monotonic_ns)
    with contextlib.closing(logs):
        uvloop.run(_supervise(settings))


class Worker:
    """One worker process as the supervisor sees it: started anew whenever it dies, until it is told to stop."""

    def __init__(self, settings: Settings, number: int, listening: socket.socket) -> None:
        self._settings = settings
        self._listening = listening
        self._number = number
        self._process: asyncio.subprocess.Process | None = None
        self._channel: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._asking = asyncio.Lock()
        self._stopping = False
        self.latest = Snapshot(series=[])
        self.retired = Snapshot(series=[])

    async def keep_running(self) -> None:
        """Returns when the worker has ended after `stop`."""
        pause = FIRST_RESTART_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            code = await self._run_once()
            if self._stopping:
                return
            _log.error("worker.died", worker=self._number, exit_code=code)
            pause = FIRST_RESTART_SECONDS if loop.time() - began > LONGEST_RESTART_SECONDS else pause
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_RESTART_SECONDS)

    async def state(self) -> WorkerState | None:
        """What the worker says of itself; None where it does not answer."""
        channel = self._channel
        if channel is None:
            return None
        reader, writer = channel
        try:
            async with self._asking, asyncio.timeout(ANSWER_SECONDS):
                writer.write(frame(b"?"))
                await writer.drain()
                state = msgspec.msgpack.decode(await read_frame(reader), type=WorkerState)
                self.latest = Snapshot.decode(state.metrics)
                return state
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, msgspec.MsgspecError):
            self._disown(channel)  # an answer that comes later would be taken for the next one's
            return None

    async def ended(self) -> None:
        """Returns when no process of this worker runs."""
        if self._process is not None:
            await self._process.wait()

    def stop(self) -> None:
        """Ask the worker to drain and end."""
        self._stopping = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._stopping = True
        self._signal(signal.SIGKILL)

    async def _run_once(self) -> int:
        ours, theirs = socket.socketpair()
        try:
            process = await self._start(theirs)
        finally:
            theirs.close()
        self._process = process
        if self._stopping:
            self._signal(signal.SIGTERM)
        instance = f"{socket.gethostname()}-{process.pid}-{secrets.token_hex(3)}"
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(frame(pickle.dumps(Assignment(self._settings, self._number, instance))))
        self._channel = (reader, writer)
        try:
            return await process.wait()
        finally:
            self._channel = None
            self._process = None
            self.retired, self.latest = merge((self.retired, self.latest.retired())), Snapshot(series=[])
            writer.close()

    async def _start(self, control: socket.socket) -> asyncio.subprocess.Process:
        descriptors = (self._listening.fileno(), control.fileno())
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from proxy.worker import main; main()",
            *map(str, descriptors),
            pass_fds=descriptors,
            stdin=asyncio.subprocess.DEVNULL,
        )

    def _disown(self, channel: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        """A worker that does not answer is killed; `keep_running` starts another."""
        if self._channel is channel:
            self._channel = None
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


class Supervisor:
    """The workers together, and what the admin listener says of them."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._stopping = False

    async def waits_for(self) -> list[str]:
        """What stands between saltgate and serving; nothing when every worker is ready."""
        if self._stopping:
            return ["draining"]
        states = await self.states()
        missing = {reason for state in states if state is not None for reason in state.waits_for}
        return sorted(missing | ({"workers"} if None in states else set()))

    async def states(self) -> list[WorkerState | None]:
        return list(await asyncio.gather(*(worker.state() for worker in self._workers)))

    async def metrics(self) -> Snapshot:
        """All workers' metrics, with what ended workers counted: a sum that falls would look like a restart."""
        await self.states()
        return merge(snapshot for worker in self._workers for snapshot in (worker.retired, worker.latest))

    async def run(self, stop: asyncio.Event, drain_seconds: float, listening: socket.socket) -> None:
        """Keep the workers running until `stop`, then until they have drained, or are killed for taking too long."""
        async with asyncio.TaskGroup() as tasks:
            for worker in self._workers:
                tasks.create_task(worker.keep_running())
            await stop.wait()
            self._stopping = True
            listening.close()  # with the workers' copies closed too, new connections are refused, not left waiting
            _log.info("server.draining")
            for worker in self._workers:
                worker.stop()
            await self._ended(drain_seconds + EXIT_SECONDS)

    async def _ended(self, seconds: float) -> None:
        """Wait for the workers' ends; after `seconds`, make them end."""
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(worker.ended() for worker in self._workers))
        except TimeoutError:
            for worker in self._workers:
                worker.kill()


async def _supervise(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(contextlib.closing(_bind(settings.public.listen)))
        count = settings.workers or os.cpu_count() or 1
        supervisor = Supervisor([Worker(settings, number, listening) for number in range(count)])
        await stack.enter_async_context(_admin_listener(settings, supervisor))
        _log.info("server.listening", public=settings.public.listen, admin=settings.admin.listen, workers=count)
        await supervisor.run(stop, settings.drain.limit, listening)
    _log.info("server.stopped")


def _bind(listen: str) -> socket.socket:
    """The public socket, bound once for all workers, now and after a restart of one."""
    address = listen_address(listen)
    try:
        if isinstance(address, UnixAddress):
            Path(address.path).unlink(missing_ok=True)
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(address.path)
        else:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            listening = socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
        listening.setblocking(False)
        listening.listen(BACKLOG)
    except OSError as error:
        raise CannotListen(f"cannot listen on {listen}: {error.strerror or error}") from error
    return listening


@asynccontextmanager
async def _admin_listener(settings: Settings, supervisor: Supervisor) -> AsyncIterator[None]:
    runner = web.AppRunner(_admin_application(settings, supervisor), access_log=None, handle_signals=False)
    await runner.setup()
    address = listen_address(settings.admin.listen)
    try:
        if isinstance(address, UnixAddress):
            await web.UnixSite(runner, address.path).start()
        else:
            await web.TCPSite(runner, address.host, address.port).start()
    except OSError as error:
        await runner.cleanup()
        raise CannotListen(f"cannot listen on {settings.admin.listen}: {error.strerror or error}") from error
    try:
        yield
    finally:
        await runner.cleanup()


def _admin_application(settings: Settings, supervisor: Supervisor) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        ready = not await supervisor.waits_for()
        return web.Response(text="ok\n" if ready else "not ready\n", status=200 if ready else 503)

    async def metrics(request: web.Request) -> web.Response:
        token = settings.admin.metrics_token
        if token is not None and not _shows(request, token.value):
            return web.Response(status=401, text="metrics_token required\n", headers={"WWW-Authenticate": "Bearer"})
        shown = exposition(await supervisor.metrics(), request.headers.get("Accept", ""))
        return web.Response(body=shown.body, headers={"Content-Type": shown.content_type})

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return application


def _shows(request: web.Request, token: bytes) -> bool:
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), token)
