"""One address with several engines behind it, as vLLM's data-parallel ranks are, and a /metrics page of its own."""

from __future__ import annotations

import itertools
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

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


class Images(ABC):
    """A processor's cache of images, as vLLM counts it: it goes by `key`."""

    def __init__(self) -> None:
        self.queries = self.hits = 0
        self.known: set[str] = set()

    @abstractmethod
    def key(self, part: dict[str, Any]) -> str: ...

    def look_up(self, part: dict[str, Any]) -> None:
        self.queries += 1
        self.hits += self.key(part) in self.known
        self.known.add(self.key(part))

    def page(self) -> bytes:
        return b"vllm:mm_cache_queries_total %d.0\nvllm:mm_cache_hits_total %d.0\n" % (self.queries, self.hits)


class Identities(Images):
    """Goes by the identity that a part brings, as vLLM does."""

    def key(self, part: dict[str, Any]) -> str:
        return str(part["uuid"])


class Contents(Images):
    """Goes by the content, whatever identity a part brings: one cache for everybody."""

    def key(self, part: dict[str, Any]) -> str:
        return str(part["image_url"]["url"])


class Nothing(Images):
    """Is too small to keep anything."""

    def key(self, part: dict[str, Any]) -> str:
        return secrets.token_hex(8)


class Busy(Identities):
    """Always has somebody else's image between."""

    def look_up(self, part: dict[str, Any]) -> None:
        super().look_up(part)
        self.queries += 1


class Facade:
    """POSTs go to the engines in turn, or in the order of `turns`, over and over; /metrics is theirs together, each
    with its own number, and then `alter`ed. `images` is the cache that images are looked up in, where there is one.
    """

    def __init__(
        self,
        engines: Sequence[Simulator],
        alter: Alter = lambda page: page,
        *,
        turns: Sequence[int] | None = None,
        images: Images | None = None,
    ) -> None:
        self._images = images
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
        await self.stop()
        await self._session.close()

    async def stop(self) -> None:
        """The address ends, and all that it holds open."""
        await self._runner.cleanup()

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
        counted = [] if self._images is None else [self._images.page()]
        return web.Response(body=self._alter(b"".join([*pages, *counted])))

    async def _models(self, _: web.Request) -> web.Response:
        return web.Response(body=await self._get(self._engines[0], "/v1/models"), content_type="application/json")

    async def _get(self, engine: Simulator, path: str) -> bytes:
        async with self._session.get(engine.url + path) as answer:
            return await answer.read()

    async def _post(self, request: web.Request) -> web.Response:
        url, body = next(self._turns).url + request.path, await request.read()
        if self._images is not None:
            for message in json.loads(body).get("messages", ()):
                for part in message["content"] if isinstance(message["content"], list) else ():
                    if "image_url" in part:
                        self._images.look_up(part)
        async with self._session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
            return web.Response(body=await answer.read(), status=answer.status, content_type="application/json")


class Silent:
    """Who is told of engines and says nothing."""

    def verdict(self, engine: str, replica: str, operation: str, verdict: Verdict) -> None: ...

    def version(self, engine: str, replica: str, version: str) -> None: ...

    def probed(self, engine: str, replica: str, prompt_tokens: int) -> None: ...
