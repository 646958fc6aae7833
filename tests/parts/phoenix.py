"""A real Arize Phoenix, in an environment of its own (`make phoenix`), on loopback and with a folder of its own.

with running_phoenix(tmp_path) as phoenix:      # raises NoPhoenix where it is not installed
    telemetry = Telemetry(otlp_endpoint=phoenix.url)
    spans = await phoenix.spans(trace_id, 2)
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.parts.redis_server import free_port

PHOENIX: Final = Path(__file__).parents[2] / ".venv-phoenix" / "bin" / "phoenix"
START_SECONDS: Final = 300.0
SPAN_SECONDS: Final = 60.0


class NoPhoenix(Exception):  # noqa: N818 - what is missing
    """It is not installed here. The text says how to have it."""


@dataclass(frozen=True, slots=True)
class Phoenix:
    """A running one: OTLP/HTTP and pages at `url`."""

    url: str

    async def spans(self, trace_id: str, count: int) -> dict[str, dict[str, Any]]:
        """The spans of a trace by their names, as soon as there are so many. Raises TimeoutError."""
        async with aiohttp.ClientSession() as session, asyncio.timeout(SPAN_SECONDS):
            while True:
                found = [span for span in await self._all(session) if span["context"]["trace_id"] == trace_id]
                if len(found) >= count:
                    return {span["name"]: span for span in found}
                await asyncio.sleep(0.2)

    async def with_attribute(self, name: str, value: str) -> list[dict[str, Any]]:
        """Those that have this attribute, as a person filters them."""
        async with aiohttp.ClientSession() as session:
            return await self._all(session, attribute=f"{name}:{value}")

    async def _all(self, session: aiohttp.ClientSession, **wanted: str) -> list[dict[str, Any]]:
        async with session.get(f"{self.url}/v1/projects/default/spans", params={"limit": "1000", **wanted}) as answer:
            if answer.status == 404:
                return []  # no project before the first span
            assert answer.status == 200, await answer.text()
            data: list[dict[str, Any]] = (await answer.json())["data"]
            return data


@contextmanager
def running_phoenix(folder: Path) -> Iterator[Phoenix]:
    """Ready to take spans. Raises NoPhoenix, and RuntimeError with its log's end where it does not start."""
    if not PHOENIX.exists():
        raise NoPhoenix("no Arize Phoenix, so no real backend took a span; install it: make phoenix")
    port, log = free_port(), folder / "phoenix.log"
    variables = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    with log.open("wb") as output:
        running = subprocess.Popen(
            [PHOENIX, "serve"], env={**os.environ, **variables}, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
        try:
            _until_ready(running, f"http://127.0.0.1:{port}", log)
            yield Phoenix(f"http://127.0.0.1:{port}")
        finally:
            running.terminate()
            with suppress(subprocess.TimeoutExpired):
                running.wait(20)
            running.kill()
            running.wait()


def _until_ready(running: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError), urllib.request.urlopen(url, timeout=5):
            return
        if running.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Phoenix did not start:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.5)
