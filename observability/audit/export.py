"""The same lines to an OpenTelemetry collector, as logs: bounded, never waited for, and what is lost is counted.

The files are the truth; but a collector on another machine that keeps the lines with their MACs is a witness, too. The
body of a log record is the whole line.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from threading import Event, Thread
from typing import Final

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from observability import names
from observability.otlp import Collector

PATH: Final = "/v1/logs"
MOST_WAITING: Final = 4096
"""Some 3 MB of lines."""
_BATCH: Final = 512
_GATHER_SECONDS: Final = 2.0


class Told(msgspec.Struct, frozen=True):
    """What of a line stands beside its body, so that a backend can join and filter."""

    ts: str
    event: str
    trace_id: str | None = None
    request_id: str | None = None
    outcome: str | None = None
    workspace: str | None = None
    project: str | None = None


class LogExport:
    """One worker's. Called with lines by the thread that writes; a thread of its own sends them."""

    def __init__(self, collector: Collector, *, service: str, instance: str, version: str) -> None:
        self._collector = collector
        self._resource = Resource(
            attributes=[
                _pair(names.SERVICE_NAME, service),
                _pair(names.SERVICE_INSTANCE_ID, instance),
                _pair(names.SERVICE_VERSION, version),
            ]
        )
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._some = Event()
        self._closing = Event()
        self._thread = Thread(target=self._run, name="saltgate-audit-export", daemon=True)
        self._thread.start()

    def __call__(self, lines: list[bytes]) -> None:
        """Takes them to be sent; what is over the bound is lost."""
        room = max(MOST_WAITING - len(self._waiting), 0)
        self._waiting.extend(lines[:room])
        self._dropped += max(len(lines) - room, 0)
        self._some.set()

    def dropped(self) -> int:
        """How many lines the collector has not got and will not get."""
        return self._dropped

    def stop(self, timeout: float) -> None:
        """Sends what waits, for `timeout` seconds at most; the rest is lost. Blocks."""
        self._closing.set()
        self._some.set()
        self._collector.stopping.set()
        self._thread.join(timeout)
        self._dropped += len(self._waiting)

    def _run(self) -> None:
        while not (self._closing.is_set() and not self._waiting):
            self._some.wait()
            self._closing.wait(_GATHER_SECONDS)
            self._some.clear()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH))]
                taken = self._collector.post(PATH, self._message(batch), len(batch))
                self._dropped += len(batch) - taken
            if self._closing.is_set():
                self._some.set()

    def _message(self, lines: list[bytes]) -> bytes:
        scope = ScopeLogs(scope=InstrumentationScope(name="saltgate.audit"), log_records=map(_record, lines))
        request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=self._resource, scope_logs=[scope])])
        return bytes(request.SerializeToString())


def _record(line: bytes) -> LogRecord:
    told = msgspec.json.decode(line, type=Told)
    attributes = {
        names.REQUEST_ID: told.request_id,
        names.OUTCOME: told.outcome,
        names.WORKSPACE: told.workspace,
        names.PROJECT: told.project,
    }
    return LogRecord(
        time_unix_nano=int(datetime.fromisoformat(told.ts).timestamp() * 1e6) * 1000,
        severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        severity_text="INFO",
        event_name=told.event,
        body=AnyValue(string_value=line.decode("utf-8").rstrip("\n")),
        trace_id=bytes.fromhex(told.trace_id or ""),
        attributes=[_pair(name, value) for name, value in attributes.items() if value is not None],
    )


def _pair(name: str, value: str) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(string_value=value))
