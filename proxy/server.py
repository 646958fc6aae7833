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
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog
import uvloop
from aiohttp import web

from config.addresses import TcpAddress, UnixAddress, listen_address
from config.settings import Settings
from observability.exposition import Snapshot, exposition, merge
from observability.logs import configure_logs
from proxy.channel import NUMBER_BYTES, Assignment, WorkerState, frame, read_frame

FIRST_RESTART_SECONDS: Final = 0.5
LONGEST_RESTART_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 5.0
# A worker that has told nothing for so long is stuck. Its start counts as told: imports take seconds on a busy machine.
HUNG_SECONDS: Final = 60.0
# Beyond the drain limit: cut streams write their error event, telemetry flushes.
EXIT_SECONDS: Final = 8.0
BACKLOG: Final = 2048

_log = structlog.get_logger("saltgate.server")


class CannotListen(Exception):  # noqa: N818 - what the operator reads
    """An address that saltgate was told to listen on is not to be had. The message has the remedy."""


def serve(settings: Settings, *, beside: AbstractAsyncContextManager[object] | None = None) -> None:
    """Run until SIGTERM, SIGINT or SIGHUP, then drain; a second signal cuts what is still open.

    `beside` is what has to run as long as saltgate does: entered before the first worker starts. Raises CannotListen,
    and whatever entering `beside` raises, before anything was served.
    """
    logs = configure_logs(settings.logs, sys.stdout.buffer, monotonic_ns=time.monotonic_ns)
    with contextlib.closing(logs):
        uvloop.run(_supervise(settings, beside or contextlib.nullcontext()))


class Worker:
    """One worker process as the supervisor sees it: started anew whenever it dies, until it is told to stop.

    `latest` is what the running process last told of its metrics, `retired` what the ended ones had counted.
    """

    def __init__(self, settings: Settings, number: int, listening: socket.socket) -> None:
        self._settings = settings
        self._listening = listening
        self._number = number
        self._process: asyncio.subprocess.Process | None = None
        self._control: asyncio.StreamWriter | None = None
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[WorkerState | None]] = {}
        self._heard = 0.0
        self._stopping = asyncio.Event()
        self.latest = Snapshot(series=[])
        self.retired = Snapshot(series=[])

    async def keep_running(self) -> None:
        """Returns when the worker has ended after `stop`."""
        pause = FIRST_RESTART_SECONDS
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            began = loop.time()
            try:
                code: int | None = await self._run_once()
            except OSError as error:  # no memory, no processes or no descriptors left: the others go on
                code = None
                _log.error("worker.not_started", worker=self._number, why=error.strerror)
            if self._stopping.is_set():
                return
            _log.error("worker.died", worker=self._number, exit_code=code)
            pause = FIRST_RESTART_SECONDS if loop.time() - began > LONGEST_RESTART_SECONDS else pause
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            pause = min(pause * 2, LONGEST_RESTART_SECONDS)

    async def state(self) -> WorkerState | None:
        """What the worker says of itself; None where it does not answer in time."""
        if self._control is None:
            return None
        loop = asyncio.get_running_loop()
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[WorkerState | None] = loop.create_future()
        self._waiting[number] = answer
        self._control.write(frame(number.to_bytes(NUMBER_BYTES, "big")))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await answer
        except TimeoutError:
            if loop.time() - self._heard > HUNG_SECONDS:
                _log.error("worker.hung", worker=self._number)
                self._signal(signal.SIGKILL)
            return None
        finally:
            del self._waiting[number]

    def stop(self) -> None:
        """Ask the worker to drain and end; asked again, it cuts what is still open."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._stopping.set()
        self._signal(signal.SIGKILL)

    async def _run_once(self) -> int:
        ours, theirs = socket.socketpair()
        with contextlib.closing(theirs):
            try:
                process = self._process = await self._start(theirs)
            except OSError:
                ours.close()
                raise
        if self._stopping.is_set():
            self._signal(signal.SIGTERM)
        instance = f"{socket.gethostname()}-{process.pid}-{secrets.token_hex(3)}"
        self._heard = asyncio.get_running_loop().time()
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(frame(pickle.dumps(Assignment(self._settings, self._number, instance))))
        self._control = writer
        try:
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(self._listen(reader))
                code = await process.wait()
                listening.cancel()
            return code
        finally:
            self._ended(writer)

    async def _start(self, control: socket.socket) -> asyncio.subprocess.Process:
        descriptors = (self._listening.fileno(), control.fileno())
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # else the working folder's modules would win over ours
            "-c",
            "from proxy.worker import main; main()",
            *map(str, descriptors),
            pass_fds=descriptors,
            stdin=asyncio.subprocess.DEVNULL,
        )

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Take the worker's answers as they come; one that comes too late still tells that it lives."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                message = await read_frame(reader)
                self._heard = asyncio.get_running_loop().time()
                number = int.from_bytes(message[:NUMBER_BYTES], "big")
                state = self._understood(message[NUMBER_BYTES:])
                waiting = self._waiting.get(number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(state)

    def _understood(self, message: bytes) -> WorkerState | None:
        try:
            state = msgspec.msgpack.decode(message, type=WorkerState)
            self.latest = Snapshot.decode(state.metrics)
        except ValueError:
            # The worker is another version: saltgate was installed anew while it runs.
            _log.error("worker.not_understood", worker=self._number)
            return None
        return state

    def _ended(self, writer: asyncio.StreamWriter) -> None:
        self._control = self._process = None
        self.retired, self.latest = merge((self.retired, self.latest.retired())), Snapshot(series=[])
        writer.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


class Supervisor:
    """The workers together, and what the admin listener says of them."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._stop = asyncio.Event()

    async def waits_for(self) -> list[str]:
        """What stands between saltgate and serving; nothing when every worker is ready."""
        if self._stop.is_set():
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

    def signalled(self) -> None:
        """The first signal begins the drain, each further one cuts what is still open."""
        if self._stop.is_set():
            for worker in self._workers:
                worker.stop()
        self._stop.set()

    async def run(self, drain_seconds: float, listening: socket.socket) -> None:
        """Keep the workers running until signalled, then until they have drained, or are killed for taking too long."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(worker.keep_running()) for worker in self._workers]
            await self._stop.wait()
            listening.close()  # with the workers' copies closed too, new connections are refused, not left waiting
            _log.info("server.draining")
            for worker in self._workers:
                worker.stop()
            _, still = await asyncio.wait(running, timeout=drain_seconds + EXIT_SECONDS)
            if still:
                _log.error("server.killing", workers=len(still))
            for worker in self._workers:
                worker.kill()


async def _supervise(settings: Settings, beside: AbstractAsyncContextManager[object]) -> None:
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(_bound(settings.public.listen))
        count = settings.workers or os.cpu_count() or 1
        supervisor = Supervisor([Worker(settings, number, listening) for number in range(count)])
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, supervisor.signalled)
        await stack.enter_async_context(_admin_listener(settings, supervisor))
        await stack.enter_async_context(beside)
        _log.info("server.listening", public=settings.public.listen, admin=settings.admin.listen, workers=count)
        await supervisor.run(settings.drain.limit, listening)
    _log.info("server.stopped")


@contextlib.contextmanager
def _bound(listen: str) -> Iterator[socket.socket]:
    """The public socket, bound once for all workers, now and after a restart of one."""
    address = listen_address(listen)
    try:
        listening = _unix_socket(address.path) if isinstance(address, UnixAddress) else _tcp_socket(address)
        listening.setblocking(False)
        listening.listen(BACKLOG)
    except OSError as error:
        raise _cannot_listen(listen, error) from error
    with listening:
        try:
            yield listening
        finally:
            if isinstance(address, UnixAddress):
                Path(address.path).unlink(missing_ok=True)


def _tcp_socket(address: TcpAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)


def _unix_socket(path: str) -> socket.socket:
    """The socket that a killed process left behind is taken away; one that somebody listens on, or a file, is not."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if Path(path).is_socket() and not _is_listened_on(path):
            Path(path).unlink()
        listening.bind(path)
    except OSError:
        listening.close()
        raise
    return listening


def _is_listened_on(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        visitor.settimeout(1.0)
        try:
            visitor.connect(path)
        except ConnectionRefusedError:
            return False
        return True


def _cannot_listen(listen: str, error: OSError) -> CannotListen:
    return CannotListen(
        f"cannot listen on {listen}: {error.strerror or error}. Free the address, or choose another one."
    )


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
        raise _cannot_listen(settings.admin.listen, error) from error
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
