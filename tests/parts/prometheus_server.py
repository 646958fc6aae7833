"""Debian's Prometheus of a test's own, on a free port of loopback, with the configuration that it is given.

async with PrometheusServer(folder, configuration) as prometheus:
    samples = await prometheus.query("up")
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml

from tests.parts.redis_server import free_port

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """One series' value."""

    labels: dict[str, str]
    value: float


class PrometheusServer:
    """Needs `prometheus` on the path: without it, tests fail and say what installs it."""

    def __init__(self, folder: Path, configuration: Json) -> None:
        self.port = free_port()
        self.folder = folder
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))

    async def __aenter__(self) -> Self:
        found = shutil.which("prometheus")
        if found is None:
            raise RuntimeError("prometheus is missing: sh .ci/prometheus (Debian's package prometheus)")
        with (self.folder / "prometheus.log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                found,
                f"--config.file={self.folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={self.folder / 'series'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--enable-feature=exemplar-storage",
                stdout=log,
                stderr=log,
            )
        self._session = aiohttp.ClientSession(f"http://127.0.0.1:{self.port}")
        await self._until_ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def ask(self, path: str, **parameters: str) -> Any:
        """`data` of an answer of the HTTP API. Raises AssertionError with what it says is wrong."""
        async with self._session.get(f"/api/v1/{path}", params=parameters) as answer:
            document = await answer.json()
        assert document["status"] == "success", (parameters, document)
        return document["data"]

    async def query(self, expr: str) -> list[Sample]:
        """The expression's value now."""
        data = await self.ask("query", query=expr)
        if data["resultType"] == "scalar":
            return [Sample({}, float(data["result"][1]))]
        return [Sample(one["metric"], float(one["value"][1])) for one in data["result"]]

    async def until(self, expr: str, seconds: float = 180.0) -> list[Sample]:
        """The expression's value, as soon as it has one."""
        async with asyncio.timeout(seconds):
            while not (samples := await self.query(expr)):
                await asyncio.sleep(0.2)
        return samples

    async def alerts(self) -> list[Json]:
        """The alerts that are pending or firing."""
        found: list[Json] = (await self.ask("alerts"))["alerts"]
        return found

    async def until_alerts(self, wanted: Callable[[set[str]], bool], seconds: float = 180.0) -> list[Json]:
        """The alerts that fire, as soon as their names are as wanted."""
        firing: list[Json] = []
        try:
            async with asyncio.timeout(seconds):
                while True:
                    firing = [one for one in await self.alerts() if one["state"] == "firing"]
                    if wanted({one["labels"]["alertname"] for one in firing}):
                        return firing
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(firing) from None

    async def _until_ready(self, seconds: float = 120.0) -> None:
        async with asyncio.timeout(seconds):
            while not await self._is_ready():
                if self._process.returncode is not None:
                    raise RuntimeError((self.folder / "prometheus.log").read_text())
                await asyncio.sleep(0.05)

    async def _is_ready(self) -> bool:
        try:
            async with self._session.get("/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False
