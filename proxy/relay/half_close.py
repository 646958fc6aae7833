"""A client that sends FIN while its stream runs: has it left, or does it only say that it asks nothing more?

The two look the same until something is written. A client that has closed answers bytes with RST, which puts our side
into the state CLOSE; one that still reads confirms them, and our side stays in CLOSE_WAIT (RFC 9293 section 3.6). So
one comment is written, at a border between two events, and the state is looked at more than once: clients may be far
away.

The event loop hears nothing more of a connection whose FIN it has read, unless it writes. So the state is looked at on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal

from proxy.relay.wire import was_reset

HalfClose = Literal["gone", "probe"]

# After the comment: at 50 ms, 200 ms and 1 s; then every second.
_PAUSES: Final = (0.05, 0.15, 0.8)
_LAST_PAUSE: Final = 1.0
# Until the comment can be written: in the midst of an event it cannot.
_BORDER_PAUSE: Final = 0.05


def may_stay(wire: asyncio.Transport) -> bool:
    """Whether the connection can go on in one direction: over TLS, the event loops end both."""
    return wire.get_extra_info("sslcontext") is None


class HalfClosed:
    """Looks at one connection until it is told to `stop`. `comment` says whether it was written; `gone` is called once,
    when the client turns out to have left.
    """

    __slots__ = ("_comment", "_gone", "_looks", "_loop", "_timer", "_wire", "_written")

    def __init__(self, wire: asyncio.Transport, comment: Callable[[], bool], gone: Callable[[], None]) -> None:
        self._wire = wire
        self._comment = comment
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._looks = 0
        self._written = comment()
        self._timer = self._loop.call_later(self._pause, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    @property
    def _pause(self) -> float:
        if not self._written:
            return _BORDER_PAUSE
        return _PAUSES[self._looks] if self._looks < len(_PAUSES) else _LAST_PAUSE

    def _look(self) -> None:
        if was_reset(self._wire):
            self._gone()
            return
        if self._written:
            self._looks += 1
        else:
            self._written = self._comment()
        self._timer = self._loop.call_later(self._pause, self._look)
