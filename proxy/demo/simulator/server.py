"""The simulated engine as a server: routes, recording, faults, and the life of one request.

Framing as vLLM's server, uvicorn: the head of a stream goes out before prefill, each event is one chunk, a connection
that is idle for 5 s is closed, and a client that closes (also one that only half-closes) aborts its generation at once.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from aiohttp import web

from proxy.demo.simulator.chat import Chat
from proxy.demo.simulator.completions import Completions
from proxy.demo.simulator.embeddings import embeddings
from proxy.demo.simulator.engine import Engine
from proxy.demo.simulator.faults import Fault, FaultKind, Faults
from proxy.demo.simulator.messages import Messages
from proxy.demo.simulator.order import EngineError, Order, UnparsableBody, parse_body, read_order, salt_of
from proxy.demo.simulator.pages import metrics_page, models_page, openapi_page
from proxy.demo.simulator.received import Received
from proxy.demo.simulator.responses import Responses
from proxy.demo.simulator.shape import Endpoint, EngineShape
from proxy.demo.simulator.wire import Dialect, Ticket, anthropic_error, compact, openai_error


def utc_now() -> float:
    """Unix seconds."""
    return datetime.now(UTC).timestamp()


class Simulator:
    """An engine that listens while it is entered: `async with Simulator() as engine: engine.url`.

    It listens on loopback at a free port unless told otherwise; with `unix_path`, there instead. `requests` holds the
    last POSTs, oldest first; `faults` are the failures to come; `engine` is the scheduler with its cache and counters.
    """

    def __init__(
        self,
        shape: EngineShape | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        unix_path: Path | None = None,
        clock: Callable[[], float] = utc_now,
        remembered: int = 1000,
    ) -> None:
        self.shape = shape or EngineShape()
        self.engine = Engine(self.shape)
        self.faults = Faults()
        self.requests: deque[Received] = deque(maxlen=remembered)
        self._listen = (host, port)
        self._unix_path = unix_path
        self._clock = clock
        self._changed = asyncio.Event()
        self._runner = web.AppRunner(
            self._application(),
            # vLLM ignores Content-Encoding; the body is recorded and parsed as it came.
            auto_decompress=False,
            handler_cancellation=True,
            keepalive_timeout=5.0,
            access_log=None,
            shutdown_timeout=0.1,
        )

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await self._site().start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Where it listens: http://host:port, or unix:/path."""
        if self._unix_path is not None:
            return f"unix:{self._unix_path}"
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    @property
    def last(self) -> Received:
        """The request that came last. Raises IndexError where none came."""
        return self.requests[-1]

    async def wait_for(self, holds: Callable[[], bool], *, seconds: float = 10.0) -> None:
        """Returns as soon as `holds()`; asked again whenever a request comes, moves on or ends. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not holds():
                await self._changed.wait()

    def _site(self) -> web.BaseSite:
        if self._unix_path is not None:
            return web.UnixSite(self._runner, str(self._unix_path))
        host, port = self._listen
        return web.TCPSite(self._runner, host, port)

    def _application(self) -> web.Application:
        # No bound on the body: vLLM has none either.
        application = web.Application(client_max_size=0, middlewares=[_fastapi_errors, self._authorized])
        get = application.router.add_get
        get("/health", self._health, allow_head=False)
        get("/version", self._version, allow_head=False)
        get("/v1/models", self._models, allow_head=False)
        get("/openapi.json", self._openapi, allow_head=False)
        # vLLM mounts it as a pattern: every path that begins so is the metrics page.
        get("/metrics{rest:.*}", self._metrics, allow_head=False)
        for endpoint in sorted(self.shape.endpoints, key=lambda endpoint: endpoint.value):
            application.router.add_post(endpoint.value, self._generation(endpoint))
        if Endpoint.MESSAGES in self.shape.endpoints:
            application.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        return application

    @web.middleware
    async def _authorized(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        key = self.shape.api_key
        if (
            key is not None
            and request.path.startswith("/v1")
            and request.headers.get("Authorization") != f"Bearer {key}"
        ):
            return _json(compact({"error": "Unauthorized"}), status=401)
        return await handler(request)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(headers=_SERVER)

    async def _version(self, _: web.Request) -> web.Response:
        return _json(compact({"version": self.shape.version}))

    async def _models(self, _: web.Request) -> web.Response:
        return _json(models_page(self.shape, int(self._clock())))

    async def _openapi(self, _: web.Request) -> web.Response:
        return _json(openapi_page(self.shape))

    async def _metrics(self, _: web.Request) -> web.Response:
        page = metrics_page(self.shape, self.engine.counters, len(self.engine.cache))
        return web.Response(body=page, headers=_SERVER | {"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _count_tokens(self, request: web.Request) -> web.StreamResponse:
        received = self._record(request, await request.read())
        try:
            # `max_tokens` is no member here and nothing is generated, so any bound will do.
            body = {**parse_body(received.body), "max_tokens": 1}
            order = read_order(Endpoint.MESSAGES, body, self.shape)
        except (UnparsableBody, EngineError) as error:
            return self._refuse(Endpoint.MESSAGES, received, error)
        return self._answer(received, compact({"input_tokens": len(order.prompts[0])}))

    def _generation(self, endpoint: Endpoint) -> _Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            received = self._record(request, await request.read())
            try:
                return await self._serve(endpoint, request, received)
            except (asyncio.CancelledError, ConnectionResetError) as error:
                received.aborted = not isinstance(error, _EngineDied)
                raise
            finally:
                self._notify()

        return handle

    async def _serve(self, endpoint: Endpoint, request: web.Request, received: Received) -> web.StreamResponse:
        fault = self.faults.take(endpoint)
        try:
            if fault:
                await _fail_before_head(fault, request)
            order = self._read(endpoint, request, received)
        except (UnparsableBody, EngineError) as error:
            return self._refuse(endpoint, received, error)
        ticket = self._ticket(order, request)
        if endpoint is Endpoint.EMBEDDINGS:
            return await self._embed(ticket, received)
        dialect = _DIALECTS[endpoint](ticket)
        if order.stream:
            return await self._stream(ticket, dialect, request, received, fault)
        return await self._whole(ticket, dialect, received, fault)

    def _read(self, endpoint: Endpoint, request: web.Request, received: Received) -> Order:
        media = request.headers.get("content-type", "").split(";", maxsplit=1)[0].lower()
        if media != "application/json":
            raise EngineError("Unsupported Media Type: Only 'application/json' is allowed", kind="Bad Request")
        body = parse_body(received.body)
        received.salt = salt_of(body)
        return read_order(endpoint, body, self.shape)

    def _ticket(self, order: Order, request: web.Request) -> Ticket:
        # vllm/entrypoints/serve/engine/serving.py: the header wins, but on responses the body's id is the answer's.
        header = None if order.endpoint is Endpoint.RESPONSES else request.headers.get("X-Request-Id")
        given = header or order.request_id
        prefix = _ID_PREFIXES[order.endpoint]
        answer_id = given if given and order.endpoint is Endpoint.RESPONSES else f"{prefix}{given or uuid.uuid4().hex}"
        shows_reuse = order.endpoint not in self.shape.flaws.hides_cached_tokens
        return Ticket(order, answer_id, int(self._clock()), shows_reuse, f"vllm-{self.shape.version}-simulated")

    async def _embed(self, ticket: Ticket, received: Received) -> web.StreamResponse:
        prompts = await self.engine.prefill(ticket.order)
        self._prefilled(received, [(prompt.tokens, prompt.reused) for prompt in prompts])
        self.engine.counters.stopped += len(prompts)
        return self._answer(received, embeddings(ticket, prompts))

    async def _whole(
        self, ticket: Ticket, dialect: Dialect, received: Received, fault: Fault | None
    ) -> web.StreamResponse:
        prompts = await self.engine.prefill(ticket.order)
        self._prefilled(received, [(prompt.tokens, prompt.reused) for prompt in prompts])
        dialect.started(prompts)
        async with aclosing(self.engine.decode(ticket.order)) as tokens:
            async for token in tokens:
                received.generated += 1
                dialect.token(token)
                await _slow_down(fault)
        return self._answer(received, dialect.document())

    async def _stream(
        self, ticket: Ticket, dialect: Dialect, request: web.Request, received: Received, fault: Fault | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=_SERVER | {"content-type": "text/event-stream; charset=utf-8"})
        received.status = 200
        await response.prepare(request)
        await _send(response, dialect.opening())
        prompts = await self.engine.prefill(ticket.order)
        self._prefilled(received, [(prompt.tokens, prompt.reused) for prompt in prompts])
        await _send(response, dialect.started(prompts))
        try:
            await self._send_tokens(ticket, dialect, request, response, received, fault)
            await _send(response, dialect.ending())
        except EngineError as error:
            await _send(response, dialect.broken(error))
        await response.write_eof()
        received.finished = True
        return response

    async def _send_tokens(
        self,
        ticket: Ticket,
        dialect: Dialect,
        request: web.Request,
        response: web.StreamResponse,
        received: Received,
        fault: Fault | None,
    ) -> None:
        async with aclosing(self.engine.decode(ticket.order)) as tokens:
            async for token in tokens:
                if fault and received.generated == fault.tokens:
                    await _fail_mid_stream(fault, ticket.order.endpoint, request, response)
                received.generated += 1
                self._notify()
                await _send(response, dialect.token(token))
                await _slow_down(fault)

    def _record(self, request: web.Request, body: bytes) -> Received:
        received = Received(request.path, request.raw_path, tuple(request.raw_headers), body)
        self.requests.append(received)
        self._notify()
        return received

    def _prefilled(self, received: Received, prompts: list[tuple[int, int]]) -> None:
        received.prompt_tokens = sum(tokens for tokens, _ in prompts)
        received.reused = sum(reused for _, reused in prompts)
        self._notify()

    def _refuse(self, endpoint: Endpoint, received: Received, error: UnparsableBody | EngineError) -> web.Response:
        if isinstance(error, UnparsableBody):
            return self._answer(received, compact({"detail": "There was an error parsing the body"}), status=400)
        # Only what vLLM itself refuses is in Anthropic's form; validation answers before it, in OpenAI's.
        form = anthropic_error if endpoint is Endpoint.MESSAGES and error.status != 400 else openai_error
        return self._answer(received, compact(form(error)), status=error.status)

    def _answer(self, received: Received, body: bytes, *, status: int = 200) -> web.Response:
        received.status = status
        received.finished = True
        return _json(body, status=status)

    def _notify(self) -> None:
        # Whoever waits holds the old event; the next wait begins with a fresh one.
        self._changed.set()
        self._changed = asyncio.Event()


class _EngineDied(ConnectionResetError):  # noqa: N818 - an event, as its parent for aiohttp
    """A fault ended the connection; for aiohttp it is as if the client had."""


@web.middleware
async def _fastapi_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """404 and 405 in FastAPI's form."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _json(compact({"detail": error.reason}), status=error.status)


async def _fail_before_head(fault: Fault, request: web.Request) -> None:
    match fault.kind:
        case FaultKind.DIE_BEFORE_HEAD:
            _reset(request)
        case FaultKind.GARBAGE:
            transport = _transport(request)
            transport.write(b"\x00\x01 no HTTP at all\r\n\r\n")
            transport.close()
            raise _EngineDied
        case FaultKind.HANG:
            await asyncio.Event().wait()
        case FaultKind.STATUS_500:
            raise EngineError("EngineCore encountered an issue.", status=500, kind="InternalServerError")
        case FaultKind.STATUS_503:
            raise EngineError("The request queue is full.", status=503, kind="ServiceUnavailableError")
        case _:
            pass


async def _fail_mid_stream(
    fault: Fault, endpoint: Endpoint, request: web.Request, response: web.StreamResponse
) -> None:
    match fault.kind:
        case FaultKind.DIE_MID_STREAM:
            _reset(request)
        case FaultKind.CUT_MID_STREAM:
            _transport(request).close()
            raise _EngineDied
        case FaultKind.HANG_MID_STREAM:
            await asyncio.Event().wait()
        case FaultKind.ERROR_MID_STREAM if endpoint is Endpoint.RESPONSES:
            # vLLM finds no event for it and raises inside the generator: the body ends without its last chunk.
            _transport(request).close()
            raise _EngineDied
        case FaultKind.ERROR_MID_STREAM:
            raise EngineError("EngineCore encountered an issue.", status=500, kind="InternalServerError")
        case FaultKind.GARBAGE_MID_STREAM:
            await _send(response, [b"data: {no json\n\n"])
        case _:
            pass


async def _slow_down(fault: Fault | None) -> None:
    if fault and fault.kind is FaultKind.SLOW:
        await asyncio.sleep(fault.seconds)


def _reset(request: web.Request) -> None:
    """Ends the connection with RST: a socket that does not linger is closed so."""
    transport = _transport(request)
    connection: socket.socket = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    raise _EngineDied


def _transport(request: web.Request) -> asyncio.Transport:
    transport = request.transport
    if transport is None:
        raise ConnectionResetError
    return transport


async def _send(response: web.StreamResponse, events: list[bytes]) -> None:
    for event in events:
        await response.write(event)


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, headers=_SERVER | {"content-type": "application/json"})


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_SERVER: Final = {"server": "uvicorn"}
_DIALECTS: Final[dict[Endpoint, Callable[[Ticket], Dialect]]] = {
    Endpoint.CHAT: Chat,
    Endpoint.COMPLETIONS: Completions,
    Endpoint.RESPONSES: Responses,
    Endpoint.MESSAGES: Messages,
}
_ID_PREFIXES: Final = {
    Endpoint.CHAT: "chatcmpl-",
    Endpoint.COMPLETIONS: "cmpl-",
    Endpoint.RESPONSES: "resp_",
    Endpoint.MESSAGES: "chatcmpl-",
    Endpoint.EMBEDDINGS: "embd-",
}
