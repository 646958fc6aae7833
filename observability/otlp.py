"""Exports to one OTLP/HTTP collector, from a thread: whatever it does, it costs what was to be exported and no more.

The collector is believed in nothing but whether it took the data. A redirect is not followed, since the headers of an
export may hold a key; an answer is read up to a bound and never quoted; and one export ends after EXPORT_SECONDS,
however slowly the bytes come.
"""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

import aiohttp
import structlog
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from config import settings
from config.client_tls import client_context

EXPORT_SECONDS: Final = 3.0
MOST_ANSWER_BYTES: Final = 64 * 1024
# How long is waited before an export that the collector could not take is tried again.
PAUSES: Final = (1.0, 2.0)
_LINE_SECONDS: Final = 60.0
_GZIP_LEVEL: Final = 1
# OTLP specification 1.8, "Failures": these may be tried again, the others not.
_TRANSIENT: Final = frozenset({429, 502, 503, 504})
_OK: Final = 200

_log = structlog.get_logger("saltgate.telemetry")


@dataclass(frozen=True, slots=True)
class Refused(Exception):  # noqa: N818 - what a collector did
    """The collector did not take an export. `cause` is a word of ours or a class, never the collector's text."""

    cause: str
    transient: bool = False


@dataclass(slots=True)
class Collector:
    """Where exports go: `address` with the signal's path behind it. `stopping`, once set, ends all waits.

    What it could not take in this moment is sent again, but not while it takes nothing. That is told at most once a
    minute; that it takes them again, where that was told. `monotonic` gives the seconds that this goes by.
    """

    address: str
    headers: Mapping[str, str] = field(repr=False)
    tls: ssl.SSLContext | None
    monotonic: Callable[[], float]
    stopping: Event = field(default_factory=Event)
    _lost: bool = False
    _told: bool = False
    _quiet_until: float | None = None

    def post(self, path: str, message: bytes, count: int) -> int:
        """Send one export of `count` things, protobuf. How many of them were taken. Blocks; never raises."""
        body = gzip.compress(message, compresslevel=_GZIP_LEVEL)
        pauses = iter(() if self._lost else PAUSES)
        while True:
            try:
                answer = asyncio.run(self._post(path, body))
            except Refused as refused:
                pause = next(pauses, None)
                if not refused.transient or pause is None or self.stopping.wait(pause):
                    self._tell_lost(refused.cause)
                    return 0
            else:
                self._tell_back()
                return max(count - _rejected(answer), 0)

    async def _post(self, path: str, body: bytes) -> bytes:
        """The answer's body, where the export was taken. Raises Refused."""
        timeout = aiohttp.ClientTimeout(total=EXPORT_SECONDS)
        headers = {**self.headers, "Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        try:
            async with (
                aiohttp.ClientSession(auto_decompress=False, timeout=timeout) as session,
                session.post(
                    self.address + path, data=body, headers=headers, allow_redirects=False, ssl=self.tls or True
                ) as answer,
            ):
                if answer.status != _OK:
                    raise Refused(f"status {answer.status}", answer.status in _TRANSIENT)
                return await _beginning(answer.content)
        except TimeoutError:
            raise Refused("timeout") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Refused(type(error).__name__, isinstance(error, aiohttp.ClientConnectionError)) from None

    def _tell_lost(self, cause: str) -> None:
        self._lost = True
        now = self.monotonic()
        if self._quiet_until is None or now >= self._quiet_until:
            self._quiet_until = now + _LINE_SECONDS
            self._told = True
            _log.warning("telemetry.collector_lost", cause=cause, remedy="look at the collector; exports are dropped")

    def _tell_back(self) -> None:
        if self._told:
            _log.info("telemetry.collector_back")
        self._lost = self._told = False


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    """What the collector says, or so much of it as is read."""
    said = b""
    while len(said) < MOST_ANSWER_BYTES and (more := await content.read(MOST_ANSWER_BYTES - len(said))):
        said += more
    return said


def _rejected(answer: bytes) -> int:
    """How many of an export's things the collector says that it did not take (`partial_success`, which is the same
    field for each signal). What cannot be read says nothing.
    """
    try:
        return int(ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans)
    except DecodeError:
        return 0


def collector(settings: settings.Telemetry, monotonic: Callable[[], float]) -> Collector | None:
    """That of the settings; None where there is none. Raises ValueError if a line of the headers' secret is none."""
    if settings.otlp_endpoint is None:
        return None
    headers = None if settings.otlp_headers is None else settings.otlp_headers.value
    return collector_at(settings.otlp_endpoint, headers, settings.otlp_ca, settings.otlp_client_cert, monotonic)


def collector_at(
    endpoint: str,
    headers: bytes | None,
    ca: Path | None,
    certificate: settings.ClientCertificate | None,
    monotonic: Callable[[], float],
) -> Collector:
    """`headers` are lines, each of a header. Raises ValueError if one is none, and OSError or ValueError where the
    authority or the certificate cannot be used.
    """
    address = endpoint.rstrip("/")
    tls = client_context(ca, certificate) if address.startswith("https:") else None
    return Collector(address, _headers(headers), tls, monotonic)


def _headers(lines: bytes | None) -> dict[str, str]:
    """The headers of an export. A line that is none is named by its number, for its content is a secret."""
    headers: dict[str, str] = {}
    for number, line in enumerate((lines or b"").decode("latin-1").splitlines(), start=1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            raise ValueError(f"telemetry.otlp_headers: line {number} is no `name: value`")
        headers[name.strip()] = value.strip()
    return headers
