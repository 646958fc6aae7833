"""A collector that lies, leads astray, drips or floods costs what was to be exported, and nothing else."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from config import settings
from observability.logs import configure_logs
from observability.otlp import MOST_ANSWER_BYTES, Collector
from observability.telemetry import Telemetry
from tests.observability.telling import recorder

SECRET = "collector-key-1234567890"
Behaviour = Callable[[socket.socket], None]


@dataclass(slots=True)
class RawCollector:
    """Answers each connection by a function, on a thread of its own."""

    behaviour: Behaviour
    heard: list[bytes] = field(default_factory=list)
    sent: int = 0
    _listening: socket.socket = field(default_factory=socket.socket)

    def __enter__(self) -> Self:
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen(64)
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def collector(self, *, now: Callable[[], float] = time.monotonic) -> Collector:
        return Collector(self.url, {"Authorization": f"Bearer {SECRET}"}, None, now)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self.heard.append(request_of(connection))
            self.behaviour(connection)


def request_of(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    (length,) = (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def says(answer: bytes) -> Behaviour:
    return lambda connection: connection.sendall(answer)


def answer(status: str, body: bytes = b"", *lines: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", *lines, f"Content-Length: {len(body)}", "", ""])
    return head.encode("latin-1") + body


def drips(beginning: bytes) -> Behaviour:
    def drip(connection: socket.socket) -> None:
        connection.sendall(beginning)
        while True:
            connection.sendall(b"x")
            time.sleep(0.2)

    return drip


def floods(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def partly(rejected: int) -> bytes:
    partial = ExportTracePartialSuccess(rejected_spans=rejected, error_message=SECRET)
    return bytes(ExportTraceServiceResponse(partial_success=partial).SerializeToString())


@pytest.mark.parametrize(
    "status", ["400 Bad", "401 No", "403 No", "404 Gone", "413 Big", "500 Down", "204 None", "100 Continue", "999 x"]
)
def test_a_status_that_is_not_200_takes_nothing(status: str) -> None:
    with RawCollector(says(answer(status, b"quoted back: " + SECRET.encode()))) as raw:
        assert raw.collector().post("/v1/traces", b"message", 5) == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00" * 100,
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_answer_takes_nothing(garbage: bytes) -> None:
    with RawCollector(says(garbage)) as raw:
        collector = raw.collector()
        collector.stopping.set()  # so that nothing is tried again
        assert collector.post("/v1/traces", b"message", 5) == 0


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        (b"", 5),
        (partly(0), 5),
        (partly(2), 3),
        (partly(5), 0),
        (partly(500), 0),
        (b"\xff" * 50, 5),
        (b"<html>", 5),
        (b'{"partialSuccess":{}}', 5),
    ],
)
def test_what_a_collector_says_that_it_left_out_counts_as_lost(said: bytes, taken: int) -> None:
    with RawCollector(says(answer("200 OK", said))) as raw:
        assert raw.collector().post("/v1/traces", b"message", 5) == taken


def test_the_message_arrives_compressed_at_its_path_with_its_headers() -> None:
    with RawCollector(says(answer("200 OK"))) as raw:
        assert raw.collector().post("/v1/traces", b"message", 5) == 5
    (heard,) = raw.heard
    head, _, body = heard.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/traces HTTP/1.1\r\n")
    assert f"Authorization: Bearer {SECRET}".encode() in head
    assert gzip.decompress(body) == b"message"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_leads_nowhere_so_no_key_and_no_span_goes_there(status: int) -> None:
    with RawCollector(says(answer("200 OK"))) as elsewhere:
        redirect = answer(f"{status} Over There", b"", f"Location: {elsewhere.url}/v1/traces")
        with RawCollector(says(redirect)) as raw:
            assert raw.collector().post("/v1/traces", b"message", 5) == 0
        assert elsewhere.heard == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(drips(b""), id="drips a status line"),
        pytest.param(drips(b"HTTP/1.1 200 OK\r\nX-A: "), id="drips a header"),
        pytest.param(drips(b"HTTP/1.1 200 OK\r\n\r\n"), id="drips a body"),
        pytest.param(lambda connection: time.sleep(60), id="says nothing"),
    ],
)
def test_an_export_ends_however_slowly_the_answer_comes(behaviour: Behaviour) -> None:
    done = Event()
    with RawCollector(behaviour) as raw:
        Thread(target=post_and_tell, args=(raw.collector(), done), daemon=True).start()
        assert done.wait(20.0)


def post_and_tell(collector: Collector, done: Event) -> None:
    collector.post("/v1/traces", b"message", 5)
    done.set()


def test_of_an_answer_without_end_only_the_beginning_is_read() -> None:
    with RawCollector(floods) as raw:
        assert raw.collector().post("/v1/traces", b"message", 5) == 5
    assert MOST_ANSWER_BYTES <= 64 * 1024


@pytest.mark.slow
def test_what_could_not_be_taken_in_the_moment_is_sent_again_but_not_while_nothing_is_taken() -> None:
    answers = iter([answer("503 Later"), answer("200 OK")])
    with RawCollector(lambda connection: connection.sendall(next(answers, answer("503 Later")))) as raw:
        collector = raw.collector()
        assert collector.post("/v1/traces", b"message", 5) == 5
        assert len(raw.heard) == 2
        collector.stopping.set()
        assert collector.post("/v1/traces", b"message", 5) == 0
        collector.stopping.clear()
        assert collector.post("/v1/traces", b"message", 5) == 0
        assert len(raw.heard) == 4


@pytest.mark.parametrize("status", ["400 Bad", "401 No", "413 Big", "500 Down"])
def test_what_will_not_be_taken_next_time_either_is_not_sent_again(status: str) -> None:
    with RawCollector(says(answer(status))) as raw:
        raw.collector().post("/v1/traces", b"message", 5)
        assert len(raw.heard) == 1


def test_a_lost_collector_is_told_once_a_minute_and_its_words_never(tmp_path: Path) -> None:
    now = [0.0]
    lying = answer(f"500 {SECRET}", SECRET.encode(), f"Set-Cookie: {SECRET}=\x01", f"X-{SECRET}: {SECRET}")
    with logged(tmp_path) as lines, RawCollector(says(lying)) as raw:
        collector = raw.collector(now=lambda: now[0])
        for second in range(0, 125, 5):
            now[0] = float(second)
            collector.post("/v1/traces", b"message", 5)
    events = lines()
    assert [line["event"] for line in events] == ["telemetry.collector_lost"] * 3
    assert {line["cause"] for line in events} == {"status 500"}
    assert SECRET not in json.dumps(events)


def test_that_it_is_back_is_told_where_its_loss_was(tmp_path: Path) -> None:
    said = [answer("500 Down"), answer("200 OK"), answer("500 Down"), answer("200 OK")]
    answers = iter(said)
    with logged(tmp_path) as lines, RawCollector(lambda connection: connection.sendall(next(answers))) as raw:
        collector = raw.collector(now=lambda: 0.0)
        for _ in said:
            collector.post("/v1/traces", b"message", 5)
    assert [line["event"] for line in lines()] == ["telemetry.collector_lost", "telemetry.collector_back"]


@pytest.mark.slow
def test_a_collector_whose_certificate_is_nobodys_gets_nothing() -> None:
    with RawCollector(says(b"")) as raw:
        place = Collector(raw.url.replace("http:", "https:"), {}, ssl.create_default_context(), time.monotonic)
        place.stopping.set()
        assert place.post("/v1/traces", b"message", 5) == 0


def test_spans_that_the_collector_left_out_count_as_dropped() -> None:
    with RawCollector(says(answer("200 OK", partly(1)))) as raw:
        telemetry = Telemetry.start(settings.Telemetry(otlp_endpoint=raw.url), instance="worker-1")
        for _ in range(3):
            with recorder(telemetry).request(method="POST", route="/v1/x") as record:
                record.ended("ok")
        telemetry.stop(20.0)
    assert telemetry.dropped() == 1


@contextmanager
def logged(folder: Path) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What was written meanwhile, to be asked for afterwards."""
    path = folder / "lines.log"
    with path.open("wb") as stream:
        logs = configure_logs(settings.Logs(), stream, monotonic_ns=time.monotonic_ns)
        try:
            yield lambda: [json.loads(line) for line in path.read_text().splitlines()]
        finally:
            logs.close(10.0)
