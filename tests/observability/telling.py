"""Requests as the gate tells them, on a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field

from observability.names import Stage
from observability.record import Record
from observability.recorder import Observer, Recorder
from observability.rhythm import Rhythm
from observability.shares import Shares

START_WALL_NS = 1_796_000_000_000_000_000
SUBJECT = "u-subject-0001"


@dataclass(slots=True)
class Time:
    """A clock in nanoseconds that stands still until it is told to pass."""

    now_ns: int = 5_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return START_WALL_NS + self.now_ns - 5_000_000_000

    def passes(self, *, milliseconds: float) -> None:
        self.now_ns += round(milliseconds * 1e6)


@dataclass(slots=True)
class Ledger:
    """An observer that keeps what it is told."""

    sent_records: list[Record] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def sent(self, record: Record) -> None:
        self.sent_records.append(record)

    def finished(self, record: Record) -> None:
        self.records.append(record)


def recorder(
    *observers: Observer,
    time: Time | None = None,
    trace_ratio: float = 1.0,
    shares: Shares | None = None,
    user_hash_key: bytes | None = None,
) -> Recorder:
    time = time or Time()
    return Recorder(
        observers,
        monotonic_ns=time.monotonic_ns,
        wall_ns=time.wall_ns,
        shares=shares or Shares(trace_ratio),
        user_hash_key=user_hash_key,
    )


def took(record: Record, stage: Stage, time: Time, *, milliseconds: float) -> None:
    """The stage ended now, so many milliseconds after it began."""
    record.stage(stage, time.monotonic_ns() - round(milliseconds * 1e6))


def goes_up(record: Record, *, workspace: str = "acme", project: str = "apollo", model: str = "tiny") -> None:
    """A streaming chat request, identified, scoped, stamped and sent."""
    record.identified("https://sso.example.com/realms/acme", SUBJECT, "chat-ui", "jwt")
    record.bytes_received = 340
    record.asked("chat", model, stream=True)
    record.scoped(workspace, project)
    record.decided(f"project:{workspace}/{project}")
    record.served()
    record.stamped("baa6d2677094", "k1", 7)
    record.engine = "main"
    record.sent("10.0.0.7", 8000)


def answers(record: Record, time: Time) -> None:
    """The engine's good answer: 10 ms to the first byte, 50 to the first token, 300 more to the last of 31 tokens
    in four events.
    """
    time.passes(milliseconds=10)
    record.first_byte()
    time.passes(milliseconds=40)
    rhythm = Rhythm()
    rhythm.came(1, time.monotonic_ns())
    received = time.monotonic_ns()
    time.passes(milliseconds=2)
    record.first_token("content", received, visible=True)
    time.passes(milliseconds=200)
    rhythm.came(1, time.monotonic_ns())
    time.passes(milliseconds=98)
    rhythm.came(2, time.monotonic_ns())
    record.streamed(rhythm, 6, bytes_sent=1200, finish_reason="stop", response_id="chatcmpl-1")
    record.used(120, 96, 31)
    record.ended("ok")
