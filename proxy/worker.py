"""One worker: a process that serves the public port, built from settings that its supervisor hands it.

The supervisor and a worker talk over a socket pair: first the settings come down, then a state goes up for each
question. When the supervisor is gone, the socket ends, and so does the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import socket
import sys
import time
from typing import Final

import msgspec
import structlog
import uvloop

from config.settings import Settings
from observability.logs import configure_logs
from proxy.app import Gate, open_gate
from proxy.channel import Assignment, frame, read_frame
from proxy.memory import keep_large_blocks, settle
from proxy.tls import listener_context

_log = structlog.get_logger("saltgate.worker")


def main() -> None:
    """The process's entry: the descriptors of the listening socket and of the socket pair are its two arguments."""
    keep_large_blocks()
    listening, control = (socket.socket(fileno=int(argument)) for argument in sys.argv[1:3])
    # Ctrl-C and a closed terminal reach every process of a terminal; the supervisor decides what they mean.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    uvloop.run(_run(listening, control))


async def _run(listening: socket.socket, control: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=control)
    try:
        message = await read_frame(reader)
    except (asyncio.IncompleteReadError, ConnectionError):
        return  # the supervisor is gone already
    # The supervisor is our own process, and the socket pair is private to the two: pickle is a copy, not a protocol.
    assignment: Assignment = pickle.loads(message)  # noqa: S301
    settings, instance = assignment.settings, assignment.instance
    logs = configure_logs(settings.logs, sys.stdout.buffer, monotonic_ns=time.monotonic_ns, instance=instance)
    with contextlib.closing(logs):
        async with open_gate(settings, instance=instance, logs=logs) as gate:
            await _serve(settings, gate, listening, reader, writer)


async def _serve(
    settings: Settings, gate: Gate, listening: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: _signalled(gate, stop))
    server = await _listen(settings, gate, listening)
    settle()
    _log.info("worker.serving")
    async with asyncio.TaskGroup() as tasks:
        answering = tasks.create_task(_answer_supervisor(gate, reader, writer, stop))
        await stop.wait()
        server.close()
        await gate.drain(settings.drain.limit)
        answering.cancel()
    _log.info("worker.stopped")


def _signalled(gate: Gate, stop: asyncio.Event) -> None:
    """Once: drain. Again: end what is still open, honestly."""
    if stop.is_set():
        gate.gateway.relay.cut_all()
    stop.set()


async def _listen(settings: Settings, gate: Gate, listening: socket.socket) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    tls = None if settings.public.tls is None else listener_context(settings.public.tls)
    if listening.family == socket.AF_UNIX:
        return await loop.create_unix_server(gate.front, sock=listening, ssl=tls, backlog=_BACKLOG)
    return await loop.create_server(gate.front, sock=listening, ssl=tls, backlog=_BACKLOG)


_BACKLOG: Final = 2048


async def _answer_supervisor(
    gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stop: asyncio.Event
) -> None:
    """Each question is a number; the answer is the same number and the state."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            number = await read_frame(reader)
            writer.write(frame(number + msgspec.msgpack.encode(gate.state())))
            await writer.drain()
    stop.set()  # the supervisor is gone
