"""The admin listener: one for all workers, answered by the supervisor."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

from aiohttp import web

from config.addresses import UnixAddress, listen_address
from proxy.supervisor.address import address_of, is_of_another_page
from proxy.supervisor.listener import cannot_listen
from proxy.supervisor.scrape import scraped

MOST_BODY_BYTES: Final = 96 * 1024


class Served(Protocol):
    """What the admin listener tells of."""

    @property
    def metrics_token(self) -> bytes | None:
        """What a scraper must show now; None: anybody may scrape."""
        ...

    @property
    def admin_origin(self) -> str | None:
        """Where administrators open the pages, as browsers write it; None where they cannot."""
        ...

    async def waits_for(self) -> list[str]:
        """What stands between saltgate and serving; nothing when every worker is ready."""
        ...

    async def metrics(self, *, open_metrics: bool) -> Iterator[str]:
        """The page for a scraper, in pieces."""
        ...


@asynccontextmanager
async def admin_listener(listen: str, served: Served, pages: Iterable[web.RouteDef] = ()) -> AsyncIterator[None]:
    """It answers while the context is open, also with `pages`. Raises CannotListen."""
    application = _application(served)
    application.add_routes(pages)
    runner = web.AppRunner(application, access_log=None, handle_signals=False)
    await runner.setup()
    address = listen_address(listen)
    try:
        if isinstance(address, UnixAddress):
            await web.UnixSite(runner, address.path).start()
        else:
            await web.TCPSite(runner, address.host, address.port).start()
    except OSError as error:
        await runner.cleanup()
        raise cannot_listen(listen, error) from error
    try:
        yield
    finally:
        await runner.cleanup()


def _application(served: Served) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        ready = not await served.waits_for()
        return web.Response(text="ok\n" if ready else "not ready\n", status=200 if ready else 503)

    async def metrics(request: web.Request) -> web.StreamResponse:
        address = address_of(request.headers.getall("Host", ()), served.admin_origin)
        if is_of_another_page(request.headers.getall("Origin", ()), address):
            return web.Response(status=403, text="asked for by a page of another site\n")
        token = served.metrics_token
        if token is None and address is None:  # the page of a name that was made to lead here could read it
            return web.Response(status=421, text="not at this address: ask localhost, or set metrics_token\n")
        if token is not None and not _shows(request, token):
            return web.Response(status=401, text="metrics_token required\n", headers={"WWW-Authenticate": "Bearer"})
        return await scraped(request, served.metrics)

    application = web.Application(client_max_size=MOST_BODY_BYTES)
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return application


def _shows(request: web.Request, token: bytes) -> bool:
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), token)
