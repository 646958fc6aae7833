"""How evenly connections fall on the workers of a real `saltgate serve`, and what a new one costs.

    python -m tests.proxy.spread [--workers 2] [--rounds 3]

For 16, 64 and 400 streams it prints how many each worker has, where they begin at the same moment and where they begin
within a second; then how many connections of one request each are served a second, and how keep-alive ones are spread.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from proxy.demo.simulator import EngineShape, Pace
from tests.parts.gate_bed import chat
from tests.parts.gone_client import post
from tests.parts.redis_server import RedisServer
from tests.proxy.test_server import Served, serving

SLOW = EngineShape(answer_tokens=4000, pace=Pace(prefill_tokens_per_second=0.0, seconds_per_token=0.5))


def connections_of(served: Served) -> list[int]:
    """How many connections of clients each worker has, in the order of the workers' ids."""
    port = int(served.url.rpartition(":")[2])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established = {row[9] for row in rows if row[3] == "01" and int(row[1].rpartition(":")[2], 16) == port}
    return [len(established & _sockets(worker)) for worker in served.workers()]


def _sockets(process: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:  # closed just now
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


async def begin_streams(served: Served, count: int, *, within_seconds: float = 0.0) -> list[socket.socket]:
    """So many streams of their own connections. All are connecting before the first has sent its request."""
    loop = asyncio.get_running_loop()
    address = ("127.0.0.1", int(served.url.rpartition(":")[2]))
    request = post("/v1/chat/completions", chat(stream=True, max_tokens=4000), served.headers())
    clients = []
    for _ in range(count):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(address)
        clients.append(client)
        if within_seconds:
            await asyncio.sleep(within_seconds / count)
            await loop.sock_sendall(client, request)
    if not within_seconds:
        await asyncio.gather(*(loop.sock_sendall(client, request) for client in clients))
    heads = await asyncio.gather(*(loop.sock_recv(client, 12) for client in clients))
    assert heads == [b"HTTP/1.1 200"] * count, Counter(heads)
    return clients


async def end_streams(served: Served, clients: Sequence[socket.socket]) -> None:
    for client in clients:
        client.close()
    async with asyncio.timeout(30):
        while sum(connections_of(served)):
            await asyncio.sleep(0.05)


async def _measure(served: Served, rounds: int) -> None:
    for count in (16, 64, 400):
        for within in (0.0, 1.0):
            for _ in range(rounds):
                clients = await begin_streams(served, count, within_seconds=within)
                shares = ":".join(map(str, connections_of(served)))
                sys.stdout.write(f"{count} streams, {'within a second' if within else 'at one moment'}: {shares}\n")
                await end_streams(served, clients)
    await _new_connections(served)


async def _new_connections(served: Served, seconds: float = 5.0, clients: int = 8) -> None:
    """Each asks for the list of models: mostly the connection is what is measured."""
    address = ("127.0.0.1", int(served.url.rpartition(":")[2]))
    lines = {"Host": "gate", "Connection": "close"} | served.headers()
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    request = f"GET /v1/models HTTP/1.1\r\n{head}\r\n".encode()
    loop, waited = asyncio.get_running_loop(), []
    deadline = time.perf_counter() + seconds

    async def client() -> None:
        while time.perf_counter() < deadline:
            began = time.perf_counter()
            with socket.socket() as connection:
                connection.setblocking(False)
                await loop.sock_connect(connection, address)
                await loop.sock_sendall(connection, request)
                assert (await loop.sock_recv(connection, 65536)).startswith(b"HTTP/1.1 200")
            waited.append(time.perf_counter() - began)

    await asyncio.gather(*(client() for _ in range(clients)))
    waited.sort()
    sys.stdout.write(
        f"{len(waited) / seconds:.0f} connections a second, p50 {waited[len(waited) // 2] * 1e3:.2f} ms, "
        f"p99 {waited[int(len(waited) * 0.99)] * 1e3:.2f} ms\n"
    )


async def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proxy.spread", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as redis:
        async with serving(redis, Path(folder), workers=arguments.workers, shape=SLOW) as served:
            await served.until("/readyz", 200)
            await _measure(served, arguments.rounds)


if __name__ == "__main__":
    asyncio.run(_main())
