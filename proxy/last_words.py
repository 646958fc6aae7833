"""What is left to be kept of the history when all workers have ended: written by a process of its own, since the
supervisor itself knows no Redis.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

from proxy.directory.redis_history import RedisHistory
from proxy.plan import unpack
from proxy.questions import Keep


class LastWords(msgspec.Struct, frozen=True):
    """`packed` are the settings, as in a `Plan`."""

    packed: bytes
    keep: Keep

    def __repr__(self) -> str:
        return "LastWords()"  # the settings hold secrets


def main() -> None:
    """The process's entry: what to write comes on standard input. Exits with 1 where it could not be written."""
    words = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=LastWords)
    sys.exit(1 if asyncio.run(_write(words)) else 0)


async def _write(words: LastWords) -> str:
    settings, _ = unpack(words.packed)
    kept = RedisHistory(settings.directory)
    try:
        return (await kept.keep(words.keep, now=time.time())).why
    finally:
        await kept.close()
