"""How many connections there may be, in all and from one address, and who makes room for whom."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import IPv4Network

import pytest

from proxy.descriptors import RESERVED, connections_possible
from proxy.peers import Peer, Trusted, address_of
from proxy.refusals import Refusal
from proxy.relay.answer import Answer
from proxy.relay.crowd import Crowd
from proxy.relay.downstream import Downstream
from proxy.relay.front import LOOK_FOR_ROOM_SECONDS, Front
from proxy.relay.request import Request
from tests.parts.gone_client import GoneClient

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
MANY = 1000


# Counting.


def test_a_connection_counts_for_its_address_until_it_leaves() -> None:
    crowd = Crowd(MANY, of_one_address=2)
    origin = crowd.origin(address_of("192.0.2.7"))
    assert [crowd.enter(origin) for _ in range(3)] == [True, True, False]
    assert crowd.enter(crowd.origin(address_of("192.0.2.8")))
    assert (crowd.open, crowd.closed["address"]) == (3, 1)
    crowd.leave(origin)
    assert crowd.enter(origin)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:0:7::1", "2001:db8:0:7:ffff::2", True),
        ("2001:db8:0:7::1", "2001:db8:0:8::1", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.8", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
def test_whoever_has_one_address_of_a_network_of_ipv6_has_them_all(one: str, other: str, same: bool) -> None:
    crowd = Crowd(MANY, of_one_address=1)
    assert crowd.enter(crowd.origin(address_of(one)))
    assert crowd.enter(crowd.origin(address_of(other))) is not same


def test_through_a_trusted_front_and_a_unix_socket_many_come_from_one_address() -> None:
    crowd = Crowd(5, of_one_address=1, trusted=Trusted((IPv4Network("10.0.0.0/8"),)))
    peers: list[Peer] = [*map(address_of, ("10.1.2.3", "10.1.2.3", "::ffff:10.1.2.3")), "unix", None]
    assert [crowd.enter(crowd.origin(peer)) for peer in peers] == [True] * 5
    assert not crowd.enter(crowd.origin(None))  # in all they count
    assert crowd.closed["all"] == 1
    for peer in peers:
        crowd.leave(crowd.origin(peer))
    assert crowd.open == 0


def test_as_many_clients_are_let_in_as_each_can_have_a_connection_to_an_engine() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 2 * connections_possible() + RESERVED <= soft or connections_possible() == 1


# At the listener.


@asynccontextmanager
async def listener(
    crowd: Crowd, *, front: type[Front] = Front, **seconds: float
) -> AsyncIterator[tuple[Front, int, asyncio.Event]]:
    """`/slow` is answered when the event is set, everything else at once."""
    go_on = asyncio.Event()

    async def handle(request: Request) -> Answer:
        if request.target == "/slow":
            await go_on.wait()
        answer = Answer(request)
        answer.whole(200, b"", b"ok")
        return answer

    def failed(refusal: Refusal, error: BaseException | None) -> bytes:
        raise AssertionError(refusal) from error

    made = front(handle, failed, **({"request_seconds": 30.0, "stall_seconds": 30.0} | seconds), crowd=crowd)  # type: ignore[arg-type]
    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    try:
        yield made, server.sockets[0].getsockname()[1], go_on
    finally:
        go_on.set()
        server.close()
        await made.shutdown(timeout=1.0)


async def closed(client: GoneClient, seconds: float = 10.0) -> bool:
    """Whether the connection ends without a byte."""
    try:
        return not await client.read_to_end(seconds=seconds)
    except ConnectionResetError:
        return True


async def served(client: GoneClient) -> bool:
    await client.send(GET)
    return (await client.read_answer()).status == 200


async def open_is(crowd: Crowd, number: int) -> None:
    async with asyncio.timeout(10):
        while crowd.open != number:
            await asyncio.sleep(0.005)


class Counting(Front):
    """How often all connections were looked at."""

    looks = 0

    @property
    def downstreams(self) -> list[Downstream]:
        self.looks += 1
        return super().downstreams


async def test_a_flood_of_newcomers_at_a_worker_full_of_requests_costs_no_look_at_all_connections_each() -> None:
    crowd = Crowd(1, of_one_address=MANY)
    async with listener(crowd, front=Counting) as (front, port, go_on), GoneClient(port) as busy:
        assert isinstance(front, Counting)
        await busy.send(b"GET /slow HTTP/1.1\r\nHost: gate\r\n\r\n")
        await open_is(crowd, 1)
        async with asyncio.timeout(10):
            while not front.busy:
                await asyncio.sleep(0.005)
        before, began = front.looks, asyncio.get_running_loop().time()
        for _ in range(200):
            async with GoneClient(port) as newcomer:
                assert await closed(newcomer)
        assert front.looks - before <= 2 + (asyncio.get_running_loop().time() - began) / LOOK_FOR_ROOM_SECONDS
        assert crowd.closed["all"] == 200
        go_on.set()
        assert (await busy.read_answer()).status == 200
        async with asyncio.timeout(10):  # soon it is seen that it waits now
            while not await comes_in(port):
                await asyncio.sleep(0.01)


async def comes_in(port: int) -> bool:
    async with GoneClient(port) as newcomer:
        try:
            return await served(newcomer)
        except (ConnectionError, EOFError):
            return False


async def test_one_more_from_an_address_is_closed_and_the_others_are_not() -> None:
    crowd = Crowd(MANY, of_one_address=2)
    async with listener(crowd) as (front, port, _), GoneClient(port) as first, GoneClient(port) as second:
        assert await served(first)
        assert await served(second)
        async with GoneClient(port) as third:
            assert await closed(third)
        async with GoneClient(port, source="127.0.0.2") as other:
            assert await served(other)
        assert await served(first)
        first.leave_by_fin()
        await open_is(crowd, 1)
        async with GoneClient(port) as fourth:
            assert await served(fourth)
        await open_is(crowd, 1)
        assert len(front.connections) == 1


async def test_where_there_are_too_many_the_one_that_has_waited_longest_makes_room() -> None:
    crowd = Crowd(3, of_one_address=MANY)
    async with AsyncExitStack() as stack:
        _, port, _ = await stack.enter_async_context(listener(crowd))
        clients = [await stack.enter_async_context(GoneClient(port)) for _ in range(3)]
        for client in (*clients, clients[0]):
            assert await served(client)
            await asyncio.sleep(0.01)  # the loop's clock has milliseconds
        newcomer = await stack.enter_async_context(GoneClient(port))
        assert await served(newcomer)
        assert await closed(clients[1])
        assert await served(clients[0])
        assert await served(clients[2])
        assert (crowd.open, crowd.closed["idle"], crowd.closed["all"]) == (3, 1, 0)


async def test_nobody_makes_room_for_one_of_an_address_that_has_its_part() -> None:
    crowd = Crowd(3, of_one_address=2)
    async with AsyncExitStack() as stack:
        _, port, _ = await stack.enter_async_context(listener(crowd))
        other = await stack.enter_async_context(GoneClient(port, source="127.0.0.2"))
        assert await served(other)
        for _ in range(2):
            assert await served(await stack.enter_async_context(GoneClient(port)))
        assert await closed(await stack.enter_async_context(GoneClient(port)))
        assert await served(other)
        assert (crowd.open, crowd.closed["idle"], crowd.closed["address"]) == (3, 0, 1)


@pytest.mark.parametrize("head", [b"", b"GET / HTT"], ids=["silent", "half a head"])
async def test_whoever_opens_connections_and_asks_for_nothing_keeps_nobody_out(head: bytes) -> None:
    crowd = Crowd(20, of_one_address=MANY)
    async with AsyncExitStack() as stack:
        front, port, _ = await stack.enter_async_context(listener(crowd))
        for _ in range(60):
            silent = await stack.enter_async_context(GoneClient(port))
            await silent.send(head)
        async with GoneClient(port, source="127.0.0.2") as client:
            assert await served(client)
        assert crowd.open <= 20
        assert len(front.connections) <= 21


async def test_a_request_that_is_open_makes_no_room_and_who_comes_then_is_closed() -> None:
    crowd = Crowd(2, of_one_address=MANY)
    async with listener(crowd) as (_, port, go_on), GoneClient(port) as first, GoneClient(port) as second:
        for client in (first, second):
            await client.send(GET.replace(b"/ ", b"/slow "))
        async with asyncio.timeout(10):
            while crowd.open < 2:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        async with GoneClient(port) as third:
            assert await closed(third)
        assert crowd.closed["all"] == 1
        go_on.set()
        for client in (first, second):
            assert (await client.read_answer()).status == 200


# Slowness.


async def test_a_connection_that_never_sends_anything_is_closed() -> None:
    async with listener(Crowd(MANY, of_one_address=MANY), idle_seconds=0.2) as (_, port, _), GoneClient(port) as client:
        assert await closed(client)


@pytest.mark.slow
async def test_a_head_that_trickles_is_cut_though_each_byte_comes_soon() -> None:
    crowd = Crowd(MANY, of_one_address=MANY)
    async with listener(crowd, request_seconds=0.5) as (_, port, _), GoneClient(port) as client:
        await client.send(b"GET / HTTP/1.1\r\nX-Slow: ")

        async def trickle() -> None:
            while True:
                await client.send(b"a")
                await asyncio.sleep(0.05)

        trickling = asyncio.ensure_future(trickle())
        assert await closed(client)
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)


# Descriptors.

_NEARLY_NONE = """
import asyncio, resource, sys, time, uvloop
async def main():
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    began = time.process_time()
    await asyncio.sleep(1.0)
    print(time.process_time() - began, flush=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
uvloop.run(main())
"""


@pytest.mark.slow
async def test_a_listener_without_descriptors_for_those_who_come_does_not_spin() -> None:
    """What `Front` never lets happen by its limit may come from elsewhere: then the loop closes who comes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _NEARLY_NONE, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    async with AsyncExitStack() as stack:
        port = int(await process.stdout.readline())
        for _ in range(100):
            await stack.enter_async_context(GoneClient(port))
        process.stdin.write(b"\n")
        assert float(await process.stdout.readline()) < 0.5
    assert await process.wait() == 0


async def test_a_worker_may_have_as_many_files_as_its_process_is_allowed() -> None:
    script = (
        "import resource; from proxy.descriptors import raise_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "raise_limit(); print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=subprocess.PIPE)
    told, _ = await process.communicate()
    soft, hard = map(int, told.split())
    assert soft == min(hard, 1_048_576)
