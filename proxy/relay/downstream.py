"""One client's connection: aiohttp's parser and request cycle, with our own ears for leaving and slowness.

aiohttp tells a handler nothing of a client that leaves while its answer is paused, and little before the first byte. So
the connection itself tells the exchange: FIN while a request is open, RST and loss at any time mean that the client is
gone (contract section 5, leaving), and a full write buffer holds the engine until the client reads on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from aiohttp import web
from aiohttp.web_server import Server

from proxy.refusals import Dialect, GateError, InvalidRequest, Refusal
from proxy.relay.answer import Answer

WRITE_BUFFER_BYTES: Final = 64 * 1024
MAXIMUM_FIELD_BYTES: Final = 32 * 1024  # a large access token is 16 KiB; aiohttp's default would refuse one of 8
IDLE_SECONDS: Final = 75.0


class Listener(Protocol):
    """Who must know what happens to a client: the exchange that serves it."""

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def client_gone(self) -> None: ...


class ClientGone(Exception):  # noqa: N818 - an event, not an error
    """The client has left: there is nobody to answer."""


class Downstream(web.RequestHandler):
    """See the module. `gone` stays True once the client has left."""

    __slots__ = ("_front", "_stall", "gone", "listener")

    def __init__(self, front: Front, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            front,
            loop=loop,
            access_log=None,  # type: ignore[arg-type] # None switches it off: the record is the access log
            auto_decompress=False,
            keepalive_timeout=IDLE_SECONDS,
            max_line_size=MAXIMUM_FIELD_BYTES,
            max_field_size=MAXIMUM_FIELD_BYTES,
            lingering_time=5.0,
        )
        self._front = front
        self._stall: asyncio.TimerHandle | None = None
        self.gone = False
        self.listener: Listener | None = None

    @property
    def idle(self) -> bool:
        """Whether no request is open on this connection."""
        return self._current_request is None and not self._messages

    @property
    def served(self) -> bool:
        return self._request_count > 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """FIN. With a request open the client is gone; abort, since close() would wait for a buffer nobody reads."""
        transport = self.transport
        if transport is None:
            return
        if self.idle:
            self._watch_stall()
        else:
            self._leave()
            transport.abort()

    def _pause_reading_for_buffer(self) -> None:
        """aiohttp's queue of pipelined requests is full: who sends that many behind an open one is cut.

        With reading paused nobody would hear the client leave, and the engine would work for nobody.
        """
        transport = self.transport
        self._leave()
        if transport is not None:
            transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_stall()
        if self.listener is not None:
            self.listener.hold()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget_stall()
        if self.listener is not None:
            self.listener.release()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it quotes the request's bytes, which may be a token
    ) -> web.StreamResponse:
        """The answer to what never became a request, or to our own fault. Neither quotes anything."""
        refusal = (
            InvalidRequest("The request is not well-formed HTTP/1.1, or its head is too large.", reason="framing")
            if status == 400
            else GateError("saltgate failed on this request. The operator finds it in the log by the request id.")
        )
        if request.writer.output_size > 0 or self.gone:
            raise ConnectionError("the answer has begun already")
        return self._front.answer_failure(request, refusal, exc)

    def log_exception(self, *args: object, **kw: object) -> None:
        """aiohttp's own report of a failure: the front reports it, without the request's bytes."""

    def _leave(self) -> None:
        self.gone = True
        self._forget_stall()
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.client_gone()

    def _watch_stall(self) -> None:
        if self._stall is None:
            self._stall = self._loop.call_later(self._front.stall_seconds, self._stalled)

    def _forget_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _stalled(self) -> None:
        self._stall = None
        transport = self.transport
        self._leave()
        if transport is not None:
            transport.abort()


class Front(Server):
    """All client connections of one worker."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        failed: Callable[[Refusal, BaseException | None], bytes],
        *,
        stall_seconds: float,
    ) -> None:
        """`failed` records a failure that has no request of its own and returns the header lines of its answer."""
        super().__init__(handler, handler_cancellation=False)
        self._failed = failed
        self.stall_seconds = stall_seconds

    def __call__(self) -> Downstream:
        return Downstream(self, loop=self._loop)

    @property
    def downstreams(self) -> list[Downstream]:
        return [connection for connection in self.connections if isinstance(connection, Downstream)]

    @property
    def busy(self) -> bool:
        """Whether a request is open on any connection."""
        return any(not downstream.idle for downstream in self.downstreams)

    def close_idle(self) -> None:
        """Close the connections that have been served and wait for nothing; the others close after their answer.

        A connection that has sent nothing yet may have its first request on the way: it gets an answer, not a FIN.
        """
        for downstream in self.downstreams:
            if downstream.idle and downstream.served:
                downstream.close()
                if downstream.transport is not None:
                    downstream.transport.close()

    def answer_failure(
        self, request: web.BaseRequest, refusal: Refusal, exc: BaseException | None
    ) -> web.StreamResponse:
        headers = self._failed(refusal, exc)
        answer = Answer(request)
        answer.whole(refusal.status, headers + b"Connection: close\r\n", refusal.document(Dialect.OPENAI))
        answer.finished = False  # whatever follows on this connection is not to be trusted
        return answer
