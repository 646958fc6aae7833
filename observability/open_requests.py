"""The requests that a worker has sent to engines, in memory that outlives it: what a dead worker can tell no more.

The worker is their only writer. Its supervisor looks when the worker has ended, and makes a record of each that is
still there: it ended with the worker.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from observability.metrics import Metrics
from observability.record import Clock, Record
from observability.recorder import Observer, Recorder
from observability.totals import Totals

SLOTS: Final = 8192
_SLOT_BYTES: Final = 1024
_LENGTH_BYTES: Final = 2
AREA_BYTES: Final = SLOTS * _SLOT_BYTES
"""Of one worker. What was never used takes no memory."""

WORKER_KILLED: Final = "worker_killed"


class OpenRequest(msgspec.Struct, frozen=True, array_like=True):
    """What its record would have said of how it began. Times are nanoseconds, of the machine's monotonic clock but for
    `started_wall_ns`; so they mean the same in every process of it.
    """

    request_id: str
    trace_id: str
    span_ids: tuple[str, str]
    sampled: bool
    started_ns: int
    started_wall_ns: int
    sent_ns: int
    method: str
    route: str | None
    operation: str | None
    model: str | None
    stream: bool
    scope: tuple[str | None, str | None, str | None, str | None]
    engine: tuple[str | None, str | None, int | None]
    caller: tuple[str | None, str | None, str | None, str | None]
    salt: tuple[str | None, str | None, int | None]

    def __repr__(self) -> str:
        return f"<OpenRequest {self.request_id}>"  # as a Record: the caller's subject is in it


class OpenRequests:
    """An observer of one worker's records that keeps them in `memory`, of AREA_BYTES, while they are open. More than
    SLOTS at a time, and one whose names are very long, are not kept.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._free = list(range(SLOTS - 1, -1, -1))  # the lowest first, so that little memory is ever touched
        self._taken: dict[str, int] = {}
        self._encoder = msgspec.msgpack.Encoder()

    def sent(self, record: Record) -> None:
        """It is open from now on."""
        data = self._encoder.encode(_opened(record))
        if not self._free or len(data) > _SLOT_BYTES - _LENGTH_BYTES:
            return
        self._taken[record.request_id] = slot = self._free.pop()
        at = slot * _SLOT_BYTES
        # The length last: until then the slot is empty, whenever the process dies.
        self._memory[at + _LENGTH_BYTES : at + _LENGTH_BYTES + len(data)] = data
        self._memory[at : at + _LENGTH_BYTES] = len(data).to_bytes(_LENGTH_BYTES, "little")

    def finished(self, record: Record) -> None:
        """It has told what there is to tell."""
        slot = self._taken.pop(record.request_id, None)
        if slot is not None:
            at = slot * _SLOT_BYTES
            self._memory[at : at + _LENGTH_BYTES] = _EMPTY
            self._free.append(slot)


_EMPTY: Final = bytes(_LENGTH_BYTES)


def take_left_open(memory: mmap.mmap) -> list[OpenRequest]:
    """What a worker that is no more had open; and the memory is free for another one."""
    left = []
    for at in range(0, AREA_BYTES, _SLOT_BYTES):
        length = int.from_bytes(memory[at : at + _LENGTH_BYTES], "little")
        if not length:
            continue
        memory[at : at + _LENGTH_BYTES] = _EMPTY
        try:
            data = memory[at + _LENGTH_BYTES : at + _LENGTH_BYTES + length]
            left.append(msgspec.msgpack.decode(data, type=OpenRequest))
        except ValueError:
            continue  # another version's
    return left


class Losses:
    """Tells `observers` of requests that ended with their worker, and counts them."""

    def __init__(self, observers: Sequence[Observer], totals: Totals, *, monotonic_ns: Clock, wall_ns: Clock) -> None:
        told = (*observers, _Counting(totals.add))
        self._recorder = Recorder(told, monotonic_ns=monotonic_ns, wall_ns=wall_ns)

    def tell(self, lost: Sequence[OpenRequest]) -> None:
        for one in lost:
            with self._recorder.request(method=one.method, route=one.route) as record:
                _restore(record, one)
                record.ended("gate_error", WORKER_KILLED)


class _Counting:
    """Adds what a record counts to what all workers counted."""

    def __init__(self, add: Callable[..., None]) -> None:
        self._add = add

    def finished(self, record: Record) -> None:
        metrics = Metrics(version="", drops={})
        metrics.finished(record)
        for counted in metrics.told():
            self._add(counted)


def _opened(record: Record) -> OpenRequest:
    return OpenRequest(
        record.request_id,
        record.trace_id,
        (record.server_span_id, record.client_span_id),
        record.sampled,
        record.started_ns,
        record.started_wall_ns,
        record.sent_ns or record.started_ns,
        record.method,
        record.route,
        record.operation,
        record.model,
        record.stream,
        (record.workspace, record.project, record.collection, record.unit),
        (record.engine, record.engine_address, record.engine_port),
        (record.issuer, record.subject, record.client, record.auth_method),
        (record.salt_fingerprint, record.salt_key_id, record.salt_epoch),
    )


def _restore(record: Record, one: OpenRequest) -> None:
    record.request_id, record.trace_id = one.request_id, one.trace_id
    record.server_span_id, record.client_span_id = one.span_ids
    record.sampled = one.sampled
    record.started_ns, record.started_wall_ns, record.sent_ns = one.started_ns, one.started_wall_ns, one.sent_ns
    record.operation, record.requested_model, record.model = one.operation, one.model, one.model
    record.stream = one.stream
    record.workspace, record.project, record.collection, record.unit = one.scope
    record.engine, record.engine_address, record.engine_port = one.engine
    record.issuer, record.subject, record.client, record.auth_method = one.caller
    record.salt_fingerprint, record.salt_key_id, record.salt_epoch = one.salt
