"""The end of the history that is kept: handed to a process that knows Redis (`proxy.last_words`), for there is no
worker any more that could write it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import msgspec
import structlog

from proxy.questions import Keep

MOST_SECONDS: Final = 10.0

_log = structlog.get_logger("saltgate.history")


class Words(msgspec.Struct, frozen=True):
    """As `proxy.last_words.LastWords`, which this process does not import."""

    packed: bytes
    keep: Keep

    def __repr__(self) -> str:
        return "Words()"


async def say_last_words(packed: bytes, keep: Keep) -> None:
    """Returns when it is written, or could not be."""
    if not keep.slots and not keep.requests:
        return
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", "from proxy.last_words import main; main()"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        _log.warning("history.end_not_kept", why=error.strerror)
        return
    try:
        async with asyncio.timeout(MOST_SECONDS):
            await process.communicate(msgspec.msgpack.encode(Words(packed, keep)))
    except TimeoutError:
        process.kill()
        await process.wait()
    if process.returncode:
        _log.warning("history.end_not_kept", why="Redis did not take it")
