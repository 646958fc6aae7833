"""One client's connection: aiohttp's parser, with our own cycle of requests and our own ears for leaving and slowness.

aiohttp's cycle makes a task, a writer and several maps for each request. It tells a handler nothing of a client that
leaves while its answer is paused, and little before the first byte; so the connection itself tells the exchange: RST
and loss at any time mean that the client is gone, FIN while a request is open does (contract section 5, leaving; during
a stream, `half_close` may look first), and a full write buffer holds the engine until the client reads on. A client
that takes nothing is cut after a while, whether its answer still runs or only waits to be taken.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final, Protocol, cast

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import ERROR, _ErrInfo

from proxy.peers import Peer, address_of
from proxy.refusals import DoubtfulFraming, GateError
from proxy.relay.alarm import Alarm
from proxy.relay.answer import Answer
from proxy.relay.half_close import HalfClosed, may_stay
from proxy.relay.request import Request
from proxy.relay.wire import keep_little_unsent, untaken_bytes

if TYPE_CHECKING:
    from proxy.relay.front import Front

MAXIMUM_FIELD_BYTES: Final = 32 * 1024  # a large access token is 16 KiB; aiohttp's default would refuse one of 8
# Of heads that wait, on one connection: one unfinished, or those behind an open request.
MAXIMUM_WAITING_BYTES: Final = 128 * 1024
# A body in chunks of one byte is six times as long as its content. What is longer than so many times counts as above:
# extensions, and trailers, which nobody reads.
CHUNK_BYTES_PER_BYTE: Final = 16
# How long the rest of a body that nobody wants is passed over.
LINGERING_SECONDS: Final = 5.0


class Listener(Protocol):
    """Who must know what happens to a client: the exchange that serves it."""

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def client_gone(self) -> None: ...

    @property
    def streams(self) -> bool:
        """Whether a stream runs, so that the client may have said all that it has to say."""
        ...

    def comment(self) -> bool:
        """Write a comment into the stream, where one may stand now. Whether it was written."""
        ...


class NothingToWrite:
    """What a Listener need not do while there is nothing that could be written to the client."""

    __slots__ = ()

    def hold(self) -> None:
        pass

    def release(self) -> None:
        pass

    @property
    def streams(self) -> bool:
        return False

    def comment(self) -> bool:
        return False


class ClientGone(Exception):  # noqa: N818 - an event, not an error
    """The client has left: there is nobody to answer."""


class Downstream(web.RequestHandler):
    """See the module. `gone` stays True once the client has left; `stalled`: it was cut because it took nothing for
    `stall_seconds`, as the newest answer of an engine has it. `alarm` is for whoever serves it.
    """

    __slots__ = (
        "_broken",
        "_content",
        "_front",
        "_half_closed",
        "_late",
        "_made",
        "_newest",
        "_origin",
        "_stall",
        "_unfinished",
        "_untaken",
        "_wire",
        "alarm",
        "gone",
        "listener",
        "peer",
        "stall_seconds",
        "stalled",
    )

    def __init__(
        self, front: Front, *, loop: asyncio.AbstractEventLoop, peer: Peer = None, origin: str | None = None
    ) -> None:
        super().__init__(
            front,
            loop=loop,
            access_log=None,  # type: ignore[arg-type] # None switches it off: the record is the access log
            auto_decompress=False,
            keepalive_timeout=front.idle_seconds,
            max_line_size=MAXIMUM_FIELD_BYTES,
            max_field_size=MAXIMUM_FIELD_BYTES,
        )
        self._front = front
        self._wire: asyncio.Transport | None = None  # until it is lost; aiohttp forgets its own when it begins to close
        self._half_closed: HalfClosed | None = None
        self._origin = origin  # whom it is counted for, as long as it is
        self.alarm = Alarm(loop)
        self._late: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._untaken = 0
        self._made = False
        self._newest: StreamReader | None = None  # the body of the newest request, until all of it is here
        self._broken = False  # what came is no HTTP, so nothing after it is read
        self._content = 0  # bytes of the newest request's body, when it was last looked at
        self._unfinished = 0  # bytes since the last head was whole, of what is no body
        self._next_keepalive_close_time = loop.time() + front.idle_seconds  # until it is made, when aiohttp sets it
        self.gone = False
        self.listener: Listener | None = None
        self.stall_seconds = front.stall_seconds
        self.stalled = False
        self.peer = peer

    @property
    def idle(self) -> bool:
        """Whether it waits for a request, the answer to the one before having been taken."""
        return self._waiter is not None and not self._waiter.done()

    @property
    def idle_since(self) -> float:
        """When it began to wait for a request, or to begin, in the order of such times."""
        return self._next_keepalive_close_time

    @property
    def was_made(self) -> bool:
        return self._made

    @property
    def served(self) -> bool:
        return self._request_count > 0

    def make_room(self) -> None:
        """End it, which waits for a request or is not made yet, for the sake of others."""
        self._abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self._wire = self.transport
        self._made = True
        if self.peer is None:
            self.peer = _peer(self._wire)
        self._wire.set_write_buffer_limits(high=self._front.write_buffer_bytes)
        keep_little_unsent(self._wire)
        self._front.made(self)
        if self._origin is None and not self.gone:
            self._origin = self._front.let_in(self.peer)
        if self._origin is None:
            self._abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._wire = None
        self._newest = None  # it knows this connection: each would keep the other until a full collection
        self._forget_late()
        self._leave()
        self.alarm.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._broken:
            return
        known, unfinished = len(self._messages), self._unfinished
        super().data_received(data)
        if len(self._messages) > known:
            self._has_begun(*self._messages[-1])
        elif self._newest is None:
            self._unfinished += len(data)
        elif self._newest.is_eof():
            self._newest, self._unfinished = None, 0
        else:
            self._unfinished = max(0, self._unfinished + len(data) - self._new_content() * CHUNK_BYTES_PER_BYTE)
        # Only a head that was begun before this read, or one behind another, can make it more than the read itself.
        if (unfinished + len(data) > MAXIMUM_WAITING_BYTES or known) and self._waiting_bytes > MAXIMUM_WAITING_BYTES:
            self._refuse_waiting()
        if self._late is not None:
            if not self.idle:
                self._forget_late()
        elif data and not self._messages and self.idle:  # the beginning of a request's head
            self._late = self._loop.call_later(self._front.request_seconds, self._abort)

    def _has_begun(self, head: RawRequestMessage | _ErrInfo, body: StreamReader) -> None:
        """A request, whose head is whole."""
        if isinstance(head, _ErrInfo):  # nothing can come behind it
            self._broken = True
            if self._takes_body:
                self._refuse_body()  # aiohttp tells the next request of it, but not the one whose body it is
        self._newest = None if body.is_eof() else body
        self._unfinished = self._content = 0

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp never stays, as asyncio may
        """FIN. With a request open the client is gone; abort, since close() would wait for a buffer nobody reads. While
        a stream runs it may only have said all that it has to say, where the front is to look. Whether to stay.
        """
        if self._half_closed is not None:
            return True
        if self._may_be_half_closed:
            self.close()  # there is no next request
            self._half_closed = HalfClosed(cast("asyncio.Transport", self._wire), self._comment, self._abort)
            return True
        if self._current_request is not None or self._messages:
            self._abort()
        else:
            self._watch_stall()  # what follows is close()
        return False

    async def start(self) -> None:
        """Serve what comes, one request after the other, until no more is to come.

        Each begins when most of the answer before it was taken, so that answers never pile up.
        """
        try:
            while not self._force_close:
                if not self._messages:
                    self._waiter = self._loop.create_future()
                    await self._waiter
                head, content = self._take_message()
                self._request_in_progress = True
                # Raises ConnectionError where an answer had begun already, or nobody is there to take one.
                if isinstance(head, _ErrInfo):
                    answer = await self._refused_in_turn(Request(ERROR, content, self))
                else:
                    answer = await self._served(Request(head, content, self))
                self._watch_stall()
                if self._paused and self.transport is not None:
                    await self._drain_helper()
                self._is_answered()
                if not content.is_eof():
                    await self._pass_over(content)
                if not answer.keep_alive or self._close:
                    break
                self._look_for_silence()
        except ConnectionError:
            pass  # there is nobody any more to serve
        finally:
            self._is_answered()
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    def _take_message(self) -> tuple[RawRequestMessage | _ErrInfo, StreamReader]:
        """The next in turn, which makes room for another one in the parser."""
        message = self._messages.popleft()
        if self._parser is not None:  # it is none once the connection is lost
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        return message

    async def _served(self, request: Request) -> Answer:
        self._current_request = request  # type: ignore[assignment] # all that aiohttp still does with it is `_cancel`
        try:
            return await self._front.handle(request)
        except Exception as error:
            if request.begun or self.gone:
                raise ConnectionError("the answer has begun already") from error
            message = "saltgate failed on this request. The operator finds it in the log by the request id."
            return self._front.answer_failure(request, GateError(message), error)
        finally:
            self._current_request = None

    async def _refused_in_turn(self, request: Request) -> Answer:
        """Who sends what is no request is told so in his turn (see `proxy.relay.pace`), and nothing is quoted."""
        await self._front.pace.turn()
        if self.gone:
            raise ConnectionError("nobody is there to be told")
        message = "The request is not well-formed HTTP/1.1, or its head is too large."
        return self._front.answer_failure(request, DoubtfulFraming(message), None)

    def _is_answered(self) -> None:
        """What `shutdown` waits for."""
        self._request_in_progress = False
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)

    async def _pass_over(self, content: StreamReader) -> None:
        """The rest of a body that nobody wants: to close over it would be to reset the connection, and the client might
        never see its answer (RFC 9112 section 9.6). What goes on for longer ends with the connection.
        """
        try:
            async with asyncio.timeout(LINGERING_SECONDS):
                while not content.is_eof():
                    await content.readany()
        except (TimeoutError, web.RequestPayloadError):  # its request has had its answer
            self.close()

    def _look_for_silence(self) -> None:
        """From now on the next request is waited for."""
        self._next_keepalive_close_time = self._loop.time() + self._front.idle_seconds
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp asks for it with each body that was read, also where nothing had been paused; and that costs as much
        as parsing a head.
        """
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def pause_reading(self) -> None:
        """A body comes faster than it is read. Behind an open request nobody reads it: see the next method."""
        if self.listener is not None:
            self._abort()
        else:
            super().pause_reading()

    def _pause_reading_for_buffer(self) -> None:
        """aiohttp's queue of pipelined requests is full, and its parser keeps the rest until there is room.

        Reading goes on all the same, within our own bound on bytes: with reading paused nobody would hear the client
        leave, and the engine would work for nobody.
        """
        self._buffer_paused = True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_stall()
        if self.listener is not None:
            self.listener.hold()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch_stall()
        if self.listener is not None:
            self.listener.release()

    @property
    def _may_be_half_closed(self) -> bool:
        if self._front.half_close == "gone" or self._wire is None or not may_stay(self._wire):
            return False
        return self.listener is not None and self.listener.streams

    def _comment(self) -> bool:
        return self.listener is not None and self.listener.comment()

    def _leave(self) -> None:
        self.gone = True
        if self._origin is not None:
            self._front.crowd.leave(self._origin)
            self._origin = None
        self._forget_stall()
        self._forget_half_closed()
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.client_gone()

    @property
    def _takes_body(self) -> bool:
        """Whether what comes next belongs to a request whose head is here."""
        return self._newest is not None and not self._newest.is_eof()

    @property
    def _waiting_bytes(self) -> int:
        """Of what is no body and no request has been made of yet."""
        return self._unfinished + sum(map(_head_bytes, self._messages))

    def _new_content(self) -> int:
        """How many bytes of the newest request's body have come since it was asked last."""
        if self._newest is None:
            return 0
        before, self._content = self._content, self._newest.total_bytes
        return self._content - before

    def _refuse_waiting(self) -> None:
        if self._takes_body:
            self._broken = True
            self._refuse_body()
        else:
            self._refuse_heads()

    def _refuse_body(self) -> None:
        if self._newest is not None:
            self._newest.set_exception(web.RequestPayloadError("not well-formed"))

    def _refuse_heads(self) -> None:
        """A head without end is told so; who sends heads without end behind an open request is cut."""
        if self._waiter is None or self._waiter.done():
            self._abort()
            return
        self._forget_late()
        error = _ErrInfo(status=400, exc=BadHttpMessage("the head is too large"), message="")
        self._messages.append((error, EMPTY_PAYLOAD))
        self._waiter.set_result(None)

    def _abort(self) -> None:
        wire = self._wire
        self._leave()
        if wire is not None:
            wire.abort()

    def _watch_stall(self) -> None:
        """Look from now on whether the client takes what waits for it, if anything does."""
        if self._stall is not None:
            self._forget_stall()
        if self._wire is not None and self._wire.get_write_buffer_size():
            self._untaken = untaken_bytes(self._wire)
            self._stall = self._loop.call_later(self.stall_seconds, self._look_at_stall)

    def _forget_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _look_at_stall(self) -> None:
        if self.listener is not None and not self.writing_paused:
            self._stall = None  # an answer runs and is taken; when that ends, this begins anew
        elif self._wire is not None and 0 < self._untaken <= untaken_bytes(self._wire):
            self.stalled = True
            self._abort()
        else:
            self._watch_stall()

    def _forget_half_closed(self) -> None:
        half_closed, self._half_closed = self._half_closed, None
        if half_closed is not None:
            half_closed.stop()

    def _forget_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _head_bytes(waiting: tuple[RawRequestMessage | _ErrInfo, StreamReader]) -> int:
    message = waiting[0]
    return 0 if isinstance(message, _ErrInfo) else sum(len(name) + len(value) for name, value in message.raw_headers)


def _peer(wire: asyncio.Transport) -> Peer:
    connection = wire.get_extra_info("socket")
    if connection is not None and connection.family == socket.AF_UNIX:
        return "unix"
    address = wire.get_extra_info("peername")
    return address_of(str(address[0])) if isinstance(address, tuple) else None
