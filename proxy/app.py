"""From settings to a gate that serves: every part of one worker, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from importlib.metadata import version
from typing import Final

import structlog

from config.settings import Settings
from observability.audit.start import start_audit, start_export
from observability.history.told import Ended
from observability.lag import follow_lag
from observability.logs import Logs
from observability.metrics import Metrics
from observability.recorder import Observer, Recorder
from observability.shares import shares
from observability.telemetry import Telemetry
from proxy.accounting import Accounting
from proxy.admission import Admissions
from proxy.answers import refusal_headers
from proxy.assurance.engines import Engines
from proxy.capacity.shares import Share
from proxy.configured import (
    capacity,
    client_addresses,
    configured_engine,
    connections,
    face,
    image_tls,
    isolation_rules,
    key_ring,
    policy,
)
from proxy.directory.connect import open_store, removal_policy
from proxy.directory.redis_history import RedisHistory
from proxy.directory.remembered import RememberedScopes
from proxy.directory.view import DirectoryView
from proxy.entrance import Entrance
from proxy.entry import Entries
from proxy.fetching.fetcher import Fetcher
from proxy.fetching.lookup import SystemLookup
from proxy.gate import Gate
from proxy.gateway import Gateway
from proxy.inquiries import open_inquiries
from proxy.isolation.narrowing import Rule, Unseen
from proxy.isolation.remembered import RememberedSalts
from proxy.reception import Reception, open_desk, open_reception, public_url
from proxy.refusals import Refusal
from proxy.relay.answer import answer_headers
from proxy.relay.crowd import Crowd
from proxy.relay.downstream import Front
from proxy.relay.relay import Relay
from proxy.scanner import Scanner
from proxy.states import Observed, tell_ready, tell_states
from proxy.tracing import tracing

VERSION: Final = version("saltgate")
EXPORT_STOP_SECONDS: Final = 2.0
CANCEL_AGAIN_SECONDS: Final = 0.2
# What happened is told together with what happens in this time: less than a log line waits for its writing.
TELL_SECONDS: Final = 0.01

_log = structlog.get_logger("saltgate.gate")


@asynccontextmanager
async def open_gate(
    settings: Settings, *, instance: str, logs: Logs, share: Share | None = None, also: Sequence[Observer] = ()
) -> AsyncIterator[Gate]:
    """A gate with everything that it needs, for as long as the context is open. `share` is its worker's, by default the
    whole. `also` are told of its requests, too, after all others.

    It opens also while issuers, directory or engines are away: then it is not ready, and heals by itself. Where a part
    breaks for good, the body is cancelled and the fault raised: the worker ends and its supervisor starts another.
    """
    telemetry = Telemetry.start(
        settings.telemetry, instance=instance, version=VERSION, engines=settings.engines, monotonic=time.monotonic
    )
    export = start_export(settings, instance=instance, version=VERSION, monotonic=time.monotonic)
    rules = isolation_rules(settings)
    metrics = Metrics(
        version=VERSION,
        drops={"spans": telemetry.dropped, "logs": logs.dropped}
        | ({} if export is None else {"audit": export.dropped}),
        traced=telemetry.keeps,
        rules=(*(rule.name for rule in rules), *(reason.value for reason in Unseen)) if rules else (),
    )
    share = share or Share()
    ended = Ended()
    audit = start_audit(
        settings,
        instance=instance,
        version=VERSION,
        slots=share.of(settings.capacity.requests),
        wall_ns=time.time_ns,
        export=export,
    )
    recorder = Recorder(
        (metrics, logs, telemetry, ended, *(() if audit is None else (audit,)), *also),
        monotonic_ns=time.monotonic_ns,
        wall_ns=time.time_ns,
        shares=shares(settings.telemetry),
        user_hash_key=None if settings.telemetry.user_hash_key is None else settings.telemetry.user_hash_key.value,
        url_scheme=public_url(settings).partition(":")[0],
        later=partial(asyncio.get_running_loop().call_later, TELL_SECONDS),
    )
    keys = key_ring(settings)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, telemetry.stop)
        if export is not None:
            stack.push_async_callback(asyncio.to_thread, export.stop, EXPORT_STOP_SECONDS)
        if audit is not None:
            stack.push_async_callback(asyncio.to_thread, audit.close)
        stack.callback(recorder.tell)
        store = open_store(settings.directory, removal_policy(settings.isolation))
        stack.push_async_callback(store.close)
        view = DirectoryView(store, max_stale=settings.directory.max_stale)
        reception = await stack.enter_async_context(open_reception(settings, view))
        engines = Engines(
            [configured_engine(engine, settings.timeouts) for engine in settings.engines],
            keys.keys[settings.isolation.keys[0].id],
            Observed(metrics),
        )
        stack.callback(engines.close)
        accounting = Accounting(audit)
        gateway = stack.enter_context(
            _open_gateway(settings, share, reception, view, engines, accounting, rules, metrics)
        )
        entrance = Entrance(
            gateway=gateway,
            desk=await stack.enter_async_context(open_desk(settings, reception, view, store, accounting)),
            recorder=recorder,
            face=face(settings),
            certificates=gateway.policy.certificates,
            request_seconds=settings.timeouts.request,
            addresses=client_addresses(settings) if settings.telemetry.client_address else None,
        )
        crowd = connections(settings, share)
        gate = Gate(
            front=_front(entrance, recorder, crowd, settings),
            entrance=entrance,
            gateway=gateway,
            reception=reception,
            view=view,
            engines=engines,
            inquiries=await stack.enter_async_context(open_inquiries(settings, reception.callers, view)),
            kept=_kept_history(settings, stack),
            _metrics=metrics,
            _ended=ended,
        )
        endless = [view.follow(), engines.follow(), reception.personal.tell_uses(), tell_states(gate)]
        endless += [tell_ready(gate.waits_for), follow_lag(metrics.loop_lag)]
        if settings.streams_end_on_revoke:
            endless.append(gateway.follow_revocations())
        await stack.enter_async_context(_running(*endless))
        yield gate


def _kept_history(settings: Settings, stack: AsyncExitStack) -> RedisHistory | None:
    if not settings.history.redis:
        return None
    kept = RedisHistory(settings.directory)
    stack.push_async_callback(kept.close)
    return kept


@contextmanager
def _open_gateway(
    settings: Settings,
    share: Share,
    reception: Reception,
    view: DirectoryView,
    engines: Engines,
    accounting: Accounting,
    rules: Sequence[Rule],
    metrics: Metrics,
) -> Iterator[Gateway]:
    """The way of those who ask for a model, with the threads and connections that only it needs."""
    with ExitStack() as stack:
        scanner = Scanner(rules, limit_bytes=settings.isolation.scan_limit)
        stack.callback(scanner.close)
        lookup = SystemLookup()
        stack.callback(lookup.close)
        images = Fetcher(lookup, seconds=settings.timeouts.media, tls=image_tls(settings.engines))
        stack.callback(images.close)
        own = policy(settings)
        admissions = Admissions(
            identities=reception.callers,
            warrants=reception.issuers,
            directory=view,
            scopes=RememberedScopes(own.scope),
            certificates=own.certificates,
            wall_clock=time.time,
        )
        places = capacity(settings, share)
        yield Gateway(
            admissions=admissions,
            entries=Entries(admissions=admissions, rules=scanner, engines=engines, capacity=places),
            salts=RememberedSalts(key_ring(settings)),
            engines=engines,
            images=images,
            accounting=accounting,
            relay=Relay(violated=metrics.isolation_violation, ejected=metrics.engine_ejection),
            policy=own,
            wall_clock=time.time,
            tracing=tracing(settings),
        )


def _front(entrance: Entrance, recorder: Recorder, crowd: Crowd, settings: Settings) -> Front:
    url = public_url(settings)

    def failed(refusal: Refusal, error: BaseException | None) -> bytes:
        """The record of what never became a request. A failed handler has left its own record already."""
        if refusal.status == 500:
            _log.error("gate.failed", exc_info=error)
            return b"Content-Type: application/json\r\n"
        with recorder.request(method="_OTHER", route=None) as record:
            record.refused(refusal.code, refusal.status, refusal.reason)
        return b"Content-Type: application/json\r\n" + answer_headers(record) + refusal_headers(refusal, url)

    return Front(
        entrance.handle,
        failed,
        request_seconds=settings.timeouts.request,
        stall_seconds=settings.timeouts.stall,
        half_close=settings.timeouts.half_close,
        crowd=crowd,
        write_buffer_bytes=settings.public.write_buffer,
        pace=entrance.pace,
    )


@asynccontextmanager
async def _running(*endless: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """They run as long as the gate is open and are ended with it; one that fails ends the gate."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in endless]
        try:
            yield
        finally:
            await _end(tasks)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel until it has worked: on Python 3.11 `asyncio.wait_for`, under which redis-py writes, can lose one."""
    pending: Collection[asyncio.Task[None]] = tasks
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
