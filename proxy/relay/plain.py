"""Answers in the plain form in which engines send them, read in few steps. Whatever else comes is for llhttp to judge.

llhttp tells of each line and each chunk by a call, which costs more than all that is done with an event. What is read
here is read exactly as llhttp and the leg read it; what is in doubt is not read here at all. Pure.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

_HEAD: Final = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9]{2}) [ -~]*\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [!-~](?:[ -~]*[!-~])?\r\n)+)\r\n"
)
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,7})\r\n")
_SIZE_BEGINS: Final = re.compile(rb"[0-9A-Fa-f]{0,7}\r?")
_CRLF: Final = b"\r\n"
_LAST: Final = b"0\r\n\r\n"

# Answers whose bodies are told by more than their fields (RFC 9112 section 6.3).
_BODILESS: Final = frozenset({b"204", b"304"})
# Fields that say more of the connection or of the body than is read here.
_DOUBTFUL: Final = frozenset({b"connection", b"content-encoding", b"proxy-connection", b"trailer", b"upgrade"})


class PlainHead(NamedTuple):
    """A final answer's head on a connection that stays. `length` is None where the body is chunked; `end` is where the
    head ends in what was read. `content_type` and `retry_after` are empty where there is no such line.
    """

    status: int
    content_type: bytes
    retry_after: bytes
    length: int | None
    end: int


def plain_head(data: bytes) -> PlainHead | None:
    """The head that the data begin with. None where it is not whole, or in any other form."""
    head = _HEAD.match(data)
    if head is None or head[1] in _BODILESS:
        return None
    content_type = retry_after = b""
    length: bytes | None = None
    chunked = False
    for line in head[2].split(_CRLF):
        name, _, value = line.partition(b": ")
        match name.lower():
            case b"content-type":
                content_type = value
            case b"content-length" if length is None and _LENGTH.fullmatch(value):
                length = value
            case b"transfer-encoding" if not chunked and value == b"chunked":
                chunked = True
            case b"retry-after":
                retry_after = value
            case b"content-length" | b"transfer-encoding":
                return None
            case other if other in _DOUBTFUL:
                return None
            case _:
                pass
    if chunked == (length is not None):
        return None
    return PlainHead(int(head[1]), content_type, retry_after, None if length is None else int(length), head.end())


class Stop(Enum):
    """Why the plain chunks of a body went no further."""

    LAST = "last"  # the last one came, and nothing behind it
    BAD = "bad"  # one goes on behind its end
    NOT_PLAIN = "not_plain"  # what comes is in another form, or no chunk at all


class Chunks:
    """The chunks of one body (RFC 9112 section 7.1), without extensions and trailers. Once there is a `stop`, no more
    is read; where it is NOT_PLAIN, `rest` is what llhttp is to read, from the beginning of a chunk on.
    """

    __slots__ = ("_begun", "_left", "rest", "stop")

    def __init__(self) -> None:
        self._begun = b""  # a chunk's first line, as far as it has come
        self._left = 0  # of a chunk whose first line has come, its CRLF among it
        self.stop: Stop | None = None
        self.rest = b""

    def content(self, data: bytes) -> bytes:
        """What the next bytes of the body hold."""
        pieces: list[bytes] = []
        at = self._go_on(data, pieces) if self._left else 0
        if self._begun:
            data, self._begun = self._begun + data, b""
        end = len(data)
        while at < end and self.stop is None:
            line = _SIZE.match(data, at)
            begin, size = (line.end(), int(line[1], 16)) if line is not None else (at, 0)
            after = begin + size + 2
            if size and after <= end and data[after - 2 : after] == _CRLF:  # whole, as nearly every one is
                pieces.append(data[begin : after - 2])
                at = after
            elif size and after > end:
                self._left = size + 2
                at = begin + self._go_on(data[begin:], pieces)
            else:
                self._look_at_odd(data[at:])
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _go_on(self, data: bytes, pieces: list[bytes]) -> int:
        """Take what belongs to the chunk that has begun; how many bytes that were."""
        content = data[: max(self._left - 2, 0)]
        if content:
            pieces.append(content)
        taken = data[: self._left]
        if not _CRLF[-min(self._left, 2) :].startswith(taken[len(content) :]):
            self.stop = Stop.BAD
        self._left -= len(taken)
        return len(taken)

    def _look_at_odd(self, data: bytes) -> None:
        """What stands where a chunk begins, and is none that holds anything."""
        if data == _LAST:
            self.stop = Stop.LAST
        elif _SIZE_BEGINS.fullmatch(data) or _LAST.startswith(data):
            self._begun = data
        else:
            self.stop, self.rest = Stop.NOT_PLAIN, data
