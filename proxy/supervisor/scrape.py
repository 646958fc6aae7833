"""The answer to a scrape: written as it is made, so that a page of many megabytes is never there as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import re
import zlib
from collections.abc import Awaitable, Iterator
from typing import Final, Protocol

from aiohttp import web

from observability.exposition import OPENMETRICS_TEXT, PROMETHEUS_TEXT, prefers_open_metrics

# Larger pieces cost less each; while one is compressed, in a thread, others have their turn.
PIECE_BYTES: Final = 256 * 1024
# The page repeats itself so much that the quickest level makes a twentieth of it.
_LEVEL: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS


class Page(Protocol):
    def __call__(self, *, open_metrics: bool) -> Awaitable[Iterator[str]]: ...


async def scraped(request: web.Request, page: Page) -> web.StreamResponse:
    """The page, in the format and coding that the scraper prefers."""
    open_metrics = prefers_open_metrics(request.headers.get("Accept", ""))
    answer = web.StreamResponse(headers={"Content-Type": OPENMETRICS_TEXT if open_metrics else PROMETHEUS_TEXT})
    pieces = _gathered(await page(open_metrics=open_metrics))
    with contextlib.suppress(ConnectionError):  # a scraper that leaves is no fault
        if request.method == "HEAD":
            await answer.prepare(request)  # aiohttp would send what is written
        elif _takes_gzip(request.headers.get("Accept-Encoding", "")):
            await _write_packed(answer, request, pieces)
        else:
            await _write(answer, request, pieces)
    return answer


async def _write(answer: web.StreamResponse, request: web.Request, pieces: Iterator[bytes]) -> None:
    await answer.prepare(request)
    for piece in pieces:
        await answer.write(piece)
        await asyncio.sleep(0)


async def _write_packed(answer: web.StreamResponse, request: web.Request, pieces: Iterator[bytes]) -> None:
    answer.headers["Content-Encoding"] = "gzip"
    await answer.prepare(request)
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
    for piece in pieces:
        await answer.write(await asyncio.to_thread(packer.compress, piece))
    await answer.write(packer.flush())


def _gathered(texts: Iterator[str]) -> Iterator[bytes]:
    waiting: list[str] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= PIECE_BYTES:
            yield "".join(waiting).encode()
            waiting, size = [], 0
    yield "".join(waiting).encode()


def _takes_gzip(accept: str) -> bool:
    """RFC 9110, section 12.5.3, as far as scrapers use it."""
    return any(_ACCEPTED.fullmatch(item.strip()) for item in accept.lower().split(","))


_ACCEPTED: Final = re.compile(r"gzip(\s*;\s*q=(1(\.0*)?|0?\.[0-9]*[1-9][0-9]*))?")
