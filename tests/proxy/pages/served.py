"""The pages beside invented data, served as the admin listener serves them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import web

from proxy import pages
from tests.proxy.pages import figures

Json = dict[str, Any]


class Told(Protocol):
    """Whoever knows what the admin listener would answer."""

    def overview(self, window: str) -> Json: ...

    def scope(self, workspace: str, project: str, window: str) -> Json | None: ...

    def request(self, request_id: str) -> Json | None: ...


@dataclass
class Desk:
    """What the next answers are. A test changes it while the page looks."""

    cast: Any = figures.CAST
    told: Told | None = None  # instead of `cast`
    now: float = figures.NOW
    refusal: tuple[int, Json] | None = None  # instead of any data
    down: bool = False  # connections break
    change: Callable[[Json], Json] = lambda data: data
    assets: Mapping[str, bytes] = field(default_factory=dict)  # in place of a file of that name
    asked: list[str] = field(default_factory=list)
    unchanged: int = 0
    keys: list[str] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)  # until it is set, no data comes
    url: str = ""


@asynccontextmanager
async def served_pages() -> AsyncIterator[Desk]:
    desk = Desk()
    desk.open.set()
    runner = web.AppRunner(_application(desk), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    desk.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield desk
    finally:
        await runner.cleanup()


def _application(desk: Desk) -> web.Application:
    async def shell(_: web.Request) -> web.Response:
        return _asset(desk, pages.SHELL)

    async def asset(request: web.Request) -> web.Response:
        return _asset(desk, request.match_info["name"])

    async def overview(request: web.Request) -> web.Response:
        window = request.query["window"]
        if desk.told is not None:
            return await _data(desk, request, desk.told.overview(window))
        return await _data(desk, request, figures.overview(window, now=desk.now, cast=desk.cast))

    async def scope(request: web.Request) -> web.Response:
        workspace, project = request.match_info["workspace"], request.match_info["project"]
        if desk.told is not None:
            return await _data(desk, request, desk.told.scope(workspace, project, request.query["window"]))
        view = figures.scope(workspace, project, request.query["window"], now=desk.now, cast=desk.cast)
        return await _data(desk, request, figures.beside(view, desk.now))

    async def one(request: web.Request) -> web.Response:
        if desk.told is not None:
            return await _data(desk, request, desk.told.request(request.match_info["request_id"]))
        found = {(w, p): figures.scope(w, p, "1h", now=desk.now, cast=desk.cast) or {} for w, p, *_ in desk.cast[:20]}
        wanted = figures.find(found, request.match_info["request_id"])
        return await _data(desk, request, figures.beside(wanted, desk.now))

    application = web.Application()
    application.add_routes([
        web.get("/", shell), web.get("/scopes/{workspace:[^/]+}/{project:[^/]+}", shell),
        web.get("/requests/{request_id}", shell),
        web.get("/assets/{name}", asset), web.get("/api/overview", overview),
        web.get("/api/scopes/{workspace:[^/]+}/{project:[^/]+}", scope), web.get("/api/requests/{request_id}", one),
    ])  # fmt: skip
    return application


def _asset(desk: Desk, name: str) -> web.Response:
    found = pages.assets().get(name)
    if found is None:
        return web.Response(status=404)
    headers = {"Content-Type": found.content_type, "Content-Security-Policy": pages.CONTENT_SECURITY_POLICY}
    return web.Response(body=desk.assets.get(name, found.body), headers=headers)


async def _data(desk: Desk, request: web.Request, data: Json | None) -> web.Response:
    desk.asked.append(request.path_qs)
    desk.keys.append(request.headers["X-Saltgate-Key"])
    await desk.open.wait()
    if desk.down:
        assert request.transport is not None
        request.transport.abort()
    if desk.refusal is not None:
        status, body = desk.refusal
        return web.json_response(body, status=status)
    if data is None:
        return web.json_response({"error": {"message": "not here", "code": "not_found"}}, status=404)
    whole = json.dumps(desk.change(data)).encode()
    tag = f'"{hashlib.sha256(whole).hexdigest()}"'
    if request.headers.get("If-None-Match") == tag:
        desk.unchanged += 1
        return web.Response(status=304, headers={"ETag": tag})
    return web.Response(body=whole, content_type="application/json", headers={"ETag": tag, "Cache-Control": "no-store"})
