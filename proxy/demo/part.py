"""One part of the demo that is a process of its own: started, watched, and ended with the demo, however that ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STOP_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 0.02
_LINES_TOLD: Final = 3
_TETHER: Final = Path(__file__).with_name("tether.py")


class PartFailed(Exception):  # noqa: N818 - what the person at the keyboard reads
    """A part did not start, or ended by itself. The message says which, and what it said last."""


@dataclass(frozen=True, slots=True)
class Part:
    """A running part. It writes to `log`."""

    name: str
    log: Path
    process: asyncio.subprocess.Process

    @property
    def is_gone(self) -> bool:
        return self.process.returncode is not None

    async def until(self, ready: Callable[[], Awaitable[bool]], *, seconds: float) -> None:
        """Returns when `ready()`. Raises PartFailed where the part ends before, or takes longer than `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while not await ready():
                    if self.is_gone:
                        raise self.failure(f"ended before it was ready (exit status {self.process.returncode})")
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError as error:
            raise self.failure(f"was not ready within {seconds:g} s") from error

    def failure(self, what: str) -> PartFailed:
        """What became of it, with the last that it said."""
        said = "".join(f"\n  {line}" for line in self.log.read_text(errors="replace").splitlines()[-_LINES_TOLD:])
        return PartFailed(f"{self.name} {what}" + (f". It said last:{said}" if said else ""))


@asynccontextmanager
async def running(name: str, folder: Path, *command: str) -> AsyncIterator[Part]:
    """The part that `command` starts (its first word is a path), not yet ready. Its log is in `folder`."""
    log = folder / f"{name.replace(' ', '-')}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield Part(name, log, process)
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
