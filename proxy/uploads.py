"""The client's body, whole, within its limits, and in no disguise."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from proxy.refusals import BodyTooLarge, DoubtfulFraming, InvalidRequest, UnsupportedMediaType
from proxy.relay.downstream import ClientGone
from proxy.relay.request import Request

JSON: Final = frozenset({"application/json"})
FORMS: Final = JSON | {"application/x-www-form-urlencoded"}

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def check_framing(request: Request) -> None:
    """Raises DoubtfulFraming where another reader of these bytes might see a request end elsewhere.

    RFC 9112 sections 6.1 and 6.3. Two lengths, and a length beside chunks, aiohttp refuses before it asks us.
    """
    if not request.is_spoken:
        raise DoubtfulFraming("saltgate speaks HTTP/1.1 only.", reason="http_version")
    if "Transfer-Encoding" not in request.headers:
        return
    codings = request.headers.getall("Transfer-Encoding")
    if not request.http11 or len(codings) > 1 or codings[0].strip().lower() != "chunked":
        raise DoubtfulFraming("Send the body with a Content-Length, or as Transfer-Encoding: chunked in HTTP/1.1.")


def arrived_upload(request: Request, *, maximum_bytes: int, types: frozenset[str] = JSON) -> bytes | None:
    """The body's bytes, where they came with the head: nobody need wait for them. None where `awaited_upload` does.

    Raises UnsupportedMediaType for what is not plain and of one of these media types, BodyTooLarge as soon as that is
    known, ClientGone where the client has left.
    """
    _check_head(request, types)
    try:
        body = request.arrived()
    except (ConnectionError, web.RequestPayloadError) as error:
        raise _unreadable(error) from error
    if body is None or "Expect" in request.headers:
        _let_it_come(request, maximum_bytes)
    if body is not None and len(body) > maximum_bytes:
        raise _too_large(maximum_bytes)
    return body


async def awaited_upload(request: Request, *, maximum_bytes: int, seconds: float) -> bytes:
    """The same, where it takes its time. Raises also InvalidRequest where it does not arrive in `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await _collect(request, maximum_bytes)
    except TimeoutError:
        raise InvalidRequest(f"The request's body did not arrive within {seconds:g} s.", reason="slow_upload") from None
    except (ConnectionError, web.RequestPayloadError) as error:
        raise _unreadable(error) from error


def _let_it_come(request: Request, maximum_bytes: int) -> None:
    """Say so to who asks before he sends it, where the head does not tell that it is too large."""
    length = request.content_length
    if length is not None and length > maximum_bytes:
        raise _too_large(maximum_bytes)
    if request.headers.get("Expect", "").lower() == "100-continue" and request.http11:
        transport = request.transport
        if transport is not None:
            transport.write(_CONTINUE)


def _check_head(request: Request, accepted: frozenset[str]) -> None:
    headers = request.headers
    types = headers.getall("Content-Type", ())
    if len(types) != 1 or not (types[0] in accepted or types[0].partition(";")[0].strip().lower() in accepted):
        raise UnsupportedMediaType(f"Send the body as Content-Type: {' or '.join(sorted(accepted))}.")
    if "Content-Encoding" in headers and any(
        coding.strip().lower() != "identity" for coding in headers.getall("Content-Encoding")
    ):
        raise UnsupportedMediaType("Send the body without Content-Encoding.")


async def _collect(request: Request, maximum_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := await request.content.readany():
        size += len(piece)
        if size > maximum_bytes:
            raise _too_large(maximum_bytes)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unreadable(error: Exception) -> ClientGone | DoubtfulFraming:
    if isinstance(error, ConnectionError):
        return ClientGone()
    return DoubtfulFraming("The request's body is not well-formed HTTP/1.1.")


def _too_large(maximum_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The request's body may have {maximum_bytes} bytes at most. Shorten the prompt.")
