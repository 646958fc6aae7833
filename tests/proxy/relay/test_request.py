"""A body that is here already is read as if it were waited for."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from aiohttp import HttpVersion11, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from proxy.relay.downstream import Downstream
from proxy.relay.request import Request


def reader() -> StreamReader:
    loop = asyncio.get_running_loop()
    return StreamReader(BaseProtocol(loop), 2**16, loop=loop)


def request(content: StreamReader) -> Request:
    fields: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())
    head = RawRequestMessage("POST", "/", HttpVersion11, fields, (), False, None, False, False, URL("/"))
    return Request(head, content, cast("Downstream", None))


@pytest.mark.parametrize("pieces", [(), (b"one",), (b"one", b"two"), (b"one", b"two", b"three")])
async def test_what_arrived_is_all_of_it(pieces: tuple[bytes, ...]) -> None:
    content = reader()
    asked = request(content)
    for piece in pieces:
        content.feed_data(piece)
        assert asked.arrived() is None
    content.feed_eof()
    assert asked.arrived() == b"".join(pieces)


async def test_a_request_without_a_body_has_an_empty_one() -> None:
    assert request(EMPTY_PAYLOAD).arrived() == b""


async def test_nothing_arrived_where_the_client_has_left_meanwhile() -> None:
    content = reader()
    content.feed_data(b"one")
    content.feed_eof()
    asked = request(content)
    asked._cancel(ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        asked.arrived()
