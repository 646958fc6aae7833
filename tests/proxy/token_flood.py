"""What a flood of bad tokens does to good callers, measured here: `python -m tests.proxy.token_flood`.

A gate is served as it always is, by one worker. Good callers ask for the models, each again a moment after his answer.
Beside them a flood from a process of its own sends bad tokens on many connections as fast as they are answered, and in
the end on new connections without waiting for an answer. All is on loopback, and ends after the seconds given. What is
told: the good callers' latency, how much was flooded, and how often the issuer was asked for its keys.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from tests.parts.redis_server import RedisServer
from tests.parts.tokens import TokenMint, signing_key
from tests.proxy.test_server import Served, serving

GOOD_CALLERS: Final = 8
MOMENT_SECONDS: Final = 0.01
DIFFERENT: Final = 256  # bad tokens of each kind, so that no two requests in a row are the same
MODELS: Final = "/w/acme/p/apollo/v1/models"


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of the good callers, in milliseconds, and how many answers they had. `refused` must be 0."""

    answers: int
    refused: int
    median: float
    p99: float
    longest: float


def unknown_keys(mint: TokenMint) -> list[str]:
    """Well-made tokens of a stranger, each with a key id of its own."""
    key = signing_key("RS256", "stranger", number=77)
    return [mint.token(key=key, header={"kid": f"kid-{number}"}) for number in range(DIFFERENT)]


def newer_unknown_keys(mint: TokenMint) -> list[str]:
    """The same, and younger than the gate's keys for as long as the flood lasts: these could be of a new key."""
    key = signing_key("RS256", "stranger", number=77)
    iat = int(time.time()) + 25
    return [mint.token(key=key, header={"kid": f"new-{n}"}, iat=iat, exp=iat + 300) for n in range(DIFFERENT)]


def bad_signatures(mint: TokenMint) -> list[str]:
    key = signing_key("RS256", mint.key().key_id, number=77)
    return [mint.token(key=key, jti=f"bad-{number}") for number in range(DIFFERENT)]


def long_tokens(mint: TokenMint) -> list[str]:
    """As much as is looked at: 16 KiB of claims, and a wrong signature."""
    key = signing_key("RS256", mint.key().key_id, number=77)
    return [mint.token(key=key, jti=f"{number}", x=["ab"] * 2200) for number in range(16)]


def huge_headers(_: TokenMint) -> list[str]:
    """More than a header may have: refused before it is a token."""
    return ["x" * 40_000]


KINDS: Final[dict[str, Callable[[TokenMint], list[str]]]] = {
    kind.__name__.replace("_", " "): kind
    for kind in (unknown_keys, newer_unknown_keys, bad_signatures, long_tokens, huge_headers)
}


async def flood(port: int, tokens: Sequence[str], *, connections: int, seconds: float) -> int:
    """Sends a bad request on each connection, again as soon as it is answered: how many were answered in all."""
    until = time.monotonic() + seconds
    wires = [f"GET {MODELS} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n".encode() for token in tokens]

    async def one(number: int) -> int:
        answered = 0
        while time.monotonic() < until:
            with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
                answered += await _until_closed(port, wires, number + answered, until)
        return answered

    return sum(await asyncio.gather(*map(one, range(connections))))


async def hasty_flood(port: int, tokens: Sequence[str], *, connections: int, seconds: float) -> int:
    """The same, by clients who wait for nothing: each bad request on a connection of its own, left at once."""
    until = time.monotonic() + seconds
    wires = [f"GET {MODELS} HTTP/1.1\r\nHost: a\r\nx-api-key: {token}\r\n\r\n".encode() for token in tokens]

    async def one(number: int) -> int:
        sent = 0
        while time.monotonic() < until:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(wires[(number + sent) % len(wires)])
                await asyncio.sleep(0)
                writer.close()
                sent += 1
        return sent

    return sum(await asyncio.gather(*map(one, range(connections))))


async def _until_closed(port: int, wires: Sequence[bytes], begin: int, until: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answered = 0
    try:
        async with asyncio.timeout(until - time.monotonic()):
            while time.monotonic() < until:
                writer.write(wires[(begin + answered) % len(wires)])
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                answered += 1
                if b"connection: close" in head.lower():
                    break
    finally:
        writer.close()
        return answered  # noqa: B012 - what was answered before the end counts


async def good_callers(url: str, token: str, seconds: float) -> Latencies:
    until = time.monotonic() + seconds
    taken: list[float] = []
    refused = 0
    connector = aiohttp.TCPConnector(limit=GOOD_CALLERS)
    async with aiohttp.ClientSession(connector=connector, headers={"Authorization": f"Bearer {token}"}) as session:

        async def one() -> None:
            nonlocal refused
            while time.monotonic() < until:
                began = time.perf_counter()
                async with session.get(url + MODELS) as answer:
                    await answer.read()
                    refused += answer.status != 200
                taken.append(time.perf_counter() - began)
                await asyncio.sleep(MOMENT_SECONDS)

        await asyncio.gather(*(one() for _ in range(GOOD_CALLERS)))
    taken.sort()
    at = [taken[len(taken) // 2], taken[len(taken) * 99 // 100], taken[-1]]
    return Latencies(len(taken), refused, *(value * 1000 for value in at))


async def attacked(
    served: Served, kind: str, folder: Path, *, connections: int, seconds: float, hasty: bool = False
) -> tuple[Latencies, int]:
    """The good callers' latencies while a flood of this kind goes on, and how much of it was answered."""
    path = folder / "tokens.json"
    path.write_text(json.dumps(KINDS[kind](served.mint)))
    port = served.url.rpartition(":")[2]
    arguments = ["--flood", str(path), "--port", port, "--connections", str(connections), "--seconds", str(seconds)]
    arguments += ["--hasty"] if hasty else []
    attacker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.proxy.token_flood", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert attacker.stdout is not None
    await attacker.stdout.readline()  # it begins
    token = served.mint.token(groups=())
    latencies = await good_callers(served.url, token, seconds * 0.8)
    said, _ = await attacker.communicate()
    return latencies, int(said)


async def measure(connections: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name, RedisServer(Path(name)) as redis:
        async with serving(redis, Path(name)) as served:
            await served.until("/readyz", 200)
            token = served.mint.token(groups=())
            await good_callers(served.url, token, 1.0)
            print("| flood | requests /s | good callers' median | p99 | longest | refused | fetches of keys |")
            print("|---|---|---|---|---|---|---|")
            _row("none", 0.0, await good_callers(served.url, token, seconds), 0)
            for kind in KINDS:
                hits = served.issuer.hits["jwks"]
                found, flooded = await attacked(served, kind, Path(name), connections=connections, seconds=seconds)
                _row(kind, flooded / seconds, found, served.issuer.hits["jwks"] - hits)
            found, flooded = await attacked(
                served, "bad signatures", Path(name), connections=connections, seconds=seconds, hasty=True
            )
            _row("bad signatures, each left at once", flooded / seconds, found, 0)
            _row("none, afterwards", 0.0, await good_callers(served.url, token, seconds), 0)


def _row(name: str, rate: float, found: Latencies, fetches: int) -> None:
    print(
        f"| {name} | {rate:.0f} | {found.median:.1f} ms | {found.p99:.1f} ms | {found.longest:.1f} ms | "
        f"{found.refused} of {found.answers} | {fetches} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=64, choices=range(1, 1025), metavar="N")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--flood", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--hasty", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    seconds = min(arguments.seconds, 60.0)
    if arguments.flood is None:
        asyncio.run(measure(arguments.connections, seconds))
        return
    tokens = json.loads(arguments.flood.read_text())
    print("begins", flush=True)
    attack = hasty_flood if arguments.hasty else flood
    print(asyncio.run(attack(arguments.port, tokens, connections=arguments.connections, seconds=seconds)))


if __name__ == "__main__":
    main()
