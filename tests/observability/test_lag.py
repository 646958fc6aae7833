"""How late the event loop came, and the latest of about a minute."""

from __future__ import annotations

import asyncio
import time

import pytest

from observability.lag import HALF_WINDOW_SECONDS, Latest, follow_lag


def test_whoever_looks_every_half_minute_misses_none() -> None:
    latest = Latest()
    seen = [latest.observed(5.0 if second == 7 else 0.001, float(second)) for second in range(200)]
    for start in range(8, 8 + int(HALF_WINDOW_SECONDS)):
        assert seen[start] == 5.0
    assert seen[7 + 2 * int(HALF_WINDOW_SECONDS)] == 0.001


def test_what_was_before_a_long_silence_is_over() -> None:
    latest = Latest()
    assert latest.observed(5.0, 1000.0) == 5.0
    assert latest.observed(0.5, 1000.0 + 3 * HALF_WINDOW_SECONDS) == 0.5


async def test_a_loop_that_was_held_up_is_told_of() -> None:
    told: list[tuple[float, float]] = []
    following = asyncio.get_running_loop().create_task(
        follow_lag(lambda lag, latest: told.append((lag, latest)), period=0.005)
    )
    async with asyncio.timeout(10):
        while len(told) < 2:
            await asyncio.sleep(0.001)
        time.sleep(0.06)
        seen = len(told)
        while len(told) < seen + 3:
            await asyncio.sleep(0.001)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert max(lag for lag, _ in told) >= 0.05
    assert told[-1][1] >= 0.05
    assert min(lag for lag, _ in told) >= 0
