"""The lines as OpenTelemetry logs: whole, with their MACs; a collector that takes none loses lines, nothing else."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from config.settings import Telemetry
from observability.audit.chain import NOTHING, is_genuine, read_line
from observability.audit.export import MOST_WAITING, PATH, LogExport
from observability.otlp import collector
from tests.observability.audit.writing import KEYS, audit, files, lines_of, request
from tests.parts.otlp_sink import OtlpSink


def new_export(url: str) -> LogExport:
    place = collector(Telemetry(otlp_endpoint=url), time.monotonic)
    assert place is not None
    return LogExport(place, service="saltgate", instance="here-1", version="0")


def received(sink: OtlpSink) -> list[LogRecord]:
    requests = [ExportLogsServiceRequest.FromString(raw) for raw in sink.raw]
    return [
        record
        for one in requests
        for resource in one.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def write(place: Path, export: LogExport, number: int) -> None:
    with audit(place, export=export) as one:
        for _ in range(number):
            request(one)
    export.stop(10.0)


async def test_a_collector_gets_each_line_whole_so_that_it_is_a_witness(tmp_path: Path) -> None:
    async with OtlpSink() as sink:
        await asyncio.to_thread(write, tmp_path, new_export(sink.url), 3)
        records = received(sink)
    assert set(sink.paths) == {PATH}
    bodies = [record.body.string_value.encode() + b"\n" for record in records]
    assert bodies == [line for path in files(tmp_path) for line in lines_of(path)]
    before = NOTHING
    for body in bodies:
        one = read_line(body)
        assert is_genuine(one, before, KEYS)
        before = one.mac
    chat = next(record for record in records if record.event_name == "request.granted")
    attributes = {pair.key: pair.value.string_value for pair in chat.attributes}
    assert attributes["saltgate.workspace"] == "acme"
    assert attributes["saltgate.outcome"] == "ok"
    assert chat.trace_id.hex() in chat.body.string_value


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["hang", "unavailable"])
async def test_a_collector_that_takes_nothing_loses_lines_and_nothing_else(tmp_path: Path, fault: str) -> None:
    async with OtlpSink(fault=fault) as sink:  # type: ignore[arg-type]
        export = new_export(sink.url)
        await asyncio.to_thread(write, tmp_path, export, 2)
    lines = [line for path in files(tmp_path) for line in lines_of(path)]
    assert export.dropped() == len(lines)
    assert sum(b"request.granted" in line for line in lines) == 2


def test_what_waits_for_a_collector_is_bounded(tmp_path: Path) -> None:
    export = new_export("http://127.0.0.1:9")
    export([b"{}"] * (MOST_WAITING + 500))
    assert export.dropped() >= 500
    export._waiting.clear()
    export.stop(5.0)
