"""A time that is set anew with each request: it rings for the last one that was set, and never early."""

from __future__ import annotations

import asyncio

from proxy.relay.alarm import Alarm


class Rung:
    """When it rang, and which."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.alarm = Alarm(self.loop)
        self.all: list[tuple[str, float]] = []

    def at(self, due: float, name: str) -> None:
        self.alarm.set(due, lambda: self.all.append((name, self.loop.time())))

    async def until(self, number: int) -> None:
        async with asyncio.timeout(10):
            while len(self.all) < number:
                await asyncio.sleep(0.005)


async def test_it_rings_once_for_the_last_that_was_set_whether_later_or_sooner() -> None:
    rung = Rung()
    now = rung.loop.time()
    rung.at(now + 0.02, "first")
    rung.at(now + 0.08, "later")
    await rung.until(1)
    rung.at(now + 9.0, "far")
    rung.at(now + 0.2, "sooner")
    await rung.until(2)
    assert [name for name, _ in rung.all] == ["later", "sooner"]
    assert all(at >= now + due - 0.002 for (_, at), due in zip(rung.all, (0.08, 0.2), strict=True))


async def test_what_was_cleared_rings_no_more_and_the_next_in_its_own_time() -> None:
    rung = Rung()
    now = rung.loop.time()
    rung.at(now + 0.02, "cleared")
    rung.alarm.clear()
    await asyncio.sleep(0.06)
    assert not rung.all
    rung.at(now + 0.1, "next")
    await rung.until(1)
    rung.at(now + 0.1, "stopped")
    rung.alarm.stop()
    await asyncio.sleep(0.05)
    assert [name for name, _ in rung.all] == ["next"]
