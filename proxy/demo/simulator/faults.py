"""Ways in which an engine can fail a request, for tests of what stands before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from proxy.demo.simulator.shape import Endpoint


class FaultKind(Enum):
    """What goes wrong."""

    DIE_BEFORE_HEAD = "RST instead of an answer"
    GARBAGE = "bytes that are no HTTP, then FIN"
    HANG = "never one byte, until the client leaves"
    STATUS_500 = "500 in place of an answer"
    STATUS_503 = "503 in place of an answer, as from a full queue"
    SLOW = "each token waits `seconds` longer"
    DIE_MID_STREAM = "RST after `tokens` tokens"
    CUT_MID_STREAM = "FIN without the last chunk after `tokens` tokens"
    HANG_MID_STREAM = "silence after `tokens` tokens, until the client leaves"
    ERROR_MID_STREAM = "the route's own error event after `tokens` tokens"
    GARBAGE_MID_STREAM = "an event that is no JSON after `tokens` tokens; then it goes on"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, for the next `times` requests (to `endpoint`, where one is named). The kinds with `tokens` are for
    streams.
    """

    kind: FaultKind
    endpoint: Endpoint | None = None
    times: int = 1
    tokens: int = 2
    seconds: float = 0.0


class Faults:
    """The faults to come, in order of their insertion."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Lets `fault` happen to the next request that it fits."""
        self._waiting.append(fault)

    def clear(self) -> None:
        """Forgets all faults that have not happened yet."""
        self._waiting.clear()

    def take(self, endpoint: Endpoint) -> Fault | None:
        """The fault of the request that has just come in, and one time less of it."""
        for index, fault in enumerate(self._waiting):
            if fault.endpoint in (None, endpoint):
                self._waiting[index : index + 1] = [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
                return fault
        return None
