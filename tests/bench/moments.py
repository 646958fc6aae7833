"""An engine that stops at one moment of its answer, so that somebody can leave, or stop reading, just then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Literal

from tests.parts.raw_engine import STREAM_HEAD, chunk

Moment = Literal["before the head", "mid-stream", "paused", "non-stream"]
MOMENTS: Final[tuple[Moment, ...]] = ("before the head", "mid-stream", "paused", "non-stream")

_EVENT_SECONDS: Final = 0.02
_QUIET_SECONDS: Final = 0.2
_SMALL: Final = chunk(b'data: {"id":"x","object":"chat.completion.chunk","choices":[]}\n\n')
# Large events fill the sockets soon: what is wanted is the full socket.
_LARGE: Final = chunk(b'data: {"id":"%b","object":"chat.completion.chunk","choices":[]}\n\n' % (b"x" * 16_000)) * 4


class MomentEngine:
    """Plays one moment at a time.

    `reached` is set when an answer got there, `closed` when a connection that had asked was closed, at `closed_at`
    (perf_counter). `answering` counts the answers that have begun and not ended.
    """

    def __init__(self) -> None:
        self.port = 0
        self.answering = 0
        self.begin("non-stream")

    def begin(self, moment: Moment) -> None:
        self.moment = moment
        self.reached, self.closed = asyncio.Event(), asyncio.Event()
        self.closed_at = 0.0

    def ended(self) -> None:
        self.answering -= 1
        self.closed_at = time.perf_counter()
        self.closed.set()


class _Connection(asyncio.Protocol):
    """One request, answered as far as the moment says. Pages of an engine's own are answered with an empty list."""

    def __init__(self, engine: MomentEngine) -> None:
        self._engine = engine
        self._received = b""
        self._playing = False
        self._next: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received.startswith(b"GET ") and self._received.endswith(b"\r\n\r\n"):
            self._received = b""
            self._transport.write(b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{"data":[]}')
        elif self._received.endswith(b"}") and not self._playing:
            self._playing = True
            self._engine.answering += 1
            self._play()

    def connection_lost(self, _: Exception | None) -> None:
        if self._next is not None:
            self._next.cancel()
        if self._playing:
            self._engine.ended()

    def pause_writing(self) -> None:
        """Where nobody takes anything for so long, nobody reads."""
        self._later(_QUIET_SECONDS, self._reach)

    def resume_writing(self) -> None:
        self._later(0, self._flood)

    def _play(self) -> None:
        match self._engine.moment:
            case "before the head" | "non-stream":
                self._later(_EVENT_SECONDS, self._reach)
            case "mid-stream":
                self._transport.write(STREAM_HEAD)
                self._tick()
            case "paused":
                self._transport.write(STREAM_HEAD)
                self._flood()

    def _tick(self) -> None:
        self._transport.write(_SMALL)
        self._reach()
        self._later(_EVENT_SECONDS, self._tick)

    def _flood(self) -> None:
        """Until `pause_writing`, which cancels the next turn."""
        self._later(0, self._flood)
        self._transport.write(_LARGE)

    def _reach(self) -> None:
        self._engine.reached.set()

    def _later(self, seconds: float, deed: Callable[[], None]) -> None:
        """In place of what was to come next."""
        if self._next is not None:
            self._next.cancel()
        self._next = asyncio.get_running_loop().call_later(seconds, deed)


@asynccontextmanager
async def moment_engine() -> AsyncIterator[MomentEngine]:
    engine = MomentEngine()
    # All readers come at once, and each is to have its connection.
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(engine), "127.0.0.1", 0, backlog=4_096)
    async with server:
        engine.port = server.sockets[0].getsockname()[1]
        yield engine
