"""What the supervisor and a worker say to each other over their socket pair, and how it is framed.

First an `Assignment` comes down, then any number of orders. For each `Tell` a `Told` with its number goes up, after any
number of others that hold what was counted; at the end come those once more. Where the supervisor wants to hear of
requests, others of these go up whenever some have ended.
The two may be of different versions, since a reload starts workers of the code that is installed by then: what is said
here may grow by fields that have a default, and never change its meaning. Nothing else is imported here: the supervisor
starts without the parts of a gate.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

_LENGTH_BYTES: Final = 4


class Assignment(msgspec.Struct, frozen=True):
    """What a worker is given: what `proxy.plan` packed for it, its number, and what its logs and metrics call it.

    `listens` False: it takes connections only when it is told to. `tells_requests`: the supervisor wants to hear of
    each request that has ended.
    """

    packed: bytes
    number: int
    instance: str
    listens: bool = True
    tells_requests: bool = False

    def __repr__(self) -> str:
        return f"Assignment(number={self.number}, instance={self.instance!r})"  # what is packed holds secrets


class Tell(msgspec.Struct, frozen=True, tag=True):
    """Asks for a `Told` with the same number, and before it for what was counted, unless `counts` is False. Where there
    is a `question` (`proxy.questions`), it holds the answer to that, or none where the worker knows no such question.
    """

    number: int
    counts: bool = True
    question: bytes = b""


class Listen(msgspec.Struct, frozen=True, tag=True):
    """From now on take connections."""


class Retire(msgspec.Struct, frozen=True, tag=True):
    """Others have taken over: take no connection any more, and end with the last one of your own."""


class Cut(msgspec.Struct, frozen=True, tag=True):
    """End what is still open, honestly: the drain has been asked for, and somebody will not wait for it."""


Order = Tell | Listen | Retire | Cut


class WorkerState(msgspec.Struct, frozen=True):
    """What a worker tells of itself: what it still waits for before it can serve, and what it has open."""

    waits_for: tuple[str, ...]
    open_requests: int


class Told(msgspec.Struct, frozen=True):
    """The answer to the question of that number; or, with number 0, a piece of what was counted since the last one, as
    `Counted` encodes it, or of the requests that have ended since (`observability.history.told`).
    """

    number: int
    state: WorkerState | None = None
    counted: bytes = b""
    answer: bytes = b""
    requests: bytes = b""


def frame(message: Assignment | Order | Told) -> bytes:
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """One message of the socket pair, to be decoded. Raises IncompleteReadError at its end."""
    return await reader.readexactly(int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big"))
