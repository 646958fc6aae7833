"""Takes a worker's connections off the socket that all workers share, in its turn (`proxy.listening.loads`)."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from proxy.listening.loads import Loads
from proxy.listening.proxied import read_header
from proxy.listening.proxy_protocol import NoProxyHeader
from proxy.peers import Peer, Trusted, address_of, unmapped

# In one turn of the loop, so that those who are served already do not wait for a burst of newcomers.
BATCH: Final = 16
# How long a worker that rests leaves a connection to the others. Where none of them takes it, they are busy or hang.
PATIENCE_SECONDS: Final = 0.02
MOST_AT_ONCE: Final = 64
# Without descriptors or memory for a connection, the next try is that much later.
EXHAUSTED_SECONDS: Final = 0.1
COMPLAINT_SECONDS: Final = 60.0

NOBODY: Final = Trusted()

_log = structlog.get_logger("saltgate.listening")


class Host(Protocol):
    """Whose the connections are."""

    def admit(self, peer: Peer, cut: Callable[[], object]) -> asyncio.BaseProtocol | None:
        """The protocol of a connection from there, before its TLS handshake; None where there are too many. Until it is
        made, `cut` ends it.
        """
        ...

    def missed(self, connection: asyncio.BaseProtocol) -> bool:
        """One that was admitted has ended while it began. Whether it had not been made."""
        ...


class Acceptor:
    """See the module. `host` admits each connection; `lost` is to be called for each that had been made, when it is
    gone. `tls` gives the context of each new connection, None for plain ones.

    Connections of `balancers` begin with a header of the PROXY protocol that tells the peer. One of theirs without it,
    or a header that is not whole within `beginning_seconds`, ends the connection. Nobody else is asked for one.

    It takes nothing before `open`, and gives the socket back at `close`.
    """

    def __init__(
        self,
        listening: socket.socket,
        loads: Loads,
        host: Host,
        *,
        tls: Callable[[], ssl.SSLContext | None],
        beginning_seconds: float,
        balancers: Trusted = NOBODY,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._loads = loads
        self._host = host
        self._tls = tls
        self._beginning_seconds = beginning_seconds
        self._balancers = balancers
        self._connections = 0
        self._at_once = 1
        self._beginning: set[asyncio.Task[None]] = set()
        self._later: asyncio.TimerHandle | None = None
        self._opened = False
        self._complained: float | None = None

    def open(self) -> None:
        """Take connections from now on."""
        if not self._opened:
            self._opened = True
            self._loads.tell(self._connections)
            self._loop.add_reader(self._loads.bell, self._heard)
            self._watch()

    def close(self) -> None:
        """Take no more: what waits in the socket is the others', or refused where they have closed it, too."""
        if self._opened:
            self._opened = False
            self._stop_watching()
            self._loop.remove_reader(self._loads.bell)
            self._loads.leave()
        self._listening.close()

    async def end(self) -> None:
        """Nothing that has not become a connection by now will."""
        for task in self._beginning:
            task.cancel()
        if self._beginning:
            await asyncio.wait(self._beginning)

    def lost(self) -> None:
        self._count(-1)

    def _watch(self) -> None:
        self._forget_later()
        self._at_once = 1
        self._loads.rest(False)
        self._loop.add_reader(self._listening.fileno(), self._take_some)

    def _stop_watching(self) -> None:
        self._forget_later()
        self._loop.remove_reader(self._listening.fileno())

    def _take_some(self) -> None:
        for _ in range(BATCH):
            if not self._loads.may_take():
                self._rest()
                return
            if not self._take():
                return

    def _take(self) -> bool:
        """Whether there was one to take."""
        try:
            connection, address = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        except OSError as error:
            self._pause(error)
            return False
        connection.setblocking(False)
        self._count(1)
        task = self._loop.create_task(self._begin(connection, _peer(connection, address)))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)
        return True

    async def _begin(self, connection: socket.socket, peer: Peer) -> None:
        try:
            if self._balancers.holds(peer):
                peer = await self._told(connection)
        except NoProxyHeader as error:
            _log.warning(
                "worker.no_proxy_header", why=str(error), remedy="let the balancer send it, or do not trust it"
            )
            self._give_up(connection)
        except OSError:  # too slow, or gone already
            self._give_up(connection)
        else:
            await self._hand_over(connection, peer)

    async def _told(self, connection: socket.socket) -> Peer:
        """The peer that a balancer tells. Where it does not tell one it is not the balancer: what follows may be a
        client's, and the balancer's word counts for more than a client's.
        """
        async with asyncio.timeout(self._beginning_seconds):
            told = (await read_header(connection)).address
        return "untold" if told is None else unmapped(told)

    async def _hand_over(self, connection: socket.socket, peer: Peer) -> None:
        task = asyncio.current_task()
        assert task is not None
        admitted = self._host.admit(peer, task.cancel)
        if admitted is None:
            self._give_up(connection)
            return
        tls = self._tls()
        try:
            await self._loop.connect_accepted_socket(
                lambda: admitted,
                connection,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self._beginning_seconds,
            )
        except (OSError, asyncio.CancelledError) as error:
            # No TLS, another authority's certificate, too slow, or gone already; cancelled: cut, or at the end.
            if self._host.missed(admitted):
                self._give_up(connection)
            if isinstance(error, asyncio.CancelledError):
                raise

    def _give_up(self, connection: socket.socket) -> None:
        connection.close()
        self._count(-1)

    def _count(self, change: int) -> None:
        self._connections += change
        if self._opened:
            self._loads.tell(self._connections)
            if change < 0:
                self._watch_in_turn()

    def _heard(self) -> None:
        self._loads.heard()
        self._watch_in_turn()

    def _watch_in_turn(self) -> None:
        if self._later is not None and self._loads.may_take():
            self._watch()

    def _rest(self) -> None:
        """Until the bell, or until it seems that nobody else takes what comes."""
        self._stop_watching()
        self._loads.rest(True)
        self._look_later()
        self._watch_in_turn()  # perhaps somebody has taken one before he could see that this one rests

    def _look_later(self) -> None:
        self._later = self._loop.call_later(PATIENCE_SECONDS, self._look)

    def _look(self) -> None:
        """What waits still is taken: a little at first, for whose turn it is may only be busy."""
        self._look_later()
        taken = 0
        while taken < self._at_once and self._is_waiting() and self._take():
            taken += 1
        self._at_once = min(self._at_once * 2, MOST_AT_ONCE) if taken else 1

    def _is_waiting(self) -> bool:
        looking = select.poll()
        looking.register(self._listening.fileno(), select.POLLIN)
        return bool(looking.poll(0))

    def _pause(self, error: OSError) -> None:
        """A connection that cannot be taken would be told of without end."""
        now = self._loop.time()
        if self._complained is None or now - self._complained > COMPLAINT_SECONDS:
            self._complained = now
            _log.error("worker.cannot_accept", why=error.strerror, remedy="raise the limit of open files")
        self._stop_watching()
        self._later = self._loop.call_later(EXHAUSTED_SECONDS, self._watch)

    def _forget_later(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None


def _peer(connection: socket.socket, address: object) -> Peer:
    if connection.family == socket.AF_UNIX:
        return "unix"
    return address_of(str(address[0])) if isinstance(address, tuple) else None
