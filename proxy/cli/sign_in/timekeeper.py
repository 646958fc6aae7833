"""The clock of a sign-in, which waits for a person."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Timekeeper(Protocol):
    def seconds(self) -> float:
        """Seconds that never jump."""
        ...

    async def pause(self, seconds: float) -> None: ...


class RealTime:
    def seconds(self) -> float:
        return time.monotonic()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
