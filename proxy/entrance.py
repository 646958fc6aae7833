"""Whatever comes to the public listener, before anybody is known: framing, routes, what pages elsewhere may read,
saltgate's own pages and documents, and the answer to whoever is refused. Who asks for a model goes to the gateway.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from observability.record import Record
from observability.recorder import Recorder
from proxy.answers import metadata_document, page_answer, preflight_answer, refusal_answer
from proxy.certificates import ClientCertificates
from proxy.cross_origin import CrossOrigin
from proxy.desk import PageAnswer, Visit
from proxy.gateway import Gateway
from proxy.identity.native_sign_in import NativeSignIn
from proxy.peers import ClientAddresses
from proxy.refusals import Dialect, Draining, EndpointNotAllowed, Refusal
from proxy.relay.answer import Answer
from proxy.relay.downstream import ClientGone
from proxy.relay.pace import Pace
from proxy.relay.request import Request
from proxy.routes import (
    Generate,
    ListModels,
    Page,
    Preflight,
    ResourceMetadata,
    Route,
    dialect_of,
    find_route,
    is_for_people,
)
from proxy.uploads import FORMS, arrived_upload, awaited_upload, check_framing

MAXIMUM_FORM_BYTES: Final = 64 * 1024
"""What a form or a logout token may have."""


class Desk(Protocol):
    """saltgate's own pages. Each judges by itself who visits it: no visit here is a request to an engine."""

    async def serve(self, page: Page, visit: Visit) -> PageAnswer:
        """Raises EndpointNotAllowed for a page that this deployment does not have, and the page's own refusals."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """What everybody may know of this deployment: its address, and where one signs in for it.

    `cross_origin` None: no page of another origin is let in.
    """

    url: str
    issuers: tuple[str, ...]
    native_sign_ins: tuple[NativeSignIn, ...] = ()
    cross_origin: CrossOrigin | None = None


@dataclass(slots=True, kw_only=True)
class Entrance:
    """The public side of one worker. `draining`, once set, lets no request be taken any more; `retiring` lets each
    connection have one more answer, which says that it is the last.

    `pace` is that of refusals, `page_pace` that of our own pages, which are open to everybody: a flood of the one
    delays nobody at the other. `request_seconds` bounds the upload of a form.
    `addresses` None: where clients are is not told.
    """

    gateway: Gateway
    desk: Desk
    recorder: Recorder
    face: Face
    certificates: ClientCertificates
    request_seconds: float
    addresses: ClientAddresses | None = None
    pace: Pace = field(default_factory=Pace)
    page_pace: Pace = field(default_factory=Pace)
    draining: bool = False
    retiring: bool = False

    async def handle(self, request: Request) -> Answer:
        """Serve one request, record it once, whatever happens."""
        target = request.target
        if self.retiring:
            request.last_answer = True
        address = None
        try:
            if self.addresses is not None:
                address = self._address(request, self.addresses)
            if self.face.cross_origin is not None:
                self._let_page_read(request, target, self.face.cross_origin)
            check_framing(request)
            route = self._route(request, target) if request.method == "OPTIONS" else find_route(request.method, target)
        except Refusal as refusal:
            with self.recorder.request(method=request.method, route=None) as record:
                record.client_address = address
                return await self._refused(request, refusal, dialect_of(target), record)
        with self.recorder.request(method=request.method, route=route.name) as record:
            record.client_address = address
            try:
                return await self._served(request, route, record)
            except Refusal as refusal:
                return await self._refused(request, refusal, route.dialect, record)
            except ClientGone:
                record.ended("client_gone")
                return Answer(request)

    def _address(self, request: Request, addresses: ClientAddresses) -> str | None:
        """Where the client is. Raises InvalidRequest where a proxy's word is doubtful."""
        lines = () if addresses.header is None else request.headers.getall(addresses.header, ())
        client = addresses.client(request.connection.peer, lines)
        return None if client is None else str(client)

    def _let_page_read(self, request: Request, target: str, cross_origin: CrossOrigin) -> None:
        """Every answer to this request, also a refusal, says whether a page of another origin may read it."""
        if not is_for_people(target):
            request.page_lines = cross_origin.lines(request.headers.getall("Origin", ()))

    def _route(self, request: Request, target: str) -> Route:
        """A preflight has the route of the request that it asks about; it is answered before anybody is identified."""
        if self.face.cross_origin is None:
            return find_route(request.method, target)
        methods = request.headers.getall("Access-Control-Request-Method", ())
        if len(methods) != 1:
            return find_route(request.method, target)
        route = find_route(methods[0], target)
        origin = self.face.cross_origin.allowed(request.headers.getall("Origin", ()))
        if isinstance(route.wanted, Page) or origin is None:
            raise EndpointNotAllowed(
                "Pages of this origin are not let in here. The administrator lists those that are under [cors].",
                reason="origin",
            )
        headers = request.headers.getall("Access-Control-Request-Headers", ())
        return replace(route, wanted=Preflight(origin, methods[0], tuple(headers)))

    async def _refused(self, request: Request, refusal: Refusal, dialect: Dialect, record: Record) -> Answer:
        """The refusal's answer: in its turn, where nobody knows whom it is for."""
        last = False
        if record.issuer is None and not isinstance(refusal, Draining):
            last = not await self.pace.turn(_head_bytes(request))
        return refusal_answer(request, refusal, dialect, record, self.face.url, last=last)

    async def _waited(self, request: Request) -> bool:
        """Returns when it is the turn of somebody whom nobody knows; True where his connection is to end with that."""
        return not await self.pace.turn(_head_bytes(request))

    def _served(self, request: Request, route: Route, record: Record) -> Awaitable[Answer]:
        if self.draining:
            raise Draining("saltgate is being restarted. Send the request again.")
        wanted = route.wanted
        if isinstance(wanted, (Generate, ListModels)):
            return self.gateway.serve(request, route, wanted, record)
        if isinstance(wanted, Page):
            return self._visited(request, wanted, record)
        return self._told(request, wanted, record)

    async def _told(self, request: Request, wanted: ResourceMetadata | Preflight, record: Record) -> Answer:
        """What everybody may know, in its turn."""
        last = await self._waited(request)
        if isinstance(wanted, Preflight):
            return preflight_answer(request, record, wanted, last=last)
        return metadata_document(
            request,
            record,
            self.face.url + wanted.resource,
            self.face.issuers,
            self.face.native_sign_ins,
            certificates=self.certificates.possible,
            last=last,
        )

    async def _visited(self, request: Request, page: Page, record: Record) -> Answer:
        body = b""
        if request.method == "POST":
            arrived = arrived_upload(request, maximum_bytes=MAXIMUM_FORM_BYTES, types=FORMS)
            body = await self._awaited(request) if arrived is None else arrived
        answer = await self.desk.serve(page, self._visit(request, body))
        last = False
        if page.is_for_anybody or answer.is_for_anybody:
            last = not await self.page_pace.turn(_head_bytes(request))
        return page_answer(request, record, answer, last=last)

    async def _awaited(self, request: Request) -> bytes:
        return await awaited_upload(request, maximum_bytes=MAXIMUM_FORM_BYTES, seconds=self.request_seconds)

    def _visit(self, request: Request, body: bytes) -> Visit:
        path, _, query = request.target.partition("?")
        return Visit(
            method=request.method,
            path=path,
            query=query,
            headers=tuple(request.headers.items()),
            body=body,
            certificate=self.certificates.of(request),
        )


def _head_bytes(request: Request) -> int:
    return sum(len(name) + len(value) for name, value in request.raw_headers)
