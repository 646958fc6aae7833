"""Where one request ends and another begins, told in two ways (RFC 9112 sections 6 and 11.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tests.parts.hostile.writing import EVIL, SALTED, chat, request

_PLAIN = SALTED.encode()
_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SMUGGLED: Final = _HEAD + b"Content-Length: %d\r\n\r\n" % len(_PLAIN) + _PLAIN
_CHAT = json.dumps(chat()).encode()


def chunked(*pieces: bytes, extension: str = "", trailers: str = "", last: str = "0") -> bytes:
    encoded = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension.encode(), piece) for piece in pieces)
    return encoded + last.encode() + b"\r\n" + trailers.encode() + b"\r\n"


def _coded(coding: str, body: bytes | None = None, *, start: str = "POST {path} HTTP/1.1") -> bytes:
    return request(chunked(_PLAIN) if body is None else body, framing=coding, start=start)


_CHUNKED = "Transfer-Encoding: chunked"
CASES: Final[Mapping[str, bytes]] = {
    "chunks": _coded(_CHUNKED, chunked(_PLAIN[:10], _PLAIN[10:])),
    "chunks of one byte": _coded(_CHUNKED, chunked(*(bytes([byte]) for byte in _PLAIN))),
    "a chunk extension": _coded(_CHUNKED, chunked(_PLAIN, extension=f";cache_salt={EVIL}")),
    "a quoted chunk extension": _coded(_CHUNKED, chunked(_PLAIN, extension=';x="\\r\\n0\\r\\n"')),
    "a trailer": _coded(_CHUNKED, chunked(_PLAIN, trailers=f"cache_salt: {EVIL}\r\n")),
    "a trailer that is a length": _coded(_CHUNKED, chunked(_PLAIN, trailers="Content-Length: 3\r\n")),
    "a trailer that names another": _coded(_CHUNKED, chunked(_PLAIN, trailers="OpenAI-Organization: globex\r\n")),
    "a chunk size in hexadecimal with 0x": _coded(_CHUNKED, b"0x5\r\nhello\r\n0\r\n\r\n"),
    "a chunk size with a sign": _coded(_CHUNKED, b"+%x\r\n%b\r\n0\r\n\r\n" % (len(_PLAIN), _PLAIN)),
    "a chunk size below zero": _coded(_CHUNKED, b"-1\r\n" + _PLAIN + b"\r\n0\r\n\r\n"),
    "a chunk size with blanks": _coded(_CHUNKED, b" %x \r\n%b\r\n0\r\n\r\n" % (len(_PLAIN), _PLAIN)),
    "a huge chunk size": _coded(_CHUNKED, b"ffffffffffffffffff\r\n" + _PLAIN + b"\r\n0\r\n\r\n"),
    "a chunk size of many zeros": _coded(_CHUNKED, b"%b%x\r\n%b\r\n0\r\n\r\n" % (b"0" * 64, len(_PLAIN), _PLAIN)),
    "line feeds alone between chunks": _coded(_CHUNKED, b"%x\n%b\n0\n\n" % (len(_PLAIN), _PLAIN)),
    "no line end after a chunk": _coded(_CHUNKED, b"%x\r\n%b0\r\n\r\n" % (len(_PLAIN), _PLAIN)),
    "a last chunk of two zeros": _coded(_CHUNKED, chunked(_PLAIN, last="00")),
    "chunks and a length": _coded(f"Content-Length: {len(_PLAIN)}\r\n{_CHUNKED}"),
    "a length and then chunks": _coded(f"{_CHUNKED}\r\nContent-Length: 0"),
    "chunked and identity": _coded(f"{_CHUNKED}\r\nTransfer-Encoding: identity"),
    "chunked twice": _coded(f"{_CHUNKED}\r\n{_CHUNKED}"),
    "gzip, chunked": _coded("Transfer-Encoding: gzip, chunked"),
    "chunked, gzip": _coded("Transfer-Encoding: chunked, gzip"),
    "identity": _coded("Transfer-Encoding: identity", _PLAIN),
    "x-chunked": _coded("Transfer-Encoding: xchunked"),
    "chunked in capitals": _coded("Transfer-Encoding: CHUNKED"),
    "chunked with a vertical tab": _coded("Transfer-Encoding: \x0bchunked"),
    "chunked with a parameter": _coded("Transfer-Encoding: chunked;q=1"),
    "chunked by a name with a blank": _coded("Transfer-Encoding : chunked"),
    "chunked by an underscore": _coded("Transfer_Encoding: chunked\r\nContent-Length: 0"),
    "chunked, folded": _coded("Transfer-Encoding:\r\n chunked"),
    "chunks in HTTP/1.0": _coded(_CHUNKED, start="POST {path} HTTP/1.0"),
    "two lengths": request(_PLAIN, framing=f"Content-Length: {len(_PLAIN)}\r\nContent-Length: 3"),
    "the same length twice": request(_PLAIN, framing=f"Content-Length: {len(_PLAIN)}\r\nContent-Length: {len(_PLAIN)}"),
    "two lengths in one line": request(_PLAIN, framing=f"Content-Length: {len(_PLAIN)}, 3"),
    "a length with a sign": request(_PLAIN, framing=f"Content-Length: +{len(_PLAIN)}"),
    "a length below zero": request(_PLAIN, framing="Content-Length: -1"),
    "a length in hexadecimal": request(_PLAIN, framing=f"Content-Length: 0x{len(_PLAIN):x}"),
    "a length with an underscore": request(_PLAIN, framing="Content-Length: 1_0"),
    "a length in Arabic digits": request(_PLAIN, framing="Content-Length: \u0661\u0662"),
    "a huge length": request(_PLAIN, framing=f"Content-Length: {2**70}"),
    "no length": request(_PLAIN, framing="X-Nothing: 1"),
    "a length too short, a request in the rest": request(_CHAT + SMUGGLED, framing=f"Content-Length: {len(_CHAT)}"),
    "a request in the body": request(SMUGGLED),
    "pipelined": request(SALTED) + request(SALTED),
    "pipelined, the second without credentials": request(SALTED) + SMUGGLED,
    "an expectation": request(SALTED, "Expect: 100-continue"),
    "an unknown expectation": request(SALTED, f"Expect: cache_salt={EVIL}"),
    "line feeds alone": request(SALTED).replace(b"\r\n", b"\n"),
    "a carriage return alone": request(SALTED).replace(b"Host: gate.test\r\n", b"Host: gate.test\r"),
    "blank lines before": b"\r\n\r\n" + request(SALTED),
    "a blank before the first header": request(SALTED).replace(b"\r\nHost", b"\r\n Host", 1),
    "a header without a colon": request(SALTED, f"cache_salt {EVIL}"),
    "a folded header": request(SALTED, f"X-A: b\r\n\tcache_salt: {EVIL}"),
    "a NUL in a header": request(SALTED, "X-A: b\0c"),
    "a header without a name": request(SALTED, f": {EVIL}"),
    "an endless header": request(SALTED, "X-A: " + "a" * 100_000),
    "ten thousand headers": request(SALTED, *(f"X-{number}: a" for number in range(10_000))),
}
ANSWERS: Final[Mapping[str, int]] = {
    "a length too short, a request in the rest": 2,
    "an expectation": 2,
    "pipelined": 2,
    "pipelined, the second without credentials": 2,
}
