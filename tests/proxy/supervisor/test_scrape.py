"""The answer to a scrape: format and coding by the scraper's word, written piece by piece."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest

from proxy.supervisor.admin import admin_listener
from proxy.supervisor.scrape import PIECE_BYTES, _gathered
from tests.parts.redis_server import free_port

LINES = [f'saltgate_requests_total{{project="p{number}"}} {number}\n' for number in range(40_000)]


@dataclass(slots=True)
class OfLines:
    """A supervisor whose page are these lines, a thousand at a time."""

    lines: list[str]
    metrics_token: bytes | None = None
    admin_origin: str | None = None
    made: int = 0
    open_metrics: list[bool] = field(default_factory=list)

    async def waits_for(self) -> list[str]:
        return []

    async def metrics(self, *, open_metrics: bool) -> Iterator[str]:
        self.open_metrics.append(open_metrics)
        return self._pieces()

    def _pieces(self) -> Iterator[str]:
        for start in range(0, len(self.lines), 1000):
            self.made += 1
            yield "".join(self.lines[start : start + 1000])


@asynccontextmanager
async def listening(served: OfLines) -> AsyncIterator[str]:
    port = free_port()
    async with admin_listener(f"127.0.0.1:{port}", served):
        yield f"http://127.0.0.1:{port}/metrics"


@pytest.mark.parametrize(
    ("accepts", "coding"),
    [("gzip", "gzip"), ("gzip;q=0.5, br", "gzip"), ("gzip;q=0", None), ("identity", None), ("x-gzip2", None)],
)
async def test_the_page_is_whole_in_the_coding_that_the_scraper_takes(accepts: str, coding: str | None) -> None:
    async with (
        listening(OfLines(LINES)) as url,
        aiohttp.ClientSession() as session,
        session.get(url, headers={"Accept-Encoding": accepts}) as answer,
    ):
        assert answer.headers.get("Content-Encoding") == coding
        assert await answer.text() == "".join(LINES)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:19080"}, 200),
        ({"Host": "[::1]"}, 200),
        ({"Host": "admin.example.com"}, 200),
        ({"Host": "admin.example.com", "Origin": "https://admin.example.com"}, 200),
        ({"Host": "attacker.example:9080"}, 421),
        ({"Host": "localhost.attacker.example"}, 421),
        ({"Host": "attacker.example", "Origin": "http://attacker.example"}, 403),
        ({"Origin": "http://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
async def test_without_a_token_no_name_that_was_made_to_lead_here_and_no_other_page_reads_the_metrics(
    headers: dict[str, str], status: int
) -> None:
    served = OfLines(LINES[:1], admin_origin="https://admin.example.com")
    async with (
        listening(served) as url,
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers) as answer,
    ):
        assert (answer.status, "project" in await answer.text()) == (status, status == 200)
        assert bool(served.made) == (status == 200)


async def test_who_shows_the_token_may_scrape_by_any_name() -> None:
    headers = {"Host": "gateway:9080", "Authorization": "Bearer secret"}
    async with (
        listening(OfLines(LINES[:1], metrics_token=b"secret")) as url,
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers) as answer,
    ):
        assert answer.status == 200


@pytest.mark.parametrize("accepts", ["gzip", "identity"])
async def test_a_small_and_an_empty_page_are_whole_too(accepts: str) -> None:
    for lines in ([], LINES[:3]):
        async with (
            listening(OfLines(lines)) as url,
            aiohttp.ClientSession() as session,
            session.get(url, headers={"Accept-Encoding": accepts}) as answer,
        ):
            assert await answer.text() == "".join(lines)


async def test_the_format_is_the_scrapers_choice() -> None:
    served = OfLines(LINES[:1])
    async with listening(served) as url, aiohttp.ClientSession() as session:
        for accept in ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "text/plain"):
            async with session.get(url, headers={"Accept": accept}) as answer:
                assert answer.headers["Content-Type"].startswith(accept.partition(";")[0])
    assert served.open_metrics == [True, False]


async def test_a_scraper_that_reads_nothing_has_nothing_made_for_him() -> None:
    """What waits for him is bounded, and the listener answers others."""
    served = OfLines(LINES * 10)
    async with listening(served) as url:
        address = url.removeprefix("http://").removesuffix("/metrics")
        reader, writer = await asyncio.open_connection(*address.split(":"), limit=1024)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with aiohttp.ClientSession() as session:
            for _ in range(10):
                async with session.get(url.replace("/metrics", "/healthz")) as answer:
                    assert answer.status == 200
                await asyncio.sleep(0.01)
        made = served.made
        assert made < 400
        async with asyncio.timeout(10):
            assert b"200 OK" in await reader.readline()
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def test_no_piece_is_larger_than_what_is_gathered_and_made_at_once() -> None:
    pieces = list(_gathered(iter(LINES)))
    assert b"".join(pieces).decode() == "".join(LINES)
    assert len(pieces) > 5
    assert max(map(len, pieces)) <= PIECE_BYTES + max(map(len, LINES))


@pytest.mark.parametrize("accepts", ["gzip", "identity"])
async def test_head_and_a_scraper_that_leaves_are_no_faults(caplog: pytest.LogCaptureFixture, accepts: str) -> None:
    async with listening(OfLines(LINES * 10)) as url, aiohttp.ClientSession() as session:
        async with session.head(url, headers={"Accept-Encoding": accepts}) as answer:
            assert answer.status == 200
        for _ in range(3):
            async with session.get(url, headers={"Accept-Encoding": accepts}) as answer:
                answer.close()
        async with session.get(url.replace("/metrics", "/healthz")) as answer:
            assert answer.status == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
