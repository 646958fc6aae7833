"""One address with several engines behind it, as vLLM's data-parallel ranks are, and a /metrics page of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from proxy.assurance.verdict import Verdict
from proxy.demo.simulator import Simulator
from proxy.relay.pool import Address, Pool

Alter = Callable[[bytes], bytes]


def pool_of(url: str) -> Pool:
    """Connections to an engine at http://host:port."""
    host, _, port = url.removeprefix("http://").partition(":")
    return Pool(Address(host=host, port=int(port)), connect_seconds=2.0)


class Facade:
    """POSTs go to the engines in turn, or in the order of `turns`, over and over; /metrics is theirs together, each
    with its own number, and then `alter`ed.
    """

    def __init__(
        self, engines: Sequence[Simulator], alter: Alter = lambda page: page, *, turns: Sequence[int] | None = None
    ) -> None:
        self._engines = engines
        self._turns = itertools.cycle(engines if turns is None else [engines[turn] for turn in turns])
        self._alter = alter
        application = web.Application(client_max_size=0)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/v1/models", self._models)
        application.router.add_post("/{path:.*}", self._post)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._session.close()

    def lead_to(self, engine: Simulator) -> None:
        """From now on POSTs go there, on the connections that there are: the process seems to be the same."""
        self._turns = itertools.cycle([engine])

    @property
    def url(self) -> str:
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def _metrics(self, _: web.Request) -> web.Response:
        pages = [
            (await self._get(engine, "/metrics")).replace(b'engine="0"', b'engine="%d"' % number)
            for number, engine in enumerate(self._engines)
        ]
        return web.Response(body=self._alter(b"".join(pages)))

    async def _models(self, _: web.Request) -> web.Response:
        return web.Response(body=await self._get(self._engines[0], "/v1/models"), content_type="application/json")

    async def _get(self, engine: Simulator, path: str) -> bytes:
        async with self._session.get(engine.url + path) as answer:
            return await answer.read()

    async def _post(self, request: web.Request) -> web.Response:
        url, body = next(self._turns).url + request.path, await request.read()
        async with self._session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
            return web.Response(body=await answer.read(), status=answer.status, content_type="application/json")


class Silent:
    """Who is told of engines and says nothing."""

    def verdict(self, engine: str, replica: str, operation: str, verdict: Verdict) -> None: ...

    def version(self, engine: str, replica: str, version: str) -> None: ...

    def probed(self, engine: str, replica: str, prompt_tokens: int) -> None: ...
