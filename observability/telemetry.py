"""Spans to an OTLP collector, in the background and within bounds: a dead one costs spans, never a request."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock, Thread
from typing import Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NoOpTracer, Tracer

from config import settings
from observability.keeping import Slow, slow, why_kept
from observability.names import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION
from observability.otlp import Collector, collector
from observability.record import Record
from observability.spans import PresetIds, Wording, write_spans


class Telemetry:
    """The span export of one worker, an observer of its records. `start` makes it, after the fork.

    No global provider and no propagator is set: nothing but the record's own trace context goes upstream, baggage
    never.
    """

    def __init__(self, export: Export | None, tracer: Tracer, *, slow: Slow, wording: Wording) -> None:
        self._export = export
        self._tracer = tracer
        self._slow = slow
        self._wording = wording

    @classmethod
    def start(
        cls,
        settings: settings.Telemetry,
        *,
        instance: str,
        version: str = "",
        engines: Sequence[settings.Engine] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> Telemetry:
        """Exports to `settings.otlp_endpoint`; without one nothing is made and nothing is sent.

        `instance` is this worker's `service.instance.id`. Raises ValueError if a line of the headers' secret is none.
        """
        wording = Wording(settings.genai_conventions, {engine.name: engine.kind for engine in engines})
        place = collector(settings, monotonic)
        if place is None:
            return cls(None, NoOpTracer(), slow=slow(settings), wording=wording)
        export = Export(place, _resource(settings, instance, version))
        tracer = export.provider.get_tracer("saltgate", version or None)
        return cls(export, tracer, slow=slow(settings), wording=wording)

    def finished(self, record: Record) -> None:
        """Puts the request's spans into the queue, if they are kept."""
        if self._export is not None and (kept := why_kept(record, self._slow)) is not None:
            write_spans(record, kept, self._wording, self._tracer, self._export.ids)

    def keeps(self, record: Record) -> bool:
        """Whether the spans of a record that has ended are exported."""
        return self._export is not None and why_kept(record, self._slow) is not None

    def dropped(self) -> int:
        """How many spans were lost so far: the queue was full, or the collector did not take them."""
        return 0 if self._export is None else self._export.backlog.dropped()

    def stop(self, timeout: float = 2.0) -> None:
        """Sends what is queued, for `timeout` seconds at most; the rest counts as dropped. Blocks: not in the loop."""
        if self._export is not None:
            self._export.stop(timeout)


class Export:
    """The SDK's own parts for one worker: spans that are written go through its batches to the collector."""

    def __init__(self, place: Collector, resource: Resource) -> None:
        self.ids = PresetIds()
        self.backlog = Backlog(MOST_SPANS)
        self._place = place
        self.provider = TracerProvider(
            # The record has decided already; an unkept one never gets here.
            sampler=ALWAYS_ON,
            resource=resource,
            id_generator=self.ids,
            # The SDK's own handler would hold the exit of a process with a dead collector for 30 seconds.
            shutdown_on_exit=False,
        )
        self.provider.add_span_processor(_Bounded(_Exporter(place, self.backlog), self.backlog))

    def stop(self, timeout: float) -> None:
        """The SDK's own shutdown waits 30 seconds for a collector that does not answer, so it runs in a thread that may
        be left behind.
        """
        self._place.stopping.set()
        stopping = Thread(target=self.provider.shutdown, name="saltgate-telemetry-stop", daemon=True)
        stopping.start()
        stopping.join(timeout)
        self.backlog.close()


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

    def settle(self, count: int, *, delivered: int) -> None:
        """So many spans wait no longer, of which so many were delivered."""
        with self._lock:
            if not self._closed:
                self._waiting -= count
                self._dropped += count - delivered

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
_BATCH: Final = 512
_DELAY_MILLISECONDS: Final = 2000


class _Exporter(SpanExporter):
    """What the SDK's thread gives its batches to. The backlog hears what became of them."""

    def __init__(self, place: Collector, backlog: Backlog) -> None:
        self._place = place
        self._backlog = backlog

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        taken = 0
        try:
            taken = self._place.post("/v1/traces", encode_spans(spans).SerializeToString(), len(spans))
        finally:
            self._backlog.settle(len(spans), delivered=taken)
        return SpanExportResult.SUCCESS if taken else SpanExportResult.FAILURE


class _Bounded(SpanProcessor):
    """The SDK's batch processor behind the backlog."""

    def __init__(self, exporter: SpanExporter, backlog: Backlog) -> None:
        self._backlog = backlog
        self._batches: SpanProcessor = BatchSpanProcessor(
            exporter,
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
