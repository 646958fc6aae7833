"""One connection to an engine, one answer at a time.

The leg is the only thing that writes to an engine, and it takes nothing but a `StampedRequest`, a `CountRequest`, which
computes no prompt, or one of the constant `Question`s that saltgate itself asks. Path, headers and framing are built
here from constants (RFC 9112) and the salt; nothing of them comes from a client. llhttp parses the answer; what it
leaves open (limits, contradicting lengths, codings that we did not ask for) is refused here.

A content coding (gzip) is refused and not undone: every request asks for `identity`, a coded stream could be neither
watched nor searched for the salt as it passes, and one read of it may hold a thousand times its size.
"""

from __future__ import annotations

import asyncio
import socket
from enum import Enum
from typing import Final, Protocol, cast

import httptools

from proxy.engines.stamp import CountRequest, StampedRequest
from proxy.relay.wire import keep_little_unread, untaken_bytes

READ_BUFFER_BYTES: Final = 16 * 1024
# Of a head with what comes before it, of trailers: of everything that llhttp keeps and no client gets.
MAXIMUM_BARE_BYTES: Final = 64 * 1024

_LARGE_BYTES: Final = 64 * 1024

# One buffer for all legs of a worker: a read is parsed, and copied out piece by piece, before the next one starts.
_BUFFER: Final = bytearray(READ_BUFFER_BYTES)
_VIEW: Final = memoryview(_BUFFER)


class Question(Enum):
    """What saltgate asks an engine on its own account. Constants: no byte of a client can be in them."""

    MODELS = b"/v1/models"
    METRICS = b"/metrics"
    VERSION = b"/version"
    SCHEMA = b"/openapi.json"
    # Doors that an engine should not have, asked for by `saltgate check`: on a GET they do nothing and say 405, since
    # vLLM has them as POST.
    INVOCATIONS = b"/invocations"
    RESET_CACHE = b"/reset_prefix_cache"
    LOAD_ADAPTER = b"/v1/load_lora_adapter"


class Ending(Enum):
    """How an exchange on a leg ended."""

    COMPLETE = "complete"
    UNSENT = "unsent"  # the connection was lost before the request was written whole: nothing can have begun
    SILENT = "silent"  # the engine closed the connection before it had taken the whole request
    UNANSWERED = "unanswered"  # it said nothing, and may have had the whole request in its hands
    BAD_HEAD = "bad_head"  # what came is no answer that may be relayed
    CONTENT_CODING = "content_coding"  # nor is this: it is compressed
    BROKEN = "broken"  # the answer broke off after its head

    __hash__ = object.__hash__  # as `Operation`


class Sink(Protocol):
    """Who takes an answer. Called from the leg's read callback, in this order; `end` exactly once."""

    def head(self, status: int, content_type: bytes) -> None: ...

    def body(self, data: bytes) -> None: ...

    def end(self, ending: Ending) -> None: ...


class Home(Protocol):
    """Where a leg goes after an answer that left it in good order, and where it is missed when it is lost."""

    def back(self, leg: Leg) -> None: ...

    def lost(self, leg: Leg) -> None: ...


class _BadAnswer(Exception):  # noqa: N818 - a judgement on the engine, not an error of the program
    """An answer that is well-formed HTTP and still must not be relayed."""


class Leg(asyncio.BufferedProtocol):
    """See the module. Between two answers it has neither a sink nor a parser, and whatever comes then breaks it.

    `loss` is why the connection was lost, where the system or TLS gave a reason. `retry_after` is that header of the
    answer whose head was told last, empty where it had none. `more`: what the sink is told of now is not all of this
    read, so it is told more at once.
    """

    __slots__ = (
        "_bare_bytes",
        "_closing",
        "_content_type",
        "_encoded",
        "_extra",
        "_head_done",
        "_head_told",
        "_held",
        "_home",
        "_keeps_alive",
        "_lengths",
        "_message_done",
        "_parser",
        "_pieces",
        "_sink",
        "_status",
        "_transfer_codings",
        "_transport",
        "_written",
        "born",
        "loop",
        "loss",
        "more",
        "retry_after",
    )

    def __init__(self, home: Home) -> None:
        self._home = home
        self.born = 0.0
        # Kept, because to ask for it is a call into the kernel until Python 3.12 (Modules/_asynciomodule.c, getpid).
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._sink: Sink | None = None
        self._held = False
        self._closing = False
        self.loss: Exception | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._reset()

    def _reset(self) -> None:
        self._pieces: list[bytes] = []
        self._bare_bytes = 0
        self._status = 0
        self._head_done = False
        self._head_told = False
        self._message_done = False
        self._keeps_alive = False
        self._extra = False
        self._content_type = b""
        self.retry_after = b""
        self.more = False
        self._lengths = 0
        self._transfer_codings: list[bytes] = []
        self._encoded = False
        self._written = True

    # What the gate does with a leg.

    def send(self, what: StampedRequest | CountRequest | Question, *, headers: bytes, sink: Sink) -> None:
        """Write one request whole. `headers` are the replica's and the request's own lines, each with its CRLF.

        A leg that was lost since it was made or taken says so at once: its answer ends UNSENT.
        """
        assert self._sink is None
        transport = self._transport
        if transport is None or self._closing or transport.is_closing():
            sink.end(Ending.UNSENT)
            return
        self._reset()
        self._parser = httptools.HttpResponseParser(self)
        self._sink = sink
        if isinstance(what, Question):
            transport.write(b"GET %b HTTP/1.1\r\n%b\r\n" % (what.value, headers))
        else:
            body = what.body
            salt = what.headers if isinstance(what, StampedRequest) else b""
            head = b"POST %b HTTP/1.1\r\n%b%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (
                what.path,
                headers,
                salt,
                len(body),
            )
            if len(body) < _LARGE_BYTES:  # one call into the kernel is dearer than a small copy
                transport.write(head + body)
            else:
                # So that we are told whether, and when, the kernel has it all. It takes a small one at once.
                transport.set_write_buffer_limits(high=0)
                transport.write(head)
                transport.write(body)

    def hold(self) -> None:
        """Stop reading: whoever takes the answer is slower than the engine."""
        if not self._held and self._transport is not None and not self._transport.is_closing():
            self._held = True
            self._transport.pause_reading()

    def release(self) -> None:
        if self._held:
            self._held = False
            if self.usable:
                cast("asyncio.Transport", self._transport).resume_reading()

    def abort(self) -> None:
        """Leave the engine at once: it stops generating when its connection breaks. The sink hears nothing more."""
        self._sink = None
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close an idle leg in order (FIN): servers keep state for connections that were reset."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._closing and not self._transport.is_closing()

    @property
    def peer(self) -> str | None:
        """The IP address at the other end; None where there is none, as on a Unix socket."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else None

    # What asyncio tells a leg.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses of asyncio's
        self.born = self.loop.time()
        keep_little_unread(self._transport)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - the protocol's signature
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        if self._sink is None or self._parser is None:
            self.abort()  # an engine that speaks out of turn
            return
        try:
            self._parser.feed_data(_VIEW[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._message_done:
                self._fail()
                return
            self._extra = True  # nonsense after a whole answer: the answer is good, the connection is not
        if self._pieces:
            self._bare_bytes = 0
        else:
            self._bare_bytes += nbytes
            if self._bare_bytes > MAXIMUM_BARE_BYTES and not self._message_done:
                self._fail()
                return
        if not self._head_told or self._message_done:
            self._deliver()
        elif self._pieces:  # the middle of an answer: nearly every read
            self._hand_over(self._sink)

    def pause_writing(self) -> None:
        self._written = False

    def resume_writing(self) -> None:
        self._written = True

    def eof_received(self) -> bool:
        self._end_with_connection(self._transport, None)
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._transport.abort()  # who has ended may never read the rest of the request; close() would wait for it
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        wire, self._transport = self._transport, None
        self.loss = exc
        self._home.lost(self)
        self._end_with_connection(wire, exc)

    # What llhttp tells a leg.

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_done:
            return  # a trailer, or what comes after the answer: nothing in it is for a client
        lowered = name.lower()
        if lowered == b"content-type":
            self._content_type = value
        elif lowered == b"content-length":
            self._lengths += 1
        elif lowered == b"transfer-encoding":
            self._transfer_codings.append(value.strip().lower())
        elif lowered == b"content-encoding":
            self._encoded |= value.strip().lower() not in (b"", b"identity")
        elif lowered == b"retry-after":
            self.retry_after = value.strip()

    def on_message_begin(self) -> None:
        if self._message_done:
            self._extra = True  # bytes after the answer: this leg is not to be trusted with another request

    def on_headers_complete(self) -> None:
        if self._head_done or self._parser is None:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            if status == 101 or self._lengths or self._transfer_codings:
                raise _BadAnswer  # nobody asked for another protocol, and llhttp would take a body with it
            self._content_type, self._encoded, self.retry_after = b"", False, b""
            return
        if self._encoded or not self._is_framed_clearly(self._parser.get_http_version()):
            raise _BadAnswer
        self._status = status
        self._head_done = True

    def on_body(self, body: bytes) -> None:
        if not self._extra:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._head_done and self._parser is not None:  # else a 1xx, the answer is still to come
            self._message_done = True
            self._keeps_alive = self._parser.should_keep_alive()  # llhttp forgets it with the message's end

    # The leg's own steps.

    def _is_framed_clearly(self, version: str) -> bool:
        """Whether the answer's end is told once, and in a way that every reader understands (RFC 9112 section 6)."""
        if not self._transfer_codings:
            return version in {"1.0", "1.1"} and self._lengths <= 1
        return version == "1.1" and self._lengths == 0 and self._transfer_codings == [b"chunked"]

    @property
    def _ends_with_connection(self) -> bool:
        """Whether the answer's length is told by nothing but the end of the connection (RFC 9112 section 6.3)."""
        return self._head_done and not self._lengths and not self._transfer_codings

    def _deliver(self) -> None:
        """Hand over what one read brought, the body as one piece, then the end if it was in there."""
        self._tell()
        if self._message_done:
            self._finish()

    def _tell(self) -> None:
        if self._head_done and not self._head_told and self._sink is not None:
            self._head_told = True
            self.more = self._message_done or bool(self._pieces)
            self._sink.head(self._status, self._content_type)
        self.more = self._message_done
        if self._pieces and self._sink is not None:
            self._hand_over(self._sink)

    def _hand_over(self, sink: Sink) -> None:
        pieces, self._pieces = self._pieces, []
        sink.body(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _finish(self) -> None:
        sink, self._sink = self._sink, None
        self._parser = None
        if self._held:
            self.release()
        if self._transport is not None and self._transport.get_write_buffer_size():
            self.abort()  # the answer came before the engine had read the request, and it may never read the rest
        elif self._keeps_alive and not self._extra and self.usable:
            self._home.back(self)
        else:
            self.close()
        if sink is not None:
            sink.end(Ending.COMPLETE)

    def _fail(self) -> None:
        """Drop a connection whose bytes make no sense, after handing over what came before the nonsense."""
        self._tell()
        sink, self._sink = self._sink, None
        self.abort()
        if sink is not None:
            sink.end(self._failure)

    @property
    def _failure(self) -> Ending:
        if self._head_done:
            return Ending.BROKEN
        return Ending.CONTENT_CODING if self._encoded else Ending.BAD_HEAD

    def _end_with_connection(self, wire: asyncio.Transport | None, exc: Exception | None) -> None:
        self._closing = True
        self._parser = None
        sink, self._sink = self._sink, None
        if sink is None:
            return
        if self._ends_with_connection and exc is None:
            sink.end(Ending.COMPLETE)
        elif self._head_done:
            sink.end(Ending.BROKEN)
        elif self._bare_bytes:
            sink.end(Ending.BAD_HEAD)
        elif not self._written:
            sink.end(Ending.UNSENT)
        else:
            sink.end(Ending.SILENT if _closed_before(wire, exc) else Ending.UNANSWERED)


def _closed_before(wire: asyncio.Transport | None, exc: Exception | None) -> bool:
    """Whether the engine's side closed the connection before it had taken the whole request, as far as can be known.

    A kernel answers what arrives at a closed connection, and a close over bytes that nobody read, with RST. What it has
    confirmed before that it had for longer than a confirmation may wait (RFC 9293 section 3.8.6.3), and so the engine
    may have read it: such an RST is not a close in the very moment of the request. A Unix socket is reset over bytes
    that nobody read, and over nothing else. Behind TLS nobody can tell: there a server reads on, for nobody, after it
    has closed.
    """
    if wire is None or wire.get_extra_info("sslcontext") is not None:
        return False
    is_reset = exc is not None
    return (is_reset and wire.get_extra_info("socket").family == socket.AF_UNIX) or untaken_bytes(wire) > 0
