"""The listener of a worker with TLS: a connection counts from its first moment, not from the end of its handshake."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.client_tls import client_context
from proxy.listening.acceptor import Acceptor
from proxy.listening.loads import Loads, load_page
from proxy.refusals import Refusal
from proxy.relay.answer import Answer
from proxy.relay.crowd import Crowd
from proxy.relay.front import Front
from proxy.relay.request import Request
from proxy.tls import listener_context
from tests.proxy.test_tls import Authority

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]

GET = b"GET / HTTP/1.1\r\nHost: gate\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Listener:
    front: Front
    acceptor: Acceptor
    port: int
    trust: ssl.SSLContext

    @property
    def crowd(self) -> Crowd:
        return self.front.crowd

    async def silent(self, source: str = "127.0.0.1") -> Client:
        """A client that connects and says nothing."""
        before = self.acceptor._connections
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))
        async with asyncio.timeout(10):
            while self.acceptor._connections == before and not reader.at_eof():
                await asyncio.sleep(0.005)
        return reader, writer

    async def served(self, source: str = "127.0.0.3") -> bool:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(source, 0), ssl=self.trust, server_hostname="127.0.0.1"
        )
        writer.write(GET)
        answered = (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        return answered

    async def open_is(self, number: int) -> None:
        async with asyncio.timeout(10):
            while self.crowd.open != number:
                await asyncio.sleep(0.005)

    async def is_left(self) -> None:
        """Its connections are forgotten, a turn of the loop after they were given back."""
        async with asyncio.timeout(10):
            while not self.front.is_empty:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def listener(folder: Path, crowd: Crowd, beginning_seconds: float = 60.0) -> AsyncIterator[Listener]:
    async def handle(request: Request) -> Answer:
        answer = Answer(request)
        answer.whole(200, b"", b"ok")
        return answer

    def failed(refusal: Refusal, error: BaseException | None) -> bytes:
        raise AssertionError(refusal) from error

    authority = Authority(folder)
    context = listener_context(authority.tls("127.0.0.1"))
    page = load_page(1)
    with socket.create_server(("127.0.0.1", 0)) as listening, closing(page), closing(Loads(page, 0)) as loads:
        listening.setblocking(False)
        front = Front(handle, failed, request_seconds=beginning_seconds, stall_seconds=30.0, crowd=crowd)
        acceptor = Acceptor(listening.dup(), loads, front, tls=lambda: context, beginning_seconds=beginning_seconds)
        front.lost = acceptor.lost
        acceptor.open()
        try:
            yield Listener(front, acceptor, listening.getsockname()[1], client_context(authority.file, None))
        finally:
            acceptor.close()
            await acceptor.end()
            await front.shutdown(timeout=1.0)


async def ended(client: Client) -> bool:
    reader, _ = client
    async with asyncio.timeout(10):
        try:
            return await reader.read(1) == b""
        except ConnectionResetError:
            return True


def leave(*clients: Client) -> None:
    for _, writer in clients:
        writer.close()


async def test_an_address_has_no_more_connections_by_not_shaking_hands(tmp_path: Path) -> None:
    async with listener(tmp_path, Crowd(100, of_one_address=2)) as gate:
        first, second = await gate.silent(), await gate.silent()
        third = await gate.silent()
        assert await ended(third)
        assert gate.crowd.closed["address"] == 1
        assert await gate.served()  # from another address
        leave(first, second, third)
        await gate.open_is(0)
        assert await gate.served("127.0.0.1")
        await gate.open_is(0)
        assert gate.acceptor._connections == 0


async def test_who_does_not_shake_hands_keeps_nobody_out(tmp_path: Path) -> None:
    """The worker is full of them, from two addresses: the one that has waited longest makes room."""
    async with listener(tmp_path, Crowd(2, of_one_address=1)) as gate:
        first, second = await gate.silent("127.0.0.1"), await gate.silent("127.0.0.2")
        assert gate.crowd.is_full
        assert await gate.served("127.0.0.3")
        assert await ended(first)
        assert gate.crowd.closed["idle"] == 1
        leave(first, second)
        await gate.open_is(0)
        assert gate.acceptor._connections == 0


async def test_a_handshake_that_is_over_time_is_given_back(tmp_path: Path) -> None:
    async with listener(tmp_path, Crowd(100, of_one_address=2), beginning_seconds=0.2) as gate:
        client = await gate.silent()
        empty = gate.front.is_empty
        assert not empty  # a worker whose place others take waits for it
        assert await ended(client)
        await gate.open_is(0)
        await gate.is_left()
        assert gate.acceptor._connections == 0
        leave(client)


@pytest.mark.parametrize("number", [1, 5])
async def test_a_connection_counts_once(tmp_path: Path, number: int) -> None:
    async with listener(tmp_path, Crowd(100, of_one_address=10)) as gate:
        clients = [await asyncio.open_connection("127.0.0.1", gate.port, ssl=gate.trust) for _ in range(number)]
        for reader, writer in clients:
            writer.write(GET)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert gate.crowd.open == gate.acceptor._connections == number
        for _, writer in clients:
            writer.close()
        await gate.open_is(0)
        await gate.is_left()
        assert gate.acceptor._connections == 0
