"""The pages of the admin listener and their data: what is shown to whom, and from where it may be asked for."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

import msgspec
from aiohttp import web

from observability.history.answers import WINDOWS, Beside, ErrorText, Refused, Viewer
from proxy import pages
from proxy.supervisor.address import Address, address_of, is_of_another_page
from proxy.supervisor.shown import Shown
from proxy.supervisor.visitors import Refused as NotLetIn
from proxy.supervisor.visitors import Visitors

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
KEY_HEADER: Final = "X-Saltgate-Key"
SIGN_IN_PAGE: Final = "sign-in.html"
# From here on an answer is compressed outside the loop.
_LARGE_BYTES: Final = 64 * 1024
_NAME: Final = "[a-z0-9][a-z0-9._-]{0,62}"
_REQUEST_ID: Final = "[A-Za-z0-9_-]{1,64}"
_HOUR_SECONDS: Final = 3600

_ADDRESS: Final = web.RequestKey("saltgate_address", Address)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """See the module. `admin_origin` gives the origin of the configuration that is in force."""

    def __init__(self, visitors: Visitors, shown: Shown, admin_origin: Callable[[], str | None]) -> None:
        self._visitors = visitors
        self._shown = shown
        self._admin_origin = admin_origin

    def routes(self) -> list[web.RouteDef]:
        scope = f"{{workspace:{_NAME}}}/{{project:{_NAME}}}"
        shell = self._guarded(self._shell)
        return [
            web.get("/", shell),
            web.get(f"/scopes/{scope}", shell),
            web.get(f"/requests/{{request_id:{_REQUEST_ID}}}", shell),
            web.get("/assets/{name}", self._guarded(self._asset)),
            web.get(SIGN_IN, self._guarded(self._sign_in_page)),
            web.post(SIGN_IN, self._guarded(self._sign_in)),
            web.post(SIGN_OUT, self._guarded(self._sign_out)),
            web.get("/api/overview", self._guarded(self._overview)),
            web.get(f"/api/scopes/{scope}", self._guarded(self._scope)),
            web.get(f"/api/requests/{{request_id:{_REQUEST_ID}}}", self._guarded(self._request)),
        ]

    def _guarded(self, handler: Handler) -> Handler:
        """What holds for each page: it was meant for us, and no page of another origin asked for it. No answer lets one
        read it: there is no CORS here.
        """

        async def guarded(request: web.Request) -> web.StreamResponse:
            answer = await self._answer(request, handler)
            answer.headers.update(_HEADERS)
            return answer

        return guarded

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        address = address_of(request.headers.getall("Host", ()), self._admin_origin())
        if address is None:
            return _refusal(421, "wrong_host", _WRONG_HOST)
        request[_ADDRESS] = address
        if not _is_from_here(request, address):
            return _refusal(403, "other_origin", "This was asked for by a page of another site.")
        try:
            return await handler(request)
        except NotLetIn as refused:
            return _refusal(refused.status, refused.code, refused.message)

    async def _shell(self, request: web.Request) -> web.Response:
        if not self._visitors.has_cookie(_cookie(request)):
            where = f"{SIGN_IN}?return_to={quote(request.path, safe='/')}"
            return web.Response(status=303, headers={"Location": where, "Cache-Control": "no-store"})
        return _asset(request, pages.SHELL)

    async def _sign_in_page(self, request: web.Request) -> web.Response:
        return _asset(request, SIGN_IN_PAGE)

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return _not_found("asset_not_found") if name.endswith(".html") else _asset(request, name)

    async def _sign_in(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return _refusal(415, "unsupported_media_type", "Send application/json.")
        try:
            ticket = msgspec.json.decode(await request.read(), type=_Trade).ticket
        except ValueError:
            return _refusal(400, "invalid_request", 'Send {"ticket": "..."}.')
        entry = await self._visitors.enter(ticket)
        self._visitors.leave(_cookie(request))
        answer = web.Response(body=msgspec.json.encode({"key": entry.key}), content_type="application/json")
        answer.headers["Cache-Control"] = "no-store"
        answer.set_cookie(
            request[_ADDRESS].cookie,
            entry.cookie,
            path="/",
            max_age=12 * _HOUR_SECONDS,
            httponly=True,
            samesite="Strict",
            secure=request[_ADDRESS].is_secure,
        )
        return answer

    async def _sign_out(self, request: web.Request) -> web.Response:
        """Whoever sends the session's key, in the header or as `form_token` of a form, ends it."""
        key = request.headers.get(KEY_HEADER) or str((await request.post()).get("form_token", ""))
        await self._visitors.name(_cookie(request), key)
        self._visitors.leave(_cookie(request))
        answer = web.Response(status=303, headers={"Location": SIGN_IN, "Cache-Control": "no-store"})
        answer.del_cookie(
            request[_ADDRESS].cookie, path="/", httponly=True, samesite="Strict", secure=request[_ADDRESS].is_secure
        )
        return answer

    async def _overview(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        if (window := _window(request)) is None:
            return _refusal(400, "invalid_window", _WINDOWS)
        return await _data(request, _with(await self._shown.overview(window), Beside(viewer=viewer)))

    async def _scope(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        if (window := _window(request)) is None:
            return _refusal(400, "invalid_window", _WINDOWS)
        found = self._shown.scope(window, request.match_info["workspace"], request.match_info["project"])
        if found is None:
            return _not_found("scope_not_found")
        return await _data(request, _with(found, Beside(viewer=viewer, alarms=self._shown.alarms())))

    async def _request(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        found = self._shown.request(request.match_info["request_id"])
        if found is None:
            return _not_found("request_not_found")
        beside = Beside(viewer=viewer, now=self._shown.now(), alarms=self._shown.alarms())
        return await _data(request, _with(found, beside))

    async def _viewer(self, request: web.Request) -> Viewer:
        """Who is looking. Raises `visitors.Refused`."""
        if "Authorization" in request.headers:
            return Viewer(name=await self._visitors.bearer(list(request.headers.items()), request.path))
        key = request.headers.get(KEY_HEADER, "")
        name = await self._visitors.name(_cookie(request), key)
        return Viewer(name=name, sign_out=SIGN_OUT, form_token=key)


class _Trade(msgspec.Struct):
    ticket: str


# The referrer stays within the origin: with `no-referrer` browsers send `Origin: null` with our own forms.
_HEADERS: Final = {
    "Content-Security-Policy": pages.CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_WRONG_HOST: Final = (
    "The administrators' pages are not at this address. Open them at localhost, or at the address of [admin] `url`."
)
_WINDOWS: Final = f"Ask for one window: {', '.join(WINDOWS)}."


def _is_from_here(request: web.Request, address: Address) -> bool:
    """Whether a page of ours asked, or a person, or a program. Browsers tell where a request comes from (Fetch
    Metadata), and of what changes something also with `Origin`: there it is required.
    """
    origins = request.headers.getall("Origin", ())
    if is_of_another_page(origins, address):
        return False
    site = request.headers.get("Sec-Fetch-Site")
    if request.method in ("GET", "HEAD"):
        navigates = request.headers.get("Sec-Fetch-Mode") == "navigate" and not request.path.startswith("/api/")
        return site in (None, "same-origin", "none") or navigates
    return bool(origins) and site in (None, "same-origin")


def _cookie(request: web.Request) -> str | None:
    """The session's cookie; None where it is not there, or there in two ways."""
    name = request[_ADDRESS].cookie
    found = {
        value
        for line in request.headers.getall("Cookie", ())
        for key, _, value in (pair.strip(" \t").partition("=") for pair in line.split(";"))
        if key == name
    }
    return found.pop() if len(found) == 1 else None


def _window(request: web.Request) -> str | None:
    window = request.query.get("window", "15m")
    return window if window in WINDOWS else None


def _asset(request: web.Request, name: str) -> web.Response:
    """A file, or that it is still the same. Only names of the mapping are files: no path is put together."""
    asset = pages.assets().get(name)
    if asset is None:
        return _not_found("asset_not_found")
    headers = {"ETag": asset.etag, "Cache-Control": "no-cache"}
    if _knows(request, asset.etag):
        return web.Response(status=304, headers=headers)
    return web.Response(body=asset.body, headers={**headers, "Content-Type": asset.content_type})


def _knows(request: web.Request, etag: str) -> bool:
    """RFC 9110 section 13.1.2, less weak tags, of which we have none."""
    return etag in (shown.strip() for shown in request.headers.get("If-None-Match", "").split(","))


async def _data(request: web.Request, body: bytes) -> web.Response:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if _knows(request, etag):
        return web.Response(status=304, headers=headers)
    if "gzip" in request.headers.get("Accept-Encoding", "") and len(body) > _LARGE_BYTES:
        body = await asyncio.to_thread(gzip.compress, body, 1)
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, headers=headers, content_type="application/json")


def _with(body: bytes, beside: Beside) -> bytes:
    """The answer, an object that is encoded already and shared by all viewers, with what stands beside its fields."""
    return body[:-1] + b"," + msgspec.json.encode(beside)[1:]


def _refusal(status: int, code: str, message: str) -> web.Response:
    refused = Refused(ErrorText(message, code), SIGN_IN if status in (401, 403) else None)
    headers = {"Cache-Control": "no-store"}
    return web.Response(
        status=status, body=msgspec.json.encode(refused), content_type="application/json", headers=headers
    )


def _not_found(code: str) -> web.Response:
    return _refusal(404, code, "There is nothing of this name here, or not any more.")
