"""What the supervisor and a worker say to each other over their socket pair, and how it is framed.

First an `Assignment` comes down; then for each question, which is a number, the same number and a `WorkerState` go up.
Nothing else is imported here: the supervisor starts without the parts of a gate.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import msgspec

from config.settings import Settings

NUMBER_BYTES: Final = 4
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker is given: settings, its number, and what its logs and metrics call it."""

    settings: Settings
    number: int
    instance: str


class WorkerState(msgspec.Struct, frozen=True):
    """What a worker tells its supervisor: what it still waits for before it can serve, and its metrics so far."""

    waits_for: tuple[str, ...]
    open_requests: int
    metrics: bytes


def frame(message: bytes) -> bytes:
    return len(message).to_bytes(_LENGTH_BYTES, "big") + message


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """One message of the socket pair. Raises IncompleteReadError at its end."""
    return await reader.readexactly(int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big"))
