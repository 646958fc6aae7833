"""A client that leaves: bytes out, bytes in only when asked, and every way in which a connection can end.

It reads nothing on its own, so not reading is simply not calling `read…`; with a small `receive_buffer` the other side
soon notices.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self


def post(path: str, document: object, headers: Mapping[str, str] | None = None) -> bytes:
    """A POST with a JSON body, as the bytes to send."""
    body = json.dumps(document).encode()
    fields = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in (fields | dict(headers or {})).items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, its body with the chunks put together."""

    status: int
    head: bytes
    body: bytes


class GoneClient:
    """One connection, open while entered. Where `unix_path` is given, it is used in place of host and port. `source` is
    the address that it comes from.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        unix_path: str | None = None,
        receive_buffer: int | None = None,
        source: str | None = None,
    ) -> None:
        family = socket.AF_UNIX if unix_path else socket.AF_INET
        self._address: str | tuple[str, int] = unix_path or (host, port)
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        if receive_buffer is not None:
            # Before the connection is made: afterwards the window is never made smaller.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source is not None:
            self._socket.bind((source, 0))
        self._buffer = bytearray()

    @classmethod
    def to(cls, url: str, *, receive_buffer: int | None = None) -> Self:
        """A client of `http://host:port` or `unix:/path`."""
        if url.startswith("unix:"):
            return cls(unix_path=url.removeprefix("unix:"), receive_buffer=receive_buffer)
        host, _, port = url.removeprefix("http://").partition(":")
        return cls(int(port), host=host, receive_buffer=receive_buffer)

    async def __aenter__(self) -> Self:
        await asyncio.get_running_loop().sock_connect(self._socket, self._address)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    async def send(self, data: bytes) -> None:
        """Sends all bytes; several requests in one call are pipelined."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def read_until(self, pattern: bytes, *, seconds: float = 10.0) -> bytes:
        """All bytes through the first `pattern`. Raises EOFError where the other side ends before, TimeoutError."""
        async with asyncio.timeout(seconds):
            while (found := self._buffer.find(pattern)) < 0:
                if not await self._receive():
                    raise EOFError(bytes(self._buffer))
        return self._take(found + len(pattern))

    async def read_to_end(self, *, seconds: float = 10.0) -> bytes:
        """All bytes until the other side's FIN. Raises ConnectionResetError at its RST, TimeoutError."""
        async with asyncio.timeout(seconds):
            while await self._receive():
                pass
        return self._take(len(self._buffer))

    async def read_answer(self, *, seconds: float = 10.0) -> Answer:
        """The next whole answer: by its length, or by its chunks. Raises EOFError where it is cut."""
        head = (await self.read_until(b"\r\n\r\n", seconds=seconds)).removesuffix(b"\r\n\r\n")
        fields = {
            name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))
        }
        if b"chunked" in fields.get(b"transfer-encoding", b""):
            body = await self._read_chunks(seconds)
        else:
            body = await self._read_exactly(int(fields.get(b"content-length", b"0")), seconds)
        return Answer(int(head.split(b" ", 2)[1]), head, body)

    async def read_chunk(self, *, seconds: float = 10.0) -> bytes:
        """The payload of the next chunk of a chunked body, empty for the last one. Raises as `read_answer` does."""
        size = int((await self.read_until(b"\r\n", seconds=seconds)).split(b";")[0], 16)
        return (await self._read_exactly(size + 2, seconds))[:-2]

    def leave_by_fin(self) -> None:
        """Closes the connection; the other side sees FIN."""
        # A close with unread bytes would be an RST at once, so the FIN is sent by itself before.
        self._socket.shutdown(socket.SHUT_WR)
        self._socket.close()

    def half_close(self) -> None:
        """Sends FIN and can still read."""
        self._socket.shutdown(socket.SHUT_WR)

    def leave_by_rst(self) -> None:
        """Closes the connection; the other side sees RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    async def _read_chunks(self, seconds: float) -> bytes:
        body = b""
        while chunk := await self.read_chunk(seconds=seconds):
            body += chunk
        return body

    async def _read_exactly(self, length: int, seconds: float) -> bytes:
        async with asyncio.timeout(seconds):
            while len(self._buffer) < length:
                if not await self._receive():
                    raise EOFError(bytes(self._buffer))
        return self._take(length)

    async def _receive(self) -> bool:
        data = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        self._buffer += data
        return bool(data)

    def _take(self, length: int) -> bytes:
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        return taken
