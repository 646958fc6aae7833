"""A wire to an engine that remembers every byte which went up it, over its whole life, and can be cut.

    async with WireTap(simulator.url) as tap:
        … gate_bed(redis.settings(), [tap.url], …) …
        tap.check()

`check` reads these bytes as strictly as they can be read: anything that is not one of saltgate's own questions, or a
request to a salted endpoint with exactly one salt, fails.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from proxy.engines.kinds import VLLM

# What saltgate asks on its own account. Spelled here: a question that is new must be thought about.
PAGES: Final = frozenset({b"/v1/models", b"/metrics", b"/version", b"/openapi.json"})
SALTED: Final = frozenset(endpoint.path.encode() for endpoint in VLLM.salted)
SALT: Final = re.compile(r"sg1-[A-Za-z0-9_-]{1,32}-[A-Za-z0-9_-]{43}")
_HEAD: Final = re.compile(rb"(GET|POST) (/[!-~]*) HTTP/1\.1\r\n((?:[!-9;-~]+: [ -~]*\r\n)*)\r\n")


@dataclass(frozen=True, slots=True)
class Up:
    """One request as it went up. `body` is shorter than its length where the connection ended before."""

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes
    whole: bool

    @property
    def salt(self) -> str:
        salt: str = json.loads(self.body)["cache_salt"]
        return salt


@dataclass(slots=True)
class _Connection:
    up: bytearray = field(default_factory=bytearray)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)


class WireTap:
    """Listens on loopback while entered and passes every connection on to `target`, http://host:port."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._connections: list[_Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Ends every connection there is, as a network that fails does. New ones can be made."""
        for connection in self._connections:
            for writer in connection.writers:
                writer.transport.abort()

    def refuse(self) -> None:
        """From now on no new connection is taken; those that there are stay."""
        self._server.close()

    def lead_to(self, target: str) -> None:
        """From now on new connections go there: the engine was replaced."""
        self._target = target

    @property
    def posts(self) -> list[Up]:
        """The whole requests that could make an engine compute, in no order between connections."""
        return [up for up in self.requests if up.method == b"POST" and up.whole]

    @property
    def requests(self) -> list[Up]:
        return [up for connection in self._connections for up in _read(bytes(connection.up))]

    def check(self, *, least_posts: int = 1) -> None:
        """Fails where a byte went up that is not as the module says, or where fewer requests did."""
        for up in self.requests:
            if up.method == b"GET":
                assert up.target in PAGES, up
                assert not up.body, up
                continue
            assert up.target in SALTED, up
            assert b"x-cache-salt" not in up.headers, up
            assert b"upgrade" not in up.headers, up
            if up.whole:
                pairs = json.loads(up.body.decode("utf-8"), object_pairs_hook=list)
                salts = [value for name, value in pairs if name == "cache_salt"]
                assert len(salts) == 1, up
                assert SALT.fullmatch(str(salts[0])), up
                assert len({name for name, _ in pairs}) == len(pairs), up
        assert len(self.posts) >= least_posts, len(self.posts)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = _Connection(writers=[writer])
        self._connections.append(connection)
        host, _, port = self._target.removeprefix("http://").partition(":")
        try:
            there, to = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        connection.writers.append(to)
        await asyncio.gather(_copy(reader, to, connection.up), _copy(there, writer, bytearray()))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: bytearray) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            seen += data
            writer.write(data)
            await writer.drain()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def _read(data: bytes) -> list[Up]:
    """The requests in what one connection brought: nothing may be between them, and nothing left over but the beginning
    of one that was never finished.
    """
    requests: list[Up] = []
    while data:
        head = _HEAD.match(data)
        if head is None:
            assert b"\r\n\r\n" not in data, data[:200]
            assert data.startswith((b"G", b"P")), data[:200]
            break
        lines = [line.split(b": ", 1) for line in head[3].split(b"\r\n") if line]
        headers = {name.lower(): value for name, value in lines}
        assert len(headers) == len(lines), head[0]
        assert b"transfer-encoding" not in headers, head[0]
        length = int(headers.get(b"content-length", b"0"))
        body = data[head.end() : head.end() + length]
        requests.append(Up(head[1], head[2], headers, body, whole=len(body) == length))
        data = data[head.end() + length :]
    return requests
