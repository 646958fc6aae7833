"""Log lines: one JSON object or one line of text each, from our own events and from the libraries'.

Every line goes through the same end: no field named after a secret, no value but text, numbers and lists of these, no
error text, and a last look for what has the form of a credential. Nobody waits for the reader of the lines.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, MutableMapping
from typing import BinaryIO, Final

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from config import settings
from observability.record import Clock, Record
from observability.redaction import error_stack, is_safe_key, plain, without_secrets
from observability.request_line import RequestLine, level_of, request_line
from observability.sink import LineSink


def configure_logs(settings: settings.Logs, stream: BinaryIO, *, monotonic_ns: Clock, instance: str = "") -> Logs:
    """Sends structlog's and the standard library's loggers to `stream`, until `Logs.close`.

    `stream` must have a descriptor (`sys.stdout.buffer`); its own buffer is flushed once and then gone round.
    `instance` names this worker in each line. To be called after the fork, once a process at a time.
    """
    stream.flush()
    return Logs(LineSink(stream.fileno()), settings, monotonic_ns=monotonic_ns, instance=instance)


class Logs:
    """The running log output, and the observer that writes a line for each finished request."""

    def __init__(self, sink: LineSink, settings: settings.Logs, *, monotonic_ns: Clock, instance: str) -> None:
        self._sink = sink
        self._json = settings.format == "json"
        self._least = logging.getLevelNamesMapping()[settings.level.upper()]
        self._instance = instance or None
        self._before = structlog.get_config()
        structlog.configure(
            processors=_processors(settings.format, instance),
            wrapper_class=structlog.make_filtering_bound_logger(settings.level),
            logger_factory=lambda *_: _SinkLogger(sink),
            # A cached logger would outlive `close`; the one below is made once and so costs no more.
            cache_logger_on_first_use=False,
        )
        self._logger: FilteringBoundLogger = structlog.get_logger().bind()
        self._foreign = _ForeignHandler(self._logger, monotonic_ns)
        self._root_level = logging.root.level
        logging.root.addHandler(self._foreign)
        logging.root.setLevel(logging.WARNING)

    def finished(self, record: Record) -> None:
        """Writes the request's line.

        It has a form of its own, so what the chain of processors does for any event would only be repeated: as JSON it
        goes straight to the same end as the others.
        """
        level = level_of(record)
        if _LEVELS[level] < self._least:
            return
        line = request_line(record, level, self._instance)
        if self._json:
            self._sink.write(without_secrets(_encoded(line)) + b"\n")
            return
        fields = {name: value for name, value in msgspec.structs.asdict(line).items() if value is not None}
        getattr(self._logger, fields.pop("level"))(fields.pop("event"), **fields)

    def dropped(self) -> int:
        """How many lines were lost so far, because the stream did not take them."""
        return self._sink.dropped()

    def close(self, timeout: float = 1.0) -> None:
        """Gives the loggers back and writes what is queued, for at most `timeout` seconds."""
        logging.root.removeHandler(self._foreign)
        logging.root.setLevel(self._root_level)
        structlog.configure(**self._before)
        self._sink.close(timeout)


Event = MutableMapping[str, object]
Processor = Callable[[object, str, Event], Event | str | bytes]


class _SinkLogger:
    """What structlog calls with a rendered line."""

    def __init__(self, sink: LineSink) -> None:
        self._sink = sink

    def msg(self, line: str | bytes) -> None:
        data = line.encode("utf-8", "replace") if isinstance(line, str) else line
        self._sink.write(without_secrets(data) + b"\n")

    debug = info = warning = error = critical = msg


_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _ForeignHandler(logging.Handler):
    """Records of the standard library's loggers (aiohttp, asyncio, redis, OpenTelemetry), made into our lines.

    OpenTelemetry complains of a dead collector with each batch; one of its lines a minute is enough.
    """

    def __init__(self, logger: FilteringBoundLogger, monotonic_ns: Clock) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger
        self._monotonic_ns = monotonic_ns
        self._quiet_until_ns: int | None = None
        self._suppressed = 0

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = {"logger": record.name, "message": _message(record)}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields |= {"error_type": type(error).__name__, "stack": error_stack(error)}
        if record.name.startswith("opentelemetry"):
            if self._is_quiet():
                self._suppressed += 1
                return
            fields["suppressed"], self._suppressed = self._suppressed, 0
        self._logger.log(min(record.levelno, logging.CRITICAL), "library", **fields)

    def _is_quiet(self) -> bool:
        now = self._monotonic_ns()
        if self._quiet_until_ns is not None and now < self._quiet_until_ns:
            return True
        self._quiet_until_ns = now + _QUIET_NS
        return False


_QUIET_NS: Final = 60_000_000_000
_MAX_MESSAGE: Final = 300
# Where the quoting of values begins: reprs of callbacks, futures, headers, bytes.
_QUOTING: Final = re.compile(r"[(<{\[\n\r]|b'|b\"")
_QUOTING_LOGGERS: Final = ("asyncio", "aiohttp")


def _message(record: logging.LogRecord) -> str:
    """The message's first line, cut. asyncio's and aiohttp's end where they begin to quote what they worked on.

    asyncio puts the repr of a callback's arguments and of a task's exception into its messages, aiohttp the bytes of a
    header that it could not read: both may be a token.
    """
    try:
        message = record.getMessage()
    except (TypeError, ValueError, KeyError):
        message = str(record.msg)
    if record.name.split(".", 1)[0] in _QUOTING_LOGGERS:
        message = _QUOTING.split(message, maxsplit=1)[0]
    return message.partition("\n")[0][:_MAX_MESSAGE].strip()


def _processors(form: str, instance: str) -> list[Processor]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        _error_without_text,
        _Admission(instance),
        _json if form == "json" else structlog.dev.ConsoleRenderer(colors=False, timestamp_key="ts"),
    ]


def _error_without_text(_logger: object, _method: str, event: Event) -> Event:
    info = event.pop("exc_info", None)
    error = info[1] if isinstance(info, tuple) else info
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, BaseException):
        event.update(error_type=type(error).__name__, stack=error_stack(error))
    return event


class _Admission:
    """Lets through what a line may hold, `ts`, `level` and `event` first."""

    def __init__(self, instance: str) -> None:
        self._always = {"instance": instance} if instance else {}

    def __call__(self, _logger: object, _method: str, event: Event) -> Event:
        line: Event = {name: event.pop(name) for name in ("ts", "level")}
        line["event"] = plain(event.pop("event"))
        line.update(self._always)
        for name, value in event.items():
            if is_safe_key(name):
                line[name] = plain(value)
        return line


def _json(_logger: object, _method: str, event: Event) -> bytes:
    return _encoded(event)


_ENCODER: Final = msgspec.json.Encoder()


def _encoded(event: Event | RequestLine) -> bytes:
    try:
        return _ENCODER.encode(event)
    except UnicodeEncodeError:
        # A lone surrogate, from a library: JSON in UTF-8 has no way to say it.
        fields = msgspec.to_builtins(event)
        return _ENCODER.encode({name: _encodable(value) for name, value in fields.items()})


def _encodable(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
