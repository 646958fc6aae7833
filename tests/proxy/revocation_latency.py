"""How long a revoked personal access token still serves, on two real gates.

    python -m tests.proxy.revocation_latency

Two `saltgate serve` on one Redis, each with a worker of its own. A token that both have in memory is revoked at one of
them, and both are asked without a pause until they refuse. A time is from the moment at which the revocation is sent to
the moment at which a refusal is there, so it holds the revocation's own answer. Then the CPU that a token costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from proxy.demo.simulator import AT_ONCE, EngineShape, Simulator
from proxy.directory.connect import open_tokens
from proxy.directory.token_store import StoredTokens
from proxy.identity.personal import new_personal_token
from proxy.identity.personal_records import Login, Owner, PersonalRules, TokenRecord
from proxy.identity.personal_tokens import PersonalTokens
from tests.parts.redis_server import RedisServer, free_port
from tests.parts.tokens import IssuerServer, TokenMint

SALTGATE = (sys.executable, "-c", "from proxy.cli import main; main()")
START_SECONDS = 60.0
REFUSED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds until the refusal: at the gate where the token was revoked, and at the other one."""

    here: tuple[float, ...]
    there: tuple[float, ...]


async def measure(times: int, folder: Path) -> Times:
    here, there = [], []
    async with two_gates(folder) as gates:
        for number in range(times):
            one, other = await gates.revoked(number, at=number % 2)
            here.append(one)
            there.append(other)
    return Times(tuple(here), tuple(there))


class Gates:
    def __init__(self, urls: Sequence[str], mint: TokenMint, session: aiohttp.ClientSession) -> None:
        self._urls = urls
        self._mint = mint
        self._session = session

    async def revoked(self, number: int, *, at: int) -> tuple[float, float]:
        """Seconds until the gate `at` refuses, and until the other one does."""
        # Somebody else each time: one person may not ask that often.
        signed_in = self._mint.token(subject=f"u-{number}", groups=["eng"])
        made = await self._post(self._urls[at], "/account/tokens", signed_in, {"name": "latency"})
        for url in self._urls:
            if await self._status(url, made["token"]) != 200:
                raise AssertionError(f"{url} does not take a new token")
        began = time.perf_counter()
        refusals = [asyncio.ensure_future(self._until_refused(url, made["token"])) for url in self._urls]
        await self._post(self._urls[at], "/account/tokens/revoke", signed_in, {"id": made["id"]})
        ended = [moment - began for moment in await asyncio.gather(*refusals)]
        return ended[at], ended[1 - at]

    async def until_ready(self) -> None:
        token = self._mint.token(groups=["eng"])
        async with asyncio.timeout(START_SECONDS):
            for url in self._urls:
                while await self._status(url, token) != 200:
                    await asyncio.sleep(0.1)

    async def _until_refused(self, url: str, token: str) -> float:
        async with asyncio.timeout(REFUSED_SECONDS):
            while await self._status(url, token) == 200:
                pass
        return time.perf_counter()

    async def _status(self, url: str, token: str) -> int:
        try:
            async with self._session.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {token}"}) as answer:
                return answer.status
        except aiohttp.ClientConnectionError:
            return 0

    async def _post(self, url: str, path: str, token: str, document: object) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.post(url + path, json=document, headers=headers) as answer:
            if answer.status not in (200, 201):
                raise AssertionError(await answer.text())
            return await answer.json()


@asynccontextmanager
async def two_gates(folder: Path) -> AsyncIterator[Gates]:
    mint = TokenMint()
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(RedisServer(folder))
        engine = await stack.enter_async_context(Simulator(EngineShape(pace=AT_ONCE)))
        await stack.enter_async_context(IssuerServer(mint))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        (folder / "key").write_text("0123456789abcdef0123456789abcdef")
        (folder / "directory.toml").write_text(
            f'[workspaces.acme]\nissuer = "{mint.issuer}"\n[workspaces.acme.projects.apollo]\nmembers = ["group:eng"]\n'
        )
        urls = []
        for number in range(2):
            configuration, port = folder / f"gate-{number}.toml", free_port()
            configuration.write_text(_configuration(port, engine.url, mint.issuer, redis.url))
            if number == 0:
                await _run("directory", "import", str(folder / "directory.toml"), "-c", str(configuration))
            await stack.enter_async_context(_serving(configuration, folder / f"gate-{number}.log"))
            urls.append(f"http://127.0.0.1:{port}")
        gates = Gates(urls, mint, session)
        await gates.until_ready()
        yield gates


def _configuration(port: int, engine: str, issuer: str, redis: str) -> str:
    return f"""
[public]
listen = "127.0.0.1:{port}"
[admin]
listen = "127.0.0.1:{free_port()}"
[[engines]]
name = "main"
urls = ["{engine}"]
[[issuers]]
issuer = "{issuer}"
audiences = ["saltgate"]
[directory]
redis = "{redis}"
[[isolation.keys]]
id = "k1"
secret = {{ file = "key" }}
[drain]
limit = "1s"
"""


async def _run(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(*SALTGATE, *words, stdout=asyncio.subprocess.DEVNULL)
    if await process.wait() != 0:
        raise AssertionError(f"saltgate {words[0]} failed")


@asynccontextmanager
async def _serving(configuration: Path, log: Path) -> AsyncIterator[None]:
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            *SALTGATE, "serve", "-c", str(configuration), stdout=stream, stderr=stream
        )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of CPU for one token: remembered, and looked up in Redis."""

    remembered: float
    looked_up: float


async def cost(folder: Path, *, remembered: int = 20_000, looked_up: int = 2_000) -> Cost:
    with RedisServer(folder) as redis:
        tokens, now, owner = open_tokens(redis.settings()), int(time.time()), Owner("https://sso.example.com", "alice")
        token = new_personal_token()
        record = TokenRecord(
            id=token.id, digest=token.digest, owner=owner, name="x", projects=None, created=now, expires=now + 3600
        )
        await tokens.create(record, limit=1)
        await tokens.log_in(owner, Login(frozenset({"eng", "ops"}), True, now), keep_seconds=3600)
        rules = PersonalRules(issuers=frozenset({owner.issuer}), without_groups=frozenset(), groups_max_age=3600.0)
        text = token.text()
        never_fresh = iter(range(0, 10**9, 1000))

        def door(*, forgets: bool) -> PersonalTokens:
            return PersonalTokens(
                StoredTokens(tokens),
                rules,
                max_stale=300.0,
                clock=time.time,
                monotonic=(lambda: float(next(never_fresh))) if forgets else time.monotonic,
            )

        spent = []
        for asked, count in ((door(forgets=False), remembered), (door(forgets=True), looked_up)):
            await asked.identify(text)
            began = time.process_time()
            for _ in range(count):
                await asked.identify(text)
            spent.append((time.process_time() - began) / count * 1e6)
        await tokens.close()
    return Cost(*spent)


def _line(name: str, times: Sequence[float]) -> str:
    ordered = [1000 * each for each in sorted(times)]
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    middle = statistics.median(ordered)
    return f"{name:<24} n {len(ordered)}  p50 {middle:.1f} ms  p95 {p95:.1f} ms  max {ordered[-1]:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--json", action="store_true", help="the times themselves, in seconds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = asyncio.run(measure(arguments.times, Path(folder)))
    if arguments.json:
        print(json.dumps({"here": times.here, "there": times.there}))
        return
    print(_line("where it was revoked", times.here))
    print(_line("at the other gate", times.there))
    with tempfile.TemporaryDirectory() as folder:
        spent = asyncio.run(cost(Path(folder)))
    print(f"CPU of a token: {spent.remembered:.1f} µs remembered, {spent.looked_up:.0f} µs looked up in Redis")


if __name__ == "__main__":
    main()
