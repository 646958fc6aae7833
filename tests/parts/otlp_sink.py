"""A real OTLP/HTTP collector in a test's own loop: it takes protobuf, keeps the spans, and fails on demand."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass, field
from threading import Thread
from types import TracebackType
from typing import Literal, Self

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.parts.emitted import search_emitted

# `hang`: takes the request and never answers. `unavailable`: 503. A refused connection needs no sink: `closed_port`.
Fault = Literal["hang", "unavailable"]
Value = str | bool | int | float | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """One span as it arrived. Ids are lower-case hex, times Unix nanoseconds, status and kind the protocol's names."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    status: str
    attributes: dict[str, Value]
    links: list[tuple[str, str]]
    events: int
    resource: dict[str, Value]


@dataclass(slots=True)
class OtlpSink:
    """`async with OtlpSink() as sink`: an endpoint at `sink.url`, what came in `sink.spans`, `sink.metrics`
    and `sink.requests`. With `tls` it speaks TLS, as that context wants it; `shown` are the names of certificates that
    clients showed it."""

    fault: Fault | None = None
    tls: ssl.SSLContext | None = None
    shown: set[str] = field(default_factory=set)
    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    requests: int = 0
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _listening: socket.socket = field(default_factory=socket.socket)
    _serving: asyncio.Task[None] | None = None
    _leaving: bool = False

    async def __aenter__(self) -> Self:
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen(128)
        self._listening.setblocking(False)
        host, port = self._listening.getsockname()
        self.url = f"{'http' if self.tls is None else 'https'}://{host}:{port}"
        self._serving = asyncio.create_task(self._serve())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._released.set()
        self._leaving = True
        with socket.create_connection(self._listening.getsockname()):
            if self._serving is not None:
                await self._serving
        self._listening.close()
        if kind is None:
            for body in self.raw:
                search_emitted("what the collector got", body)

    async def _serve(self) -> None:
        """Takes connections until one comes when we are leaving.

        Not asyncio's own server: closed in the turn in which it accepted, it forgets that connection unclosed, and a
        collector that hangs has clients that come again until the last moment.
        """
        loop = asyncio.get_running_loop()
        server = web.Server(self._take, access_log=None)
        while True:
            peer, _ = await loop.sock_accept(self._listening)
            if self._leaving:
                peer.close()
                break
            try:
                await loop.connect_accepted_socket(server, peer, ssl=self.tls)
            except OSError:
                continue  # no handshake came of it: an ssl.SSLError is one
        await server.shutdown(_PATIENCE_SECONDS)
        # A transport that was told to close does so in the next turn.
        await asyncio.sleep(0)

    async def wait_for_request(self, *, seconds: float = 20.0) -> None:
        """Returns once a request has arrived, whatever becomes of it."""
        async with asyncio.timeout(seconds):
            await self._arrived.wait()

    async def _take(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        self.requests += 1
        self._arrived.set()
        if self.tls is not None and request.transport is not None:
            certificate = request.transport.get_extra_info("peercert") or {}
            self.shown |= {value for names in certificate.get("subject", ()) for _, value in names}
        if self.fault == "hang":
            await self._released.wait()
        if self.fault is not None:
            return web.Response(status=503)
        self.raw.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.paths.append(request.path)
        if request.path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        elif request.path == "/v1/traces":
            self.spans.extend(_spans(ExportTraceServiceRequest.FromString(body)))
        return web.Response(body=b"", content_type="application/x-protobuf")


class SinkThread:
    """The same on a thread of its own, for a whole session: `with SinkThread() as sink`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="otlp-sink", daemon=True)

    @property
    def url(self) -> str:
        return self._sink.url

    @property
    def spans(self) -> list[ReceivedSpan]:
        """Those that have come until now."""
        return list(self._sink.spans)

    def __enter__(self) -> Self:
        self._sink = OtlpSink()
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._sink.__aenter__(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._sink.__aexit__(kind, error, traceback), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_PATIENCE_SECONDS = 0.5


def _spans(request: ExportTraceServiceRequest) -> list[ReceivedSpan]:
    return [
        ReceivedSpan(
            name=span.name,
            kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            status=("UNSET", "OK", "ERROR")[span.status.code],
            attributes=_attributes(list(span.attributes)),
            links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
            events=len(span.events),
            resource=_attributes(list(resource_spans.resource.attributes)),
        )
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]


def _attributes(pairs: list[KeyValue]) -> dict[str, Value]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Value:
    match value.WhichOneof("value"):
        case "bool_value":
            return bool(value.bool_value)
        case "int_value":
            return int(value.int_value)
        case "double_value":
            return float(value.double_value)
        case "array_value":
            return tuple(item.string_value for item in value.array_value.values)
        case _:
            return str(value.string_value)
