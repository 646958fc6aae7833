"""A record that keeps nothing: what a request costs where nobody wants to know of it."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from observability.names import EndReason, Outcome, Stage, TokenKind
from observability.record import Caller, Record
from observability.recorder import Recorder
from observability.rhythm import Rhythm


class SilentRecord(Record):
    """Whatever the gate says of a request is forgotten at once. It has the ids that the engine and the client get."""

    @property
    def traceparent(self) -> str:
        return _TRACEPARENT

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def link(self, traceparents: Sequence[str]) -> None:
        pass

    def stage(self, name: Stage, began_ns: int) -> int:
        return began_ns

    def server_timing(self) -> str:
        return ""

    def identified(self, issuer: str, subject: str, client: str | None, method: str) -> None:
        pass

    def called_by(self, caller: Caller) -> None:
        pass

    def scoped(self, workspace: str, project: str, collection: str | None = None) -> None:
        pass

    def decided(self, unit: str, policy: str | None = None, turned: tuple[str, ...] = ()) -> None:
        pass

    def asked(self, operation: str, model: str, stream: bool) -> None:
        pass

    def stamped(self, fingerprint: str, key_id: str, epoch: int) -> None:
        pass

    def sent(self, address: str, port: int | None = None) -> None:
        pass

    def first_byte(self) -> None:
        pass

    def first_token(self, kind: TokenKind, received_ns: int, *, visible: bool) -> None:
        pass

    def streamed(
        self,
        rhythm: Rhythm | None,
        events: int,
        *,
        bytes_sent: int = 0,
        finish_reason: str | None = None,
        response_id: str | None = None,
    ) -> None:
        pass

    def used(
        self,
        prompt: int | None,
        reused: int | None = None,
        output: int | None = None,
        *,
        cache_written: int | None = None,
        reasoning: int | None = None,
    ) -> None:
        pass

    def answered(self, status: int) -> None:
        pass

    def refused(self, code: str, status: int, reason: str | None = None) -> None:
        pass

    def because(self, reason: EndReason) -> None:
        pass

    def ended(self, outcome: Outcome, error_type: str | None = None) -> None:
        pass


_TRACEPARENT: Final = f"00-{1:032x}-{1:016x}-00"


class SilentRecorder(Recorder):
    """Gives every request the same such record, and tells nobody."""

    def __init__(self) -> None:
        super().__init__((), monotonic_ns=_never, wall_ns=_never)
        ids = (f"{1:032x}", f"{1:016x}", f"{1:016x}", "req_" + "0" * 24)
        self._silent = SilentRecord(self, _never, "POST", None, "http", 0, 0, *ids, sampled=False)

    def request(self, *, method: str, route: str | None) -> Record:
        return self._silent


def _never() -> int:
    return 0
