"""A host of images made of bytes: it records what it is asked and plays exactly what the test wrote for each path."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.parts.raw_engine import Close, Send, Sleep, Step, Wait, WaitForPeer


def image_answer(data: bytes, *lines: str, status: str = "200 OK") -> bytes:
    """A whole answer with a length, and further header lines."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}", "Content-Type: image/png", *lines, "", ""]
    return "\r\n".join(head).encode() + data


class ImageOrigin:
    """Listens while entered. `heads` are the requests as they came; `connections` counts, also those without a request.

    `asked` is set by the first request, `gone` when a peer has closed while an answer was being played. A path that
    `pages` lacks is 404.
    """

    def __init__(
        self, pages: Mapping[str, Sequence[Step]], *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self.pages = dict(pages)
        self.heads: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self._host = host
        self._tls = tls

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._host, 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        async with asyncio.timeout(2):
            while self.open:
                await asyncio.sleep(0.001)

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def authority(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def targets(self) -> list[str]:
        """What was asked for, in order, as the request lines have it."""
        return [head.split(b" ")[1].decode() for head in self.heads]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                self.asked.set()
                steps = self.pages.get(head.split(b" ")[1].decode(), [Send(image_answer(b"", status="404 Not Found"))])
                await self._play(steps, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, _ClosedError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _play(self, steps: Sequence[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for step in steps:
            match step:
                case Send(data):
                    writer.write(data)
                    try:
                        await writer.drain()
                    except ConnectionError:
                        self.gone.set()
                        raise
                case Sleep(seconds):
                    await asyncio.sleep(seconds)
                case Wait(event):
                    await event.wait()
                case WaitForPeer():
                    try:
                        await reader.read(1)
                    finally:
                        self.gone.set()
                case Close():
                    raise _ClosedError
                case _:
                    raise ValueError(step)


class _ClosedError(Exception):
    """The script ends the connection."""
