"""The administrators' pages of a real gate of two workers: what they show is what was sent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest
from redis import Redis

from tests.parts.chromium import open_chromium
from tests.parts.gate_bed import chat
from tests.parts.redis_server import RedisServer
from tests.proxy.test_server import SALTGATE, Served, serving

pytestmark = pytest.mark.process

BESIDE = {"viewer", "alarms", "now"}
OPEN = ("acme", "apollo"), ("acme", "ares")


class Viewer:
    """A browser with its cookie and its key."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        self.key = ""

    async def __aenter__(self) -> Self:
        await self.enter(await ticket(self.served))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def enter(self, ticket: str) -> None:
        headers = {"Origin": self.served.admin}
        async with self.session.post(
            f"{self.served.admin}/sign-in", json={"ticket": ticket}, headers=headers
        ) as answer:
            assert answer.status == 200, await answer.text()
            self.key = (await answer.json())["key"]

    async def get(self, path: str) -> tuple[int, dict[str, Any]]:
        headers = {"X-Saltgate-Key": self.key}
        async with self.session.get(self.served.admin + path, headers=headers) as answer:
            return answer.status, json.loads(await answer.read())

    async def total(self) -> Mapping[str, Any]:
        status, view = await self.get("/api/overview?window=1h")
        assert status == 200, view
        total: Mapping[str, Any] = view["total"]
        return total

    async def until_requests(self, number: int) -> Mapping[str, Any]:
        """As soon as so many are shown. Raises TimeoutError."""
        async with asyncio.timeout(60):
            while (total := await self.total())["requests"] < number:
                await asyncio.sleep(0.1)
        return total


async def ticket(served: Served) -> str:
    """As an operator gets it."""
    process = await asyncio.create_subprocess_exec(
        *SALTGATE, "admin", "ticket", "-c", str(served.configuration), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    address, _, found = output.decode().strip().partition("#")
    assert address == f"{served.admin}/sign-in"
    return found


async def send(served: Served, project: str, *, stream: bool) -> Mapping[str, int]:
    """One chat of a text of its own, or of one that was sent before; what its usage says."""
    headers = served.headers() | {"OpenAI-Project": project}
    document = chat() | {"stream": stream, "messages": [{"role": "user", "content": "the same long words " * 40}]}
    if stream:
        document["stream_options"] = {"include_usage": True}
    async with served.session.post(f"{served.url}/v1/chat/completions", json=document, headers=headers) as answer:
        text = await answer.text()
        assert answer.status == 200, text
    told = (
        [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        if stream
        else [json.loads(text)]
    )
    usage = next(one["usage"] for one in reversed(told) if one.get("usage"))
    return {
        "prompt": usage["prompt_tokens"],
        "reused": usage["prompt_tokens_details"]["cached_tokens"],
        "output": usage["completion_tokens"],
    }


async def test_what_is_shown_is_what_was_sent_over_two_workers_a_reload_and_a_restart_of_one(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with serving(redis, tmp_path, workers=2) as served:
        await served.until("/readyz", 200, seconds=120)
        async with Viewer(served) as viewer:
            sent: Counter[str] = Counter()
            requests: Counter[tuple[str, str]] = Counter()

            async def some(number: int) -> None:
                scopes = [OPEN[n % 2] for n in range(number)]
                usages = await asyncio.gather(
                    *(send(served, project, stream=n % 3 > 0) for n, (_, project) in enumerate(scopes))
                )
                for scope, usage in zip(scopes, usages, strict=True):
                    sent.update(usage)
                    requests[scope] += 1

            await some(40)
            await viewer.until_requests(40)
            served.process.send_signal(signal.SIGHUP)
            await some(20)
            await served.until_told("server.reloaded")
            await some(20)
            await viewer.until_requests(80)
            async with asyncio.timeout(60):
                while len(served.workers()) > 2:  # those before the reload end with their connections
                    await asyncio.sleep(0.05)
            os.kill(served.workers()[0], signal.SIGKILL)
            await served.until_told("worker.died")
            await served.until("/readyz", 200, seconds=120)
            await some(20)
            total = await viewer.until_requests(100)
            assert total["requests"] == 100
            assert total["outcomes"] == {"ok": 100}
            told = {
                "prompt": total["prompt_tokens"],
                "reused": total["reused_tokens"],
                "output": total["output_tokens"],
            }
            assert told == dict(sent)
            assert total["reuse_rate"] == pytest.approx(sent["reused"] / sent["prompt"], rel=1e-3)
            assert sum(total["points"]["requests"]) == 100
            _, view = await viewer.get("/api/overview?window=24h")
            shown = {(w["workspace"], p["project"]): p["requests"] for w in view["workspaces"] for p in w["projects"]}
            assert shown == dict(requests)
            assert (view["gate"]["ready"], view["gate"]["workers"], view["gate"]["untold"]) == (True, 2, 0)
            assert [(one["engine"], one["up"], one["proofs"]["chat"]) for one in view["engines"]] == [
                ("main", True, "proven")
            ]
            _, scope = await viewer.get("/api/scopes/acme/apollo?window=15m")
            assert scope["requests"] == len(scope["recent"]) == requests["acme", "apollo"]
            newest = scope["recent"][0]
            status, found = await viewer.get(f"/api/requests/{newest['request_id']}")
            assert status == 200
            assert {key: value for key, value in found.items() if key not in BESIDE} == newest
            assert {span["name"] for span in newest["spans"]} >= {"auth", "directory", "stamp"}


async def test_open_streams_are_seen_while_they_run_and_gone_when_their_worker_dies(
    redis: RedisServer, tmp_path: Path
) -> None:
    from proxy.demo.simulator import EngineShape

    async with serving(redis, tmp_path, shape=EngineShape(answer_tokens=4000)) as served:
        await served.until("/readyz", 200, seconds=120)
        async with Viewer(served) as viewer:

            async def until_open(number: int) -> None:
                async with asyncio.timeout(60):
                    while (await viewer.total())["open_streams"] != number:
                        await asyncio.sleep(0.1)

            document = chat() | {"stream": True, "max_tokens": 4000}
            streams = [
                await served.session.post(f"{served.url}/v1/chat/completions", json=document, headers=served.headers())
                for _ in range(3)
            ]
            await until_open(3)
            streams[0].close()
            await until_open(2)
            os.kill(served.workers()[0], signal.SIGKILL)
            await until_open(0)
            for stream in streams:
                stream.close()


async def test_what_is_kept_in_redis_outlives_the_gate_and_holds_no_person(redis: RedisServer, tmp_path: Path) -> None:
    kept = "[history]\nredis = true"
    sent: Counter[str] = Counter()
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    async with serving(redis, first, workers=2, tables=kept) as served:
        await served.until("/readyz", 200, seconds=120)
        for number in range(12):
            sent.update(await send(served, "apollo", stream=number % 2 > 0))
        async with Viewer(served) as viewer:
            await viewer.until_requests(12)
            _, scope = await viewer.get("/api/scopes/acme/apollo")
        served.process.send_signal(signal.SIGTERM)
        assert await served.ended() == 0
        assert served.events("history.not_kept") == []
    async with serving(redis, second, tables=kept) as served:
        await served.until("/readyz", 200, seconds=120)
        async with Viewer(served) as viewer:
            total = await viewer.until_requests(12)
            assert (total["requests"], total["prompt_tokens"], total["reused_tokens"]) == (
                12,
                sent["prompt"],
                sent["reused"],
            )
            status, found = await viewer.get(f"/api/requests/{scope['recent'][0]['request_id']}")
            assert status == 200
            assert {key: value for key, value in found.items() if key not in BESIDE} == scope["recent"][0]
            _, view = await viewer.get("/api/overview")
            assert view["gate"]["kept_in"] == "redis"
        assert served.events("history.not_kept") == []
    with Redis.from_url(redis.url) as client:
        keys = list(client.scan_iter("*history*"))
        assert len(keys) >= 5
        for key in keys:
            dumped = client.dump(key)
            assert dumped is not None
            assert b"alice" not in dumped
            assert b"the same long words" not in dumped


async def test_a_browser_comes_in_by_the_link_once_and_sees_what_happens(redis: RedisServer, tmp_path: Path) -> None:
    async with serving(redis, tmp_path) as served, open_chromium(tmp_path / "browser") as browser:
        await served.until("/readyz", 200, seconds=120)
        for _ in range(3):
            await send(served, "apollo", stream=True)
        await browser.open(f"{served.admin}/scopes/acme/apollo")
        await browser.until("location.pathname === '/sign-in' && Boolean(document.querySelector('h1')?.textContent)")
        link = f"{served.admin}/sign-in?return_to=/scopes/acme/apollo#{await ticket(served)}"
        await browser.open(link)
        await browser.until("location.pathname === '/scopes/acme/apollo' && document.body.innerText.includes('apollo')")
        await browser.until("document.querySelectorAll('.recent tbody tr').length === 3")
        assert await browser.run("document.cookie") == "", "no script sees the cookie"
        # What a browser keeps for a page is all that another page of its origin needs; a used link is nothing.
        await browser.open(f"{served.admin}/")
        await browser.until("document.body.innerText.includes('acme')")
        await browser.run("localStorage.removeItem('saltgate-key')")
        await browser.open(link)
        await browser.until("document.getElementById('said')?.textContent.includes('is over') === true")
        assert await browser.run("location.hash") == ""
