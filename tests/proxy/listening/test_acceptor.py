"""Workers on one listening socket, each in its turn: real connections, several acceptors on one loop."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from config.client_tls import client_context
from proxy.listening.acceptor import NOBODY, Acceptor
from proxy.listening.loads import LoadPage, Loads, load_page
from proxy.peers import Peer, Trusted
from proxy.tls import listener_context
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
        self.made = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.made = True
        self._wire = transport
        self._at.open += 1

    def data_received(self, data: bytes) -> None:
        self._wire.write(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._at.open -= 1
        self._at.acceptor.lost()


class Worker:
    """An acceptor, how many connections it holds, and where each came from."""

    def __init__(
        self,
        listening: socket.socket,
        loads: Loads,
        *,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        balancers: Trusted = NOBODY,
        beginning_seconds: float = 5.0,
    ) -> None:
        self.open = 0
        self.peers: list[Peer] = []
        self.loads = loads
        self.cuts: list[Callable[[], object]] = []
        self.most = 1000
        self.acceptor = Acceptor(
            listening, loads, self, tls=tls, beginning_seconds=beginning_seconds, balancers=balancers
        )

    def admit(self, peer: Peer, cut: Callable[[], object]) -> Connection | None:
        if len(self.peers) == self.most:
            return None
        self.peers.append(peer)
        self.cuts.append(cut)
        return Connection(self)

    def missed(self, connection: asyncio.BaseProtocol) -> bool:
        assert isinstance(connection, Connection)
        return not connection.made


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


async def test_a_handshake_that_does_not_come_can_be_cut(
    listening: socket.socket, page: LoadPage, tmp_path: Path
) -> None:
    context = listener_context(Authority(tmp_path).tls("127.0.0.1"))
    with closing(Loads(page, 0)) as loads:
        worker = Worker(listening.dup(), loads, tls=lambda: context, beginning_seconds=60.0)
        worker.acceptor.open()
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        await until(lambda: len(worker.cuts) == 1)
        worker.cuts[0]()
        async with asyncio.timeout(5):
            assert await reader.read(1) == b""
        writer.close()
        await until(lambda: worker.acceptor._connections == 0)
        worker.acceptor.close()
        await worker.acceptor.end()


async def test_whoever_is_not_admitted_is_closed_before_any_handshake(
    listening: socket.socket, page: LoadPage, tmp_path: Path
) -> None:
    context = listener_context(Authority(tmp_path).tls("127.0.0.1"))
    with closing(Loads(page, 0)) as loads:
        worker = Worker(listening.dup(), loads, tls=lambda: context, beginning_seconds=60.0)
        worker.most = 0
        worker.acceptor.open()
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        async with asyncio.timeout(5):
            assert await reader.read(1) == b""
        writer.close()
        await until(lambda: worker.acceptor._connections == 0)
        worker.acceptor.close()
        await worker.acceptor.end()


V1 = b"PROXY TCP4 192.0.2.7 127.0.0.1 56324 443\r\n"
V2 = b"\r\n\r\n\0\r\nQUIT\n"
LOOPBACK = Trusted((ip_network("127.0.0.0/8"),))


@asynccontextmanager
async def balanced(
    listening: socket.socket,
    page: LoadPage,
    *,
    trusted: Trusted = LOOPBACK,
    tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    beginning_seconds: float = 5.0,
) -> AsyncIterator[Worker]:
    """A worker behind a balancer that begins connections with the PROXY protocol."""
    with closing(Loads(page, 0)) as loads:
        worker = Worker(listening.dup(), loads, tls=tls, balancers=trusted, beginning_seconds=beginning_seconds)
        worker.acceptor.open()
        try:
            yield worker
        finally:
            worker.acceptor.close()
            await worker.acceptor.end()


async def echoed(listening: socket.socket, *pieces: bytes) -> bytes:
    """What comes back for the pieces, sent one after the other; empty: the connection was closed."""
    reader, writer = await asyncio.open_connection(*listening.getsockname())
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            return await reader.read(64)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("size", [1, 5, 15, 100])
async def test_the_peer_is_what_a_trusted_balancer_tells_and_what_follows_is_the_clients(
    listening: socket.socket, page: LoadPage, size: int
) -> None:
    async with balanced(listening, page) as worker:
        data = V1 + b"hello"
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        answer = await echoed(listening, *pieces)
        assert b"hello".startswith(answer)
        assert answer
        assert worker.peers == [ip_address("192.0.2.7")]
        await until(lambda: worker.acceptor._connections == 0)


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", V2 + b"\x20\0\0\0", V2 + b"\x21\0\0\0"])
async def test_a_balancer_that_tells_no_address_lends_nobody_its_own(
    listening: socket.socket, page: LoadPage, header: bytes
) -> None:
    """Whoever is behind it could then write what is believed of it alone."""
    async with balanced(listening, page) as worker:
        assert await echoed(listening, header + b"hello") == b"hello"
        assert worker.peers == ["untold"]
        assert not LOOPBACK.holds("untold")


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"PROXY TCP4 nonsense\r\n", b"\x16\x03\x01" + bytes(60)])
async def test_a_trusted_balancer_without_a_header_is_cut_off(
    listening: socket.socket, page: LoadPage, sent: bytes
) -> None:
    async with balanced(listening, page) as worker:
        assert await echoed(listening, sent) == b""
        assert worker.peers == []
        await until(lambda: worker.acceptor._connections == 0)


async def test_a_header_that_does_not_come_is_not_waited_for_without_end(
    listening: socket.socket, page: LoadPage
) -> None:
    async with balanced(listening, page, beginning_seconds=0.2) as worker:
        assert await echoed(listening, V1[:20]) == b""
        await until(lambda: worker.acceptor._connections == 0)
        assert await echoed(listening, V1 + b"x") == b"x"  # it held up nobody


async def test_whoever_is_not_trusted_is_taken_at_his_word_for_nothing(
    listening: socket.socket, page: LoadPage
) -> None:
    async with balanced(listening, page, trusted=Trusted((ip_network("10.0.0.0/8"),))) as worker:
        assert await echoed(listening, V1) == V1  # to the parser of requests, which refuses it
        assert worker.peers == [ip_address("127.0.0.1")]


async def test_tls_begins_after_the_header(listening: socket.socket, page: LoadPage, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = listener_context(authority.tls("127.0.0.1"))
    async with balanced(listening, page, tls=lambda: context) as worker:
        loop = asyncio.get_running_loop()
        client = socket.socket()
        client.setblocking(False)
        await loop.sock_connect(client, listening.getsockname())
        await loop.sock_sendall(client, V1)
        reader, writer = await asyncio.open_connection(
            sock=client, ssl=client_context(authority.file, None), server_hostname="127.0.0.1"
        )
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        assert worker.peers == [ip_address("192.0.2.7")]
        writer.close()
        await until(lambda: worker.acceptor._connections == 0)
