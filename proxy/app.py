"""From settings to a gate that serves: every part of one worker, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Final

import structlog

from config.settings import Settings
from observability.lag import follow_lag
from observability.logs import Logs
from observability.metrics import Metrics
from observability.recorder import Observer
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
from proxy.isolation.narrowing import Rule
from proxy.isolation.remembered import RememberedSalts
from proxy.observers import open_observers
from proxy.reception import Reception, open_desk, open_reception, public_url
from proxy.refusals import Refusal
from proxy.relay.answer import answer_headers
from proxy.relay.crowd import Crowd
from proxy.relay.front import Front
from proxy.relay.relay import Relay
from proxy.scanner import Scanner
from proxy.states import Observed, tell_ready, tell_states
from proxy.tracing import tracing

CANCEL_AGAIN_SECONDS: Final = 0.2

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
    share = share or Share()
    rules = isolation_rules(settings)
    async with AsyncExitStack() as stack:
        slots = share.of(settings.capacity.requests)
        observers = await stack.enter_async_context(
            open_observers(settings, instance=instance, logs=logs, slots=slots, rules=rules, also=also)
        )
        store = open_store(settings.directory, removal_policy(settings.isolation))
        stack.push_async_callback(store.close)
        view = DirectoryView(store, max_stale=settings.directory.max_stale)
        reception = await stack.enter_async_context(open_reception(settings, view))
        engines = Engines(
            [configured_engine(engine, settings.timeouts) for engine in settings.engines],
            key_ring(settings).keys[settings.isolation.keys[0].id],
            Observed(observers.metrics),
        )
        stack.callback(engines.close)
        accounting = Accounting(observers.audit)
        gateway = stack.enter_context(
            _open_gateway(settings, share, reception, view, engines, accounting, rules, observers.metrics)
        )
        entrance = Entrance(
            gateway=gateway,
            desk=await stack.enter_async_context(open_desk(settings, reception, view, store, accounting)),
            recorder=observers.recorder,
            face=face(settings),
            certificates=gateway.policy.certificates,
            request_seconds=settings.timeouts.request,
            addresses=client_addresses(settings) if settings.telemetry.client_address else None,
        )
        gate = Gate(
            front=_front(entrance, connections(settings, share), settings),
            entrance=entrance,
            gateway=gateway,
            reception=reception,
            view=view,
            engines=engines,
            inquiries=await stack.enter_async_context(open_inquiries(settings, reception.callers, view)),
            kept=_kept_history(settings, stack),
            _metrics=observers.metrics,
            _ended=observers.ended,
        )
        await stack.enter_async_context(_running(*_endless(settings, gate, observers.metrics)))
        yield gate


def _endless(settings: Settings, gate: Gate, metrics: Metrics) -> Iterator[Coroutine[None, None, None]]:
    """What goes on as long as the gate is open."""
    yield gate.view.follow()
    yield gate.engines.follow()
    yield gate.reception.personal.tell_uses()
    yield tell_states(gate)
    yield tell_ready(gate.waits_for)
    yield follow_lag(metrics.loop_lag)
    if settings.streams_end_on_revoke:
        yield gate.gateway.follow_revocations()


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


def _front(entrance: Entrance, crowd: Crowd, settings: Settings) -> Front:
    url = public_url(settings)

    def failed(refusal: Refusal, error: BaseException | None) -> bytes:
        """The record of what never became a request. A failed handler has left its own record already."""
        if refusal.status == 500:
            _log.error("gate.failed", exc_info=error)
            return b"Content-Type: application/json\r\n"
        with entrance.recorder.request(method="_OTHER", route=None) as record:
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
