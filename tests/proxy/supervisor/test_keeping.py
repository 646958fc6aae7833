"""The history in a real Redis: what was written is read by others, a dead Redis changes nothing, and it stays small."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from redis import Redis
from structlog.testing import capture_logs

from config.settings import Directory
from observability.history.answers import Gate
from observability.history.figures import Around, overview, window_of
from observability.history.history import Bounds, History
from proxy.directory.redis_history import GATES, LIVES, REQUESTS, SLOT, RedisHistory
from proxy.questions import Done, Keep, Question, Recall, Recalled
from proxy.supervisor.keeping import Keeping
from tests.observability.history.summaries import summary
from tests.parts.redis_server import RedisServer, free_port

BOUNDS = Bounds(scopes=20, recent=100, kept=True)
NOW = 1_700_000_000.0 // 1440 * 1440
GATE = Gate(version="1", workers=1, ready=True, waits_for=[], open_streams=0, waiting=0, kept_in="redis")


class Life:
    """One life of a gate: its history, and a worker that answers."""

    def __init__(self, settings: Directory, now: float = NOW) -> None:
        self.now = now
        self.settings = settings
        self.answers = True
        self.is_draining = False
        self.asked = 0
        self.history = History(BOUNDS, since=now)
        self.keeping = Keeping(self.history, self, clock=lambda: self.now)

    async def ask(self, question: bytes) -> bytes | None:
        self.asked += 1
        if not self.answers:
            return None
        asked = msgspec.msgpack.decode(question, type=Question)
        kept = RedisHistory(self.settings)
        try:
            answer: Done | Recalled
            if isinstance(asked, Keep):
                answer = await kept.keep(asked, now=self.now)
            else:
                assert isinstance(asked, Recall)
                answer = await kept.recall(asked)
            return msgspec.msgpack.encode(answer)
        finally:
            await kept.close()

    def serve(self, requests: int, seconds: float = 1.0) -> None:
        for _ in range(requests):
            self.history.add(summary(), self.now)
            self.now += seconds

    async def end(self) -> None:
        await self.ask(msgspec.msgpack.encode(self.keeping.last()))

    def shown(self, window: str = "1h") -> int:
        histories = (self.history, self.keeping.others)
        return overview(histories, window_of(window, self.now), Around(GATE, (), (), {})).total.requests


async def test_a_restart_goes_on_with_what_was(redis: RedisServer) -> None:
    first = Life(redis.settings())
    first.serve(300)
    assert await first.keeping.keep() == ""
    first.serve(5)
    await first.end()
    second = Life(redis.settings(), first.now)
    assert await second.keeping.recall() == ""
    assert [second.shown(window) for window in ("15m", "1h", "6h", "24h")] == [305] * 4
    second.serve(10)
    await second.end()
    third = Life(redis.settings(), second.now + 3600 * 20)
    assert await third.keeping.recall() == ""
    assert [third.shown(window) for window in ("15m", "1h", "6h", "24h")] == [0, 0, 0, 315]


async def test_gates_show_each_others_and_count_nothing_twice(redis: RedisServer) -> None:
    one, other = Life(redis.settings()), Life(redis.settings())
    for round_ in range(1, 8):
        for life in (one, other):
            life.serve(30, seconds=10.0)
            assert await life.keeping.keep() == ""
        for life in (one, other):
            life.now += 60.0
            assert await life.keeping.keep() == ""
            assert await life.keeping.recall() == ""
            assert await life.keeping.recall() == ""
        assert (one.shown("6h"), other.shown("6h")) == (60 * round_, 60 * round_)


async def test_requests_of_other_gates_are_found_by_their_id(redis: RedisServer) -> None:
    one, other = Life(redis.settings()), Life(redis.settings())
    known = summary()
    one.history.add(known, NOW)
    assert await one.keeping.keep() == ""
    assert await other.keeping.recall() == ""
    assert other.keeping.others.recent.find(known.request_id) == known
    assert await one.keeping.recall() == ""
    assert len(one.keeping.others.recent) == 0, "its own it has already"
    later = summary()
    one.history.add(later, NOW)
    assert await one.keeping.keep() == ""
    assert await other.keeping.recall() == ""
    assert other.keeping.others.recent.find(later.request_id) == later


async def test_what_a_dead_redis_did_not_take_is_written_later() -> None:
    life = Life(Directory(redis=f"redis://127.0.0.1:{free_port()}/0"))
    life.serve(120)
    assert "Redis cannot be used" in await life.keeping.keep()
    assert "Redis cannot be used" in await life.keeping.recall()
    life.answers = False
    assert await life.keeping.keep() == "no worker answers"
    assert life.shown() == 120


@asynccontextmanager
async def followed(life: Life) -> AsyncIterator[list[str]]:
    """The events that its keeping logs meanwhile."""
    events: list[str] = []
    with capture_logs() as lines:
        task = asyncio.create_task(life.keeping.follow(every=0.01))
        try:
            yield events
        finally:
            while not task.done():  # asyncio.wait_for, which redis-py uses, may lose a cancel until Python 3.12
                task.cancel()
                await asyncio.wait((task,), timeout=0.1)
            events.extend(str(line["event"]) for line in lines)


async def times_asked(life: Life, times: int) -> None:
    """The first asks read what there is; what follows are rounds of their own."""
    wanted = life.asked + times
    async with asyncio.timeout(20):
        while life.asked < wanted:
            await asyncio.sleep(0.005)


async def test_that_no_worker_answers_at_an_orderly_stop_is_no_news(redis: RedisServer) -> None:
    life = Life(redis.settings())
    async with followed(life) as events:
        await times_asked(life, 15)
        life.is_draining, life.answers = True, False
        await times_asked(life, 15)
    assert events == []


async def test_that_no_worker_answers_while_the_gate_serves_is_told_once_and_also_its_end(redis: RedisServer) -> None:
    life = Life(redis.settings())
    async with followed(life) as events:
        await times_asked(life, 15)
        life.answers = False
        await times_asked(life, 15)
        life.answers = True
        await times_asked(life, 15)
    assert events == ["history.not_kept", "history.kept_again"]


async def test_that_redis_takes_nothing_is_told_at_a_stop_too() -> None:
    life = Life(Directory(redis=f"redis://127.0.0.1:{free_port()}"))
    life.is_draining = True
    async with followed(life) as events:
        await times_asked(life, 15)
    assert events == ["history.not_kept"]


async def test_after_an_outage_nothing_is_missing(redis: RedisServer) -> None:
    life = Life(redis.settings())
    life.answers = False
    life.serve(600)
    known = summary()
    life.history.add(known, life.now)
    assert await life.keeping.keep() != ""
    life.answers = True
    assert await life.keeping.keep() == ""
    life.now += 60
    assert await life.keeping.keep() == ""
    other = Life(redis.settings(), life.now)
    assert await other.keeping.recall() == ""
    assert other.shown() == 601
    assert other.keeping.others.recent.find(known.request_id) == known


async def test_every_key_has_an_end_and_none_grows(redis: RedisServer) -> None:
    life = Life(redis.settings())
    for _ in range(5):
        life.serve(700, seconds=0.1)
        assert await life.keeping.keep() == ""
    with Redis.from_url(redis.url, decode_responses=False) as client:
        keys = [key.decode() for key in client.scan_iter()]
        assert {key for key in keys if not key.startswith(SLOT)} == {GATES, REQUESTS}
        assert all(0 < client.ttl(key) <= max(LIVES.values()) for key in keys)
        assert len(keys) == 2 + 5 + 1 + 1
        assert client.xlen(REQUESTS) <= BOUNDS.recent + 100
        assert all(client.strlen(key) < 300 for key in keys if key.startswith(SLOT))


async def test_what_another_version_wrote_is_passed_over(redis: RedisServer) -> None:
    one, other = Life(redis.settings()), Life(redis.settings())
    one.serve(60)
    assert await one.keeping.keep() == ""
    redis.command("ZADD", GATES, "1", "strange")
    redis.command("SET", f"{SLOT}60:{int(NOW) // 60}:strange", b"\xff")
    redis.command("XADD", REQUESTS, "*", "gate", "strange", "summary", "\xff")
    redis.command("XADD", REQUESTS, "*", "what", "else")
    other.now = one.now
    assert await other.keeping.recall() == ""
    assert other.shown() == 60
