"""One worker's gate in this process, with all that it tells or with none of it: `CONFIGURATION PORT on|off`.

On: records, metrics, log lines to standard output, spans to the configuration's collector.
"""

from __future__ import annotations

import asyncio
import mmap
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from config.load import load
from observability.history.told import Told
from observability.logs import configure_logs
from observability.open_requests import AREA_BYTES, OpenRequests
from proxy.app import open_gate
from proxy.gate import Gate
from proxy.memory import keep_large_blocks, settle
from proxy.telling import MOMENT_SECONDS
from tests.bench.silent import SilentRecorder


async def serve(configuration: Path, port: int, telling: str) -> None:
    """Until the process is ended."""
    settings = load(configuration).settings
    logs = configure_logs(settings.logs, sys.stdout.buffer, monotonic_ns=time.monotonic_ns)
    with closing(logs), mmap.mmap(-1, AREA_BYTES) as area:
        async with open_gate(settings, instance=telling, logs=logs, also=(OpenRequests(area),)) as gate:
            if telling == "off":
                silent = SilentRecorder()
                gate.entrance.recorder = silent
            server = await asyncio.get_running_loop().create_server(gate.front, "127.0.0.1", port)
            settle()
            async with server:
                while True:
                    for _ in range(_MOMENTS):
                        await asyncio.sleep(MOMENT_SECONDS)
                        _tell_ended(gate)
                    _tell_counted(gate)


# A worker is asked for its metrics as often as saltgate is scraped, which is seldom more than once in a second.
_MOMENTS: Final = round(1.0 / MOMENT_SECONDS)


def _tell_ended(gate: Gate) -> None:
    """What a worker tells its supervisor by itself."""
    while summaries := gate.ended.take():
        msgspec.msgpack.encode(Told(summaries=summaries))


def _tell_counted(gate: Gate) -> None:
    for counted in gate.metrics.told():
        counted.encode()


if __name__ == "__main__":
    keep_large_blocks()
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
