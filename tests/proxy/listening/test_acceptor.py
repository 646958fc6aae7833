"""Workers on one listening socket, each in its turn: real connections, several acceptors on one loop."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest

from proxy.listening.acceptor import Acceptor
from proxy.listening.loads import LoadPage, Loads, load_page
from proxy.tls import client_context, listener_context
from tests.proxy.test_tls import Authority


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as made:
        made.setblocking(False)
        yield made


@pytest.fixture
def page() -> Iterator[LoadPage]:
    made = load_page(3)
    yield made
    made.close()


class Connection(asyncio.Protocol):
    """Answers with what it got, and tells its worker when it is gone."""

    def __init__(self, at: Worker) -> None:
        self._at = at

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._wire = transport
        self._at.open += 1

    def data_received(self, data: bytes) -> None:
        self._wire.write(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._at.open -= 1
        self._at.acceptor.lost()


class Worker:
    """An acceptor and how many connections it holds."""

    def __init__(
        self, listening: socket.socket, loads: Loads, tls: Callable[[], ssl.SSLContext | None] = lambda: None
    ) -> None:
        self.open = 0
        self.loads = loads
        self.acceptor = Acceptor(listening, loads, lambda: Connection(self), tls=tls, handshake_seconds=5.0)


@asynccontextmanager
async def workers(listening: socket.socket, page: LoadPage, count: int) -> AsyncIterator[list[Worker]]:
    with ExitStack() as stack:
        made = [Worker(listening.dup(), stack.enter_context(closing(Loads(page, number)))) for number in range(count)]
        try:
            yield made
        finally:
            for worker in made:
                worker.acceptor.close()
                await worker.acceptor.end()


async def connect(listening: socket.socket, count: int) -> list[socket.socket]:
    """All at once; each has been served when this returns."""
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(count):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(listening.getsockname())
        clients.append(client)
    async with asyncio.timeout(10):
        await asyncio.gather(*(loop.sock_sendall(client, b"x") for client in clients))
        assert await asyncio.gather(*(loop.sock_recv(client, 1) for client in clients)) == [b"x"] * count
    return clients


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("count", [4, 16, 300])
async def test_a_burst_is_spread_evenly(listening: socket.socket, page: LoadPage, count: int) -> None:
    async with workers(listening, page, 2) as two:
        for worker in two:
            worker.acceptor.open()
        clients = await connect(listening, count)
        shares = [worker.open for worker in two]
        assert sum(shares) == count
        assert min(shares) >= 0.45 * count, shares
        for client in clients:
            client.close()
        await until(lambda: sum(worker.open for worker in two) == 0)


async def test_a_newcomer_catches_up_before_the_others_take_more(listening: socket.socket, page: LoadPage) -> None:
    async with workers(listening, page, 2) as (old, new):
        old.acceptor.open()
        clients = await connect(listening, 20)
        new.acceptor.open()
        clients += await connect(listening, 20)
        assert (old.open, new.open) in {(20, 20), (21, 19)}
        for client in clients:
            client.close()
        await until(lambda: old.open + new.open == 0)


async def test_nothing_is_taken_before_it_is_opened_and_nothing_lost_that_waits_when_one_closes(
    listening: socket.socket, page: LoadPage
) -> None:
    async with workers(listening, page, 2) as (old, new):
        loop = asyncio.get_running_loop()
        waiting = socket.socket()
        waiting.setblocking(False)
        await loop.sock_connect(waiting, listening.getsockname())
        await asyncio.sleep(0.05)
        assert old.open + new.open == 0
        old.acceptor.close()
        new.acceptor.open()
        new.acceptor.open()  # said twice it is no other
        await loop.sock_sendall(waiting, b"x")
        async with asyncio.timeout(5):
            assert await loop.sock_recv(waiting, 1) == b"x"
        waiting.close()
        await until(lambda: new.open == 0)


async def test_what_a_stuck_worker_does_not_take_is_taken_by_the_others(
    listening: socket.socket, page: LoadPage
) -> None:
    """The worker at place 1 is there with nothing open, and never comes."""
    async with workers(listening, page, 1) as (worker,):
        with closing(Loads(page, 1)) as stuck:
            stuck.tell(0)
            worker.acceptor.open()
            clients = await connect(listening, 150)
            assert worker.open == 150
            for client in clients:
                client.close()
            await until(lambda: worker.open == 0)


async def test_a_resting_worker_goes_on_at_once_when_its_own_connections_end(
    listening: socket.socket, page: LoadPage
) -> None:
    async with workers(listening, page, 1) as (worker,):
        with closing(Loads(page, 1)) as other:
            other.tell(1)
            worker.acceptor.open()
            first = await connect(listening, 2)
            for client in first:
                client.close()
            await until(lambda: worker.open == 0)
            (client,) = await connect(listening, 1)
            assert worker.loads.may_take()
            client.close()
            await until(lambda: worker.open == 0)


class Exhausted(socket.socket):
    """Its process has no descriptors left, for so many tries."""

    tries = 3

    def accept(self) -> tuple[socket.socket, object]:
        if self.tries:
            self.tries -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_without_descriptors_it_tries_again_later_and_not_without_end(
    listening: socket.socket, page: LoadPage
) -> None:
    exhausted = Exhausted(fileno=listening.dup().detach())
    exhausted.setblocking(False)
    with closing(Loads(page, 0)) as loads:
        worker = Worker(exhausted, loads)
        worker.acceptor.open()
        began = asyncio.get_running_loop().time()
        (client,) = await connect(listening, 1)
        assert asyncio.get_running_loop().time() - began > 0.25  # three pauses
        client.close()
        await until(lambda: worker.open == 0)
        worker.acceptor.close()
        await worker.acceptor.end()


async def test_a_client_whose_handshake_fails_is_forgotten(
    listening: socket.socket, page: LoadPage, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    context = listener_context(authority.tls("127.0.0.1"))
    with closing(Loads(page, 0)) as loads:
        worker = Worker(listening.dup(), loads, tls=lambda: context)
        worker.acceptor.open()
        _, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.close()
        await until(lambda: worker.acceptor._connections == 0)
        reader, writer = await asyncio.open_connection(
            *listening.getsockname(), ssl=client_context(authority.file, None)
        )
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        writer.close()
        await until(lambda: worker.acceptor._connections == 0)
        worker.acceptor.close()
        await worker.acceptor.end()
