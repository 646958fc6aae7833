"""Log lines: one a request, of known form, without secrets, and never in anybody's way."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any, BinaryIO, Literal

import pytest
import structlog
from aiohttp.http_exceptions import LineTooLong

from config import settings
from observability.logs import Logs, configure_logs
from observability.names import OUTCOMES, STAGES, Outcome
from observability.request_line import RequestLine
from observability.sink import LineSink
from tests.observability.telling import SUBJECT, Time, answers, goes_up, recorder, took

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
SALT = "sg1-k1-vGNDhPk7IIs2LU95llaQxLA6r8VYZztZihOV2DlSM4M"


def test_a_good_request_is_one_line_with_exactly_these_fields(output: Output) -> None:
    time = Time()
    logs = output.logs()
    with recorder(logs, time=time).request(method="POST", route="/v1/chat/completions") as record:
        took(record, "auth", time, milliseconds=0.2)
        took(record, "stamp", time, milliseconds=0.1)
        goes_up(record)
        answers(record, time)
    (line,) = output.lines(logs)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "event": "request.completed",
        "instance": "worker-1",
        "v": 1,
        "request_id": record.request_id,
        "outcome": "ok",
        "status": 200,
        "workspace": "acme",
        "project": "apollo",
        "unit": "project:acme/apollo",
        "model": "tiny",
        "method": "POST",
        "route": "/v1/chat/completions",
        "operation": "chat",
        "stream": True,
        "duration_ms": 350.0,
        "ttft_ms": 52.0,
        "ttft_kind": "content",
        "ttft_visible_ms": 52.0,
        "upstream_ttft_ms": 50.0,
        "tpot_ms": 10.0,
        "max_gap_ms": 202.0,
        "held_ms": 0.0,
        "events": 6,
        "prompt_tokens": 120,
        "reused_tokens": 96,
        "output_tokens": 31,
        "tokens_known": True,
        "finish_reasons": ["stop"],
        "response_id": "chatcmpl-1",
        "bytes_in": 340,
        "bytes_out": 1200,
        "engine": "main",
        "replica": "10.0.0.7:8000",
        "salt_fingerprint": "baa6d2677094",
        "salt_key_id": "k1",
        "salt_epoch": 7,
        "issuer": "https://sso.example.com/realms/acme",
        "client": "chat-ui",
        "auth_method": "jwt",
        "trace_id": record.trace_id,
        "span_id": record.server_span_id,
        "sampled": True,
        "auth_ms": 0.2,
        "stamp_ms": 0.1,
        "relay_ms": 2.0,
    }


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_is_exactly_one_line_as_loud_as_its_meaning(output: Output, outcome: Outcome) -> None:
    logs = output.logs()
    with recorder(logs).request(method="POST", route="/v1/x") as record:
        record.ended(outcome)
    (line,) = output.lines(logs)
    loud = {"ok": "info", "refused": "info", "client_gone": "info", "gate_error": "error"}
    assert (line["outcome"], line["level"]) == (outcome, loud.get(outcome, "warning"))


def test_a_refusal_of_ours_is_louder_than_one_of_the_callers(output: Output) -> None:
    logs = output.logs()
    for code, status in (("not_a_member", 403), ("salt_unavailable", 503)):
        with recorder(logs).request(method="POST", route="/v1/x") as record:
            record.asked("chat", "claimed", stream=False)
            record.refused(code, status, "finer_word")
    lines = output.lines(logs)
    assert [(line["level"], line["code"], line["reason"]) for line in lines] == [
        ("info", "not_a_member", "finer_word"),
        ("warning", "salt_unavailable", "finer_word"),
    ]
    assert all("model" not in line and line["requested_model"] == "claimed" for line in lines)


def test_a_crash_is_told_by_class_and_place_without_text_or_locals(output: Output) -> None:
    logs = output.logs()
    with pytest.raises(ValueError), recorder(logs).request(method="POST", route="/v1/x"):
        _fail_over("PROMPT TEXT")
    (line,) = output.lines(logs)
    assert (line["level"], line["error_type"]) == ("error", "ValueError")
    assert line["stack"][0] == "ValueError"
    assert "PROMPT" not in output.text()


def test_neither_the_subject_nor_anything_like_it_is_in_a_line(output: Output) -> None:
    logs = output.logs()
    with recorder(logs).request(method="POST", route="/v1/x") as record:
        goes_up(record)
        record.scoped("acme", "apollo")
        record.decided(f"user:acme/apollo/{SUBJECT}")
        record.ended("ok")
    output.lines(logs)
    assert SUBJECT not in output.text()


def test_a_field_named_after_a_secret_or_after_content_is_left_out(output: Output) -> None:
    logs = output.logs()
    hidden = (
        "authorization", "Authorization", "access_token", "tokens", "cookie", "set_cookie", "client_secret", "password",
        "salt", "cache_salt", "api_key", "key", "subject", "sub", "prompt", "messages", "content", "body", "headers",
        "jwt", "credential", "saltgate_salt", "private", "request_body",
    )  # fmt: skip
    shown = ("prompt_tokens", "salt_fingerprint", "saltgate_version", "key_id", "generation", "monkey", "subsystem")
    structlog.get_logger().info("directory.changed", **dict.fromkeys(hidden, "HIDE-ME"), **dict.fromkeys(shown, "s"))
    (line,) = output.lines(logs)
    assert "HIDE-ME" not in output.text()
    assert set(shown) <= set(line)
    assert set(line) == {"ts", "level", "event", "instance", *shown}


@pytest.mark.parametrize(
    "secret",
    [
        JWT,
        f"Bearer {JWT}",
        "bearer abcdefgh12345678",
        SALT,
        "sgp_abcdefghijkl",
        "Basic dXNlcjpwYXNz",
        "redis://u:pass@h",
    ],
)
@pytest.mark.parametrize("form", ["json", "human"])
def test_a_credential_or_salt_is_cut_out_wherever_it_stands(
    output: Output, secret: str, form: Literal["json", "human"]
) -> None:
    logs = output.logs(form=form)
    structlog.get_logger().warning("event", reason=f'said "{secret}" twice', list=[secret])
    structlog.get_logger().warning(secret)
    logging.getLogger("redis").warning("bad %s", secret)
    logs.close()
    text = output.text()
    assert len(text.splitlines()) == 3
    assert all(part not in text for part in (secret, secret.removeprefix("Bearer "), "u:pass"))
    if form == "json":
        assert [json.loads(line)["level"] for line in text.splitlines()] == ["warning"] * 3


def test_an_objects_fields_and_repr_stay_out(output: Output) -> None:
    class Holder:
        def __init__(self) -> None:
            self.value = "HIDE-ME"

        def __repr__(self) -> str:
            return self.value

    logs = output.logs()
    structlog.get_logger().info("event", one=Holder(), some=[Holder()], table={"a": "HIDE-ME"}, raw=b"HIDE-ME")
    (line,) = output.lines(logs)
    assert "HIDE-ME" not in output.text()
    assert (line["one"], line["some"], line["table"], line["raw"]) == ("<Holder>", ["<Holder>"], "<dict>", "<bytes>")


def test_an_error_logged_by_our_own_code_has_no_text(output: Output) -> None:
    logs = output.logs()
    try:
        _fail_over("HIDE-ME")
    except ValueError as error:
        structlog.get_logger().exception("event")
        structlog.get_logger().error("event", exc_info=error)
    lines = output.lines(logs)
    assert [line["error_type"] for line in lines] == ["ValueError", "ValueError"]
    assert "HIDE-ME" not in output.text()


def test_a_header_that_aiohttp_could_not_read_is_told_by_its_class(output: Output) -> None:
    logs = output.logs()
    error = LineTooLong(f"Authorization: Bearer {JWT}".encode(), 8190)
    logging.getLogger("aiohttp.server").error("Error handling request from %s", "10.0.0.1", exc_info=error)
    logging.getLogger("aiohttp.server").error("Bad message b'%s'", JWT[:20])
    lines = output.lines(logs)
    assert [(line["logger"], line["message"]) for line in lines] == [
        ("aiohttp.server", "Error handling request from 10.0.0.1"),
        ("aiohttp.server", "Bad message"),
    ]
    assert lines[0]["error_type"] == "LineTooLong"
    assert "eyJ" not in output.text()


async def test_asyncio_tells_of_a_failed_callback_without_its_arguments_or_its_errors_text(output: Output) -> None:
    logs = output.logs()

    def fails(argument: str) -> None:
        raise RuntimeError(argument)

    asyncio.get_running_loop().call_soon(fails, "HIDE-ME")
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_exception_handler({"message": "gone", "future": "HIDE-ME"})
    lines = output.lines(logs)
    assert [line["message"] for line in lines] == [
        "Exception in callback test_asyncio_tells_of_a_failed_callback_without_its_arguments_or_its_errors_text.",
        "gone",
    ]
    assert lines[0]["error_type"] == "RuntimeError"
    assert "HIDE-ME" not in output.text()


def test_a_library_is_heard_from_warning_on_and_a_broken_message_does_no_harm(output: Output) -> None:
    logs = output.logs()
    logging.getLogger("redis").info("quiet")
    logging.getLogger("redis").warning("%d\nsecond line", 7)
    # Straight to our handler: pytest's own raises at such a record.
    broken = logging.LogRecord("redis", logging.WARNING, "x.py", 1, "%d", ("no number",), None)
    logging.root.handlers[-1].handle(broken)
    assert [(line["event"], line["message"]) for line in output.lines(logs)] == [("library", "7"), ("library", "%d")]


def test_opentelemetry_complains_once_a_minute(output: Output) -> None:
    time = Time()
    logs = output.logs(time=time)
    for _ in range(3):
        for _ in range(10):
            logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("Failed to export")
        time.passes(milliseconds=60_001)
    assert [line["suppressed"] for line in output.lines(logs)] == [0, 9, 9]


def test_the_level_is_the_least_that_is_written(output: Output) -> None:
    logs = output.logs(level="warning")
    structlog.get_logger().info("quiet")
    ends: tuple[Outcome, ...] = ("ok", "truncated")
    for outcome in ends:
        with recorder(logs).request(method="POST", route="/v1/x") as record:
            record.ended(outcome)
    assert [line["outcome"] for line in output.lines(logs)] == ["truncated"]


def test_lines_for_people_are_text(output: Output) -> None:
    logs = output.logs(form="human")
    with recorder(logs).request(method="POST", route="/v1/x") as record:
        record.ended("ok")
    logs.close()
    (line,) = output.text().splitlines()
    assert "request.completed" in line
    assert "outcome=ok" in line


def test_text_that_utf8_cannot_say_is_written_all_the_same(output: Output) -> None:
    logs = output.logs()
    structlog.get_logger().info("event", name="a\ud800b", some=["\udfff"], line="a\nb")
    (line,) = output.lines(logs)
    assert (line["name"], line["some"], line["line"]) == ("a?b", ["?"], "a\nb")


def test_closing_gives_the_loggers_back(output: Output) -> None:
    logging.root.setLevel(logging.ERROR)
    before = structlog.get_config(), list(logging.root.handlers), logging.root.level
    logs = output.logs()
    assert structlog.get_config() != before[0]
    logs.close()
    after = structlog.get_config(), list(logging.root.handlers), logging.root.level
    logging.root.setLevel(logging.WARNING)
    assert after == before


def test_a_stalled_reader_holds_nobody_and_its_lines_are_dropped_and_counted(pipe: tuple[int, int]) -> None:
    _reader, writer = pipe
    sink = LineSink(writer, limit=100)
    written = 20_000
    for _ in range(written):
        sink.write(b"x" * 99 + b"\n")
    in_the_pipe = fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) // 100
    assert sink.dropped() >= written - in_the_pipe - 100
    sink.close(0.1)
    assert written - in_the_pipe <= sink.dropped() < written


def test_a_reader_that_is_gone_costs_its_lines_and_no_error(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.close(reader)
    sink = LineSink(writer)
    for _ in range(10):
        sink.write(b"line\n")
    sink.close(10.0)
    assert sink.dropped() == 10


def test_a_descriptor_that_its_owner_closes_is_written_to_no_more_by_its_number(
    pipe: tuple[int, int], tmp_path: Path
) -> None:
    reader, writer = pipe
    sink = LineSink(writer)
    os.close(writer)
    innocent = os.open(tmp_path / "innocent", os.O_CREAT | os.O_RDWR)
    assert innocent == writer
    sink.write(b"line\n")
    sink.close(10.0)
    assert os.read(reader, 100) == b"line\n"
    assert (tmp_path / "innocent").read_bytes() == b""


@pytest.mark.parametrize("blocking", [True, False])
def test_every_line_arrives_whole_and_in_order(pipe: tuple[int, int], blocking: bool) -> None:
    reader, writer = pipe
    os.set_blocking(writer, blocking)
    sink = LineSink(writer, limit=100_000)
    sent = [b"%06d " % n + b"y" * (n * 30) + b"\n" for n in range(300)]
    for line in sent:
        sink.write(line)
    # Until the pipe is full, so that the sink has met what it must wait for.
    while select.select((), (writer,), (), 0)[1]:
        sleep(0.001)
    received = _read(reader, sum(map(len, sent)))
    sink.close(10.0)
    assert received == sent
    assert sink.dropped() == 0


WRITES_LINES = """
import sys
from observability.sink import LineSink

sink = LineSink(1, limit=100_000)
for number in range(3000):
    sink.write(b"%s %04d %s end\\n" % (sys.argv[1].encode(), number, b"y" * (number % 900)))
sink.close(30.0)
print(sink.dropped(), file=sys.stderr)
"""


def test_workers_that_share_a_pipe_do_not_cut_each_others_lines(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    workers = [
        subprocess.Popen([sys.executable, "-c", WRITES_LINES, name], stdout=writer, stderr=subprocess.PIPE)
        for name in ("a", "b", "c")
    ]
    os.close(writer)
    received = b""
    while data := os.read(reader, 10_000):  # more slowly than they write
        received += data
    assert [worker.communicate()[1] for worker in workers] == [b"0\n"] * 3
    lines = received.splitlines()
    assert all(re.fullmatch(rb"[abc] \d{4} y* end", line) for line in lines)
    for name in (b"a", b"b", b"c"):
        assert [int(line[2:6]) for line in lines if line.startswith(name)] == list(range(3000))


def test_where_there_is_no_lock_a_pipe_keeps_lines_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    # POSIX keeps a write to a pipe in one piece up to PIPE_BUF bytes; a packet socket shows what each write was.
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "none")

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reader, writer:
        lines = [b"%04d %s\n" % (number, b"y" * 150) for number in range(2000)]
        sink = LineSink(writer.fileno())
        for line in lines:
            sink.write(line)
        reader.settimeout(10.0)
        writes: list[bytes] = []
        while sum(map(len, writes)) < sum(map(len, lines)):
            writes.append(reader.recv(1 << 20))
        sink.close(10.0)
    assert b"".join(writes) == b"".join(lines)
    assert all(write.endswith(b"\n") and len(write) <= select.PIPE_BUF for write in writes)
    assert len(writes) < len(lines)


def test_closing_writes_what_is_queued_and_later_lines_are_dropped(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    sink = LineSink(writer)
    for _ in range(50):
        sink.write(b"line\n")
    sink.close(10.0)
    sink.close(10.0)
    sink.write(b"late\n")
    assert os.read(reader, 65536) == b"line\n" * 50
    assert sink.dropped() == 1


def _read(reader: int, size: int) -> list[bytes]:
    """The lines that came, until `size` bytes are there or nothing more comes."""
    data = b""
    while len(data) < size and select.select((reader,), (), (), 10.0)[0]:
        data += os.read(reader, 65536)
    return data.splitlines(keepends=True)


def _fail_over(text: str) -> None:
    raise ValueError(f"could not read {text}")


class Output:
    """A real file that the lines go to, and what is in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: BinaryIO = path.open("wb")
        self._open: list[Logs] = []

    def logs(
        self,
        *,
        form: Literal["json", "human"] = "json",
        level: Literal["debug", "info", "warning", "error"] = "info",
        time: Time | None = None,
    ) -> Logs:
        clock = (time or Time()).monotonic_ns
        wanted = settings.Logs(format=form, level=level)
        logs = configure_logs(wanted, self._stream, monotonic_ns=clock, instance="worker-1")
        self._open.append(logs)
        return logs

    def lines(self, logs: Logs) -> list[dict[str, Any]]:
        logs.close(10.0)
        assert logs.dropped() == 0
        return [json.loads(line) for line in self.text().splitlines()]

    def text(self) -> str:
        return self._path.read_text()

    def close(self) -> None:
        for logs in self._open:
            logs.close()
        self._stream.close()


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Output]:
    output = Output(tmp_path / "out.log")
    yield output
    output.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for end in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(end)


def test_every_stage_has_its_place_in_the_line() -> None:
    assert {f"{stage}_ms" for stage in STAGES} <= set(RequestLine.__struct_fields__)
