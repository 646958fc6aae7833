"""What a client asks: the head as it was parsed, whole, and the body, which may still be on its way.

aiohttp's own request makes maps and looks up addresses that nobody here asks for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aiohttp import HttpVersion10, HttpVersion11, StreamReader
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

    from proxy.relay.downstream import Downstream

_SPOKEN: Final = (HttpVersion11, HttpVersion10)


class Request:
    """One request on a client's connection.

    `target` is as it was sent (RFC 9112 section 3.2), `raw_headers` and `headers` are its lines, all of them, in order.
    `http11` is False for every other version, of which `is_spoken` is True for 1.0 alone. `keep_alive`: the client
    does not ask that the connection ends with the answer. `begun`: the head of an answer was written, or is about to
    be. `page_lines` are lines for every answer to it (`proxy.cross_origin`); with `last_answer` its connection ends
    with that, though nothing is wrong with it.
    """

    __slots__ = (
        "begun",
        "connection",
        "content",
        "headers",
        "http11",
        "is_spoken",
        "keep_alive",
        "last_answer",
        "method",
        "page_lines",
        "raw_headers",
        "target",
    )

    def __init__(self, head: RawRequestMessage, content: StreamReader, connection: Downstream) -> None:
        self.connection = connection
        self.content = content
        self.method: str = head.method
        self.target: str = head.path
        self.headers: CIMultiDictProxy[str] = head.headers
        self.raw_headers: tuple[tuple[bytes, bytes], ...] = head.raw_headers
        self.http11: bool = head.version == HttpVersion11
        self.is_spoken: bool = self.http11 or head.version in _SPOKEN
        self.keep_alive: bool = not head.should_close
        self.begun = False
        self.last_answer = False
        self.page_lines = b""

    @property
    def transport(self) -> asyncio.Transport | None:
        """None once the connection is closed, or is about to be."""
        return self.connection.transport

    @property
    def content_length(self) -> int | None:
        """What the head says of it, where it does. The parser has seen that it is a number (RFC 9110 section 8.6)."""
        length = self.headers.get("Content-Length")
        return None if length is None else int(length)

    def arrived(self) -> bytes | None:
        """The whole body, where all of it is here, as it nearly always came with its head: to be read once. None where
        the rest has to be waited for. Raises as `content` does where it is read.
        """
        content = self.content
        if not content.is_eof():
            return None
        if content is EMPTY_PAYLOAD or content.exception() is not None:
            return content.read_nowait()
        # What its own methods do beside concerns a body that is still on its way, and is five calls.
        pieces = content._buffer  # noqa: SLF001
        return pieces.popleft() if len(pieces) == 1 else content.read_nowait()

    def _cancel(self, error: BaseException) -> None:
        """What aiohttp tells an open request of, whose connection is lost: nothing more of its body comes."""
        self.content.set_exception(error)
