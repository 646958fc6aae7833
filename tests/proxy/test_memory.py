"""How a worker keeps its memory."""

from __future__ import annotations

import platform
import subprocess
import sys
import tracemalloc
from pathlib import Path

import proxy
from tests.parts.gate_bed import GateBed, chat
from tests.parts.gone_client import GoneClient, post
from tests.parts.raw_engine import STREAM_HEAD, RawEngine, Send, WaitForPeer, chunk
from tests.parts.redis_server import RedisServer
from tests.proxy.relay.relay_parts import TOKEN, on

TOLD = """
import gc, resource
from proxy.memory import KEPT_BYTES, keep_large_blocks, settle

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        [b"x" * (KEPT_BYTES // 8) for _ in range(6)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults(10)
kept = keep_large_blocks()
faults(2)
print(int(kept), int(faults(10) < given_back / 10))
settle()
print(int(gc.get_freeze_count() > 0), gc.get_threshold()[0])
"""


def test_large_blocks_stay_and_what_lasts_is_no_longer_collected() -> None:
    """In a process of its own: both hold for all of it."""
    told = subprocess.run([sys.executable, "-c", TOLD], capture_output=True, text=True, check=True).stdout.split()
    kept, fewer_faults, frozen, young = map(int, told)
    assert kept == (platform.libc_ver()[0] == "glibc")
    assert not kept or fewer_faults
    assert frozen
    assert young > 700


async def test_while_a_stream_runs_its_prompt_is_held_no_more_than_once(redis: RedisServer, tmp_path: Path) -> None:
    """As the engine got it, with the room that the encoder took. What the client sent is given back by then."""
    size = 4 * 2**20
    engine = RawEngine((Send(STREAM_HEAD), Send(chunk(TOKEN)), WaitForPeer()))

    async def use(bed: GateBed) -> None:
        async with GoneClient.to(bed.url) as client:
            request = post("/v1/chat/completions", chat("x" * size, stream=True), bed.headers())
            tracemalloc.start()
            try:
                await client.send(request)
                await client.read_until(TOKEN)
                held = tracemalloc.take_snapshot().statistics("filename")
            finally:
                tracemalloc.stop()
        ours = [one.size for one in held if one.traceback[0].filename.startswith(str(Path(proxy.__file__).parent))]
        assert size <= sum(ours) < 2 * size

    await on(redis, tmp_path, engine, use)
