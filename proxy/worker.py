"""One worker: a process that serves the public port, built from settings that its supervisor hands it.

The supervisor and a worker talk over a socket pair (`proxy.channel`). When the supervisor is gone, the socket ends, and
so does the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import structlog
import uvloop

from config.settings import Settings
from observability.logs import configure_logs
from observability.open_requests import OpenRequests
from proxy.app import open_gate
from proxy.capacity.shares import Share
from proxy.channel import Assignment, Cut, Listen, Order, Retire, Tell, Told, frame, read_frame
from proxy.descriptors import raise_limit
from proxy.gate import Gate
from proxy.listening.acceptor import NOBODY, Acceptor
from proxy.listening.certificate import ShownCertificate
from proxy.listening.loads import LoadPage, Loads, open_area
from proxy.memory import keep_large_blocks, settle
from proxy.peers import trusted_proxies
from proxy.plan import unpack
from proxy.telling import Telling
from proxy.tls import Pair

_log = structlog.get_logger("saltgate.worker")


def main() -> None:
    """The process's entry: its arguments are descriptors, of the listening socket, the socket pair, and a load page."""
    keep_large_blocks()
    raise_limit()
    listening, control, page, *bells = map(int, sys.argv[1:])
    # Ctrl-C and a closed terminal reach every process of a terminal; the supervisor decides what they mean.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with socket.socket(fileno=listening) as public:
        uvloop.run(_run(public, socket.socket(fileno=control), LoadPage(page, tuple(bells))))


async def _run(listening: socket.socket, control: socket.socket, page: LoadPage) -> None:
    supervisor = Supervision(*await asyncio.open_connection(sock=control))
    try:
        assignment = msgspec.msgpack.decode(await read_frame(supervisor.reader), type=Assignment)
    except (asyncio.IncompleteReadError, ConnectionError):
        return  # the supervisor is gone already
    settings, pair = unpack(assignment.packed)
    instance = assignment.instance
    logs = configure_logs(settings.logs, sys.stdout.buffer, monotonic_ns=time.monotonic_ns, instance=instance)
    area = open_area(page, assignment.number)
    kept = () if area is None else (OpenRequests(area),)
    with contextlib.closing(logs), contextlib.closing(Loads(page, assignment.number)) as loads:
        share = Share(assignment.number, page.workers)
        async with (
            open_gate(settings, instance=instance, logs=logs, share=share, also=kept) as gate,
            _acceptor(settings, pair, gate, listening, loads) as acceptor,
        ):
            if assignment.listens:
                acceptor.open()
            telling = Telling(gate, supervisor.writer) if assignment.tells_requests else None
            await _serve(settings, gate, acceptor, supervisor, telling)


@dataclass(frozen=True, slots=True)
class Supervision:
    """The socket pair, and what came over it: `ended` is the supervisor's word or signal, `handed_over` that others
    have taken over.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    handed_over: asyncio.Event = field(default_factory=asyncio.Event)
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)
    answering: set[asyncio.Task[None]] = field(default_factory=set)

    async def obey(self, gate: Gate, acceptor: Acceptor) -> None:
        """Until the supervisor is gone: then this worker has ended, too."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                match msgspec.msgpack.decode(await read_frame(self.reader), type=Order):
                    case Tell(number, _, question) if question:
                        self._answer(gate, number, question)
                    case Tell(number, counts):
                        if counts:
                            # What is on its way is told to the end, also when this is cancelled meanwhile.
                            await asyncio.shield(self._tell_counted(gate))
                        self.writer.write(frame(Told(number, gate.state())))
                        await self.writer.drain()
                    case Listen():
                        acceptor.open()
                    case Retire():
                        self.handed_over.set()
                    case Cut():
                        gate.gateway.relay.cut_all()
        self.ended.set()

    def _answer(self, gate: Gate, number: int, question: bytes) -> None:
        """An answer may take its time; other orders do not wait for it."""

        async def answer() -> None:
            found = await gate.answer(question)
            with contextlib.suppress(ConnectionError):
                if not self.writer.is_closing():
                    self.writer.write(frame(Told(number, answer=found)))
                    await self.writer.drain()

        task = asyncio.get_running_loop().create_task(answer())
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)

    async def say_last(self, gate: Gate, telling: Telling | None = None) -> None:
        """What was counted until now, which nobody may ask for any more."""
        if telling is not None:
            await telling.tell_all()
        await self._tell_counted(gate)

    async def _tell_counted(self, gate: Gate) -> None:
        """Piece by piece: streams have their turn between two of them. Nothing where the supervisor is gone."""
        async with self.telling:
            with contextlib.suppress(ConnectionError):
                for piece in gate.counted():
                    if self.writer.is_closing():  # a write would be a fault of ours to uvloop
                        return
                    self.writer.write(frame(Told(0, counted=piece.encode())))
                    await self.writer.drain()
                    await asyncio.sleep(0)

    async def until_end(self) -> None:
        """Returns when either has been set."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.ended, self.handed_over)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()


@asynccontextmanager
async def _acceptor(
    settings: Settings, pair: Pair | None, gate: Gate, listening: socket.socket, loads: Loads
) -> AsyncIterator[Acceptor]:
    """It is closed at the end. The certificate of a TLS listener is followed meanwhile."""
    context, following = _no_tls, None
    if settings.public.tls is not None and pair is not None:
        shown = ShownCertificate(settings.public.tls, pair, gate.metrics.certificate)
        context, following = (lambda: shown.context), asyncio.get_running_loop().create_task(shown.follow())
    acceptor = Acceptor(
        listening,
        loads,
        gate.front,
        tls=context,
        beginning_seconds=settings.timeouts.request,
        balancers=trusted_proxies(settings.proxies) if settings.proxies.proxy_protocol else NOBODY,
    )
    gate.front.lost = acceptor.lost
    try:
        yield acceptor
    finally:
        acceptor.close()
        await acceptor.end()
        if following is not None:
            following.cancel()


def _no_tls() -> ssl.SSLContext | None:
    return None


async def _serve(
    settings: Settings, gate: Gate, acceptor: Acceptor, supervisor: Supervision, telling: Telling | None
) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, supervisor.ended.set)
    settle()
    _log.info("worker.serving")
    async with asyncio.TaskGroup() as tasks:
        obeying = tasks.create_task(supervisor.obey(gate, acceptor))
        following = None if telling is None else tasks.create_task(telling.follow())
        await supervisor.until_end()
        acceptor.close()
        limit = settings.drain.limit
        if not supervisor.ended.is_set():
            _log.info("worker.retiring")
            began = loop.time()
            await gate.retire(limit, supervisor.ended)
            limit = max(limit - (loop.time() - began), 0.0)  # also where it is told to end meanwhile
        await gate.drain(limit)
        obeying.cancel()
        if following is not None:
            following.cancel()
    await supervisor.say_last(gate, telling)
    _log.info("worker.stopped")
