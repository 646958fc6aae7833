"""An engine made of bytes: it records exactly what it gets and plays exactly what the test wrote.

For tests of framing, where a real HTTP server would be too well-behaved: `RawEngine([Send(...), Reset()])` answers each
POST with these steps. GETs of an engine's own pages are answered as vLLM would, so a gate can start on it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, cast

from proxy.demo.simulator.engine import Counters
from proxy.demo.simulator.pages import metrics_page, models_page, openapi_page
from proxy.demo.simulator.shape import EngineShape

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Send:
    """Writes these bytes at once."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Sleep:
    """Does nothing for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Does nothing until the test sets the event."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Close:
    """Ends with FIN, after all bytes written so far."""


@dataclass(frozen=True, slots=True)
class CloseIfIdle:
    """Ends with FIN, unless something has come meanwhile: as a server closes whose keep-alive time is over."""


@dataclass(frozen=True, slots=True)
class HalfClose:
    """Sends FIN and goes on reading."""


@dataclass(frozen=True, slots=True)
class Sever:
    """Sends FIN from beneath TLS, without TLS's own goodbye (close_notify)."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Ends with RST."""


@dataclass(frozen=True, slots=True)
class WaitForPeer:
    """Does nothing until the other side has closed."""


Step = Send | Sleep | Wait | Close | CloseIfIdle | HalfClose | Sever | Reset | WaitForPeer


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def json_answer(body: bytes, status: str = "200 OK") -> bytes:
    """A whole answer with a length."""
    return _answer(body, "application/json", status)


@dataclass(slots=True)
class RawRequest:
    """One request, byte for byte. `connection` is the number of the connection it came on, from 0."""

    head: bytes
    body: bytes
    connection: int

    @property
    def line(self) -> bytes:
        """The request line without its end."""
        return self.head.split(b"\r\n", 1)[0]

    def header(self, name: bytes) -> list[bytes]:
        """All values of a header, in order, without the blanks around them."""
        fields = [line.partition(b":") for line in self.head.split(b"\r\n")[1:]]
        return [value.strip() for key, _, value in fields if key.lower() == name.lower()]


class RawEngine:
    """Listens on loopback while entered. The POSTs play `scripts` in turn; the last script is played again and again.

    `requests` are the POSTs whose body is complete, `connections` all connections with every byte they brought.
    It listens at the address and port of `listen`, or with `unix` at this path; with `tls` it speaks TLS.
    """

    def __init__(
        self,
        *scripts: Sequence[Step],
        shape: EngineShape | None = None,
        unix: Path | None = None,
        tls: ssl.SSLContext | None = None,
        listen: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self.scripts: list[Sequence[Step]] = list(scripts)
        self.requests: list[RawRequest] = []
        self.connections: list[RawConnection] = []
        self._shape = shape or EngineShape()
        self._arrived = asyncio.Event()
        self._unix, self._tls, self._listen = unix, tls, listen

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if self._unix is not None:
            self._server = await loop.create_unix_server(lambda: RawConnection(self), str(self._unix))
        else:
            self._server = await loop.create_server(lambda: RawConnection(self), *self._listen, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in self.connections:
            if connection.made:  # else it never came through the handshake of TLS
                await connection.drop()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        if self._unix is not None:
            return f"unix:{self._unix}"
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"

    async def request(self, number: int = 0, *, seconds: float = 10.0) -> RawRequest:
        """The POST of this number, from 0, as soon as it is complete."""
        async with asyncio.timeout(seconds):
            while len(self.requests) <= number:
                self._arrived.clear()
                await self._arrived.wait()
        return self.requests[number]

    async def peer_closed(self, number: int = 0, *, seconds: float = 10.0) -> Literal["fin", "rst"]:
        """How the other side ended the connection of POST `number`, as soon as it did."""
        request = await self.request(number, seconds=seconds)
        connection = self.connections[request.connection]
        async with asyncio.timeout(seconds):
            await connection.peer_gone.wait()
        return connection.peer_end or "rst"

    def answer_to(self, request: RawRequest) -> Sequence[Step]:
        """The steps for a request: a page for a GET, the next script for everything else."""
        method, _, rest = request.line.partition(b" ")
        if method == b"GET":
            return [Send(self._page(rest.split(b" ")[0]))]
        self.requests.append(request)
        self._arrived.set()
        return self.scripts[min(len(self.requests), len(self.scripts)) - 1] if self.scripts else []

    def _page(self, path: bytes) -> bytes:
        match path:
            case b"/v1/models":
                return json_answer(models_page(self._shape, 0))
            case b"/openapi.json":
                return json_answer(openapi_page(self._shape))
            case b"/version":
                return json_answer(b'{"version":"0.32.0"}')
            case b"/metrics":
                return _answer(metrics_page(self._shape, Counters(), 0), "text/plain; version=0.0.4; charset=utf-8")
            case b"/health":
                return _answer(b"", "text/plain")
            case _:
                return json_answer(b'{"detail":"Not Found"}', "404 Not Found")


@dataclass(slots=True)
class _Incoming:
    """Bytes that have come and are not yet a whole request."""

    buffer: bytearray = field(default_factory=bytearray)
    more: asyncio.Event = field(default_factory=asyncio.Event)


class RawConnection(asyncio.Protocol):
    """One connection: all its bytes, and how the other side ended it."""

    def __init__(self, engine: RawEngine) -> None:
        self.received = bytearray()
        self.made = False
        self.peer_gone = asyncio.Event()
        self.peer_end: Literal["fin", "rst"] | None = None
        self._engine = engine
        self._number = len(engine.connections)
        self._incoming = _Incoming()
        engine.connections.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = True
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses of asyncio's
        self._player = asyncio.get_running_loop().create_task(self._play())

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._incoming.buffer += data
        self._incoming.more.set()

    def eof_received(self) -> bool:
        self.peer_end = self.peer_end or "fin"
        self.peer_gone.set()
        # Stay open for writing: what the script says is what happens.
        return True

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self.peer_end = self.peer_end or "rst"
        self.peer_gone.set()
        self._player.cancel()

    @property
    def unsent(self) -> int:
        """How many bytes the script has written that the other side's window does not take yet."""
        return self._transport.get_write_buffer_size()

    async def drop(self) -> None:
        """Ends the connection and its script."""
        self._transport.abort()
        self._player.cancel()
        await asyncio.gather(self._player, return_exceptions=True)

    async def _play(self) -> None:
        while not self._transport.is_closing():
            request = await self._read_request()
            for step in self._engine.answer_to(request):
                await self._do(step)

    async def _do(self, step: Step) -> None:
        match step:
            case Send(data):
                self._transport.write(data)
            case Sleep(seconds):
                await asyncio.sleep(seconds)
            case Wait(event):
                await event.wait()
            case WaitForPeer():
                await self.peer_gone.wait()
            case HalfClose():
                self._transport.write_eof()
            case Close() | CloseIfIdle():
                self._close(step)
            case Sever():
                with socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno())) as beneath:
                    beneath.shutdown(socket.SHUT_WR)
            case Reset():
                connection: socket.socket = self._transport.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._transport.abort()

    def _close(self, step: Close | CloseIfIdle) -> None:
        if isinstance(step, Close) or not self._incoming.buffer:
            self._transport.close()

    async def _read_request(self) -> RawRequest:
        head = await self._take_through(b"\r\n\r\n")
        request = RawRequest(head.removesuffix(b"\r\n\r\n"), b"", self._number)
        if b"chunked" in b"".join(request.header(b"transfer-encoding")).lower():
            request.body = await self._take_chunks()
        elif length := request.header(b"content-length"):
            request.body = await self._take(int(length[0]))
        return request

    async def _take_chunks(self) -> bytes:
        body = b""
        while size := int((await self._take_through(b"\r\n")).split(b";")[0], 16):
            body += (await self._take(size + 2))[:-2]
        await self._take_through(b"\r\n")
        return body

    async def _take_through(self, mark: bytes) -> bytes:
        while (found := self._incoming.buffer.find(mark)) < 0:
            await self._more()
        return await self._take(found + len(mark))

    async def _take(self, length: int) -> bytes:
        while len(self._incoming.buffer) < length:
            await self._more()
        taken = bytes(self._incoming.buffer[:length])
        del self._incoming.buffer[:length]
        return taken

    async def _more(self) -> None:
        self._incoming.more.clear()
        await self._incoming.more.wait()


def _answer(body: bytes, media: str, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nserver: uvicorn\r\ncontent-length: {len(body)}\r\ncontent-type: {media}\r\n\r\n"
    return head.encode() + body
