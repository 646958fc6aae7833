"""All client connections of one worker: who may come in, who makes room, and what all of them share."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Final

from aiohttp import web
from aiohttp.web_server import Server

from proxy.peers import Peer
from proxy.refusals import Dialect, Refusal
from proxy.relay.answer import Answer
from proxy.relay.crowd import Crowd
from proxy.relay.downstream import Downstream
from proxy.relay.half_close import HalfClose
from proxy.relay.pace import Pace
from proxy.relay.request import Request

WRITE_BUFFER_BYTES: Final = 16 * 1024
IDLE_SECONDS: Final = 75.0
# Where nobody says how many a worker may have. An idle one costs about 10 KB.
MOST_CONNECTIONS: Final = 16384
# Where few wait for a request, it takes milliseconds to find them among so many: a flood of newcomers looks seldom.
LOOK_FOR_ROOM_SECONDS: Final = 0.1


def _nobody_counts() -> None:
    """Where nobody shares the load."""


async def _answers_nobody(request: web.BaseRequest) -> web.StreamResponse:
    """aiohttp's own request cycle, which has been replaced, would ask it."""
    raise NotImplementedError


class Front(Server):
    """See the module."""

    def __init__(
        self,
        handle: Callable[[Request], Awaitable[Answer]],
        failed: Callable[[Refusal, BaseException | None], bytes],
        *,
        request_seconds: float,
        stall_seconds: float,
        half_close: HalfClose = "gone",
        crowd: Crowd | None = None,
        idle_seconds: float = IDLE_SECONDS,
        write_buffer_bytes: int = WRITE_BUFFER_BYTES,
        pace: Pace | None = None,
    ) -> None:
        """`failed` records a failure that has no request of its own and returns the header lines of its answer.

        A client is cut that needs more than `request_seconds` for a head, takes nothing for `stall_seconds`, or sends
        nothing for `idle_seconds` while no request of his is open. With `half_close` "probe" it is looked at whether
        one that sends FIN during a stream is gone. An engine is held where more than `write_buffer_bytes` wait for its
        client. `crowd` says who may come in, `pace` is that of all refusals of this worker. `lost` is called for each
        connection that was made, when it is gone.
        """
        super().__init__(_answers_nobody, handler_cancellation=False)
        self.handle = handle
        self._failed = failed
        self.pace = pace or Pace()
        self.crowd = crowd or Crowd(MOST_CONNECTIONS, of_one_address=MOST_CONNECTIONS)
        self.idle_seconds = idle_seconds
        self.request_seconds = request_seconds
        self.stall_seconds = stall_seconds
        self.lost: Callable[[], None] = _nobody_counts
        self._full_until = 0.0  # few waited when it was looked last
        self._beginning: dict[Downstream, Callable[[], object]] = {}  # admitted and not made, and what ends them
        self.half_close = half_close
        self.write_buffer_bytes = write_buffer_bytes

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.lost()

    def __call__(self, peer: Peer = None) -> Downstream:
        """A connection from `peer`; None: the other end of its transport."""
        return Downstream(self, loop=self._loop, peer=peer)

    def admit(self, peer: Peer, cut: Callable[[], object]) -> Downstream | None:
        """A connection that is counted from now on, also while its TLS handshake lasts: `cut` ends it until it is made.
        None: there are too many.
        """
        origin = self.let_in(peer)
        if origin is None:
            return None
        downstream = Downstream(self, loop=self._loop, peer=peer, origin=origin)
        self._beginning[downstream] = cut
        return downstream

    def made(self, downstream: Downstream) -> None:
        """It has begun."""
        self._beginning.pop(downstream, None)

    def missed(self, connection: asyncio.BaseProtocol) -> bool:
        """One that was admitted is not going to be made, or was cut in that moment. Whether it had not been made."""
        assert isinstance(connection, Downstream)
        self._beginning.pop(connection, None)
        connection.make_room()
        return not connection.was_made

    @property
    def is_empty(self) -> bool:
        """Whether nobody is connected, nor about to be."""
        return not self.connections and not self._beginning

    @property
    def downstreams(self) -> list[Downstream]:
        return [connection for connection in self.connections if isinstance(connection, Downstream)]

    @property
    def busy(self) -> bool:
        """Whether a request is open on any connection, or an answer that was not taken yet."""
        return any(not downstream.idle for downstream in self.downstreams)

    def let_in(self, peer: Peer) -> str | None:
        """Whom a new connection is counted for. None: there are too many, and it is to be closed without a word.

        Where the worker is full, those that have waited longest for a request, or for the end of their TLS handshake,
        make room.
        """
        origin = self.crowd.origin(peer)
        if self.crowd.is_full and not self.crowd.has_enough(origin):
            self._make_room()
        return origin if self.crowd.enter(origin) else None

    def _make_room(self) -> None:
        """For several at once, since to find the longest all have to be looked at."""
        now = self._loop.time()
        if now < self._full_until:
            return
        idle = (downstream for downstream in self.downstreams if downstream.idle and not downstream.gone)
        waiting = chain(idle, self._beginning)
        wanted = max(self.crowd.most // 64, 1)
        longest = heapq.nsmallest(wanted, waiting, key=lambda one: one.idle_since)
        if len(longest) < wanted:
            self._full_until = now + LOOK_FOR_ROOM_SECONDS
        for downstream in longest:
            downstream.make_room()
            self._beginning.pop(downstream, _nobody_counts)()
            self.crowd.closed["idle"] += 1

    def close_idle(self) -> None:
        """Close the connections that have been served and wait for nothing; the others close after their answer.

        A connection that has sent nothing yet may have its first request on the way: it gets an answer, not a FIN.
        """
        for downstream in self.downstreams:
            if downstream.idle and downstream.served:
                downstream.close()
                if downstream.transport is not None:
                    downstream.transport.close()

    def answer_failure(self, request: Request, refusal: Refusal, exc: BaseException | None) -> Answer:
        answer = Answer(request, last=True)
        answer.whole(refusal.status, self._failed(refusal, exc), refusal.document(Dialect.OPENAI))
        return answer
