"""What a client gets: a head built from constants and validated values, then bytes as they are pushed.

aiohttp's own `StreamResponse` costs a task switch and a header map per answer; this one writes to the transport when
the engine's bytes are there.
"""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from observability.record import Record
from proxy.relay.request import Request

# A larger body is not copied once more to be written together with its head.
_LARGE_BYTES: Final = 64 * 1024
_REASONS: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}


class Answer:
    """The answer to one request. Either `whole`, or `head`, any number of `body` and `aside`, and `finish`; or it stays
    unfinished. What is given with `more` waits for what is given next, to be written with it in one call into the
    kernel: who gives it makes sure that something follows at once, or says `flush`.

    An answer that is not finished closes its connection, without the last chunk of a chunked body: the client can tell
    that it was cut (RFC 9112 section 8).
    """

    __slots__ = (
        "_bodyless",
        "_chunked_body",
        "_may_stay",
        "_request",
        "_transport",
        "_waiting",
        "bytes_sent",
        "finished",
    )

    def __init__(self, request: Request, *, last: bool = False) -> None:
        """`last`: what follows on this connection is not to be trusted, so there is no next answer.

        Nor is there one where the client offered to go on in another protocol (RFC 9110 section 7.8): aiohttp's parser
        may pass over what comes behind.
        """
        self._request = request
        self._transport: asyncio.Transport | None = request.connection.transport
        stays = request.keep_alive and request.http11 and "Upgrade" not in request.headers
        self._may_stay = stays and not (last or request.last_answer)
        self._bodyless = request.method == "HEAD"
        self._chunked_body = False
        self._waiting = b""
        self.bytes_sent = 0
        self.finished = False

    @property
    def keep_alive(self) -> bool:
        """Whether another request may follow on its connection."""
        return self.finished and self._may_stay

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Head and body at once. `headers` are complete lines, each with its CRLF."""
        head = self._head(status, headers) + b"Content-Length: %d\r\n\r\n" % len(body)
        if self._bodyless:
            self._write(head)
        elif len(body) < _LARGE_BYTES:
            self._write(head + body)
        else:
            self._write(head)
            self._write(body)
        self.finished = True

    def head(self, status: int, headers: bytes, *, more: bool = False) -> None:
        """The head of a body of unknown length: chunked, or until the connection ends for HTTP/1.0."""
        self._chunked_body = self._request.http11
        framing = b"Transfer-Encoding: chunked\r\n\r\n" if self._chunked_body else b"\r\n"
        head = self._head(status, headers) + framing
        if more:
            self._request.begun = True
            self._waiting = head
        else:
            self._write(head)

    def body(self, data: bytes, *, more: bool = False) -> None:
        """One piece of the body. An empty piece writes nothing, since an empty chunk would end the body."""
        transport = self._transport
        if transport is None or transport.is_closing() or not (data or self._waiting):
            return
        if data:
            self.bytes_sent += len(data)
            if self._chunked_body:
                data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._waiting:
            data, self._waiting = self._waiting + data, b""
        if more:
            self._waiting = data
        else:
            transport.write(data)

    def flush(self) -> None:
        """Write what waits."""
        self.body(b"")

    def aside(self, data: bytes) -> bool:
        """A piece of the gate's own, that nobody misses: it is left out while others wait to be taken. Whether it was
        written.
        """
        if self._transport is None or self._transport.get_write_buffer_size():
            return False
        self.body(data)
        return True

    def finish(self) -> None:
        """The body is complete."""
        waiting, self._waiting = self._waiting, b""
        if self._chunked_body:
            self._write(waiting + b"0\r\n\r\n")
        elif waiting:
            self._write(waiting)
        self.finished = True

    def _head(self, status: int, headers: bytes) -> bytes:
        stay = b"" if self._may_stay else b"Connection: close\r\n"
        lines = self._request.page_lines
        return b"HTTP/1.1 %d %b\r\nDate: %b\r\n%b%b%b" % (status, _REASONS[status], _date(), stay, lines, headers)

    def _write(self, data: bytes) -> None:
        self._request.begun = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def answer_headers(record: Record) -> bytes:
    """The lines that every answer of the gate carries (contract section 5, answer headers)."""
    timing = record.server_timing()
    if not timing:
        return b"X-Request-Id: %b\r\n" % record.request_id.encode("ascii")
    return f"X-Request-Id: {record.request_id}\r\nServer-Timing: {timing}\r\n".encode("ascii")


_date_cache: tuple[int, bytes] = (0, b"")


def _date() -> bytes:
    """The Date header's value (RFC 9110 section 6.6.1), made once a second."""
    global _date_cache
    now = int(time.time())  # noqa: TID251 - the wall clock is what the header tells
    if _date_cache[0] != now:
        _date_cache = (now, formatdate(now, usegmt=True).encode("ascii"))
    return _date_cache[1]
