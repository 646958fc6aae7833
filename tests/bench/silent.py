"""A record that keeps nothing: what a request costs where nobody wants to know of it."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from observability.names import EndReason, Outcome, Stage, TokenKind
from observability.record import Record, Recorder
from observability.rhythm import Rhythm


class SilentRecord(Record):
    """Whatever the gate says of its request is forgotten at once. It has the ids that the engine and the client get."""

    request_id = "req_" + "0" * 24
    traceparent = f"00-{1:032x}-{1:016x}-00"

    def __init__(self) -> None:
        """Nothing is kept, so there is nothing to begin with."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def came_from(self, address: str | None) -> None:
        pass

    def link(self, traceparents: Sequence[str]) -> None:
        pass

    def stage(self, name: Stage, began_ns: int) -> int:
        return began_ns

    def server_timing(self) -> str:
        return ""

    def identified(self, issuer: str, subject: str, client: str | None, method: str) -> None:
        pass

    def scoped(self, workspace: str, project: str, collection: str | None = None, unit: str | None = None) -> None:
        pass

    def asked(self, operation: str, model: str, stream: bool) -> None:
        pass

    def stamped(self, fingerprint: str, key_id: str, epoch: int) -> None:
        pass

    def sent(self, address: str, port: int | None = None) -> None:
        pass

    def first_byte(self) -> None:
        pass

    def first_token(self, kind: TokenKind, received_ns: int) -> None:
        pass

    def first_token_written(self, *, visible: bool) -> None:
        pass

    def streamed(self, rhythm: Rhythm | None, events: int) -> None:
        pass

    def bytes_in(self, count: int) -> None:
        pass

    def used(
        self,
        prompt: int,
        reused: int | None = None,
        output: int | None = None,
        *,
        cache_written: int | None = None,
        reasoning: int | None = None,
    ) -> None:
        pass

    def finish_reason(self, reason: str) -> None:
        pass

    @property
    def response_id(self) -> str | None:
        return None

    @response_id.setter
    def response_id(self, value: str) -> None:
        pass

    def bytes_out(self, count: int) -> None:
        pass

    def answered(self, status: int) -> None:
        pass

    def refused(self, code: str, status: int, reason: str | None = None) -> None:
        pass

    def because(self, reason: EndReason) -> None:
        pass

    def ended(self, outcome: Outcome, error_type: str | None = None) -> None:
        pass


class SilentRecorder(Recorder):
    """Gives every request such a record, and tells nobody."""

    def request(self, *, method: str, route: str | None) -> Record:
        return SilentRecord()
