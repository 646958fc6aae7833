"""Spans to an OTLP collector, in the background and within bounds: a dead one costs spans, never a request."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock, Thread
from typing import Final

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NoOpTracer, Tracer

from config import settings
from observability.names import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION
from observability.record import Record
from observability.spans import PresetIds, is_kept, write_spans


class Telemetry:
    """The span export of one worker, an observer of its records. `start` makes it, after the fork.

    No global provider and no propagator is set: nothing but `Record.traceparent` goes upstream, baggage never.
    """

    def __init__(self, tracer: Tracer, ids: PresetIds, provider: TracerProvider | None, backlog: Backlog) -> None:
        self._tracer = tracer
        self._ids = ids
        self._provider = provider
        self._backlog = backlog

    @classmethod
    def start(cls, settings: settings.Telemetry, *, instance: str, version: str = "") -> Telemetry:
        """Exports to `settings.otlp_endpoint`; without one nothing is made and nothing is sent.

        `instance` is this worker's `service.instance.id`. Raises ValueError if a line of the headers' secret is none.
        """
        backlog = Backlog(MOST_SPANS)
        if settings.otlp_endpoint is None:
            return cls(NoOpTracer(), PresetIds(), None, backlog)
        ids = PresetIds()
        provider = TracerProvider(
            # The record has decided already; an unkept one never gets here.
            sampler=ALWAYS_ON,
            resource=_resource(settings, instance, version),
            id_generator=ids,
            # The SDK's own handler would hold the exit of a process with a dead collector for 30 seconds.
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(
            endpoint=settings.otlp_endpoint.rstrip("/") + "/v1/traces",
            headers=_headers(settings),
            timeout=EXPORT_SECONDS,
            compression=Compression.Gzip,
        )
        provider.add_span_processor(_Bounded(exporter, backlog))
        return cls(provider.get_tracer("saltgate", version or None), ids, provider, backlog)

    def sent(self, record: Record) -> None:
        """Nothing: spans are made at the end."""

    def finished(self, record: Record) -> None:
        """Puts the request's spans into the queue, if they are kept."""
        if self._provider is not None and is_kept(record):
            write_spans(record, self._tracer, self._ids)

    def dropped(self) -> int:
        """How many spans were lost so far: the queue was full, or the collector did not take them."""
        return self._backlog.dropped()

    def stop(self, timeout: float = 2.0) -> None:
        """Sends what is queued, for at most `timeout` seconds; the rest counts as dropped. Blocks, so not in the loop.

        The SDK's own shutdown waits 30 seconds for a collector that does not answer, so it runs in a thread that may
        be left behind.
        """
        if self._provider is None:
            return
        stopping = Thread(target=self._provider.shutdown, name="saltgate-telemetry-stop", daemon=True)
        stopping.start()
        stopping.join(timeout)
        self._backlog.close()


class Backlog:
    """How many spans wait for the collector or are on their way, and how many were lost.

    The SDK's queue drops without saying how many; so this one refuses first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._waiting = 0
        self._dropped = 0
        self._closed = False

    def take(self) -> bool:
        """Whether one more span may wait. False counts it as lost."""
        with self._lock:
            if self._closed or self._waiting >= self._limit:
                self._dropped += 1
                return False
            self._waiting += 1
            return True

    def settle(self, count: int, *, delivered: bool) -> None:
        """So many spans wait no longer."""
        with self._lock:
            if not self._closed:
                self._waiting -= count
                self._dropped += 0 if delivered else count

    def dropped(self) -> int:
        return self._dropped

    def close(self) -> None:
        """What still waits is lost."""
        with self._lock:
            self._closed = True
            self._dropped += self._waiting
            self._waiting = 0


# 4096 spans are about 6 MB.
MOST_SPANS: Final = 4096
EXPORT_SECONDS: Final = 3.0
_BATCH: Final = 512
_DELAY_MILLISECONDS: Final = 2000


class _Counted(SpanExporter):
    """An exporter whose results the backlog hears of."""

    def __init__(self, exporter: SpanExporter, backlog: Backlog) -> None:
        self._exporter = exporter
        self._backlog = backlog

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._backlog.settle(len(spans), delivered=result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Bounded(SpanProcessor):
    """The SDK's batch processor behind the backlog."""

    def __init__(self, exporter: SpanExporter, backlog: Backlog) -> None:
        self._backlog = backlog
        self._batches: SpanProcessor = BatchSpanProcessor(
            _Counted(exporter, backlog),
            max_queue_size=MOST_SPANS,
            max_export_batch_size=_BATCH,
            schedule_delay_millis=_DELAY_MILLISECONDS,
        )

    def on_end(self, span: ReadableSpan) -> None:
        if self._backlog.take():
            self._batches.on_end(span)

    def shutdown(self) -> None:
        self._batches.shutdown()


def _resource(settings: settings.Telemetry, instance: str, version: str) -> Resource:
    attributes = {SERVICE_NAME: settings.service_name, SERVICE_INSTANCE_ID: instance}
    if version:
        attributes[SERVICE_VERSION] = version
    return Resource.create(attributes)


def _headers(settings: settings.Telemetry) -> dict[str, str]:
    """The headers of an export. A line that is none is named by its number, for its content is a secret."""
    if settings.otlp_headers is None:
        return {}
    headers: dict[str, str] = {}
    for number, line in enumerate(settings.otlp_headers.value.decode("latin-1").splitlines(), start=1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            raise ValueError(f"telemetry.otlp_headers: line {number} is no `name: value`")
        headers[name.strip()] = value.strip()
    return headers
