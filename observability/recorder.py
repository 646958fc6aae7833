"""Opens the records of requests, and tells observers what happened: soon after, of several requests together."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Final, Protocol, runtime_checkable

from observability.names import HTTP_METHOD_OTHER, HTTP_METHODS
from observability.record import Clock, Record
from observability.shares import Shares


class Observer(Protocol):
    """Who is told of each request that has ended, soon after it happened: whatever the time matters for stands in the
    record. It neither waits for anything nor raises.
    """

    def finished(self, record: Record) -> None:
        """The request has ended, `record.outcome` is set and all is measured. Called once a request, in whatever way it
        ends.
        """


@runtime_checkable
class Follower(Observer, Protocol):
    """An observer who is also told of each request that goes up to its engine, before `finished`."""

    def sent(self, record: Record) -> None:
        """The request goes up: its scope and model are known. By now something may have come back, or all."""


class Recorder:
    """Opens records. One a worker, made after the fork.

    `monotonic_ns` and `wall_ns` are the clocks; every time that the gate hands in is of the same monotonic clock.
    `shares` says of which traces the flag says "sampled" upstream: their spans are kept even if nothing failed.
    With a `user_hash_key` they tell the caller's pseudonym. `url_scheme` is what clients use to reach the gate.
    """

    GATHERED: Final = 16
    """So many are told together at most: a millisecond's work, which no stream has to feel."""

    def __init__(
        self,
        observers: Sequence[Observer],
        *,
        monotonic_ns: Clock,
        wall_ns: Clock,
        shares: Shares | None = None,
        user_hash_key: bytes | None = None,
        url_scheme: str = "http",
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`later` calls what it is given some milliseconds from now. Then observers are told of several requests
        together, which costs half as much for each: between two requests, what telling needs would leave the
        processor's caches. Nothing may be told any more after the last `tell`. Without it they are told at once.
        """
        self._observers = tuple((one, one if isinstance(one, Follower) else None) for one in observers)
        self._later = later
        self._untold: list[tuple[Record, bool]] = []
        self._is_due = False
        self.monotonic_ns = monotonic_ns
        self.wall_ns = wall_ns
        self.url_scheme = url_scheme
        self.shares = shares or Shares()
        self.user_hash_key = user_hash_key
        self._noise, self._at = "", 0

    def request(self, *, method: str, route: str | None) -> Record:
        """The record of one request, to be used in a `with`.

        `route` is a template of our own (`/w/{workspace}/p/{project}/v1/models`), None where no route matched: a path
        that a client made up is recorded nowhere.
        """
        ids = self._ids()
        return Record(
            self,
            self.monotonic_ns,
            method if method in HTTP_METHODS else HTTP_METHOD_OTHER,
            route,
            self.url_scheme,
            self.monotonic_ns(),
            self.wall_ns(),
            ids[:32],
            ids[32:48],
            ids[48:64],
            "req_" + ids[64:],
            self.shares.hold(ids[:32]),
        )

    def happened(self, record: Record, *, has_ended: bool) -> None:
        """The request went up or has ended just now, which observers are to be told."""
        self._untold.append((record, has_ended))
        if self._later is None or len(self._untold) >= self.GATHERED:
            self.tell()
        elif not self._is_due:
            self._is_due = True
            self._later(self._tell_due)

    def tell(self) -> None:
        """Tell the observers what has happened and was not told yet, all of it, in its order.

        Each is told of each, also where one raises: that is raised when all were told.
        """
        untold, self._untold = self._untold, []
        ended = [record for record, has_ended in untold if has_ended]
        for record in ended:
            record.measure()
        errors: list[BaseException] = []
        # Observer by observer, which is quicker than request by request.
        for observer, follower in self._observers:
            if follower is not None:
                _tell_all(follower, untold, errors)
            else:
                _tell_ended(observer, ended, errors)
        if errors:
            raise errors[0]

    def _tell_due(self) -> None:
        self._is_due = False
        self.tell()

    def _ids(self) -> str:
        """Of a trace, two spans and a request, in hexadecimal digits. Random, and drawn for many requests at once: each
        draw is a call into the kernel.
        """
        at = self._at
        if at == len(self._noise):
            self._noise, at = _noise(), 0
        self._at = at + _IDS_DIGITS
        return self._noise[at : self._at]


def _noise() -> str:
    """A span's id may not be zero (W3C Trace Context section 3.2.2.4), and so none is."""
    while _ZERO_ID in (noise := secrets.token_hex(_IDS_AT_ONCE * _IDS_DIGITS // 2)):
        pass
    return noise


_IDS_DIGITS: Final = 32 + 16 + 16 + 24
_IDS_AT_ONCE: Final = 128
_ZERO_ID: Final = "0" * 16


def _tell_all(follower: Follower, untold: Sequence[tuple[Record, bool]], errors: list[BaseException]) -> None:
    sent, finished = follower.sent, follower.finished
    for record, has_ended in untold:
        try:
            finished(record) if has_ended else sent(record)
        except BaseException as error:  # noqa: BLE001 - raised by `tell`
            errors.append(error)


def _tell_ended(observer: Observer, ended: Sequence[Record], errors: list[BaseException]) -> None:
    finished = observer.finished
    for record in ended:
        try:
            finished(record)
        except BaseException as error:  # noqa: BLE001 - raised by `tell`
            errors.append(error)
