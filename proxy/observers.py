"""Who is told of each request, as the settings have it: opened before a gate serves, and closed when nothing more can
happen in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Final

from config.settings import Settings
from observability.audit.audit import Audit
from observability.audit.export import LogExport
from observability.audit.start import start_audit, start_export
from observability.history.told import Ended
from observability.logs import Logs
from observability.metrics import Metrics
from observability.recorder import Observer, Recorder
from observability.shares import shares
from observability.telemetry import Telemetry
from proxy.isolation.narrowing import Rule, Unseen
from proxy.reception import public_url

VERSION: Final = version("saltgate")
EXPORT_STOP_SECONDS: Final = 2.0
# What happened is told together with what happens in this time: less than a log line waits for its writing.
TELL_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Observers:
    """`recorder` tells all of them. `audit` is None where the settings keep none."""

    recorder: Recorder
    metrics: Metrics
    ended: Ended
    audit: Audit | None


@asynccontextmanager
async def open_observers(
    settings: Settings, *, instance: str, logs: Logs, slots: int, rules: Sequence[Rule], also: Sequence[Observer] = ()
) -> AsyncIterator[Observers]:
    """`slots` is how many requests may be open at once. `rules` are counted. `also` are told last.

    At its end the last things are told, before any of them is closed.
    """
    async with AsyncExitStack() as stack:
        telemetry = Telemetry.start(
            settings.telemetry, instance=instance, version=VERSION, engines=settings.engines, monotonic=time.monotonic
        )
        stack.push_async_callback(asyncio.to_thread, telemetry.stop)
        export = start_export(settings, instance=instance, version=VERSION, monotonic=time.monotonic)
        if export is not None:
            stack.push_async_callback(asyncio.to_thread, export.stop, EXPORT_STOP_SECONDS)
        audit = start_audit(
            settings, instance=instance, version=VERSION, slots=slots, wall_ns=time.time_ns, export=export
        )
        if audit is not None:
            stack.push_async_callback(asyncio.to_thread, audit.close)
        metrics = _metrics(telemetry, logs, export, rules)
        ended = Ended()
        recorder = _recorder(settings, (metrics, logs, telemetry, ended, *(() if audit is None else (audit,)), *also))
        stack.callback(recorder.tell)
        yield Observers(recorder, metrics, ended, audit)


def _metrics(telemetry: Telemetry, logs: Logs, export: LogExport | None, rules: Sequence[Rule]) -> Metrics:
    """They also count what the others had to drop."""
    drops = {"spans": telemetry.dropped, "logs": logs.dropped}
    if export is not None:
        drops["audit"] = export.dropped
    named = (*(rule.name for rule in rules), *(reason.value for reason in Unseen)) if rules else ()
    return Metrics(version=VERSION, drops=drops, traced=telemetry.keeps, rules=named)


def _recorder(settings: Settings, observers: Sequence[Observer]) -> Recorder:
    key = settings.telemetry.user_hash_key
    return Recorder(
        observers,
        monotonic_ns=time.monotonic_ns,
        wall_ns=time.time_ns,
        shares=shares(settings.telemetry),
        user_hash_key=None if key is None else key.value,
        url_scheme=public_url(settings).partition(":")[0],
        later=partial(asyncio.get_running_loop().call_later, TELL_SECONDS),
    )
