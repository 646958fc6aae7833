"""Engines by their names: looked up for each connection, all addresses tried, moves followed, proof kept to one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from config.client_tls import client_context
from proxy.assurance.engines import Engines
from proxy.assurance.leash import Leash, leash
from proxy.assurance.replica import Engine, Replica
from proxy.assurance.verdict import Verdict
from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.engines.profile import Operation
from proxy.isolation.salt import SaltKey
from proxy.relay.leg import Leg
from proxy.relay.patience import Patience
from proxy.relay.pool import Address, Pool
from proxy.relay.question import EngineUnreachable, ask, ask_on
from tests.parts.raw_engine import RawEngine, Send, Wait, json_answer
from tests.proxy.assurance.facade import Silent
from tests.proxy.relay.test_leg import ANSWER, request
from tests.proxy.relay.test_places import certificate

GOOD = (Send(json_answer(ANSWER)),)
NAME = "engine.internal"


class Names:
    """A resolver that says what the test wants. `asked` are the lookups so far."""

    def __init__(self, *addresses: str) -> None:
        self.says: Sequence[str] = addresses
        self.asked = 0

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        assert host == NAME
        self.asked += 1
        if not self.says:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return self.says


class SlowAtFirst(Names):
    """A resolver whose first answer, which is of when it was asked, waits for `go_on`."""

    def __init__(self, *addresses: str) -> None:
        super().__init__(*addresses)
        self.go_on = asyncio.Event()

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        said = await super().addresses(host, port)
        if self.asked == 1:
            await self.go_on.wait()
        return said


class NoAnswer:
    """A resolver that never answers."""

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()


def pool_by(names: Names, port: int, *, connect_seconds: float = 5.0, age_seconds: float = 300.0) -> Pool:
    return Pool(Address(host=NAME, port=port), connect_seconds=connect_seconds, age_seconds=age_seconds, lookup=names)


@contextmanager
def deaf_at(address: str, port: int) -> Iterator[None]:
    """What takes no connection and refuses none: a listener whose queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((address, port))
        yield


async def test_a_name_is_looked_up_for_each_new_connection_and_not_for_one_that_waits() -> None:
    async with RawEngine(GOOD) as engine:
        names = Names("127.0.0.1")
        pool = pool_by(names, engine.port)
        for _ in range(2):
            await ask(pool, request(), seconds=5.0)
        assert names.asked == 2
        leg = pool.idle_leg()
        assert leg is not None
        assert (await ask_on(leg, pool, request(), seconds=5.0)).body == ANSWER
        assert names.asked == 2
        pool.close()


async def test_a_name_that_moves_is_followed_by_the_next_connection() -> None:
    async with RawEngine(GOOD) as old, RawEngine(GOOD, listen=("127.0.0.2", old.port)) as new:
        names = Names("127.0.0.1")
        pool = pool_by(names, old.port)
        await ask(pool, request(), seconds=5.0)
        names.says = ("127.0.0.2",)
        await ask(pool, request(), seconds=5.0)
        assert (len(old.requests), len(new.requests)) == (1, 1)
        pool.close()


@pytest.mark.slow
async def test_every_address_of_a_name_is_tried_one_that_refuses_and_one_that_is_deaf() -> None:
    async with RawEngine(GOOD, listen=("127.0.0.4", 0)) as engine:
        with deaf_at("127.0.0.3", engine.port):
            pool = pool_by(Names("127.0.0.2", "127.0.0.3", "127.0.0.4"), engine.port, connect_seconds=1.5)
            assert (await ask(pool, request(), seconds=5.0)).body == ANSWER
            pool.close()


@pytest.mark.slow
async def test_all_addresses_together_have_the_time_of_one_connection() -> None:
    with deaf_at("127.0.0.3", 18765):
        pool = pool_by(Names(*["127.0.0.3"] * 20), 18765, connect_seconds=0.5)
        async with asyncio.timeout(5):
            with pytest.raises(EngineUnreachable):
                await ask(pool, request(), seconds=5.0)


async def test_a_name_without_an_address_is_an_engine_that_cannot_be_reached() -> None:
    with pytest.raises(EngineUnreachable, match="no such name"):
        await ask(pool_by(Names(), 8000), request(), seconds=5.0)


async def test_a_lookup_that_never_ends_takes_no_longer_than_a_connection_may() -> None:
    pool = Pool(Address(host=NAME, port=8000), connect_seconds=0.2, lookup=NoAnswer())
    async with asyncio.timeout(5):
        with pytest.raises(EngineUnreachable):
            await ask(pool, request(), seconds=5.0)


async def test_behind_tls_it_is_the_name_that_must_be_proven_and_not_the_address(tmp_path: Path) -> None:
    authority, server = certificate(tmp_path, "127.0.0.1")
    async with RawEngine(GOOD, tls=server) as engine:
        tls = client_context(authority, None)
        pool = Pool(Address(host=NAME, port=engine.port, tls=tls), connect_seconds=5.0, lookup=Names("127.0.0.1"))
        with pytest.raises(EngineUnreachable, match="certificate"):
            await ask(pool, request(), seconds=5.0)
        assert not engine.requests


async def test_nothing_is_sent_but_to_the_address_that_the_leash_is_at() -> None:
    """What is proven is proven of one process; the name's other addresses are other processes."""
    async with RawEngine(GOOD) as proven, RawEngine(GOOD, listen=("127.0.0.2", proven.port)) as other:
        names = Names("127.0.0.1")
        pool = pool_by(names, proven.port)
        async with leash(pool, lambda: None):
            names.says = ("127.0.0.2", "127.0.0.1")
            await ask(pool, request(), seconds=5.0)
            names.says = ("127.0.0.2",)
            await ask(pool, request(), seconds=5.0)
        assert (len(proven.requests), len(other.requests)) == (2, 0)
        pool.close()


async def test_a_connection_of_before_the_leash_carries_nothing_after_it() -> None:
    """Before, what needs no proof goes wherever the name leads, and its connection waits for what comes next."""
    async with RawEngine(GOOD) as proven, RawEngine(GOOD, listen=("127.0.0.2", proven.port)) as other:
        names = Names("127.0.0.2")
        pool = pool_by(names, proven.port)
        assert await answered(pool, await pool.new_leg()) == ANSWER
        assert pool._idle
        names.says = ("127.0.0.1", "127.0.0.2")
        async with leash(pool, lambda: None):
            assert not pool._idle
            assert await other.peer_closed() == "fin"
        pool.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"], ids=["at the same address", "at another"])
async def test_nor_does_one_whose_answer_came_when_the_leash_was_there(address: str) -> None:
    """At the leash's own address, too: who listened there before may have been another process."""
    go_on = asyncio.Event()
    slow = (Send(json_answer(ANSWER)[:-5]), Wait(go_on), Send(json_answer(ANSWER)[-5:]))
    async with RawEngine(slow) as proven, RawEngine(slow, listen=("127.0.0.2", proven.port)) as other:
        names = Names(address)
        pool = pool_by(names, proven.port)
        asked = asyncio.create_task(answered(pool, await pool.new_leg()))
        at = proven if address == "127.0.0.1" else other
        await at.request()
        await asyncio.sleep(0.01)  # the loop's clock has steps of a millisecond
        names.says = ("127.0.0.1",)
        async with leash(pool, lambda: None):
            go_on.set()
            assert await asked == ANSWER
            assert pool.idle_leg() is None
            assert await at.peer_closed() == "fin"
        pool.close()


async def test_nor_does_one_to_another_address_that_was_made_meanwhile() -> None:
    """A connection may have been under way when the leash was attached."""
    async with RawEngine(GOOD) as proven, RawEngine(GOOD, listen=("127.0.0.2", proven.port)) as other:
        names = SlowAtFirst("127.0.0.2")
        pool = pool_by(names, proven.port)
        making = asyncio.create_task(pool.new_leg())
        await until(lambda: names.asked == 1)
        names.says = ("127.0.0.1",)
        async with leash(pool, lambda: None):
            names.go_on.set()
            with pytest.raises(ConnectionError):
                await making
            assert not other.requests
            assert await answered(pool, await pool.new_leg()) == ANSWER
            assert pool.idle_leg() is not None
        pool.close()


async def answered(pool: Pool, leg: Leg) -> bytes:
    return (await ask_on(leg, pool, request(), seconds=5.0)).body


async def test_behind_tls_too_nothing_is_sent_but_to_the_address_that_the_leash_is_at(tmp_path: Path) -> None:
    authority, server = certificate(tmp_path, "127.0.0.1")
    async with (
        RawEngine(GOOD, tls=server) as proven,
        RawEngine(GOOD, tls=server, listen=("127.0.0.2", proven.port)) as other,
    ):
        names = Names("127.0.0.1")
        context = client_context(authority, None)
        context.check_hostname = False  # the certificate is of an address; what counts here is where it is connected to
        pool = Pool(Address(host=NAME, port=proven.port, tls=context), connect_seconds=5.0, lookup=names)
        async with leash(pool, lambda: None):
            names.says = ("127.0.0.2",)
            assert (await ask(pool, request(), seconds=5.0)).body == ANSWER
        assert (len(proven.requests), len(other.requests)) == (1, 0)
        pool.close()


@pytest.mark.parametrize(
    ("says", "moved"),
    [(("127.0.0.1",), False), (("127.0.0.9", "127.0.0.1"), False), (("127.0.0.9",), True), ((), False)],
    ids=["the same", "one more", "another", "nothing"],
)
async def test_a_name_has_moved_when_it_is_known_to_lead_elsewhere(says: tuple[str, ...], moved: bool) -> None:
    async with RawEngine(GOOD) as engine:
        names = Names("127.0.0.1")
        pool = pool_by(names, engine.port, age_seconds=0.0)
        held = Leash(pool, lambda: None)
        await held.attach()
        names.says = says
        assert await held.leads_elsewhere() is moved
        held.let_go()


async def test_a_leash_looks_no_more_often_than_connections_grow_old() -> None:
    async with RawEngine(GOOD) as engine:
        names = Names("127.0.0.1")
        held = Leash(pool_by(names, engine.port), lambda: None)
        await held.attach()
        names.says = ("127.0.0.9",)
        assert not await held.leads_elsewhere()
        assert names.asked == 1
        held.let_go()


async def test_a_connection_that_is_too_old_ends_its_answer_and_takes_no_other() -> None:
    go_on = asyncio.Event()
    engine = RawEngine((Send(json_answer(ANSWER)[:-5]), Wait(go_on), Send(json_answer(ANSWER)[-5:])), GOOD)
    async with engine:
        pool = pool_by(Names("127.0.0.1"), engine.port, age_seconds=0.1)
        asked = asyncio.create_task(ask(pool, request(), seconds=5.0))
        await engine.request()
        await asyncio.sleep(0.2)
        go_on.set()
        assert (await asked).body == ANSWER
        assert not pool._idle
        assert await engine.peer_closed() == "fin"


async def test_a_connection_that_grows_old_while_it_waits_is_closed_and_not_taken() -> None:
    async with RawEngine(GOOD) as engine:
        pool = pool_by(Names("127.0.0.1"), engine.port, age_seconds=0.2)
        await ask(pool, request(), seconds=5.0)
        assert pool._idle
        await asyncio.sleep(0.25)
        assert pool.idle_leg() is None
        assert await engine.peer_closed() == "fin"


async def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_an_engine_whose_name_moves_is_proven_anew_where_it_is_now_before_anything_is_sent() -> None:
    """The old one is still there, and would answer."""
    shape = EngineShape(pace=AT_ONCE)
    async with (
        Simulator(shape) as old,
        Simulator(shape, host="127.0.0.2", port=int(old.url.rpartition(":")[2])) as new,
    ):
        names = Names("127.0.0.1")
        replica = Replica(partial(pool_by, names, int(old.url.rpartition(":")[2]), age_seconds=0.5))
        engine = Engine("main", "strict", None, (replica,), Patience(first_byte=60, idle=60))
        engines = Engines([engine], SaltKey("k1", b"0123456789abcdef0123456789abcdef"), Silent())
        following = asyncio.create_task(engines.follow())
        try:
            await until(lambda: replica.settled(engine.profile))
            proven = replica.pool
            assert not new.requests
            names.says = ("127.0.0.2",)
            await until(lambda: replica.pool is not proven)
            assert replica.finding(Operation.CHAT).verdict is Verdict.UNKNOWN
            await until(lambda: replica.settled(engine.profile))
            assert new.requests
            at_the_old_one = len(old.requests)
            await ask(replica.pool, request(), seconds=5.0)
            assert len(old.requests) == at_the_old_one
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            engines.close()
            await asyncio.sleep(0)
