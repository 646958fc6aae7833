"""Metrics by OTLP beside the scrape: all of them, once an interval, as sums that grow. What a collector did not take is
in the next export, so nothing is kept for it; and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Final

import structlog

from config.secret import Secret
from config.settings import ClientCertificate
from observability import families
from observability.exposition import States
from observability.names import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION
from observability.otlp import Collector, collector_at
from observability.otlp_metrics import exports
from observability.totals import Totals
from proxy.plan import OtlpPlan

PATH: Final = "/v1/metrics"
LAST_SECONDS: Final = 2.0
"""For the export of what was counted until the end."""
LOOK_SECONDS: Final = 1.0

_log = structlog.get_logger("saltgate.telemetry")


@dataclass(frozen=True, slots=True)
class _Place:
    """A collector, and how it is to be served."""

    plan: OtlpPlan
    collector: Collector


class Exports:
    """`states` brings the totals up to now and tells how things are. `wall_clock` is Unix seconds.

    One export is over before the next begins, however long a collector takes.
    """

    def __init__(
        self, totals: Totals, states: Callable[[], Awaitable[States]], *, wall_clock: Callable[[], float]
    ) -> None:
        self._totals = totals
        self._states = states
        self._wall_clock = wall_clock
        self._instance = f"{socket.gethostname()}-{os.getpid()}"
        self._place: _Place | None = None

    def follow(self, plan: OtlpPlan | None) -> None:
        """From now on they go there; None: nowhere. What the plan names by files is read anew."""
        names_files = plan is not None and (plan.ca is not None or plan.certificate is not None)
        if not names_files and plan == (None if self._place is None else self._place.plan):
            return
        self._place = None
        if plan is not None:
            self._totals.count(families.TELEMETRY_DROPPED, "metrics", times=0)
            try:
                self._place = _Place(plan, _collector(plan))
            except (OSError, ValueError) as error:
                _log.error("telemetry.metrics_not_exported", why=str(error))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """As long as the context is open; at its end comes what was counted until then."""
        exporting = asyncio.get_running_loop().create_task(self._run())
        try:
            yield
        finally:
            exporting.cancel()
            await asyncio.wait((exporting,))
            await self._export_last()

    async def _run(self) -> None:
        while True:
            place = self._place
            await asyncio.sleep(LOOK_SECONDS if place is None else place.plan.interval_seconds)
            if place is not None and place is self._place:
                await self._export(place)

    async def _export(self, place: _Place) -> None:
        """All of it. After the first message that is not taken whole, the rest is not tried."""
        states, now = await self._states(), self._wall_clock()
        for message, points in exports(self._totals, states, self._resource(place), now=now):
            if await _in_thread(partial(place.collector.post, PATH, message, points)) < points:
                self._totals.count(families.TELEMETRY_DROPPED, "metrics")
                return

    async def _export_last(self) -> None:
        place = self._place
        if place is None:
            return
        place.collector.stopping.set()  # nothing is tried again
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._export(place)

    def _resource(self, place: _Place) -> dict[str, str]:
        return {
            SERVICE_NAME: place.plan.service_name,
            SERVICE_INSTANCE_ID: self._instance,
            SERVICE_VERSION: version("saltgate"),
        }


def _collector(plan: OtlpPlan) -> Collector:
    """Raises as `collector_at`."""
    ca = None if plan.ca is None else Path(plan.ca)
    shown = None
    if plan.certificate is not None and plan.key is not None:
        key = Secret(plan.key, "telemetry.otlp_client_cert.key")
        shown = ClientCertificate(certificate=Path(plan.certificate), key=key)
    return collector_at(plan.endpoint, plan.headers, ca, shown, time.monotonic)


async def _in_thread(work: Callable[[], int]) -> int:
    """In a thread that no end of the process waits for, as it would for the loop's own."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[int] = loop.create_future()

    def run() -> None:
        result = work()
        with contextlib.suppress(RuntimeError):  # the loop is over, and nobody waits any more
            loop.call_soon_threadsafe(_settle, done, result)

    Thread(target=run, name="saltgate-metrics", daemon=True).start()
    return await done


def _settle(done: asyncio.Future[int], result: int) -> None:
    if not done.done():
        done.set_result(result)
